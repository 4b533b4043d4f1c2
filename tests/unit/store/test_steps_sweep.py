"""Steps are stored, then reported: what is never reported goes, and nothing that is needed does."""

import errno
import hashlib
import itertools
import os
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from actors.codec import MAX_MESSAGE_BYTES
from actors.testing import InMemorySystem
from dart.config.config import Config
from dart.core import messages as m
from dart.core.record_address import RecordAddress
from dart.store.actor import StoreActor
from dart.store.blobs import READERS, SHARDS, FolderBlobs
from dart.store.errors import StoreConflict, StoreUnavailable
from dart.store.event_retention import EVERY_S
from dart.store.run_blobs import local_blobs
from dart.store.serialization import pack_steps
from dart.store.steps_sweep import SPARED_S, SWEEP_S, deletes_before_unix_s, sweep
from dart.store.store import Store
from dart.testing.trajectories import EVALUATION, evaluation_play, step_at, trajectory_for
from tests.record_places import RecordPlaces

NOW_UNIX_S = 1_000_000.0
LEASE_S = 120.0

LONG = tuple(
    replace(
        step_at(3, number),
        prompt_ids=tuple(range(14_000)),
        token_ids=tuple(range(150)),
        logprobs=(-1.0 / 3.0,) * 150,
        entropies=(1.0 / 7.0,) * 150,
    )
    for number in range(30)
)
"""An episode of a 7 B policy on a desktop."""


def steps_of(folder: Path) -> FolderBlobs:
    found = local_blobs(folder).steps
    assert isinstance(found, FolderBlobs)
    return found


def aged(blobs: FolderBlobs, content: bytes, put_unix_s: float) -> str:
    """Store a blob as if at that moment."""
    sha256 = blobs.put(content)
    os.utime(blobs.path(sha256), (put_unix_s, put_unix_s))
    return sha256


def start_store(bench: InMemorySystem, address: RecordAddress) -> None:
    """Start the actor that owns the record at this address, with the default configuration."""
    args = {"store": str(address), "config": Config().model_dump(mode="json")}
    bench.start(StoreActor, "store", args=args)


def contents_of(shard: int, count: int) -> list[bytes]:
    """Contents whose blobs are in one shard."""
    all_contents = (f"{number}".encode() for number in itertools.count())
    fitting = (one for one in all_contents if hashlib.sha256(one).digest()[0] == shard)
    return list(itertools.islice(fitting, count))


def swept(store: Store) -> int:
    """Blobs that a whole round deletes."""
    return sum(store.sweep_steps(shard, LEASE_S) for shard in range(SHARDS))


def test_an_episode_that_is_more_than_a_message_holds_is_stored_as_it_was_sampled(
    places: RecordPlaces, tmp_path: Path
) -> None:
    packed = pack_steps(LONG)
    assert len(packed) > 10 * MAX_MESSAGE_BYTES
    with Store(places.empty(), steps=steps_of(tmp_path)) as store:
        assert store.steps(steps_of(tmp_path).put(packed)) == LONG


def test_a_report_of_steps_that_are_not_stored_whole_is_refused_by_name(
    places: RecordPlaces, tmp_path: Path
) -> None:
    with Store(places.empty(), steps=steps_of(tmp_path)) as store:
        lease = store.lease_rollout(store.open_group("click-test", 7, 2, 10, 0), "env-000", 60.0)
        blobs = steps_of(tmp_path)
        sha256 = blobs.put(pack_steps((step_at(0),)))
        finish = m.FinishRollout(
            rollout_id=1, fence=1, trajectory=replace(trajectory_for(lease), steps=()), steps_sha256=sha256
        )
        blobs.path(sha256).write_bytes(b"torn")
        with pytest.raises(StoreConflict, match=f"{sha256}.steps has 4 bytes with sha256"):
            store.write(finish)
        blobs.delete(sha256)
        with pytest.raises(StoreConflict, match=f"{sha256}.steps is missing.*before you report them"):
            store.write(finish)
        assert store.conservation().leased == 1


