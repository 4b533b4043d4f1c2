"""Old screenshots go when nothing can train, replay or show them any more, and no others."""

import errno
import hashlib
import itertools
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from actors.testing import InMemorySystem
from dart.config.config import Config, load_config
from dart.core.run_directory import RunPaths
from dart.core.types import Demonstration
from dart.curation.stall_diagnosis import RunFacts
from dart.store.actor import StoreActor
from dart.store.blobs import READERS, SHARDS, FolderBlobs
from dart.store.errors import BlobMissing
from dart.store.event_retention import EVERY_S
from dart.store.integrity import check
from dart.store.run_blobs import RunBlobs, local_blobs
from dart.store.screenshot_sweep import LONGEST_S, ScreenshotsKept, ScreenshotSweeper
from dart.store.steps_sweep import SPARED_S
from dart.store.store import Store
from dart.testing.trajectories import EVALUATION, evaluation_play, step_at, trajectory_for
from tests.record_places import RecordPlaces

DAY_S = 86_400.0
KEPT_S = 14 * DAY_S
LEASE_S = 120.0
OPENED_UNIX_S = 1_000_000.0
LONG_AGO_UNIX_S = OPENED_UNIX_S + 60.0
NOW_UNIX_S = OPENED_UNIX_S + 15 * DAY_S


class Run:
    """A run with a record and blobs, whose clock the test sets."""

    def __init__(self, places: RecordPlaces, folder: Path) -> None:
        self.paths: RunPaths = places.run_in(folder)
        self.blobs: RunBlobs = local_blobs(folder)
        self.now_unix_s = OPENED_UNIX_S
        self.store = Store(self.paths.record, clock=lambda: self.now_unix_s, steps=self.blobs.steps)
        self.store.add_version()
        self.sweeper = ScreenshotSweeper(self.blobs)

    @property
    def screenshots(self) -> FolderBlobs:
        assert isinstance(self.blobs.screenshots, FolderBlobs)
        return self.blobs.screenshots

    def shown(self, content: bytes, put_unix_s: float = LONG_AGO_UNIX_S) -> str:
        """Store a screenshot as if at that moment."""
        sha256 = self.screenshots.put(content)
        os.utime(self.screenshots.path(sha256), (put_unix_s, put_unix_s))
        return sha256

    def played(self, *screenshots: str) -> int:
        """A group of two episodes that show these screenshots."""
        group_id = self.store.open_group("click-test", 7, 2, 10, 0)
        steps = tuple(replace(step_at(0, at), screenshot_sha256=one) for at, one in enumerate(screenshots))
        for reward in (0.0, 1.0):
            lease = self.store.lease_rollout(group_id, "env-000", self.now_unix_s + LEASE_S)
            trajectory = replace(trajectory_for(lease, reward), steps=steps)
            self.store.finish_rollout(lease.rollout_id, lease.fence, trajectory)
        return group_id

    def trained(self, *screenshots: str) -> None:
        version = len(self.store.versions())
        batch = self.store.lease_batch([self.played(*screenshots)], self.now_unix_s + LEASE_S)
        self.store.commit_update(batch.batch_id, batch.fence, version, {})

    def swept(self) -> int:
        """Screenshots that a whole round deletes."""
        kept = self.store.give_up_screenshots(KEPT_S, LEASE_S)
        return sum(self.sweeper.sweep(shard, kept) for shard in range(SHARDS))

    def findings(self) -> list[str]:
        """What is wrong with the data, checkpoints left out."""
        return [str(one) for one in check(self.paths, Config(), full=True, reads_checkpoints=False)]


@pytest.fixture
def run(places: RecordPlaces, tmp_path: Path) -> Iterator[Run]:
    run = Run(places, tmp_path)
    yield run
    run.store.close()


def test_old_screenshots_of_trained_and_dropped_groups_and_of_evaluations_go(run: Run) -> None:
    run.trained(run.shown(b"trained"))
    run.store.drop_group(run.played(run.shown(b"dropped")), "equal rewards")
    seen = replace(step_at(0), screenshot_sha256=run.shown(b"of an evaluation"))
    run.store.record_evaluation(EVALUATION, evaluation_play(steps_sha256=run.store._put_steps((seen,))))
    assert run.swept() == 0, "they are younger than 14 days"
    run.now_unix_s = NOW_UNIX_S
    assert run.swept() == 3
    assert run.swept() == 0
    assert run.findings() == [], "the record says which groups may lack screenshots"


