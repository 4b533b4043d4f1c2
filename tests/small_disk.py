"""A disk of its own for a test: a tmpfs, so that the disk can be filled and made larger."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Make a folder with a disk of its own, and unmount it at the end. Skips the test where that is refused.

    size   in the words of tmpfs: `64k`, `4m`
    """
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if mount is None or umount is None:
        pytest.skip("needs the commands mount and umount")
    folder.mkdir()
    mounted = _mount(folder, f"size={size}")
    if mounted.returncode:
        pytest.skip(f"a disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run([umount, "--lazy", str(folder)], check=True)  # weights of it may still be mapped


def enlarge(disk: Path, size: str) -> None:
    """Change the size of a disk that `small_disk` has mounted."""
    remounted = _mount(disk, f"remount,size={size}")
    assert remounted.returncode == 0, remounted.stderr


def _mount(disk: Path, options: str) -> "subprocess.CompletedProcess[str]":
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)]
    return subprocess.run(command, capture_output=True, text=True, check=False)
