"""The file of an environment that names the machines of a server which it holds.

The file lies in `machines/` of the run directory. It is written before a start is asked for and after each
answer, so that a machine is known also after a kill of its environment.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from actors.orphans import identity_of
from actors.process import is_running
from dart.core.run_directory import write_atomically

FOLDER = "machines"
"""Folder of the run directory with a file for each environment."""


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """What the file of an environment names, with the process that wrote it."""

    emulator_ids: list[str] = []
    """Machines that the server has started, and whose stop it has not confirmed."""
    unanswered: list[float] = []
    """When each start was asked for that the server has not answered, in Unix seconds. The server may have
    started a machine whose id is unknown."""
    pid: int = 0
    start_ticks: int = 0
    folder: list[int] = []
    """Which folder the file was written in (`actors.orphans.identity_of`); empty if not known."""

    @property
    def is_held(self) -> bool:
        """Whether the process that wrote the file still runs."""
        return is_running(self.pid, self.start_ticks)

    @property
    def is_empty(self) -> bool:
        """Whether the file names neither a machine nor a start."""
        return not self.emulator_ids and not self.unanswered


def read_ledger(path: Path) -> Ledger:
    """Read the file of an environment; one that is missing or damaged names no machine.

    A copy of the file names none as long as the environment runs that wrote the original."""
    try:
        ledger = msgspec.json.decode(path.read_bytes(), type=Ledger)
        is_copy = ledger.folder not in ([], identity_of(path.parent))
    except (OSError, ValueError):
        return Ledger()
    return Ledger() if is_copy and ledger.is_held else ledger


def write_ledger(path: Path, ledger: Ledger) -> None:
    """Replace the file of an environment. An empty ledger has no file. Raises OSError."""
    if ledger.is_empty:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, msgspec.json.encode(ledger), 0o644)


def ledgers_in(folder: Path) -> Iterator[tuple[Path, Ledger]]:
    """Yield the file of each environment and what it names."""
    for path in sorted(folder.glob("*.json")):
        yield path, read_ledger(path)