def test_what_may_still_be_trained_or_played_keeps_its_old_screenshots(run: Run) -> None:
    shared, own = run.shown(b"shared"), run.shown(b"of the trained group alone")
    run.trained(shared, own)
    run.played(shared, run.shown(b"of a live group"))
    parked = run.store.lease_rollout(run.store.open_group("click-test", 8, 2, 10, 0), "env-000", 60.0)
    seen = replace(step_at(0), screenshot_sha256=run.shown(b"of a parked episode"))
    run.store.park_rollout(parked.rollout_id, 1, (seen,), "the run is stopped", 8)
    demonstrated = replace(step_at(0), screenshot_sha256=run.shown(b"of a demonstration"))
    run.store.add_demonstrations([demonstration_of(demonstrated.screenshot_sha256)])
    run.now_unix_s = NOW_UNIX_S
    assert run.swept() == 1
    assert not run.screenshots.exists(own)
    assert run.findings() == []

    (held,) = run.store.demonstrations()
    run.store.drop_demonstration(held.pool_id)
    assert run.swept() == 1, "the demonstration is out of use"


def contents_of(shard: int, count: int) -> list[bytes]:
    """Contents whose blobs are in one shard."""
    contents = (str(number).encode() for number in itertools.count())
    fitting = (one for one in contents if hashlib.sha256(one).digest()[0] == shard)
    return list(itertools.islice(fitting, count))


def demonstration_of(screenshot_sha256: str) -> Demonstration:
    return Demonstration(
        pool_id=0,
        task_id="click-test",
        seed=7,
        origin="oracle",
        instruction="click",
        reward=1.0,
        steps=(replace(step_at(0), screenshot_sha256=screenshot_sha256),),
    )


def test_a_picture_that_was_shown_again_is_as_young_as_its_last_step(run: Run) -> None:
    start = run.shown(b"the start screen of a task")
    run.trained(start)
    run.now_unix_s = NOW_UNIX_S
    run.trained(run.shown(b"the start screen of a task", NOW_UNIX_S - DAY_S))
    assert run.swept() == 0
    assert run.screenshots.exists(start)


def test_what_was_shown_under_a_lease_that_is_still_held_stays(run: Run) -> None:
    run.store.lease_rollout(run.store.open_group("click-test", 7, 2, 10, 0), "env-000", LONG_AGO_UNIX_S)
    shown = run.shown(b"of an episode on a machine that slept for weeks")
    run.now_unix_s = NOW_UNIX_S
    assert run.swept() == 0
    assert run.screenshots.exists(shown)


def test_a_younger_screenshot_that_is_gone_is_still_missed(run: Run) -> None:
    run.trained(run.shown(b"old"))
    run.now_unix_s = NOW_UNIX_S
    young = run.shown(b"young", NOW_UNIX_S)
    run.trained(young)
    assert run.swept() == 1
    run.screenshots.delete(young)
    run.store.give_up_screenshots(10 * KEPT_S, LEASE_S)
    assert run.store.screenshots_since_unix_s() == NOW_UNIX_S - KEPT_S + SPARED_S, "it never goes back"
    assert run.findings() == [f"screenshot {run.screenshots.place(young)}: is missing"]


def test_nothing_goes_while_steps_that_are_needed_cannot_be_read(run: Run) -> None:
    run.trained(run.shown(b"trained"))
    run.played(run.shown(b"live"))
    run.now_unix_s = NOW_UNIX_S
    (needed, *_) = run.store.give_up_screenshots(KEPT_S, LEASE_S).steps
    packed = run.blobs.steps.read(needed)
    run.blobs.steps.delete(needed)
    with pytest.raises(BlobMissing):
        run.swept()
    run.blobs.steps.put(packed)
    assert run.swept() == 1


