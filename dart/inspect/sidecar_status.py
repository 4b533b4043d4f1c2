"""The status of sidecars. Each sidecar writes a file; readers ignore the file once the sidecar has ended."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from actors.process import is_running, start_ticks
from dart.core.run_directory import RunPaths

WEB = "web"
TRACKING = "tracking"
CONTROL = "control"
"""The control endpoint. It is a thread of the main process and has a status only while it cannot serve."""

INSPECTION = "inspection"
"""The inspection endpoint. In a mirror, its status says whether this machine can reach the endpoint."""

CLUSTER = "cluster"
"""The process that is connected to Ray. It has a status only while a node that Ray reports as alive has no
agent."""

NAMES = (WEB, TRACKING, CONTROL, INSPECTION, CLUSTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """The status of a sidecar."""

    name: str
    is_well: bool
    """Whether the sidecar does its job."""
    text: str
    """The address of the sidecar, or what it waits for."""


def write_sidecar(paths: RunPaths, sidecar: Sidecar) -> None:
    """Write the status of a sidecar. Readers ignore it once this process has ended. Raises OSError."""
    said = asdict(sidecar) | {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid())}
    path = _file(paths, sidecar.name)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(said))
    new.replace(path)


def beat(paths: RunPaths, name: str) -> None:
    """Give a sign of life of a sidecar. A sidecar calls this every few seconds, after `write_sidecar`."""
    os.utime(_file(paths, name))


def last_beat_unix_s(paths: RunPaths, name: str) -> float | None:
    """Return the time of a sidecar's last sign of life, by the wall clock; None before its first."""
    try:
        return _file(paths, name).stat().st_mtime
    except FileNotFoundError:
        return None


def read_sidecar(paths: RunPaths, name: str) -> Sidecar | None:
    """Return the status of a sidecar; None if the sidecar does not run or has not written a status yet."""
    try:
        said = json.loads(_file(paths, name).read_text())
        pid, ticks = int(said["pid"]), int(said["start_ticks"])
        sidecar = Sidecar(name=name, is_well=bool(said["is_well"]), text=str(said["text"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return sidecar if is_running(pid, ticks) else None


def read_sidecars(paths: RunPaths) -> tuple[Sidecar, ...]:
    """The status of every sidecar that has one."""
    found = (read_sidecar(paths, name) for name in NAMES)
    return tuple(sidecar for sidecar in found if sidecar is not None)


def remove_sidecar(paths: RunPaths, name: str) -> None:
    """Remove the status of a sidecar that has ended."""
    _file(paths, name).unlink(missing_ok=True)


def _file(paths: RunPaths, name: str) -> Path:
    return paths.root / f"{name}.json"
