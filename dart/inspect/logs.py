"""The log of one actor, line by line, with the incarnation that wrote each line.

All incarnations of an actor write to one file, `logs/NAME.jsonl` (`actors.log`). When this file is full, it
is renamed to `NAME.jsonl.1`, in place of an earlier one, and a new file begins. The folder `crash/` has what
an incarnation printed when it crashed.
"""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from dart.core.run_directory import RunPaths

READY = "actor_ready"
"""The event that an incarnation logs when it is ready to work."""

_OWN_KEYS = frozenset({"actor", "incarnation", "event", "level", "timestamp", "pid"})
"""Keys of a log line that describe the line itself; every other key is a field of the event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line of an actor's log."""

    unix_s: float
    incarnation: int
    level: str
    event: str
    fields: Mapping[str, Any]
    """The fields of the event, by name."""


def read_log(paths: RunPaths, name: str) -> list[LogLine]:
    """Read the kept lines of an actor's log, oldest first, without lines that a full disk cut short."""
    newest = paths.logs / f"{name}.jsonl"
    found = []
    for path in (newest.with_name(f"{newest.name}.1"), newest):
        with suppress(FileNotFoundError):
            found += [line for text in path.read_bytes().splitlines() if (line := parse(text)) is not None]
    return found


class Tail:
    """Reads the kept lines of an actor's log and then its new lines, also after the log was renamed."""

    def __init__(self, paths: RunPaths, name: str) -> None:
        self._path = paths.logs / f"{name}.jsonl"
        self._file = self._path.open("rb") if self._path.exists() else None
        self._pending = self._earlier()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def new(self) -> list[LogLine]:
        """Return the lines since the last call; the first call returns all kept lines.

        A later call returns a last line that is incomplete now.
        """
        text = self._pending + self._rest()
        if self._is_another_file():
            text += self._rest()  # what was written between the read and the rename
            self.close()
            self._file = self._path.open("rb")
            text += self._rest()
        *whole, self._pending = text.split(b"\n")
        return [line for one in whole if (line := parse(one)) is not None]

    def _earlier(self) -> bytes:
        """Return the text of the file before the open one; empty if that is the open file, renamed since."""
        with suppress(FileNotFoundError), self._path.with_name(f"{self._path.name}.1").open("rb") as file:
            if not self._is_open(os.fstat(file.fileno())):
                return file.read()
        return b""

    def _rest(self) -> bytes:
        return b"" if self._file is None else self._file.read()

    def _is_another_file(self) -> bool:
        try:
            return not self._is_open(self._path.stat())
        except FileNotFoundError:
            return False

    def _is_open(self, found: os.stat_result) -> bool:
        return self._file is not None and found.st_ino == os.fstat(self._file.fileno()).st_ino


def parse(text: bytes) -> LogLine | None:
    """Parse one line of JSON as structlog writes it; return None for any other text."""
    try:
        entry = json.loads(text)
        moment = datetime.fromisoformat(entry["timestamp"]).replace(tzinfo=UTC)
        return LogLine(
            unix_s=moment.timestamp(),
            incarnation=int(entry.get("incarnation", 0)),
            level=entry["level"],
            event=entry["event"],
            fields={key: value for key, value in entry.items() if key not in _OWN_KEYS},
        )
    except (ValueError, KeyError, TypeError):
        return None


def previous_lines(lines: Sequence[LogLine], current: int) -> list[LogLine]:
    """Return the lines of the incarnation before `current`; an empty list if the log has none.

    The incarnation before may belong to the last start of the run before the present one.
    """
    now = of_the_last_start(lines)
    if not any(line.incarnation < current for line in now):
        now = of_the_last_start(lines[: len(lines) - len(now)])
        current = max((line.incarnation for line in now), default=0) + 1
    number = max((line.incarnation for line in now if line.incarnation < current), default=0)
    return [line for line in now if line.incarnation == number]


def of_the_last_start(lines: Sequence[LogLine]) -> Sequence[LogLine]:
    """Return the lines since the last start of the run: each start counts incarnations from 1 again."""
    began, newest = 0, 0
    for place, line in enumerate(lines):
        if line.event == READY:
            began = place if line.incarnation <= newest else began
            newest = line.incarnation
    return lines[began:]


def last_words(paths: RunPaths, name: str, incarnation: int) -> str:
    """Return the traceback or faulthandler's dump of an incarnation that crashed; empty if there is none."""
    for suffix in ("txt", "fault"):
        with suppress(FileNotFoundError):
            text = (paths.crash / f"{name}.{incarnation}.{suffix}").read_text(errors="replace").strip()
            if text:
                return text
    return ""


def message(line: LogLine) -> str:
    """Return the event of a log line and its fields as one line of text."""
    return "  ".join([line.event, *(f"{key}={_value(value)}" for key, value in line.fields.items())])


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
