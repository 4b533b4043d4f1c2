"""One log file per actor, one JSON object per line; the previous incarnation's lines stay.

Events are constant snake_case names in the past tense; everything else is a key. A log of LOG_BYTES becomes
`<name>.jsonl.1` in the place of the one before and begins anew, so that no number of restarts fills a disk.
"""

import logging
import os
from pathlib import Path
from typing import IO

import structlog

LOG_BYTES = 4 * 1024 * 1024


class LogFile:
    """What structlog writes to: appended line by line, renamed when it is full."""

    def __init__(self, path: Path, limit_bytes: int = LOG_BYTES) -> None:
        self._path = path
        self._limit_bytes = limit_bytes
        self._file = self._open()

    def write(self, line: str) -> None:
        self._bytes += len(line.encode())
        if self._bytes > self._limit_bytes:
            self.close()
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            self._file = self._open()
            self._bytes += len(line.encode())
        self._file.write(line)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _open(self) -> IO[str]:
        file = os.fdopen(os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a", buffering=1)
        self._bytes = os.fstat(file.fileno()).st_size
        return file


_open_files: list[LogFile] = []


def log_to(path: Path) -> None:
    """Send this process's structlog events to a file, appended line by line."""
    file = LogFile(path)
    _open_files[:] = [file]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.dict_tracebacks,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.WriteLoggerFactory(file=file),  # type: ignore[arg-type]  # it only writes
        cache_logger_on_first_use=False,
    )


class _ToStructlog(logging.Handler):
    """What libraries log by the standard library, in the actor's own file."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger().log(
            record.levelno, "library_logged", logger=record.name, text=record.getMessage()
        )


def take_over_logging() -> None:
    """Give this process a root logger of its own; its parent's sends records to Thespian."""
    root = logging.RootLogger(logging.WARNING)
    root.addHandler(_ToStructlog())
    logging.root = logging.Logger.root = root
    logging.Logger.manager = logging.Manager(root)
