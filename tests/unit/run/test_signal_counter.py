"""What the signals to the main process of a run, and the end of its terminal, do."""

import os
import pty
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dart.core.run_directory import RunPaths
from dart.inspect.signals import read
from dart.run import signal_counter
from dart.run.listener import RunListener
from dart.run.signal_counter import SignalCounter, leave_terminal


class Listener(RunListener):
    """Drains the run for a SIGHUP, or does not; counts how often it is asked."""

    def __init__(self, *, drains: bool = True, takes_hangups: bool = False) -> None:
        super().__init__()
        self.takes_hangups = takes_hangups
        self._drains = drains
        self.asked = 0

    def hung_up(self) -> bool:
        self.asked += 1
        return self._drains


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return RunPaths(tmp_path)


@pytest.fixture(autouse=True)
def default_hangup(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """SIGHUP as a shell leaves it, whatever the tests were started with; the streams stay as they are."""
    monkeypatch.setattr(signal_counter, "STREAMS", ())
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def test_signals_are_counted_until_the_run_is_over_and_are_then_those_of_before(paths: RunPaths) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with SignalCounter(paths, Listener()) as signals:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        noted = read(paths)
    assert (signals.count, signals.last) == (2, signal.SIGTERM)
    assert noted is not None
    assert (noted.signal, noted.count) == (signal.SIGINT, 2)
    assert read(paths) is None
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


def test_when_nothing_is_left_to_drain_a_first_signal_waits_and_a_second_ends_the_process(
    paths: RunPaths,
) -> None:
    with SignalCounter(paths, Listener()) as signals:
        signals.ends_at_once = True
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(SystemExit) as ended:
            signal.raise_signal(signal.SIGINT)
    assert ended.value.code == 128 + signal.SIGINT


def test_several_hangups_of_one_terminal_are_one_signal(paths: RunPaths) -> None:
    listener = Listener()
    with SignalCounter(paths, listener) as signals:
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)
        signals.handle_hangup()
        signals.handle_hangup()
    assert (listener.asked, signals.count, signals.last) == (1, 1, signal.SIGHUP)


def test_a_terminal_that_closes_during_a_drain_does_not_hurry_it(paths: RunPaths) -> None:
    with SignalCounter(paths, Listener()) as signals:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGHUP)
        signals.handle_hangup()
    assert (signals.count, signals.last) == (1, signal.SIGINT)


def test_a_hangup_that_means_a_reload_drains_nothing(paths: RunPaths) -> None:
    listener = Listener(drains=False)
    with SignalCounter(paths, listener) as signals:
        signal.raise_signal(signal.SIGHUP)
        signals.handle_hangup()
    assert (listener.asked, signals.count) == (1, 0)


@pytest.mark.parametrize("takes_hangups", [False, True])
def test_under_nohup_a_hangup_is_heard_only_by_a_run_that_reloads_for_it(
    paths: RunPaths, takes_hangups: bool
) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    listener = Listener(takes_hangups=takes_hangups)
    with SignalCounter(paths, listener) as signals:
        signal.raise_signal(signal.SIGHUP)
        signals.handle_hangup()
    assert listener.asked == takes_hangups
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_output_is_led_away_from_a_terminal_that_has_closed_and_from_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (closed_keys, closed), (keys, opened) = pty.openpty(), pty.openpty()
    file = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    os.close(closed_keys)
    monkeypatch.setattr(signal_counter, "STREAMS", (closed, opened, file))
    try:
        leave_terminal()
        assert os.path.samestat(os.fstat(closed), Path(os.devnull).stat())
        assert os.isatty(opened)
        assert os.path.samestat(os.fstat(file), (tmp_path / "log").stat())
    finally:
        for fd in (closed, keys, opened, file):
            os.close(fd)


def test_a_hangup_leaves_the_terminal_at_once(paths: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[bool] = []
    monkeypatch.setattr(signal_counter, "leave_terminal", lambda: left.append(True))
    with SignalCounter(paths, Listener()):
        signal.raise_signal(signal.SIGHUP)
        assert left == [True]
