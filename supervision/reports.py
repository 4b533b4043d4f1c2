"""Reports of why children ended: one line of JSON each, in `reports/<supervisor>.jsonl` of the run.

A report has OTP's four fields (supervisor, context, reason, offender), and what a post-mortem needs: exit
code or signal, the last words and last log lines of the process, and the chain of reasons that led there.
"""

import contextlib
import json
import os
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from actors.codec import from_plain
from actors.errors import MalformedMessage
from actors.last_words import CONSOLE_BYTES, last_report, say_on_console

MAX_FILE_BYTES = 1_000_000
"""The size at which a file of reports is renamed to `<supervisor>.jsonl.1`, over an older one."""

LOG_LINES = 5

_LAST_CONTEXTS = frozenset({"shutdown", "start_error"})
CHAIN_LINKS = 8

_SHOWN = {
    "child_terminated": "ended",
    "start_error": "did not start",
    "shutdown_error": "did not stop as it should",
    "shutdown": "made this supervisor give up",
    "child_quarantined": "is in quarantine",
    "outage": "is one of many that fail",
}
"""The words that are printed for a report, by its context. Reports of other contexts are not printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offender:
    """The child a report is about."""

    id: str
    incarnation: int = 0
    pid: int = 0
    restart: str = ""
    shutdown_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorReport:
    """One report (OTP `supervisor_report`, and more)."""

    unix_s: float
    supervisor: str
    context: str
    reason: str
    offender: Offender
    exit_code: int | None = None
    signal: str | None = None
    last_words: tuple[str, ...] = ()
    """The last lines of the traceback, if the process ended by an exception."""
    log_lines: tuple[str, ...] = ()
    """The last lines of the child's log."""
    chain: tuple[str, ...] = ()
    """The reasons of the deaths below that led to this death, nearest first."""
    taken_along: tuple[str, ...] = ()
    """The siblings that the strategy restarted along with the child."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """How a process ended, and what it left behind."""

    pid: int = 0
    exit_code: int | None = None
    signal: str | None = None
    last_words: tuple[str, ...] = ()
    log_lines: tuple[str, ...] = ()
    chain: tuple[str, ...] = ()


def append(run_dir: Path, report: SupervisorReport) -> None:
    """Add a report to its supervisor's file. On a full disk the report is lost and the supervisor goes on."""
    path = _file(run_dir, report.supervisor)
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if path.exists() and path.stat().st_size > MAX_FILE_BYTES:
            path.replace(path.with_suffix(".jsonl.1"))
        with path.open("a+b") as file:
            file.write(_end_of_cut_line(file) + json.dumps(asdict(report)).encode() + b"\n")


def show(run_dir: Path, report: SupervisorReport) -> None:
    """Print a report of a failure to the standard error, with the child's traceback."""
    what = _SHOWN.get(report.context)
    if what is not None:
        child = report.offender
        crash = last_report(run_dir, child.id, child.incarnation, CONSOLE_BYTES // 2)
        number = f" (incarnation {child.incarnation})" if child.incarnation else ""
        say_on_console(f"[{report.supervisor}] {child.id!r}{number} {what}: {report.reason}\n{crash}")


def _end_of_cut_line(file: IO[bytes]) -> bytes:
    """A line break if a full disk or a crash cut the last line, so that the next line begins on its own."""
    if not file.seek(0, os.SEEK_END):
        return b""
    file.seek(-1, os.SEEK_END)
    return b"" if file.read(1) == b"\n" else b"\n"


def read(run_dir: Path, supervisor: str, since_unix_s: float = 0.0) -> tuple[SupervisorReport, ...]:
    """A supervisor's reports since a moment, oldest first; older lines are not parsed.

    A line cut off by a crash, or of another version, is left out.
    """
    newest, found = _file(run_dir, supervisor), deque[SupervisorReport]()
    for path in (newest, newest.with_suffix(".jsonl.1")):
        try:
            lines = path.read_bytes().splitlines()
        except FileNotFoundError:  # there is none, or its supervisor renames a full file now
            continue
        for line in reversed(lines):
            with contextlib.suppress(ValueError, MalformedMessage):
                report = from_plain(json.loads(line), SupervisorReport)
                if report.unix_s < since_unix_s:
                    return tuple(found)
                found.appendleft(report)
    return tuple(found)


def chain_below(run_dir: Path, supervisor: str) -> tuple[str, ...]:
    """Why a supervisor gave up, followed by the reasons of the deaths below that led to it.

    Nothing when its reports cannot be read.
    """
    try:
        ends = [report for report in read(run_dir, supervisor) if report.context in _LAST_CONTEXTS]
    except OSError:
        return ()
    return (ends[-1].reason, *ends[-1].chain)[:CHAIN_LINKS] if ends else ()


def last_lines(path: Path, count: int = LOG_LINES) -> tuple[str, ...]:
    """The end of a text file; nothing when there is none or it cannot be read."""
    try:
        with path.open(errors="replace") as file:
            file.seek(max(0, path.stat().st_size - 16_384))
            return tuple(line.rstrip("\n") for line in deque(file, maxlen=count))
    except OSError:
        return ()


def _file(run_dir: Path, supervisor: str) -> Path:
    return run_dir / "reports" / f"{supervisor}.jsonl"
