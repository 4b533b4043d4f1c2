"""The trainer on a bench, with the real record and a learner that only waits."""

import errno
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from actors.actor import Actor, Sender, Stop, receives
from actors.future import Future
from actors.testing import InMemorySystem
from dart.config.config import Config
from dart.core import messages as m
from dart.core.records import Batch
from dart.core.types import RolloutLease, Trajectory
from dart.store.actor import StoreActor
from dart.store.blobs import STEPS, BlobStore, FolderBlobs
from dart.store.checkpoints import list_checkpoints, version_of
from dart.store.errors import BlobMissing, StepsLost
from dart.store.reader import StoreReader
from dart.store.run_blobs import local_blobs
from dart.store.run_checkpoints import LocalCheckpoints
from dart.store.serialization import pack_steps
from dart.store.store import Store
from dart.telemetry.board_gauges import Gauge
from dart.telemetry.events import BATCH_REFUSED, VERSION_SET_ASIDE
from dart.telemetry.load_meter import LOAD
from dart.testing.trajectories import trajectory_for
from dart.training.actor import BatchTaken, CommittedMeanwhile, TrainedAhead, TrainerActor
from dart.training.batch_errors import MAX_REFUSED_IN_A_ROW, MAX_TRIES, NonFiniteUpdate
from dart.training.distributed_learner import RankDied
from dart.training.simulated_learner import SimulatedLearner
from dart.training.update_report import BATCH_FIGURES, UpdateReport

CONFIG = Config().model_dump(mode="json") | {
    "training": Config().training.model_dump(mode="json") | {"learner": "simulated"},
    "simulation": Config().simulation.model_dump(mode="json") | {"update_base_s": 0.0, "update_each_s": 0.0},
}


