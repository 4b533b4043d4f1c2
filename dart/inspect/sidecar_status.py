"""How those beside the tree are: each says it in a file of its own, which holds while it runs."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from actors.process import is_alive, start_ticks
from dart.core.run_directory import RunPaths

WEB = "web"
TRACKING = "tracking"
CONTROL = "control"
"""A thread of the main process, which says something only while it does not serve."""

NAMES = (WEB, TRACKING, CONTROL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """One that is beside the tree."""

    name: str
    is_well: bool
    """Whether it does what it is there for."""
    text: str
    """Where it is to be found, or what it waits for."""


def say(paths: RunPaths, sidecar: Sidecar) -> None:
    """Write down how it is, which holds while this process runs. Raises OSError."""
    said = asdict(sidecar) | {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid())}
    path = _file(paths, sidecar.name)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(said))
    new.replace(path)


def beat(paths: RunPaths, name: str) -> None:
    """Show that this process still works, after it has said how it is. To be called every few seconds."""
    os.utime(_file(paths, name))


def silent_s(paths: RunPaths, name: str, now_unix_s: float) -> float:
    """Since the last sign of life; 0 before the first."""
    try:
        return now_unix_s - _file(paths, name).stat().st_mtime
    except FileNotFoundError:
        return 0.0


def read_sidecar(paths: RunPaths, name: str) -> Sidecar | None:
    """How it is; None where it does not run, or has not said anything yet."""
    try:
        said = json.loads(_file(paths, name).read_text())
        pid, ticks = int(said["pid"]), int(said["start_ticks"])
        sidecar = Sidecar(name=name, is_well=bool(said["is_well"]), text=str(said["text"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return sidecar if start_ticks(pid) == ticks and is_alive(pid) else None


def read_sidecars(paths: RunPaths) -> tuple[Sidecar, ...]:
    """All that run."""
    found = (read_sidecar(paths, name) for name in NAMES)
    return tuple(sidecar for sidecar in found if sidecar is not None)


def forget(paths: RunPaths, name: str) -> None:
    """Remove what one has said that has ended."""
    _file(paths, name).unlink(missing_ok=True)


def _file(paths: RunPaths, name: str) -> Path:
    return paths.root / f"{name}.json"
