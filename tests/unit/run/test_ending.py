"""What `dartrl down` sends to the main process of a run, which is this process here."""

import errno
import os
import signal
from pathlib import Path
from typing import NoReturn

import pytest

from actors.process import start_ticks
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
    signals.prepare(paths)
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


def test_a_drain_goes_on_although_the_disk_did_not_take_its_signal(
    paths: RunPaths, received: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filesystem that copies what it overwrites needs space for it."""

    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", refuse)
    for _ in range(3):
        ask_to_end(paths, PIDFD, now=False)
    assert received == [signal.SIGTERM]


def test_a_drain_of_a_run_that_an_earlier_version_started_goes_on(
    paths: RunPaths, received: list[int]
) -> None:
    me = os.getpid()
    (paths.root / "signals").write_text(f"{me} {start_ticks(me)} 15 1000.0\n")
    ask_to_end(paths, PIDFD, now=False)
    assert received == []
