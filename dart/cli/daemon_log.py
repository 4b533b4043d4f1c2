"""Where `dartrl up` logs: a file, or standard error."""

import contextlib
import sys
from pathlib import Path
from typing import Any


def log_of_daemon(file: Path | None, limit_bytes: int) -> Any:
    """Configure structured logging for the whole process, and return a logger.

    file          None: log to standard error
    limit_bytes   size at which the file is renamed and a new one begins
    """
    import structlog

    from actors.log import log_to, to_json

    if file is not None:
        log_to(file, limit_bytes)
        return structlog.get_logger()
    processors = to_json()
    if sys.stderr.isatty():
        processors[-2:] = [structlog.dev.ConsoleRenderer()]
    structlog.configure(
        processors=processors,
        logger_factory=structlog.WriteLoggerFactory(file=_StandardError()),  # type: ignore[arg-type]  # structlog only writes to it
    )
    return structlog.get_logger()


class _StandardError:
    """Standard error as the file of a daemon's log. If a write fails (closed terminal, full disk), the line
    is lost and the daemon continues."""

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.write(text)
            sys.stderr.flush()

    def flush(self) -> None:
        """Do nothing, because `write` flushes each line."""
