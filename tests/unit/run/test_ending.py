"""What `dartrl down` sends to the main process of a run, which is this process here."""

import signal
from pathlib import Path

import pytest

from dart.core.run_directory import RunPaths
from dart.inspect import signals
from dart.run.ending import ask_to_end

PIDFD = -1


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return RunPaths(tmp_path)


@pytest.fixture(autouse=True)
def received(paths: RunPaths, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The signals that the main process has received; it notes each of them."""
    numbers: list[int] = []

    def send(_: int, number: int) -> None:
        numbers.append(number)
        signals.note(paths, number, 1000.0)

    monkeypatch.setattr("signal.pidfd_send_signal", send)
    return numbers


def test_a_drain_goes_on_however_often_it_is_asked_for(paths: RunPaths, received: list[int]) -> None:
    """A second signal would end the run at once; a later `dartrl down --wait` waits for the same drain."""
    for _ in range(3):
        ask_to_end(paths, PIDFD, now=False)
    assert received == [signal.SIGTERM]


@pytest.mark.parametrize("drains_already", [False, True])
def test_an_end_at_once_is_the_second_signal(
    paths: RunPaths, received: list[int], drains_already: bool
) -> None:
    if drains_already:
        ask_to_end(paths, PIDFD, now=False)
    ask_to_end(paths, PIDFD, now=True)
    assert received == [signal.SIGTERM, signal.SIGTERM]
