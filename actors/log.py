"""One log file per actor, one JSON object per line; the previous incarnation's lines stay.

Events are constant snake_case names in the past tense; everything else is a key.
"""

from pathlib import Path
from typing import IO

import structlog

_open_files: list[IO[str]] = []


def log_to(path: Path) -> None:
    """Send this process's structlog events to a file, appended line by line."""
    file = path.open("a", buffering=1)
    _open_files[:] = [file]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.dict_tracebacks,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.WriteLoggerFactory(file=file),
        cache_logger_on_first_use=False,
    )
