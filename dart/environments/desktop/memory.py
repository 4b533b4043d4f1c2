"""A limit on the memory of a sandbox, by a control group of its own where the kernel lets us make one."""

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
PREFIX = "dartrl-"


class MemoryLimit:
    """One control group; without rights, or with 0 bytes, it does nothing, and `holds` says so."""

    def __init__(self, name: str, limit_bytes: int, root: Path = CGROUPS) -> None:
        self._bytes = limit_bytes
        self._folder: Path | None = None
        self.holds = False
        parent, self._file = _parent_of(root)
        if limit_bytes and parent is not None:
            self._folder = parent / f"{PREFIX}{re.sub(r'[^A-Za-z0-9]+', '-', name)}-{os.getpid()}"

    def take(self, pids: Iterable[int]) -> None:
        """Limit these processes and all they start from now on, together."""
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
        """Remove the group; one whose processes have not all ended stays for `_sweep`."""
        if self._folder is not None:
            with contextlib.suppress(OSError):
                self._folder.rmdir()
        self.holds = False


def _sweep(parent: Path) -> None:
    """Remove what killed environments left; a group in which something lives cannot be removed."""
    for folder in parent.glob(f"{PREFIX}*"):
        pid = folder.name.rpartition("-")[2]
        if not Path(f"/proc/{pid}").exists():
            with contextlib.suppress(OSError):
                folder.rmdir()


def _parent_of(root: Path) -> tuple[Path | None, str]:
    """The memory group this process is in and the name of its limit, of version 1 or 2 of control groups."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None, ""
    groups = {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines)}
    if "memory" in groups:
        return _existing(root / "memory", groups["memory"]), "memory.limit_in_bytes"
    return _existing(root, groups.get("", "/")), "memory.max"


def _existing(mount: Path, path: str) -> Path | None:
    """In a container the mount may begin at our own group."""
    own = mount / path.strip("/")
    return next((folder for folder in (own, mount) if folder.is_dir()), None)