@pytest.mark.parametrize(
    ("deadline_unix_s", "before_unix_s"),
    [
        (None, NOW_UNIX_S - SPARED_S),
        (NOW_UNIX_S + LEASE_S, NOW_UNIX_S - SPARED_S),
        (NOW_UNIX_S - 5000.0, NOW_UNIX_S - 5000.0 - LEASE_S - SPARED_S),
        (NOW_UNIX_S + 10 * LEASE_S, NOW_UNIX_S - SPARED_S),
    ],
)
def test_nothing_is_deleted_that_was_stored_under_a_lease_that_is_held(
    deadline_unix_s: float | None, before_unix_s: float
) -> None:
    assert deletes_before_unix_s(NOW_UNIX_S, deadline_unix_s, LEASE_S) == before_unix_s


def test_what_a_row_names_stays_and_what_no_row_names_goes_when_it_is_old(
    places: RecordPlaces, tmp_path: Path
) -> None:
    blobs = steps_of(tmp_path)
    with Store(places.empty(), clock=lambda: NOW_UNIX_S, steps=blobs) as store:
        group_id = store.open_group("click-test", 7, 3, 10, 0)
        leases = [store.lease_rollout(group_id, "env-000", NOW_UNIX_S + LEASE_S) for _ in range(2)]
        store.finish_rollout(1, 1, trajectory_for(leases[0]))
        store.park_rollout(2, 1, [step_at(0, 5)], "it stops", 8)
        evaluated = evaluation_play(steps_sha256=blobs.put(pack_steps((step_at(0, 7),))))
        store.record_evaluation(EVALUATION, evaluated)
        for path in blobs.root.glob("*/*.steps"):
            os.utime(path, (1.0, 1.0))
        orphan = aged(blobs, b"of a killed environment", NOW_UNIX_S - SPARED_S - 1.0)
        young = aged(blobs, b"on its way", NOW_UNIX_S - SPARED_S + 1.0)
        assert swept(store) == 1
        assert not blobs.exists(orphan)
        assert blobs.exists(young)
        (group,) = store.groups_to_trajectories([group_id])
        assert [len(one.steps) for one in group.trajectories] == [2]
        assert len(store.parked_steps(2)) == 1
        assert len(store.steps(evaluated.steps_sha256)) == 1

        store.reassign_rollout(2, "env-001", NOW_UNIX_S + LEASE_S)
        store.forget_parked(2, 2, "it cannot be replayed")
        assert swept(store) == 1, "the steps of the parked episode, which has ended"


def test_a_blob_that_is_put_again_is_new(places: RecordPlaces, tmp_path: Path) -> None:
    blobs = steps_of(tmp_path)
    sha256 = aged(blobs, b"put before", 1.0)
    blobs.put(b"put before")
    with Store(places.empty(), steps=steps_of(tmp_path)) as store:
        assert swept(store) == 0
    assert blobs.exists(sha256)


def test_one_sweep_looks_at_one_shard_and_leaves_what_takes_too_long_for_the_next(tmp_path: Path) -> None:
    blobs = steps_of(tmp_path)
    names = [aged(blobs, content, 1.0) for content in contents_of(7, 2 * READERS + 1)]
    other = aged(blobs, contents_of(8, 1)[0], 1.0)
    times_s = iter([0.0, 0.0, SWEEP_S / 2, SWEEP_S])
    assert sweep(blobs, 7, 2.0, lambda old: old, lambda: next(times_s)) == 2 * READERS
    assert sum(map(blobs.exists, names)) == 1
    assert blobs.exists(other)
    assert sweep(blobs, 7, 2.0, lambda old: old) == 1


def test_more_blobs_than_a_question_to_the_record_may_name_are_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dart.store.steps_sweep.ASKED_AT_ONCE", 2)
    blobs = steps_of(tmp_path)
    for content in contents_of(7, 5):
        aged(blobs, content, 1.0)
    asked: list[int] = []

    def unnamed(sha256s: Collection[str]) -> Collection[str]:
        asked.append(len(sha256s))
        return sha256s

    assert sweep(blobs, 7, 2.0, unnamed) == 5
    assert asked == [2, 2, 1]


