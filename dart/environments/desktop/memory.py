"""A limit on the memory of a sandbox, through a control group where the kernel permits one."""

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

import psutil

CGROUPS = Path("/sys/fs/cgroup")
PREFIX = "dartrl-"


class MemoryLimit:
    """The control group of one sandbox. Its methods do nothing if this process may not make control groups,
    or if ``limit_bytes`` is 0."""

    def __init__(self, name: str, limit_bytes: int, root: Path = CGROUPS) -> None:
        self._bytes = limit_bytes
        self.group: Path | None = None
        """Folder of the control group, which `take` makes; None without control groups or without a limit."""
        parent, self._file = _parent_of(root)
        if limit_bytes and parent is not None:
            self.group = parent / f"{PREFIX}{re.sub(r'[^A-Za-z0-9]+', '-', name)}-{os.getpid()}"

    def take(self, pids: Iterable[int]) -> None:
        """Limit the total memory of these processes and of all processes that they start from now on."""
        if self.group is None:
            return
        _sweep(self.group.parent)
        try:
            self.group.mkdir(exist_ok=True)
            (self.group / self._file).write_text(str(self._bytes))
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):  # it has ended
                    (self.group / "cgroup.procs").write_text(str(pid))
        except OSError:
            self.release()

    def take_tree(self, pid: int) -> None:
        """Limit a process with all its descendants, including those that start meanwhile."""
        taken: set[int] = set()
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(pid)
            while new := {pid, *(child.pid for child in root.children(recursive=True))} - taken:
                self.take(sorted(new))
                taken |= new

    def release(self) -> None:
        """Remove the group. A group with running processes stays and is removed by `_sweep` later."""
        if self.group is not None:
            with contextlib.suppress(OSError):
                self.group.rmdir()


def _sweep(parent: Path) -> None:
    """Remove empty groups that this process or a killed environment left behind; others stay."""
    for group in parent.glob(f"{PREFIX}*"):
        owner = group.name.rpartition("-")[2]
        if owner == str(os.getpid()) or not Path("/proc", owner).exists():
            with contextlib.suppress(OSError):
                group.rmdir()


def _parent_of(root: Path) -> tuple[Path | None, str]:
    """Return the memory group of this process and the name of its limit's file (cgroups version 1 or 2).

    The group is None when the kernel offers no control groups.

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
