"""A limit on the memory of a sandbox, through a control group where the kernel permits one."""

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
PREFIX = "dartrl-"


class MemoryLimit:
    """One control group. Without the rights for it, or with 0 bytes, it does nothing; `holds` is False
    then."""

    def __init__(self, name: str, limit_bytes: int, root: Path = CGROUPS) -> None:
        self._bytes = limit_bytes
        self._folder: Path | None = None
        self.holds = False
        parent, self._file = _parent_of(root)
        if limit_bytes and parent is not None:
            self._folder = parent / f"{PREFIX}{re.sub(r'[^A-Za-z0-9]+', '-', name)}-{os.getpid()}"

    def take(self, pids: Iterable[int]) -> None:
        """Limit the memory of these processes and of all that they start from now on, in total."""
        if self._folder is None:
            return
        _sweep(self._folder.parent)
        try:
            self._folder.mkdir(exist_ok=True)
            (self._folder / self._file).write_text(str(self._bytes))
            for pid in pids:
                (self._folder / "cgroup.procs").write_text(str(pid))
            self.holds = True
        except OSError:
            self.release()

    def release(self) -> None:
        """Remove the group. A group with running processes stays and is removed by `_sweep` later."""
        if self._folder is not None:
            with contextlib.suppress(OSError):
                self._folder.rmdir()
        self.holds = False


def _sweep(parent: Path) -> None:
    """Remove the groups of environments that were killed; groups with running processes stay."""
    for folder in parent.glob(f"{PREFIX}*"):
        pid = folder.name.rpartition("-")[2]
        if not Path(f"/proc/{pid}").exists():
            with contextlib.suppress(OSError):
                folder.rmdir()


def _parent_of(root: Path) -> tuple[Path | None, str]:
    """Return the memory group of this process and the file name of its limit (cgroups version 1 or 2)."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None, ""
    groups = {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines)}
    if "memory" in groups:
        return _existing(root / "memory", groups["memory"]), "memory.limit_in_bytes"
    return _existing(root, groups.get("", "/")), "memory.max"


def _existing(mount: Path, path: str) -> Path | None:
    """Return the folder of a group; in a container the mount itself may be the process's own group."""
    own = mount / path.strip("/")
    return next((folder for folder in (own, mount) if folder.is_dir()), None)
