"""What is told of an update is what the record says of it, whenever it is read."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from dart.config.config import Config, load_config
from dart.core.records import Version
from dart.store.browse_queries import RunBrowser
from dart.store.store import Store
from dart.telemetry.load_meter import LOAD
from dart.testing.trajectories import trajectory_for
from dart.tracking import follower
from dart.tracking.follower import Position, TrackingFollower
from dart.tracking.writers import Point

FIGURES = {"loss": 0.25, "staleness_mean": 1.5}


class Notes:
    """A writer that keeps what it is given; what was not flushed is lost with its process."""

    def __init__(self) -> None:
        self.written: list[int] = []
        self.kept: list[int] = []

    def write(self, one: Point) -> None:
        self.written.append(one.version)

    def flush(self) -> None:
        self.kept += self.written
        self.written = []

    def close(self) -> None:
        self.flush()


class World:
    """A record that grows, and a clock moved by hand."""

    def __init__(self, folder: Path) -> None:
        self.now_s = self.began_s = 1000.0
        """The time, and when the actors began that run now."""
        self.path = folder / "store.db"
        self.store = Store(self.path, clock=lambda: self.now_s)
        self.store.add_version()
        self.position = folder / "position.json"
        self.readers = ExitStack()
        self.config: Config = load_config(None, ["telemetry.load_every_s=5.0", "environments.count=1"])

    def update(self, rewards: tuple[float, float] = (0.0, 1.0)) -> None:
        """One group, and the update that trains it, five seconds later."""
        self.now_s += 5.0
        group = self.store.open_group("t", 1, 2, 4, 0)
        for reward in rewards:
            lease = self.store.lease_rollout(group, "env-000", self.now_s + 60.0)
            self.store.finish_rollout(lease.rollout_id, lease.fence, trajectory_for(lease, reward))
        self.now_s += 5.0
        wall_s = self.now_s - self.began_s
        self.store.record_event(LOAD, "env-000", {"wall_s": wall_s, "in_episode_s": wall_s / 2})
        self.store.record_event(LOAD, "rollout-0", {"wall_s": wall_s, "busy_s": wall_s / 10})
        self.store.record_event(LOAD, "trainer", {"wall_s": wall_s, "update_s": wall_s / 4})
        newest = self.store.latest_version()
        assert newest is not None
        batch = self.store.lease_batch([group], self.now_s + 60.0)
        self.store.commit_update(batch.batch_id, batch.fence, newest.version + 1, FIGURES)

    def follower(self, **writers: Notes) -> TrackingFollower:
        """As one that was just started."""
        browser = self.readers.enter_context(RunBrowser(self.path))
        return TrackingFollower(browser, self.config, writers, Position(self.position), lambda: self.now_s)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    with world.store, world.readers:
        yield world


def test_an_update_is_written_once_its_load_was_told_or_the_run_is_over(world: World) -> None:
    notes = Notes()
    following = world.follower(notes=notes)
    world.update()

    assert (following.catch_up(), notes.kept) == (0, [])
    world.now_s += 11.0
    assert (following.catch_up(), notes.kept) == (1, [1])
    world.update()
    assert following.catch_up(is_over=True) == 1
    assert following.catch_up(is_over=True) == 0
    assert notes.kept == [1, 2]


def test_whoever_is_started_again_goes_on_and_doubles_nothing(world: World) -> None:
    notes = Notes()
    for _ in range(3):
        world.update()
        world.follower(notes=notes).catch_up(is_over=True)
        world.follower(notes=notes).catch_up(is_over=True)

    assert notes.kept == [1, 2, 3]


def test_a_writer_that_comes_later_gets_all_and_the_others_nothing_twice(world: World) -> None:
    early, late = Notes(), Notes()
    for _ in range(4):
        world.update()
    world.follower(early=early).catch_up(is_over=True)
    world.update()

    world.follower(early=early, late=late).catch_up(is_over=True)

    assert (early.kept, late.kept) == ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5])
    assert world.follower(early=early).catch_up(is_over=True) == 0


def test_many_updates_are_written_a_few_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "AT_ONCE", 3)
    notes = Notes()
    for _ in range(7):
        world.update()

    assert world.follower(notes=notes).catch_up(is_over=True) == 7
    assert notes.kept == [1, 2, 3, 4, 5, 6, 7]


def points_of(world: World) -> list[Point]:
    points: list[Point] = []
    notes = Notes()
    notes.write = points.append  # type: ignore[method-assign]
    world.follower(notes=notes).catch_up(is_over=True)
    return points


def test_the_points_are_what_the_record_says(world: World) -> None:
    for _ in range(2):
        world.update()

    assert points_of(world)[1].figures == {
        "update/loss": 0.25,
        "staleness/mean": 1.5,
        "curve/success": 0.5,
        "utilisation/environments": pytest.approx(0.5),
        "utilisation/engines": pytest.approx(0.1),
        "utilisation/trainer": pytest.approx(0.25),
        "throughput/episodes_per_minute": 12.0,
        "throughput/steps_per_minute": 24.0,
    }


def test_success_is_that_of_the_episodes_up_to_the_update_whenever_it_is_read(world: World) -> None:
    world.update(rewards=(0.0, 0.5))
    world.update(rewards=(1.0, 1.0))

    assert [point.figures["curve/success"] for point in points_of(world)] == [0.0, 0.5]


@pytest.mark.parametrize("age_s", [3000.0, 3 * 3600.0, 2 * 86_400.0])
def test_a_writer_that_comes_after_load_was_thinned_gets_no_idle_run(world: World, age_s: float) -> None:
    for _ in range(120):
        world.update()
    world.now_s += age_s
    assert world.store.thin_events().deleted

    busy = [point.figures["utilisation/environments"] for point in points_of(world)]

    assert busy == [pytest.approx(0.5)] * 120


def test_the_time_in_which_a_run_was_stopped_does_not_count(world: World) -> None:
    world.update()
    world.now_s += 3600.0
    world.began_s = world.now_s
    world.update()

    before, after = points_of(world)

    assert after.figures == pytest.approx(before.figures)


def test_what_cannot_be_known_is_left_out(world: World) -> None:
    """An update that took no time, of a run that has played nothing."""
    before, version = (Version(version=number, metrics=FIGURES, created_unix_s=1000.0) for number in (0, 1))

    told = world.follower(notes=Notes())._point(before, version)

    assert told.figures == {"update/loss": 0.25, "staleness/mean": 1.5}


def test_a_run_keeps_its_name_with_the_services_also_before_its_first_update(tmp_path: Path) -> None:
    first, again = (Position(tmp_path / "position.json").run_id for _ in range(2))
    assert first == again


def test_a_run_keeps_its_name_with_the_services(tmp_path: Path) -> None:
    first = Position(tmp_path / "position.json")
    first.keep({"wandb": 3})

    again = Position(tmp_path / "position.json")

    assert (again.run_id, again.of("wandb"), again.of("tensorboard")) == (first.run_id, 3, 0)
    assert json.loads((tmp_path / "position.json").read_text())["versions"] == {"wandb": 3}


@pytest.mark.parametrize(
    "text", ["", '{"versions": {"a"', "[]", '{"versions": [1]}', '{"versions": {"a": "1"}}']
)
def test_a_position_that_cannot_be_read_is_that_of_writers_that_have_nothing(
    tmp_path: Path, text: str
) -> None:
    file = tmp_path / "position.json"
    file.write_text(text)

    with capture_logs() as logs:
        position = Position(file)

    assert position.of("a") == 0
    assert [(line["event"], line["path"]) for line in logs] == [("position_forgotten", str(file))]
    position.keep({"a": 3})
    assert Position(file).of("a") == 3


@pytest.mark.parametrize(("newest", "known"), [(40, 40), (20, 0)])
def test_after_an_older_record_was_put_back_all_updates_are_written_again(
    tmp_path: Path, newest: int, known: int
) -> None:
    before = Position(tmp_path / "position.json")
    before.keep({"wandb": 40})

    with capture_logs() as logs:
        position = Position(tmp_path / "position.json", newest)

    assert position.of("wandb") == known
    assert (position.run_id == before.run_id) is (known == 40)
    assert ["the record ends at version 20" in line["reason"] for line in logs] == [True] * (known == 0)
