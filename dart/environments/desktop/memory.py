"""A limit on the memory of a sandbox, through a control group where the kernel permits one."""

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
PREFIX = "dartrl-"


class MemoryLimit:
    """The control group of one sandbox. It does nothing without the rights for one, or with a limit of 0."""

    def __init__(self, name: str, limit_bytes: int, root: Path = CGROUPS) -> None:
        self._bytes = limit_bytes
        self._group: Path | None = None
        parent, self._file = _parent_of(root)
        if limit_bytes and parent is not None:
            self._group = parent / f"{PREFIX}{re.sub(r'[^A-Za-z0-9]+', '-', name)}-{os.getpid()}"

    def take(self, pids: Iterable[int]) -> None:
        """Limit the total memory of these processes and of all processes that they start from now on."""
        if self._group is None:
            return
        _sweep(self._group.parent)
        try:
            self._group.mkdir(exist_ok=True)
            (self._group / self._file).write_text(str(self._bytes))
            for pid in pids:
                (self._group / "cgroup.procs").write_text(str(pid))
        except OSError:
            self.release()

    def release(self) -> None:
        """Remove the group. A group with running processes stays and is removed by `_sweep` later."""
        if self._group is not None:
            with contextlib.suppress(OSError):
                self._group.rmdir()


def _sweep(parent: Path) -> None:
    """Remove empty groups that killed environments left behind; groups with running processes stay."""
    for group in parent.glob(f"{PREFIX}*"):
        if not Path("/proc", group.name.rpartition("-")[2]).exists():
            with contextlib.suppress(OSError):
                group.rmdir()


def _parent_of(root: Path) -> tuple[Path | None, str]:
    """Return the memory group of this process and the file name of its limit (cgroups version 1 or 2).

    In a container the mount point itself may be the group of this process.
    """
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None, ""
    groups = {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines)}
    is_first_version = "memory" in groups
    mount = root / "memory" if is_first_version else root
    own = mount / groups.get("memory" if is_first_version else "", "/").strip("/")
    parent = next((folder for folder in (own, mount) if folder.is_dir()), None)
    return parent, "memory.limit_in_bytes" if is_first_version else "memory.max"
