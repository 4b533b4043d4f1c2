"""Last words: what a process writes before it ends. Its reason on one line, its traceback, printed text."""

import os
import select
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path

from actors.board import INCARNATIONS_PER_PLACEMENT

REASON_CHARACTERS = 1000
"""The longest reason. An exception may quote megabytes, and a reason is copied to many places."""

WORDS_CHARACTERS = 64_000
"""The longest traceback. The middle of a longer one is left out."""

SUB_EXCEPTIONS = 3
GROUP_LEVELS = 3
"""How many errors of an exception group are named, and how deep groups in groups are read."""

CONSOLE_BYTES = 4096
"""A pipe that can be written to takes this many bytes at once (PIPE_BUF), so that printing never blocks."""

CRASHES_KEPT = 5
"""Number of newest incarnations of a name whose crash files are kept."""

FLUSH_DEADLINE_S = 1.0
"""The longest wait for a slow reader of the standard output; a suspended reader keeps no process alive."""


def reason_of(error: BaseException) -> str:
    """The type and message of an exception on one line; for an exception group, also its first errors."""
    return _reason(error, GROUP_LEVELS)


def crash_report(error: BaseException) -> str:
    """The traceback, its middle left out where it is too long; its last line is always the reason."""
    text = _shortened("".join(traceback.format_exception(error)).rstrip("\n"))
    reason = reason_of(error)
    ends_with_reason = text.rpartition("\n")[2] == reason
    return f"{text}\n" if ends_with_reason else f"{text}\n{reason}\n"


def say_on_console(text: str) -> None:
    """Print to the standard error if that is possible at once; of a long text only the end is printed."""
    data = text.encode(errors="backslashreplace")
    if len(data) > CONSOLE_BYTES:
        data = b"[...] " + data[6 - CONSOLE_BYTES :]
    poll = select.poll()
    try:
        poll.register(2, select.POLLOUT)
        if any(events & select.POLLOUT for _, events in poll.poll(0)):
            os.write(2, data)
    except OSError:
        return  # the stream is closed or full; the report is in its file


def flush_standard_streams() -> None:
    """Flush what was printed, before an `os._exit` that would lose it; for FLUSH_DEADLINE_S at most."""
    flusher = threading.Thread(target=_flush, daemon=True)
    try:
        flusher.start()
    except RuntimeError:  # out of threads: without one the flush would have no deadline
        return
    flusher.join(FLUSH_DEADLINE_S)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            continue  # the stream is missing or closed, or its reader has ended


def _reason(error: BaseException, levels: int) -> str:
    words = _message(error)
    if isinstance(error, BaseExceptionGroup) and levels:
        within = "; ".join(_reason(each, levels - 1) for each in error.exceptions[:SUB_EXCEPTIONS])
        words = f"{words}: {within}"
    kind = type(error)
    is_plain = kind.__module__ in ("builtins", "__main__")
    name = kind.__qualname__ if is_plain else f"{kind.__module__}.{kind.__qualname__}"
    return (f"{name}: {words}" if words else name)[:REASON_CHARACTERS]


def _message(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # a user's exception class may raise anything in its __str__
        return "<its str() failed>"
    return " ".join(text[:REASON_CHARACTERS].split())


def _shortened(text: str) -> str:
    if len(text) <= WORDS_CHARACTERS:
        return text
    half = WORDS_CHARACTERS // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters are left out]\n{text[-half:]}"


def last_words(run_dir: Path, name: str, incarnation: int) -> str:
    """The last line of what a crashed incarnation left behind; an empty string when none can be read."""
    text = last_report(run_dir, name, incarnation, 4 * REASON_CHARACTERS)
    return (text.strip().splitlines() or [""])[-1][-REASON_CHARACTERS:]


def last_report(run_dir: Path, name: str, incarnation: int, limit_bytes: int) -> str:
    """Return the last `limit_bytes` bytes of the crash file of an incarnation, as text.

    The text is empty when the file is missing or cannot be read.
    """
    try:
        with crash_file(run_dir, name, incarnation, "txt").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - limit_bytes))
            return file.read(limit_bytes).decode(errors="replace")
    except OSError:
        return ""


def crash_file(run_dir: Path, name: str, incarnation: int, suffix: str) -> Path:
    """The file of a crashed incarnation: its report (txt), or the stacks of a fatal signal (fault)."""
    return run_dir / "crash" / f"{name}.{incarnation}.{suffix}"


def remove_old_crashes(run_dir: Path, name: str, incarnation: int) -> None:
    """Remove the crash files of the incarnations that are too old when this one starts. Raises OSError.

    The folder is listed only for the first incarnations of a placement, because those of the placement before
    have other numbers. For every other incarnation just one is too old.
    """
    too_old = [incarnation - CRASHES_KEPT]
    if incarnation % INCARNATIONS_PER_PLACEMENT <= CRASHES_KEPT < incarnation:
        too_old = sorted({*_incarnations_with_files(run_dir, name), incarnation})[:-CRASHES_KEPT]
    for number in too_old:
        for suffix in ("fault", "txt"):
            crash_file(run_dir, name, number, suffix).unlink(missing_ok=True)


def _incarnations_with_files(run_dir: Path, name: str) -> Iterator[int]:
    for file in (run_dir / "crash").iterdir():
        number = file.name.removeprefix(f"{name}.").removesuffix(file.suffix)
        if number.isdecimal():  # else the file is another actor's
            yield int(number)
