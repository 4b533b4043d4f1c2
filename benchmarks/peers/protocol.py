"""What every program in this folder shares: how it is asked, how it answers, and what it reads from /proc.

    python -m benchmarks.peers.NAME MEASUREMENT '{"children": 100, ...}'

prints one line of JSON, last: the figures, or why there are none. `version` is a measurement like the others.
Only the standard library is used here, because each peer runs with an interpreter of its own.
"""

import json
import os
import resource
import select
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

MARK = "ACTORS_BENCHMARK"
"""An environment variable every process of a measurement inherits: how all of them are found."""

PAYLOAD = "x" * 100
BLOB_BYTES = 300_000
SHARED_MEMORY = Path("/dev/shm")
GIVE_UP_S = 20.0
"""After it a replacement that has not answered counts as missed."""

Measure = Callable[[dict[str, Any]], dict[str, Any]]


class Unsupported(Exception):
    """The peer has no such thing; the text says what it has instead."""


def serve(
    measurements: Mapping[str, Measure], reasons: Mapping[str, str], version: Callable[[], str]
) -> None:
    """Carry out the measurement named on the command line and print its figures.

    reasons   for each measurement the peer cannot do: why
    """
    name, params = sys.argv[1], json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    raise_file_limit()
    if name == "version":
        answer: dict[str, Any] = {"version": version()}
    elif name in measurements:
        try:
            answer = {"figures": measurements[name](params)}
        except Unsupported as why:
            answer = {"unsupported": str(why)}
    else:
        answer = {"unsupported": reasons.get(name, f"no measurement is named {name!r}")}
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
    sys.stdout.flush()


def raise_file_limit() -> None:
    """A parent holds a few descriptors for each child; the usual 1024 end at about 300 children."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def marked_pids(mark: str | None = None) -> list[int]:
    """Every living process that carries the mark of this measurement."""
    wanted = f"{MARK}={mark or os.environ.get(MARK, '')}".encode()
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                pids.append(int(folder.name))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return pids


def cpu_s(pids: Iterable[int]) -> float:
    """CPU time these processes have used, user and system, all threads, to the nanosecond.

    The number is the kernel's clock id for another process's CPU time (`clock_getcpuclockid(3)`).
    """
    total_s = 0.0
    for pid in pids:
        try:
            total_s += time.clock_gettime((~pid << 3) | 2)
        except OSError:
            continue
    return total_s


def private_bytes(pid: int) -> int:
    """Memory that would be free again if this process ended (USS)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))


def idle_figures(
    pids: Iterable[int], actor_pids: Iterable[int], cpu_before_s: float, seconds: float
) -> dict[str, Any]:
    """What doing nothing cost these processes since `cpu_before_s` was read, `seconds` ago."""
    used_s = cpu_s(pids) - cpu_before_s
    return {
        "idle_cpu_percent": 100 * used_s / seconds,
        "private_mib": [private_bytes(pid) / 2**20 for pid in actor_pids],
    }


def wait_gone_ns(pidfd: int, deadline_s: float = GIVE_UP_S) -> int:
    """When the process ended, on the monotonic clock; 0 when it did not."""
    with os.fdopen(pidfd) as held:
        poller = select.poll()
        poller.register(held, select.POLLIN)
        return time.monotonic_ns() if poller.poll(deadline_s * 1000) else 0


def victims(children: int, count: int) -> list[int]:
    """Which children are killed one after the other, spread over all of them."""
    return [(i * max(1, children // count)) % children for i in range(count)]
