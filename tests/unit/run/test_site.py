"""How long the actors of a run have to end by themselves, and whether they did."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from dart.config.config import load_config
from dart.core.errors import DiskError
from dart.core.run_directory import RunPaths
from dart.run import app
from dart.run.definition import RunDefinition
from dart.run.listener import RunListener
from dart.run.site import OTHERS_STOP_S, SHORTEST_STOP_S, OneMachine
from dart.run.tree import root_spec
from dart.store.errors import StoreBusy


@pytest.mark.parametrize(
    ("overrides", "longest_s"),
    [
        (["trainer.shutdown_s=300.0"], 300.0),
        (["environment_pool.shutdown_s=90.0", "trainer.shutdown_s=60.0"], 90.0),
        (["children.env-001.shutdown_s=120.0", "environment_pool.shutdown_s=60.0"], 120.0),
    ],
)
def test_a_drain_lasts_as_long_as_the_trainer_or_the_slowest_environment_may_take_and_25_s_more(
    overrides: list[str], longest_s: float
) -> None:
    config = load_config(None, ["environments.count=2", *(f"supervision.{one}" for one in overrides)])
    assert OneMachine().stop_deadline_s(config) == longest_s + OTHERS_STOP_S


def test_a_drain_has_45_s_however_short_the_shutdown_times_are() -> None:
    config = load_config(None, ["supervision.trainer.shutdown_s=0.0"])
    assert OneMachine().stop_deadline_s(config) == SHORTEST_STOP_S


class Listener(RunListener):
    """Keeps how long a drain may last."""

    def __init__(self) -> None:
        super().__init__()
        self.deadlines_s: list[float] = []
        self.away: list[str] = []

    def record_away(self, reason: str) -> None:
        self.away.append(reason)

    def stopping(self, number: int, deadline_s: float) -> None:
        self.deadlines_s.append(deadline_s)


def watch(
    system: Any,
    signals: Any,
    paths: RunPaths,
    definition: RunDefinition,
    listener: RunListener,
    show: Callable[[], None] = lambda: None,
) -> None:
    """Watch a run until it ends."""
    session: Any = SimpleNamespace(keep=lambda: None)
    app.watch(
        system,
        session,
        paths,
        signals,
        listener,
        show=show,
        stop=lambda: OneMachine().stop(system),
        stop_deadline_s=lambda: OneMachine().stop_deadline_s(definition.config),
        remedy=app.CONTINUE,
    )


def system_that_ends_after_one_look() -> Any:
    ends = iter([False, True])
    return SimpleNamespace(
        root=SimpleNamespace(name="root"),
        wait=lambda _: next(ends),
        root_beat_age_s=lambda: 0.0,
        tell=lambda to, content: True,
        stop=lambda: None,
        failure=lambda: "",
    )


def test_a_listener_hears_that_the_record_is_away(tmp_path: Path) -> None:
    definition = RunDefinition(config=load_config(), tree_of=lambda config: root_spec(config, {}))
    listener, system = Listener(), system_that_ends_after_one_look()
    signals: Any = SimpleNamespace(count=1, last=15, handle_hangup=lambda: None)
    show = Mock(side_effect=StoreBusy("its server does not answer"))

    watch(system, signals, RunPaths(tmp_path), definition, listener, show)

    assert listener.away == ["its server does not answer"]


def test_a_drain_honours_a_shutdown_time_that_was_reloaded(tmp_path: Path) -> None:
    definition = RunDefinition(config=load_config(), tree_of=lambda config: root_spec(config, {}))
    listener, system = Listener(), system_that_ends_after_one_look()

    def reload() -> None:
        definition.adopt(load_config(None, ["supervision.trainer.shutdown_s=300.0"]))

    signals: Any = SimpleNamespace(count=1, last=15, handle_hangup=reload)

    watch(system, signals, RunPaths(tmp_path), definition, listener)

    assert listener.deadlines_s == [300.0 + OTHERS_STOP_S]


def test_a_run_that_gave_up_is_not_drained_by_a_signal_that_comes_while_it_ends(
    tmp_path: Path,
) -> None:
    definition = RunDefinition(config=load_config(), tree_of=lambda config: root_spec(config, {}))
    why = "gave up: child 'store' failed once more (StoreUnavailable: the disk is full)"
    signals: Any = SimpleNamespace(count=0, last=0, handle_hangup=lambda: None)
    looks = iter(range(3))

    def wait(_: float) -> bool:
        look = next(looks)
        if look == 1:
            signals.count, signals.last = 1, 15
        return look == 2

    system: Any = SimpleNamespace(
        root=SimpleNamespace(name="root"),
        wait=wait,
        root_beat_age_s=lambda: 0.0,
        tell=lambda to, content: True,
        stop=lambda: None,
        verdict=lambda: why,
        failure=lambda: why,
    )

    with pytest.raises(DiskError, match="the disk is full"):
        watch(system, signals, RunPaths(tmp_path), definition, RunListener())


class Looks:
    """A system whose tree never ends by itself, and the signals that come before each look."""

    def __init__(self, *signals: int) -> None:
        self.count = self.last = self.stops = self.keeps = 0
        self._coming = list(signals)
        self.root = SimpleNamespace(name="root")

    def wait(self, _: float) -> bool:
        number = self._coming.pop(0)  # an IndexError if the run is still watched after the last look
        if number:
            self.count, self.last = self.count + 1, number
        return False

    def root_beat_age_s(self) -> float:
        return 0.0

    def failure(self) -> str:
        return "gave up: it was killed by the stop"

    def handle_hangup(self) -> None:
        """No terminal closes."""

    def stop(self) -> bool:
        """The tree takes the request at the second time."""
        self.stops += 1
        return self.stops == 2

    def watch(
        self,
        folder: Path,
        *,
        stop_deadline_s: float,
        listener: RunListener,
        polls: Sequence[Callable[[], None]] = (),
    ) -> tuple[int, bool]:
        look: Any = self
        return app.watch(
            look,
            look,
            RunPaths(folder),
            look,
            listener,
            show=lambda: None,
            stop=self.stop,
            stop_deadline_s=lambda: stop_deadline_s,
            polls=polls,
            remedy=app.CONTINUE,
        )

    def keep(self) -> None:
        """The session keeps the time that the run has used."""
        self.keeps += 1


def test_a_second_signal_ends_a_drain_at_once(tmp_path: Path) -> None:
    looks, listener = Looks(0, 2, 0, 0, 15), Listener()
    assert looks.watch(tmp_path, stop_deadline_s=1e6, listener=listener) == (15, False)
    assert (looks.stops, listener.deadlines_s) == (2, [1e6])


def test_a_drain_that_takes_longer_than_it_may_is_ended(tmp_path: Path) -> None:
    looks = Looks(15, 0)
    assert looks.watch(tmp_path, stop_deadline_s=-1.0, listener=Listener()) == (15, False)


def test_at_each_look_the_used_time_is_kept_and_all_that_is_beside_the_run_gets_its_turn(
    tmp_path: Path,
) -> None:
    looks, listener, poll = Looks(0, 0, 2, 15), Mock(spec=RunListener), Mock()
    looks.watch(tmp_path, stop_deadline_s=1e6, listener=listener, polls=(poll,))
    assert (poll.call_count, listener.turn.call_count) == (4, 4)
    assert looks.keeps == 5, "and at the end"
