"""Temporary folders. The folder of a killed process is removed when the next process makes its own."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "actors-"
LOCK = "launcher.lock"
"""A file that the folder's owner holds locked. The kernel unlocks it however that process ends."""

SHORT_DIR = Path("/tmp")  # what a folder is made is private to its user
"""The folder to use when a path in the temporary directory would be too long."""


@contextlib.contextmanager
def scratch_folder(longest_bytes: int) -> Iterator[Path]:
    """A fresh folder for the block, with a path of at most `longest_bytes` if possible.

    Folders that killed processes left behind are removed first.
    """
    base = base_folder(f"{PREFIX}12345678", longest_bytes)
    _sweep(base)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
    try:
        with (folder / LOCK).open("w") as lock, held(folder):
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.write(str(os.getpid()))
            lock.flush()
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def base_folder(inside: str, longest_bytes: int) -> Path:
    """Return the folder for temporary files, or `SHORT_DIR` if the path `inside` it would be too long."""
    base = Path(tempfile.gettempdir())
    return base if len(os.fsencode(base / inside)) <= longest_bytes else SHORT_DIR


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a shared lock on a folder while the block lasts. Raises OSError.

    systemd-tmpfiles deletes nothing in a locked folder, however old it is. The lock is an flock, which
    processes that are forked in the block hold, too.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        yield
    finally:
        os.close(fd)


def _sweep(base: Path) -> None:
    for lock_file in base.glob(f"{PREFIX}*/{LOCK}"):
        with contextlib.suppress(OSError):  # in use, another user's, or removed meanwhile
            _remove_unless_held(lock_file)


def _remove_unless_held(lock_file: Path) -> None:
    if lock_file.lstat().st_uid != os.geteuid() or lock_file.is_symlink():
        return
    with lock_file.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock.read():  # empty: its owner is about to lock it
            shutil.rmtree(lock_file.parent, ignore_errors=True)