def test_a_sweep_that_takes_too_long_leaves_the_rest_to_the_next_one(run: Run) -> None:
    in_seven = [run.shown(content) for content in contents_of(7, 2 * READERS + 1)]
    all_old = ScreenshotsKept(NOW_UNIX_S, steps=frozenset(), named=frozenset())
    began_s, listed_s = 100.0 * LONGEST_S, 110.0 * LONGEST_S
    times_s = iter([began_s, began_s, listed_s, listed_s, listed_s + LONGEST_S / 2, listed_s + LONGEST_S])
    sweeper = ScreenshotSweeper(run.blobs, lambda: next(times_s))
    assert sweeper.sweep(7, all_old) == 2 * READERS, "the time of the listing does not count"
    assert ScreenshotSweeper(run.blobs).sweep(7, all_old) == len(in_seven) - 2 * READERS


def test_nothing_goes_in_a_sweep_that_has_no_time_to_read_all_steps_that_are_needed(run: Run) -> None:
    live = run.shown(b"live")
    run.played(live)
    run.now_unix_s = NOW_UNIX_S
    kept = run.store.give_up_screenshots(KEPT_S, LEASE_S)
    times_s = itertools.chain([0.0], itertools.repeat(LONGEST_S))
    assert ScreenshotSweeper(run.blobs, lambda: next(times_s)).sweep(int(live[:2], 16), kept) == 0
    assert run.screenshots.exists(live)


def test_a_sweep_at_its_longest_is_not_taken_for_the_cause_of_a_stall() -> None:
    assert RunFacts(starved_after_s=Config().curation.starved_after_s).long_s > LONGEST_S


def test_damaged_steps_of_a_demonstration_stop_the_deletion_until_it_is_dropped(run: Run) -> None:
    run.trained(run.shown(b"trained"))
    run.store.add_demonstrations([demonstration_of(run.shown(b"of a demonstration"))])
    run.now_unix_s = NOW_UNIX_S
    (needed,) = run.store.give_up_screenshots(KEPT_S, LEASE_S).steps
    run.blobs.steps.delete(needed)
    with pytest.raises(BlobMissing):
        run.swept()
    assert any(run.blobs.steps.place(needed) in finding for finding in run.findings())
    (held,) = run.store.demonstrations()
    run.store.drop_demonstration(held.pool_id)
    assert run.swept() == 2


def test_the_store_outlives_a_folder_of_screenshots_that_the_disk_does_not_list(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def listed(_: Path, pattern: str) -> Iterator[Path]:
        if pattern == "*.png":
            tried.append(pattern)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return iter(())

    tried: list[str] = []
    monkeypatch.setattr(Path, "glob", listed)
    with InMemorySystem(tmp_path) as system:
        started(system, run, load_config(None, ["run.screenshots_kept_days=14"]))
        system.advance(EVERY_S)
        system.finish_work("store", lambda: not system.row("store").work)
        assert tried
        assert system.is_alive("store")


def test_the_store_outlives_a_sweep_that_hangs(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    resumed = Event()
    monkeypatch.setattr(ScreenshotSweeper, "sweep", lambda *_: resumed.wait())
    with InMemorySystem(tmp_path) as system:
        started(system, run, load_config(None, ["run.screenshots_kept_days=14"]))
        system.advance(12 * EVERY_S)
        assert system.is_alive("store")
        assert system.row("store").work == "screenshots"
        resumed.set()


def started(system: InMemorySystem, run: Run, config: Config) -> None:
    """Start the store actor of a run."""
    args = {"store": str(run.paths.record), "config": config.model_dump(mode="json")}
    system.start(StoreActor, "store", args=args)


@pytest.mark.parametrize(("days", "stays"), [(0, True), (14, False)])
def test_the_store_actor_deletes_old_screenshots_only_if_the_run_says_after_how_many_days(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, days: int, stays: bool
) -> None:
    monkeypatch.setattr("dart.store.actor.SHARDS", 1)
    (content,) = contents_of(0, 1)
    old = run.shown(content, put_unix_s=1.0)
    config = load_config(None, [f"run.screenshots_kept_days={days}"])
    with InMemorySystem(tmp_path) as system:
        started(system, run, config)
        system.advance(EVERY_S)
        system.finish_work("store", lambda: stays or not run.screenshots.exists(old))
    assert run.screenshots.exists(old) == stays
