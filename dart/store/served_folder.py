"""Folders of one machine, made once and shared by its processes; those that no process uses are removed.

Each folder has a lock file beside it. Whoever makes the folder holds the lock alone, whoever uses it holds it
with others; a lock ends with its process.
"""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from dart.core.run_directory import make_private


class ServedFolders:
    """Folders below `root`, each by a name. One process uses one of them at a time."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._used: tuple[str, int] | None = None
        """The name of the folder that this process uses, and the descriptor of its lock."""

    def hold(self, name: str, make: Callable[[Path], None]) -> Path:
        """A folder that `make` has filled, here or in another process; the one used before is given up.

        make   fills an empty folder; if it raises, there is no folder
        """
        if self._used is not None and self._used[0] == name:
            return self._root / name
        make_private(self._root)
        lock = self._locked(name, make)
        if self._used is not None:
            os.close(self._used[1])
        self._used = (name, lock)
        self._remove_unused(but=name)
        return self._root / name

    def _locked(self, name: str, make: Callable[[Path], None]) -> int:
        """Make the folder unless it is there; returns the descriptor of a lock that is held with others."""
        lock = os.open(self._lock_of(name), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            while True:
                fcntl.flock(lock, fcntl.LOCK_SH)
                if (self._root / name).is_dir():  # else another process removed it before
                    return lock
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not (self._root / name).is_dir():
                    self._make(name, make)
        except BaseException:
            os.close(lock)
            raise

    def _make(self, name: str, make: Callable[[Path], None]) -> None:
        temporary = self._root / f".{name}.tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            make(temporary)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)  # a full disk needs the room
            raise
        temporary.rename(self._root / name)

    def _lock_of(self, name: str) -> Path:
        return self._root / f"{name}.lock"

    def _remove_unused(self, but: str) -> None:
        """Remove the folders that no process uses or makes. Lock files stay: a process may be opening one."""
        for folder in self._root.iterdir():
            name = folder.name.removeprefix(".").removesuffix(".tmp")
            if folder.is_dir() and name != but:
                self._remove_if_unused(folder, name)

    def _remove_if_unused(self, folder: Path, name: str) -> None:
        lock = os.open(self._lock_of(name), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
        except BlockingIOError:
            return  # a process uses it
        finally:
            os.close(lock)
