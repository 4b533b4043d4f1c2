"""Folders that one process makes and all processes of the machine share. Unused folders are removed.

Each folder has a lock file beside it. A process that makes the folder holds an exclusive lock, and a process
that uses the folder holds a shared lock. A lock ends with its process.
"""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from dart.core.run_directory import make_private


class ServedFolders:
    """Folders below `root`, each with a name. A process uses at most one of them at a time."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._used: tuple[str, int] | None = None
        """Name of the folder that this process uses, and descriptor of its lock; None before the first."""

    def hold(self, name: str, make: Callable[[Path], None]) -> Path:
        """Use the folder `name`, made by this process or another one, and give up the folder used before.

        make   creates and fills a folder at the path that it gets; if it raises, nothing is left of the
               folder

        Returns the path of the folder, which stays until this process holds another one.
        """
        folder = self._root / name
        if self._used is not None and self._used[0] == name:
            if folder.is_dir():
                return folder
            self._release()  # it was deleted from outside; this lock would keep it from being made again
        make_private(self._root)
        lock = self._locked(name, make)
        self._release()
        self._used = (name, lock)
        self._remove_unused(but=name)
        return folder

    def discard(self, folder: Path) -> None:
        """Remove a damaged folder, so that the next call of `hold` makes it again, and give it up.

        The folder stays while another process uses it. Does nothing for a folder that is not below `root`.
        """
        if folder.parent != self._root or not folder.is_dir():
            return
        if self._used is not None and self._used[0] == folder.name:
            self._release()
        self._remove_if_unused(folder, folder.name)

    def _release(self) -> None:
        if self._used is not None:
            os.close(self._used[1])
            self._used = None

    def _locked(self, name: str, make: Callable[[Path], None]) -> int:
        """Make the folder unless it exists; returns the descriptor of its lock file, with a shared lock."""
        lock = os.open(self._lock_of(name), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            while True:
                fcntl.flock(lock, fcntl.LOCK_SH)
                if (self._root / name).is_dir():  # else another process removed it before
                    return lock
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not (self._root / name).is_dir():
                    make_whole(self._root / name, make)
        except BaseException:
            os.close(lock)
            raise

    def _lock_of(self, name: str) -> Path:
        return self._root / f"{name}.lock"

    def _remove_unused(self, but: str) -> None:
        """Remove all folders except `but` that no process uses or makes.

        Lock files stay, because a process may be opening one.
        """
        for folder in self._root.iterdir():
            name = folder.name.removeprefix(".").removesuffix(".tmp")
            if folder.is_dir() and name != but:
                self._remove_if_unused(folder, name)

    def _remove_if_unused(self, folder: Path, name: str) -> None:
        lock = os.open(self._lock_of(name), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)  # another process may have removed it just before
        except BlockingIOError:
            return  # a process uses it
        finally:
            os.close(lock)


def make_whole(folder: Path, make: Callable[[Path], None]) -> None:
    """Make a folder, or replace it, so that it is never there with only a part of its content.

    make   creates and fills a folder at the path that it gets; if it raises, `folder` is unchanged and
           nothing is left of the new one
    """
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        make(temporary)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)  # a full disk needs the room
        raise
    shutil.rmtree(folder, ignore_errors=True)
    temporary.rename(folder)
