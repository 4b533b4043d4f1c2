"""The GPUs of one engine on a node whose engines come and go: taken by file locks, which the kernel frees.

On one machine each engine's GPUs follow from its number (`dart.config.gpus`). An engine that is placed on a
node takes GPUs there that no other engine holds, and holds them until its process ends.
"""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from dart.core.errors import UnavailableError

OF_ENGINES = "engine_gpus.json"
"""File in the run directory of a node: the GPUs that engines may have there."""

WAIT_S = 15.0
"""Time for the processes of an earlier engine to end and free their GPUs."""

POLL_S = 0.05


def publish_gpus(run_dir: Path, gpus: Sequence[str]) -> None:
    """Write which GPUs engines may have on this node. Called before its actors start."""
    (run_dir / OF_ENGINES).write_text(json.dumps(list(gpus)), encoding="utf-8")


def take_gpus(
    run_dir: Path,
    count: int,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[str, ...]:
    """Take `count` GPUs of this node for this process until its end.

    raises   UnavailableError if so many are not free in time
    """
    gpus = json.loads((run_dir / OF_ENGINES).read_text(encoding="utf-8"))
    give_up_s = clock() + WAIT_S
    while True:
        taken = _locked(run_dir, gpus, count)
        if len(taken) == count:
            return taken
        if clock() > give_up_s:
            raise UnavailableError(
                f"the engine needs {count} GPUs and not so many are free after {WAIT_S:g} s; engines of this "
                f"node may have {', '.join(gpus) or 'none'}"
            )
        sleep(POLL_S)


def _locked(run_dir: Path, gpus: Sequence[str], count: int) -> tuple[str, ...]:
    """Lock the first `count` GPUs that are free, or none if there are fewer."""
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