class OneBatchCurator(Actor):
    """Hands out one lease, then says that the run is over."""

    def on_start(self) -> None:
        self.answers: list[Any] = []
        self.ahead: list[m.BatchAhead] = []
        """What is named while a checkpoint is written; after these, nothing is."""
        self.wanted: list[tuple[int, ...]] = []
        """Groups that the trainer wanted leased, because it has trained on them."""
        self.committed: list[int] = []

    @receives(m.BatchRequest)
    def batch(self, call: m.BatchRequest, sender: Sender) -> Any:
        if call.group_ids:
            self.wanted.append(call.group_ids)
        answer = self.answers.pop(0)
        return answer() if callable(answer) else answer

    @receives(m.BatchAheadRequest)
    def batch_ahead(self, call: m.BatchAheadRequest, sender: Sender) -> Any:
        return self.ahead.pop(0) if self.ahead else m.NoWorkYet(retry_after_s=9.0, reason="nothing ahead")

    @receives(m.UpdateCommitted)
    def update_committed(self, call: m.UpdateCommitted, sender: Sender) -> None:
        self.committed.append(call.version)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySystem]:
    """What the trainer gives to a thread is done at once, so that no test waits for one."""

    def at_once(self: Actor, work: Callable[[], Any], **_: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.succeed(work())
        except Exception as error:
            done.fail(error)
        return done

    monkeypatch.setattr(TrainerActor, "in_thread", at_once)
    with InMemorySystem(tmp_path) as found:
        yield found


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    """A leased batch of one complete group with spread, in a record of its own."""
    with Store(tmp_path / "store.db") as store:
        store.add_version()
        return complete_batch(store)


def complete_batch(store: Store) -> Batch:
    return store.lease_batch((complete_group(store),), 1e12)


def complete_group(store: Store) -> int:
    group_id = store.open_group("click-test", 7, 2, 10, 0)
    for reward in (1.0, 0.0):
        lease = store.lease_rollout(group_id, "env-000", 1e12)
        store.finish_rollout(lease.rollout_id, lease.fence, played(lease, reward))
    return group_id


def played(lease: RolloutLease, reward: float) -> Trajectory:
    """With steps that are those of no other rollout."""
    trajectory = trajectory_for(lease, reward)
    steps = tuple(replace(step, act_ms=float(lease.rollout_id)) for step in trajectory.steps)
    return replace(trajectory, steps=steps)


def reassigned(tmp_path: Path, batch: Batch) -> Batch:
    with Store(tmp_path / "store.db") as store:
        return store.reassign_batch(batch.batch_id, 1e12)


def started(bench: InMemorySystem, tmp_path: Path, *answers: Any) -> OneBatchCurator:
    """Store, curator with these answers, and a trainer that was given the first of them."""
    args = {"store": str(tmp_path / "store.db"), "config": CONFIG}
    bench.start(StoreActor, "store", args)
    curator = bench.start(OneBatchCurator, "curator")
    curator.answers = list(answers)
    bench.start(TrainerActor, "trainer", args)
    return curator


def test_an_update_is_committed_under_its_lease_and_then_told(
    bench: InMemorySystem, tmp_path: Path, batch: Batch
) -> None:
    curator = started(bench, tmp_path, batch, m.RunOver())
    bench.settle()
    assert curator.committed == [1]
    with StoreReader(tmp_path / "store.db") as store:
        newest = store.latest_version()
        books = store.conservation()
    assert newest is not None
    assert newest.version == 1
    assert newest.metrics["staleness_p95"] == 0.0
    assert newest.metrics["staleness_bound"] == Config().curation.staleness
    assert newest.metrics.keys() <= {field.name for field in fields(UpdateReport)} | BATCH_FIGURES.keys()
    assert (books.trained, books.holds) == (2, True)
    assert newest.metrics["trajectories"] == 2.0
    assert not bench.is_alive("trainer"), "it asks again when the version is committed, and no later"


class SlowEngine(Actor):
    """Loads version 1, or serves it, for ever."""

    def on_start(self) -> None:
        self.set_gauges({Gauge(self.args["gauge"]): 1})


@pytest.mark.parametrize("gauge", [Gauge.LOADING_VERSION, Gauge.SERVED_VERSION])
def test_a_checkpoint_that_an_engine_loads_or_serves_is_not_pruned(
    bench: InMemorySystem, tmp_path: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch, gauge: Gauge
) -> None:
    monkeypatch.setitem(CONFIG, "training", CONFIG["training"] | {"checkpoints_kept": 1})
    bench.start(SlowEngine, "rollout-0", {"gauge": gauge.value})
    wait = m.NoWorkYet(retry_after_s=1.0, reason="no batch yet")
    curator = started(bench, tmp_path, batch, wait)
    bench.settle()
    for _ in range(2):
        with Store(tmp_path / "store.db") as store:
            curator.answers += [complete_batch(store), wait]
        bench.advance(1.0)
    assert curator.committed == [1, 2, 3]
    assert [version_of(folder) for folder in list_checkpoints(tmp_path / "checkpoints")] == [1, 3]


def test_an_update_of_an_older_lease_is_dropped_and_the_next_trainer_starts_from_the_record(
    bench: InMemorySystem, tmp_path: Path, batch: Batch
) -> None:
    newer = reassigned(tmp_path, batch)
    curator = started(bench, tmp_path, batch)
    with pytest.raises(BatchTaken, match=rf"batch {batch.batch_id} \(lease 1\) is dropped"):
        bench.settle()
    assert (tmp_path / "checkpoints" / "v000001").is_dir()

    curator.answers = [newer, m.RunOver()]
    args = {"store": str(tmp_path / "store.db"), "config": CONFIG}
    bench.start(TrainerActor, "trainer", args)
    bench.settle()
    assert curator.committed == [1]
    with StoreReader(tmp_path / "store.db") as store:
        assert [version.version for version in store.versions()] == [0, 1]
        assert store.conservation().trained == 2
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["v000001"]


def test_a_trainer_that_loaded_its_version_before_a_late_commit_ends_and_leaves_that_version_in_place(
    bench: InMemorySystem, tmp_path: Path, batch: Batch
) -> None:
    """The store takes the commit of an earlier trainer between the start of this one and its first lease."""
    earlier = SimulatedLearner(Config().simulation, wait=lambda _: None)
    earlier.version = 1
    folder = earlier.copy()(tmp_path / "checkpoints")
    leases: list[Batch] = []

    def leased_after_a_late_commit() -> Batch:
        with Store(tmp_path / "store.db") as store:
            store.commit_update(batch.batch_id, batch.fence, 1, {})
            leases.append(complete_batch(store))
        return leases[0]

    curator = started(bench, tmp_path, leased_after_a_late_commit)
    with pytest.raises(CommittedMeanwhile, match="loaded version 0, and then the record took version 1"):
        bench.settle()
    assert list_checkpoints(tmp_path / "checkpoints") == [folder]

    curator.answers = [reassigned(tmp_path, leases[0]), m.RunOver()]
    bench.start(TrainerActor, "trainer", {"store": str(tmp_path / "store.db"), "config": CONFIG})
    bench.settle()
    assert curator.committed == [2]
    with StoreReader(tmp_path / "store.db") as store:
        assert (store.conservation().trained, store.conservation().holds) == (4, True)


def test_each_version_that_an_earlier_trainer_published_without_a_commit_is_an_event(
    bench: InMemorySystem, tmp_path: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalCheckpoints, "set_aside_uncommitted", lambda self, committed: [committed + 1])
    monkeypatch.setattr(LocalCheckpoints, "place_of_uncommitted", lambda self, version: f"list of {version}")
    started(bench, tmp_path, batch, m.RunOver())
    bench.settle()
    with StoreReader(tmp_path / "store.db") as store:
        (aside,) = store.find_events(kinds=[VERSION_SET_ASIDE])
    data = {"version": 1, "committed": 0, "place": "list of 1"}
    assert (aside.subject, aside.data) == ("trainer", data)


def test_a_commit_waits_for_a_store_that_is_started_again(
    bench: InMemorySystem, tmp_path: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_update(monkeypatch, lambda version: bench.kill("store"))
    curator = started(bench, tmp_path, batch, m.RunOver())
    bench.settle()
    bench.advance(5.0)
    assert (curator.committed, bench.is_alive("trainer")) == ([], True)
    bench.start(StoreActor, "store", {"store": str(tmp_path / "store.db"), "config": CONFIG})
    bench.advance(1.0)
    assert curator.committed == [1]
    with StoreReader(tmp_path / "store.db") as store:
        assert (store.conservation().trained, store.conservation().holds) == (2, True)


def test_a_trainer_that_begins_before_its_curator_waits_for_it(
    bench: InMemorySystem, tmp_path: Path, batch: Batch
) -> None:
    args = {"store": str(tmp_path / "store.db"), "config": CONFIG}
    bench.start(StoreActor, "store", args)
    bench.start(TrainerActor, "trainer", args)
    bench.settle()
    curator = bench.start(OneBatchCurator, "curator")
    curator.answers = [batch, m.RunOver()]
    bench.advance(1.0)
    assert curator.committed == [1]


def test_a_step_that_is_older_than_the_staleness_bound_is_never_trained(
    bench: InMemorySystem, tmp_path: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the curator leases: its steps are all of version 0."""
    monkeypatch.setitem(CONFIG, "curation", CONFIG["curation"] | {"staleness": 1})
    batches = iter([batch])

    def next_batch() -> Batch:
        return next(batches, None) or another_batch(tmp_path)

    curator = started(bench, tmp_path, *[next_batch] * 3)
    with pytest.raises(AssertionError, match=r"a step that is 2 versions old; curation\.staleness allows 1"):
        bench.settle()
    assert curator.committed == [1, 2]


class Synchronizer(Actor):
    """Notes each version that it is told, with what the board and the record show then."""

    def on_start(self) -> None:
        self.told: list[tuple[int, int, int]] = []

    @receives(m.VersionPublished)
    def published(self, call: m.VersionPublished, sender: Sender) -> None:
        self.told.append((call.version, *shown(self, self.identity.run_dir)))


def shown(actor: Actor, run_dir: Path) -> tuple[int, int]:
    """The trained version on the board, and the newest version in the record."""
    slot = actor.board.find("trainer")
    assert slot is not None
    with StoreReader(run_dir / "store.db") as store:
        newest = store.latest_version()
    assert newest is not None
    return actor.board.vitals(slot).gauges[Gauge.TRAINED_VERSION], newest.version


def test_a_version_is_published_then_committed_then_shown_then_told(
    bench: InMemorySystem, tmp_path: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight_sync = bench.start(Synchronizer, "weight_sync")
    published: list[tuple[int, int, int]] = []

    def publish(self: LocalCheckpoints, version: int, folder: Path) -> None:
        assert folder.is_dir()
        published.append((version, *shown(weight_sync, tmp_path)))

    monkeypatch.setattr(LocalCheckpoints, "publish", publish)
    started(bench, tmp_path, batch, m.RunOver())
    bench.settle()
    assert (published, weight_sync.told) == ([(1, 0, 0)], [(1, 1, 1)])


def test_a_trainer_tells_how_long_it_starved(bench: InMemorySystem, tmp_path: Path, batch: Batch) -> None:
    waits = [m.NoWorkYet(retry_after_s=1.0, reason="nothing is ready")] * 9
    started(bench, tmp_path, *waits)
    bench.advance(5.5)
    bench.settle()
    with StoreReader(tmp_path / "store.db") as store:
        told = store.newest_event(LOAD)
    assert told is not None
    assert (told.subject, told.data["starved_s"], told.data["wall_s"]) == ("trainer", 5.0, 5.0)


def test_a_full_disk_makes_the_checkpoint_wait_and_the_update_is_not_lost(
    bench: InMemorySystem, tmp_path: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = full_for(monkeypatch, tries=2)
    curator = started(bench, tmp_path, batch, m.RunOver())
    bench.advance(0.5)
    assert (curator.committed, len(refusals), is_ready(bench)) == ([], 1, False)
    bench.advance(1.0)
    assert (curator.committed, len(refusals), is_ready(bench)) == ([], 0, False)
    curator.answers = [m.NoWorkYet(retry_after_s=60.0, reason="no batch yet")]
    bench.advance(1.0)
    assert (curator.committed, is_ready(bench)) == ([1], True)


def is_ready(bench: InMemorySystem) -> bool:
    """As the board shows it."""
    slot = bench.board.find("trainer")
    assert slot is not None
    return bench.board.vitals(slot).ready


def full_for(monkeypatch: pytest.MonkeyPatch, tries: int) -> list[OSError]:
    """Have the disk refuse the first writes of a checkpoint; returns the refusals that are left."""
    refusals = [OSError(errno.ENOSPC, "No space left on device")] * tries
    write = SimulatedLearner._write_files

    def refused(self: SimulatedLearner, folder: Path, version: int) -> None:
        if refusals:
            raise refusals.pop()
        write(self, folder, version)

    monkeypatch.setattr(SimulatedLearner, "_write_files", refused)
    return refusals


def on_update(monkeypatch: pytest.MonkeyPatch, act: Callable[[int], None]) -> None:
    """Do something at the end of each update, with the version that it made."""
    update = SimulatedLearner.update

    def and_act(self: SimulatedLearner, groups: Any, screenshots: BlobStore) -> Any:
        report = update(self, groups, screenshots)
        act(self.version)
        return report

    monkeypatch.setattr(SimulatedLearner, "update", and_act)


def lease(tmp_path: Path, *group_ids: int) -> Batch:
    with Store(tmp_path / "store.db") as store:
        return store.lease_batch(group_ids, 1e12)


def test_the_next_update_is_made_while_a_version_is_written_and_committed_after_it(
    bench: InMemorySystem, tmp_path: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(tmp_path / "store.db") as store:
        following = complete_group(store)
    in_record: list[tuple[int, int]] = []
    """Each version when its update ended, and the newest version in the record then."""

    def note(version: int) -> None:
        with StoreReader(tmp_path / "store.db") as store:
            newest = store.latest_version()
        assert newest is not None
        in_record.append((version, newest.version))

    on_update(monkeypatch, note)
    weight_sync = bench.start(Synchronizer, "weight_sync")
    curator = started(bench, tmp_path, batch, lambda: lease(tmp_path, following), m.RunOver())
    curator.ahead = [m.BatchAhead(group_ids=(following,))]
    full_for(monkeypatch, tries=1)
    bench.settle()
    assert in_record == [(1, 0), (2, 0)]
    assert (curator.wanted, curator.committed) == ([], [])
    bench.advance(1.0)
    assert curator.wanted == [(following,)]
    assert curator.committed == [1, 2]
    assert weight_sync.told == [(1, 1, 1), (2, 2, 2)], "the board shows no version before its commit"
    with StoreReader(tmp_path / "store.db") as store:
        assert store.conservation().trained == 4
    assert [version_of(folder) for folder in list_checkpoints(tmp_path / "checkpoints")] == [1, 2]


def test_an_update_on_groups_that_are_not_leased_afterwards_is_dropped_and_the_trainer_restarts(
    bench: InMemorySystem, tmp_path: Path, batch: Batch
) -> None:
    with Store(tmp_path / "store.db") as store:
        named, leased = (complete_group(store) for _ in range(2))
    curator = started(bench, tmp_path, batch, lambda: lease(tmp_path, leased), m.RunOver())
    curator.ahead = [m.BatchAhead(group_ids=(named,))]
    with pytest.raises(TrainedAhead, match="restarts from the record"):
        bench.settle()
    assert curator.committed == [1]
    with StoreReader(tmp_path / "store.db") as store:
        assert (store.conservation().trained, store.conservation().holds) == (2, True)


def test_a_lease_for_what_was_trained_ahead_is_asked_for_until_it_is_granted(
    bench: InMemorySystem, tmp_path: Path, batch: Batch
) -> None:
    with Store(tmp_path / "store.db") as store:
        following = complete_group(store)
    wait = m.NoWorkYet(retry_after_s=1.0, reason="the curator is busy")
    curator = started(bench, tmp_path, batch, wait, lambda: lease(tmp_path, following), m.RunOver())
    curator.ahead = [m.BatchAhead(group_ids=(following,))]
    bench.settle()
    assert (curator.wanted, curator.committed) == ([(following,)], [1])
    bench.advance(1.0)
    assert (curator.wanted, curator.committed) == ([(following,)] * 2, [1, 2])


@pytest.mark.parametrize("is_refused", [False, True])
def test_what_was_trained_ahead_is_dropped_if_the_run_is_over_before_its_lease(
    bench: InMemorySystem, tmp_path: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    with Store(tmp_path / "store.db") as store:
        following = complete_group(store)

    def end(version: int) -> None:
        if is_refused and version == 2:
            raise BlobMissing("0" * 64, "screenshot 0 is missing")

    on_update(monkeypatch, end)
    curator = started(bench, tmp_path, batch, m.RunOver(), m.RunOver())
    curator.ahead = [m.BatchAhead(group_ids=(following,))]
    bench.settle()
    assert (curator.wanted, curator.committed, bench.is_alive("trainer")) == ([(following,)], [1], False)
    with StoreReader(tmp_path / "store.db") as store:
        assert (store.conservation().trained, store.conservation().holds) == (2, True)
        assert (store.open_batch(), store.newest_event(BATCH_REFUSED)) == (None, None)
    assert [version_of(folder) for folder in list_checkpoints(tmp_path / "checkpoints")] == [1]


def test_a_batch_that_was_trained_on_ahead_is_refused_under_its_lease(
    bench: InMemorySystem, tmp_path: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(tmp_path / "store.db") as store:
        following = complete_group(store)

    def refuse(version: int) -> None:
        if version == 2:
            raise BlobMissing("0" * 64, "screenshot 0 is missing")

    on_update(monkeypatch, refuse)
    curator = started(bench, tmp_path, batch, lambda: lease(tmp_path, following), m.RunOver())
    curator.ahead = [m.BatchAhead(group_ids=(following,))]
    bench.settle()
    assert curator.committed == [1]
    with StoreReader(tmp_path / "store.db") as store:
        assert (store.open_batch(), store.totals().drops) == (None, {"damaged_screenshot": 2})


def test_a_batch_that_lost_very_many_steps_is_refused_with_the_beginning_of_its_reason(
    bench: InMemorySystem, tmp_path: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = [BlobMissing(f"{number:064d}", "x" * 249) for number in range(400)]

    def lost(self: StoreReader, group_ids: Any) -> Any:
        raise StepsLost(batch.group_ids, (), missing)

    monkeypatch.setattr(StoreReader, "groups_to_trajectories", lost)
    started(bench, tmp_path, batch, m.RunOver())
    bench.settle()
    with StoreReader(tmp_path / "store.db") as store:
        assert (store.open_batch(), store.totals().drops) == (None, {"damaged_steps": 2})
        (refused,) = store.find_events(kinds=[BATCH_REFUSED], limit=1)
    assert refused.data["detail"] == ("x" * 249 + "; ") * 15 + "x" * 235


def test_a_trainer_that_waits_for_its_checkpoint_trains_on_nothing_ahead(
    bench: InMemorySystem, tmp_path: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = CONFIG["training"] | {"background_checkpoints": False}
    monkeypatch.setitem(CONFIG, "training", waiting)
    curator = started(bench, tmp_path, batch, m.RunOver())
    curator.ahead = [m.BatchAhead(group_ids=(99,))]
    bench.settle()
    assert (curator.committed, len(curator.ahead)) == ([1], 1)


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception, times: int) -> list[int]:
    """The first updates end with an error; returns the versions on which one was tried."""
    tried: list[int] = []
    update = SimulatedLearner.update

    def refused(self: SimulatedLearner, groups: Any, screenshots: BlobStore) -> Any:
        tried.append(self.version)
        if len(tried) <= times:
            raise error
        return update(self, groups, screenshots)

    monkeypatch.setattr(SimulatedLearner, "update", refused)
    return tried


def test_a_dead_rank_that_had_no_shared_memory_is_no_full_disk(
    bench: InMemorySystem, tmp_path: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "ranks.log"
    log.write_text("NCCL error: creating /dev/shm/nccl-1: No space left on device (28)\n")
    tried = failing(monkeypatch, RankDied(1, log, 0), times=1)
    started(bench, tmp_path, batch, m.RunOver())
    with pytest.raises(RankDied, match="No space left on device"):
        bench.settle()
    assert tried == [0]


@pytest.mark.parametrize(
    ("error", "tries", "reason"),
    [
        (BlobMissing("0" * 64, "screenshot 0 is missing"), 1, "damaged_screenshot"),
        (NonFiniteUpdate("loss", float("nan"), 0), MAX_TRIES, "not_finite"),
    ],
)
def test_a_batch_that_cannot_be_trained_is_given_back_and_the_run_goes_on(
    bench: InMemorySystem,
    tmp_path: Path,
    batch: Batch,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    tries: int,
    reason: str,
) -> None:
    tried = failing(monkeypatch, error, times=tries)
    started(bench, tmp_path, batch, m.RunOver())
    bench.settle()
    assert len(tried) == tries
    with StoreReader(tmp_path / "store.db") as store:
        assert store.open_batch() is None
        assert store.totals().drops == {reason: 2}
        told = store.newest_event(BATCH_REFUSED)
        assert store.integrity(0) == ()
    assert told is not None
    assert (told.data["groups"], told.data["detail"]) == (str(batch.group_ids[0]), str(error))


def test_an_update_that_is_finite_the_second_time_is_kept(
    bench: InMemorySystem, tmp_path: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, NonFiniteUpdate("loss", float("nan"), 0), times=1)
    curator = started(bench, tmp_path, batch, m.RunOver())
    bench.settle()
    assert curator.committed == [1]


def test_one_group_that_is_not_finite_is_dropped_and_the_others_of_its_batch_are_trained(
    bench: InMemorySystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(tmp_path / "store.db") as store:
        store.add_version()
        bad, good = (complete_group(store) for _ in range(2))
        batch = store.lease_batch((bad, good), 1e12)
        step = store.groups_to_trajectories((bad,))[0].trajectories[1].steps[0]
    failing(monkeypatch, NonFiniteUpdate("loss", float("nan"), 0, (step,)), times=1)
    wait = m.NoWorkYet(retry_after_s=1.0, reason="no batch yet")
    curator = started(bench, tmp_path, batch, wait, wait)
    bench.settle()
    with Store(tmp_path / "store.db") as store:
        curator.answers = [store.lease_batch((good,), 1e12), m.RunOver()]
    bench.advance(1.0)
    assert curator.committed == [1]
    with StoreReader(tmp_path / "store.db") as store:
        books = store.conservation()
        assert (books.trained, books.dropped, books.holds) == (2, 2, True)
        assert store.totals().drops == {"not_finite": 2}


@pytest.mark.parametrize("is_missing", [True, False])
def test_a_group_whose_steps_are_lost_is_dropped_and_the_others_of_its_batch_are_trained(
    bench: InMemorySystem, tmp_path: Path, is_missing: bool
) -> None:
    with Store(tmp_path / "store.db") as store:
        store.add_version()
        bad, good = (complete_group(store) for _ in range(2))
        batch = store.lease_batch((bad, good), 1e12)
        lost = pack_steps(store.groups_to_trajectories((bad,))[0].trajectories[1].steps)
    blobs = FolderBlobs(tmp_path / "blobs" / STEPS.folder, STEPS)
    path = blobs.path(blobs.held(lost))
    path.unlink() if is_missing else path.write_bytes(b"damaged")
    wait = m.NoWorkYet(retry_after_s=1.0, reason="no batch yet")
    curator = started(bench, tmp_path, batch, wait, wait)
    bench.settle()
    with Store(tmp_path / "store.db") as store:
        told = store.newest_event(BATCH_REFUSED)
        curator.answers = [store.lease_batch((good,), 1e12), m.RunOver()]
    assert told is not None
    assert told.data["groups"] == str(bad)
    assert str(path) in told.data["detail"]
    bench.advance(1.0)
    assert curator.committed == [1]
    with StoreReader(tmp_path / "store.db") as store:
        assert store.totals().drops == {"damaged_steps": 2}


def test_single_groups_that_are_not_finite_do_not_end_training_however_many(
    bench: InMemorySystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(tmp_path / "store.db") as store:
        store.add_version()
        batch = batch_with_one_bad_group(store)
    trained_on = SimulatedLearner.update

    def refused(self: SimulatedLearner, groups: Any, screenshots: BlobStore) -> Any:
        raise NonFiniteUpdate("loss", float("nan"), 0, groups[0].trajectories[0].steps)

    monkeypatch.setattr(SimulatedLearner, "update", refused)
    wait = m.NoWorkYet(retry_after_s=1.0, reason="no batch yet")
    curator = started(bench, tmp_path, batch, wait, wait)
    bench.settle()
    for _ in range(MAX_REFUSED_IN_A_ROW + 1):
        with Store(tmp_path / "store.db") as store:
            curator.answers = [batch_with_one_bad_group(store), wait, wait]
        bench.advance(1.0)
    monkeypatch.setattr(SimulatedLearner, "update", trained_on)
    curator.answers = [another_batch(tmp_path), m.RunOver()]
    bench.advance(1.0)
    assert curator.committed == [1]


def batch_with_one_bad_group(store: Store) -> Batch:
    """Two groups; the tests blame the first."""
    return store.lease_batch((complete_group(store), complete_group(store)), 1e12)


def test_a_policy_that_makes_every_batch_not_finite_ends_training(
    bench: InMemorySystem, tmp_path: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, NonFiniteUpdate("loss", float("nan"), 0), times=1000)
    wait = m.NoWorkYet(retry_after_s=1.0, reason="no batch yet")
    curator = started(bench, tmp_path, batch, wait, wait)
    for _ in range(MAX_REFUSED_IN_A_ROW - 1):
        bench.settle()
        curator.answers = [another_batch(tmp_path), wait, wait]
        bench.advance(1.0)
    bench.settle()
    curator.answers = [another_batch(tmp_path)]
    with pytest.raises(NonFiniteUpdate):
        bench.advance(1.0)
    with StoreReader(tmp_path / "store.db") as store:
        assert store.open_batch() is not None
        assert store.totals().drops == {"not_finite": 2 * MAX_REFUSED_IN_A_ROW}


def test_a_batch_that_can_be_trained_ends_a_row_of_those_that_cannot(
    bench: InMemorySystem, tmp_path: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = m.NoWorkYet(retry_after_s=1.0, reason="no batch yet")
    curator = started(bench, tmp_path, wait)
    bench.settle()
    row = [False] * MAX_REFUSED_IN_A_ROW
    for number, is_finite in enumerate([*row, True, *row]):
        with monkeypatch.context() as patched:
            if not is_finite:
                failing(patched, NonFiniteUpdate("loss", float("nan"), 0), times=1000)
            curator.answers = [another_batch(tmp_path) if number else batch, wait, wait]
            bench.advance(1.0)
    assert (curator.committed, bench.is_alive("trainer")) == ([1], True)


def another_batch(tmp_path: Path) -> Batch:
    with Store(tmp_path / "store.db") as store:
        return complete_batch(store)


def test_an_update_that_is_being_made_is_committed_before_a_trainer_stops(
    bench: InMemorySystem, tmp_path: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once, held = TrainerActor.in_thread, Future[Any]()
    monkeypatch.setattr(TrainerActor, "in_thread", lambda self, work, **named: held)
    curator = started(bench, tmp_path, batch)
    bench.settle()
    bench.tell("trainer", Stop())
    bench.settle()
    assert bench.is_alive("trainer")

    monkeypatch.setattr(TrainerActor, "in_thread", at_once)
    trainer = bench.actor("trainer")
    with StoreReader(tmp_path / "store.db") as store:
        groups = store.groups_to_trajectories(batch.group_ids)
    held.succeed(trainer._learner.update(groups, local_blobs(tmp_path).screenshots))
    bench.settle()

    assert curator.committed == [1]
    assert not bench.is_alive("trainer")
