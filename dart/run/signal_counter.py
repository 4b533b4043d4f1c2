"""Handle the signals that the main process of a run receives, and a terminal that closes."""

import os
import signal
import stat
import time
from contextlib import suppress
from types import FrameType
from typing import Any, Self

from dart.core.run_directory import RunPaths
from dart.inspect import signals as received
from dart.run.listener import RunListener


class SignalCounter:
    """Counts SIGINT and SIGTERM while a run lasts: the first drains, the second ends at once.

    The caller acts on `count`, the number of signals, and `last`, the newest one. After `ends_at_once` is
    set, nothing is left to drain: the first signal has no effect, and the second one ends this process.

    On SIGHUP, `RunListener.hung_up` decides whether the run drains. A SIGHUP that was ignored when this
    process started (`nohup`) stays ignored, unless `RunListener.takes_hangups`. Other processes can read the
    signals with `dart.inspect.signals`.
    """

    def __init__(self, paths: RunPaths, listener: RunListener) -> None:
        self.count = 0
        self.last = 0
        self._paths, self._listener = paths, listener
        self._has_hung_up = False
        self.ends_at_once = False
        """Set by the caller when nothing is left to drain. From then on a second signal ends this process."""
        self._handlers = {signal.SIGINT: self._note, signal.SIGTERM: self._note}
        if listener.takes_hangups or signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            self._handlers[signal.SIGHUP] = self._note_hangup
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        received.prepare(self._paths)
        for number, handler in self._handlers.items():
            self._before[number] = signal.signal(number, handler)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        received.forget(self._paths)

    def handle_hangup(self) -> None:
        """Handle the SIGHUPs since the last call as one, because a terminal that closes may send several."""
        has_hung_up, self._has_hung_up = self._has_hung_up, False
        if has_hung_up and self._listener.hung_up() and not self.count:
            self._note(signal.SIGHUP, None)

    def _note(self, number: int, _: FrameType | None) -> None:
        self.count, self.last = self.count + 1, number
        received.note(self._paths, number, time.time())
        if self.ends_at_once and self.count > 1:
            raise SystemExit(128 + number)

    def _note_hangup(self, number: int, _: FrameType | None) -> None:
        self._has_hung_up = True
        leave_terminal()  # at once: the next write to it would fail


STREAMS = (1, 2)


def has_terminal() -> bool:
    """Whether this process has a controlling terminal, which sends SIGHUP when it closes."""
    try:
        fd = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    os.close(fd)
    return True


def leave_terminal() -> None:
    """If the terminal has closed, redirect standard output and error to /dev/null, so that no write fails."""
    null = os.open(os.devnull, os.O_WRONLY)
    for fd in STREAMS:
        with suppress(OSError):  # the stream was closed before
            if stat.S_ISCHR(os.fstat(fd).st_mode) and not os.isatty(fd):
                os.dup2(null, fd)
    os.close(null)