def test_what_a_row_named_goes_only_after_the_change_of_the_row_is_on_the_disk(
    places: RecordPlaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = steps_of(tmp_path)
    orphan = aged(blobs, b"of an episode that has ended", 1.0)
    with Store(places.empty(), steps=steps_of(tmp_path)) as store:
        stored_at_sync: list[bool] = []
        monkeypatch.setattr(store._database, "sync", lambda: stored_at_sync.append(blobs.exists(orphan)))
        assert store.sweep_steps(int(orphan[:2], 16), LEASE_S) == 1
    assert stored_at_sync == [True]


def test_the_store_answers_a_repeated_report_without_the_steps(places: RecordPlaces, tmp_path: Path) -> None:
    address = places.empty()
    with Store(address, steps=steps_of(tmp_path)) as store:
        store.add_version()
        lease = store.lease_rollout(store.open_group("click-test", 7, 2, 10, 0), "env-000", 60.0)
    sha256 = steps_of(tmp_path).put(pack_steps((step_at(0),)))
    finish = m.FinishRollout(
        rollout_id=1, fence=1, trajectory=replace(trajectory_for(lease), steps=()), steps_sha256=sha256
    )
    with InMemorySystem(tmp_path) as bench:
        start_store(bench, address)
        first = bench.ask("store", finish)
        bench.settle()
        assert first.result() == m.CallResult(value="accepted")
        steps_of(tmp_path).delete(sha256)
        again = bench.ask("store", finish)
        bench.settle()
        assert again.result() == m.CallResult(value="duplicate")


def test_the_store_actor_sweeps_every_shard_in_turn(
    places: RecordPlaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dart.store.actor.SHARDS", 2)
    address = places.empty()
    with Store(address, steps=steps_of(tmp_path)) as store:
        store.add_version()
    blobs = steps_of(tmp_path)
    in_two = {aged(blobs, contents_of(shard, 1)[0], 1.0) for shard in (0, 1)}
    in_third = aged(blobs, contents_of(2, 1)[0], 1.0)
    with InMemorySystem(tmp_path) as bench:
        start_store(bench, address)
        for _ in range(2):
            bench.advance(EVERY_S)
    assert not any(map(blobs.exists, in_two))
    assert blobs.exists(in_third)


def test_the_store_outlives_a_folder_of_steps_that_the_disk_does_not_list(
    places: RecordPlaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = places.empty()
    with Store(address, steps=steps_of(tmp_path)) as store:
        store.add_version()

    def listed(_: Path, pattern: str) -> Iterator[Path]:
        tried.append(pattern)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    tried: list[str] = []
    with InMemorySystem(tmp_path) as bench, monkeypatch.context() as failing:
        start_store(bench, address)
        failing.setattr(Path, "glob", listed)
        bench.advance(EVERY_S)
        assert tried == ["*.steps"]
        assert bench.is_alive("store")


def test_a_sweep_that_cannot_read_the_record_ends_the_store_and_deletes_nothing(
    places: RecordPlaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dart.store.actor.SHARDS", 1)
    address = places.empty()
    with Store(address, steps=steps_of(tmp_path)) as store:
        store.add_version()
    blobs = steps_of(tmp_path)
    orphan = aged(blobs, contents_of(0, 1)[0], 1.0)

    def damaged(*_: object) -> frozenset[str]:
        raise StoreUnavailable("store.db: it is damaged")

    with InMemorySystem(tmp_path) as bench:
        start_store(bench, address)
        with monkeypatch.context() as failing:
            failing.setattr(Store, "unnamed_steps", damaged)
            with pytest.raises(StoreUnavailable, match="it is damaged"):
                bench.advance(EVERY_S)
        bench.advance(EVERY_S)
        assert not bench.is_alive("store")
    assert blobs.exists(orphan)
