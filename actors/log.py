"""One log file per actor, one JSON object per line; the previous incarnation's lines stay.

Events are constant snake_case names in the past tense; everything else is a key. A log that reaches
LOG_BYTES is renamed to `<name>.jsonl.1`, which replaces an older one. So no number of restarts fills a disk.
If one event comes in a flood, most of its lines are left out and counted.
"""

import contextlib
import logging
import os
import shutil
import time
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

LOG_BYTES = 4 * 1024 * 1024

STORM_S = 10.0
STORM_LINES = 200
"""The most lines of one event that are written within STORM_S seconds, about a hundredth of a full log."""


class LogFile:
    """A file for structlog: appended line by line, renamed when it is full.

    A line that the disk does not take (it is full, the folder is missing) is lost, and no error: no process
    ends because it could not log. The next line tries again.
    """

    def __init__(self, path: Path, limit_bytes: int = LOG_BYTES) -> None:
        self._path = path
        self._limit_bytes = limit_bytes
        self._fd = -1
        self._bytes = 0
        self._begin = b""
        """Written before the next line: a line break if the disk took only a part of the line before."""
        self.lost = 0
        """The number of lines that could not be written."""
        with contextlib.suppress(OSError):
            self._open()

    def write(self, line: str) -> None:
        data = line.encode(errors="backslashreplace")
        try:
            self._make_room(len(data))
            written = os.write(self._fd, self._begin + data) - len(self._begin)
        except OSError:
            self.lost += 1
            return
        self._bytes += written
        is_whole = written == len(data)
        self._begin = b"" if is_whole else b"\n"
        self.lost += not is_whole

    def flush(self) -> None:
        """Do nothing: no line is buffered."""

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _make_room(self, size_bytes: int) -> None:
        if self._fd < 0:
            self._open()
        if self._bytes + size_bytes > self._limit_bytes:
            self.close()
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            self._open()

    def _open(self) -> None:
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._bytes = os.fstat(self._fd).st_size


def cut(path: Path, limit_bytes: int) -> None:
    """Empty a file of over `limit_bytes`, to which several processes append, after copying it to `<name>.1`.

    The copy replaces an older one. Text that is written between the two steps is lost, so prefer a `LogFile`.
    On a full disk the file stays as it is.
    """
    with contextlib.suppress(OSError):
        if path.stat().st_size > limit_bytes:
            shutil.copyfile(path, path.with_name(f"{path.name}.1"))
            os.truncate(path, 0)


class StormGuard:
    """Lets STORM_LINES of one event pass in STORM_S and drops the rest, so that other events stay in the log.

    The next line of that event says how many were left out. A structlog processor; one for each process.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._windows: dict[str, _Window] = {}

    def __call__(self, _: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        name, now_s = str(event.get("event")), self._clock()
        window = self._windows.get(name)
        if window is None or now_s - window.began_s >= STORM_S:
            if window is not None and window.left_out:
                event["left_out"] = window.left_out
            window = self._windows[name] = _Window(now_s)
        if window.lines == STORM_LINES:
            window.left_out += 1
            raise structlog.DropEvent
        window.lines += 1
        return event


@dataclass(slots=True)
class _Window:
    """The lines of one event in one stretch of time."""

    began_s: float
    lines: int = 0
    left_out: int = 0


def to_json() -> list[Any]:
    """The structlog processors that make an event one line of JSON, for one process."""
    return [
        StormGuard(),
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.dict_tracebacks,
        structlog.processors.JSONRenderer(),
    ]


_open_files: list[LogFile] = []


def log_to(path: Path, limit_bytes: int = LOG_BYTES) -> None:
    """Send this process's structlog events to a file, appended line by line."""
    file = LogFile(path, limit_bytes)
    for earlier in _open_files:
        earlier.close()  # inherited from the parent
    _open_files[:] = [file]
    structlog.configure(
        processors=to_json(),
        logger_factory=structlog.WriteLoggerFactory(file=file),  # type: ignore[arg-type]  # it only writes
        cache_logger_on_first_use=False,
    )


class _ToStructlog(logging.Handler):
    """Writes what libraries log through `logging` to the actor's own file."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except Exception:  # its arguments do not fit its format
            self.handleError(record)
            return
        structlog.get_logger().log(record.levelno, "library_logged", logger=record.name, text=text)


library_records = _ToStructlog()
"""The handler that writes what libraries log to the log of this process."""


def take_over_logging() -> None:
    """Give this process a new root logger; the one that it inherited may be Thespian's, without handlers."""
    root = logging.RootLogger(logging.WARNING)
    root.addHandler(library_records)
    logging.root = logging.Logger.root = root
    logging.Logger.manager = logging.Manager(root)
