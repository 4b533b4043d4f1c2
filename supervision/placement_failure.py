"""Why placed actors have failed too often: a file of the run directory.

`hosts` writes it, and the program that started the tree reads it and ends the tree. The file is there also
after a restart of `hosts`. The program deletes it before the next start, which must not end by it.
"""

import contextlib
from pathlib import Path

FILE = "placed_actors_failed"


def write(run_dir: Path, reason: str) -> None:
    """Write why. On a full disk nothing is written; `hosts` tries again at the next failure."""
    with contextlib.suppress(OSError):
        (run_dir / FILE).write_text(reason, encoding="utf-8")


def read(run_dir: Path) -> str:
    """Return why; an empty text if placed actors have not failed too often."""
    try:
        return (run_dir / FILE).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def forget(run_dir: Path) -> None:
    """Delete the file, before a start."""
    (run_dir / FILE).unlink(missing_ok=True)
