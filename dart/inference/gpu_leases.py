"""Gives an engine its GPUs on a node of a cluster, by file locks that the kernel frees.

In a run on one machine, the GPUs of an engine follow from its number (`dart.config.gpus`). In a cluster,
engines are placed on nodes and move between them. There, an engine takes GPUs of the node that no other
engine holds, and holds them until its process ends.
"""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from dart.core.errors import UnavailableError

OF_ENGINES = "engine_gpus.json"
"""Name of the file, in the run directory of a node, with the GPUs that engines may use there."""

WAIT_S = 15.0
"""Longest wait in seconds until the processes of an earlier engine have ended and freed their GPUs."""

POLL_S = 0.05


def publish_gpus(run_dir: Path, gpus: Sequence[str]) -> None:
    """Write which GPUs engines may use on this node. Call it before the actors of the node start."""
    (run_dir / OF_ENGINES).write_text(json.dumps(list(gpus)), encoding="utf-8")


def take_gpus(run_dir: Path, count: int) -> tuple[str, ...]:
    """Take `count` GPUs of this node for this process, until the process ends, and return their names.

    raises   UnavailableError if fewer than `count` GPUs are free after WAIT_S
    """
    gpus = json.loads((run_dir / OF_ENGINES).read_text(encoding="utf-8"))
    give_up_s = time.monotonic() + WAIT_S
    while True:
        taken = _locked(run_dir, gpus, count)
        if len(taken) == count:
            return taken
        if time.monotonic() > give_up_s:
            raise UnavailableError(
                f"the engine needs {count} GPUs, and fewer are free after {WAIT_S:g} s; engines of this node "
                f"may have {', '.join(gpus) or 'none'}"
            )
        time.sleep(POLL_S)


def _locked(run_dir: Path, gpus: Sequence[str], count: int) -> tuple[str, ...]:
    """Lock the first `count` free GPUs and return them. If fewer are free, lock none and return these."""
    locks: dict[str, int] = {}
    for gpu in gpus:
        if len(locks) == count:
            break
        fd = os.open(run_dir / f"gpu-{gpu}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
        else:
            locks[gpu] = fd
    if len(locks) < count:
        for fd in locks.values():
            with contextlib.suppress(OSError):
                os.close(fd)
    return tuple(locks)
