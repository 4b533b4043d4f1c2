"""Monarch (torchmonarch): an owner actor that spawns its children anew in `__supervise__`.

Monarch tells the owner and does no more; what is measured is the least that starts a replacement. Tuned means
that it looks every 200 ms (`HYPERACTOR_MESH_SUPERVISION_POLL_FREQUENCY`) instead of every 10 s.
"""

import asyncio
import os
import signal
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from monarch.actor import Actor, MeshFailure, endpoint, this_host

from benchmarks.peers import protocol

REASONS = {"hang": "Monarch tells the owner of a process that ended, not of one that hangs"}
SUPERVISED_S = 30.0


class Child(Actor):
    """What is killed, and what is written to."""

    def __init__(self) -> None:
        self._handled = 0

    @endpoint
    async def pid(self) -> int:
        return os.getpid()

    @endpoint
    async def echo(self, text: str) -> str:
        return text

    @endpoint
    async def handle(self, text: str) -> None:
        self._handled += 1

    @endpoint
    async def handled(self) -> int:
        return self._handled

    @endpoint
    async def read(self, path: str) -> int:
        return len(Path(path).read_bytes())  # noqa: ASYNC240


class Owner(Actor):
    """Owns the children, kills them, measures."""

    def __init__(self) -> None:
        self._children: list[Any] = []
        self._pids: list[int] = []
        self._failed = asyncio.Event()
        self._generation = 0

    def __supervise__(self, failure: MeshFailure) -> bool:
        self._loop.call_soon_threadsafe(self._failed.set)
        return True

    async def _spawn(self) -> tuple[Any, int]:
        self._generation += 1
        procs = this_host().spawn_procs(per_host={"one": 1}, name=f"procs{self._generation}")
        child = procs.spawn(f"child{self._generation}", Child)
        return child, await child.pid.call_one()

    @endpoint
    async def start(self, count: int) -> list[int]:
        self._loop = asyncio.get_running_loop()
        for _ in range(count):
            child, pid = await self._spawn()
            self._children.append(child)
            self._pids.append(pid)
        return self._pids

    @endpoint
    async def kill(self, number: int) -> float:
        """Milliseconds from SIGKILL to the replacement's answer."""
        self._failed.clear()
        began_ns = time.monotonic_ns()
        os.kill(self._pids[number], signal.SIGKILL)
        await asyncio.wait_for(self._failed.wait(), SUPERVISED_S)
        self._children[number], self._pids[number] = await self._spawn()
        return (time.monotonic_ns() - began_ns) / 1e6

    @endpoint
    async def measure(self, plan: dict[str, int]) -> dict[str, Any]:
        child, both = self._children[0], (os.getpid(), self._pids[0])
        for _ in range(20):
            await child.echo.call_one(protocol.PAYLOAD)
        return {
            **await self._round_trips(child, both, plan["round_trips"]),
            **await self._stream(child, both, plan["stream"]),
            **await self._references(child, plan["references"]),
        }

    async def _round_trips(self, child: Any, both: tuple[int, int], count: int) -> dict[str, Any]:
        times_us = []
        cpu_s = protocol.cpu_s(both)
        for _ in range(count):
            began_ns = time.perf_counter_ns()
            await child.echo.call_one(protocol.PAYLOAD)
            times_us.append((time.perf_counter_ns() - began_ns) / 1000)
        used_s = protocol.cpu_s(both) - cpu_s
        return {"round_trip_us": times_us, "round_trip_cpu_us": 1e6 * used_s / (2 * count)}

    async def _stream(self, child: Any, both: tuple[int, int], count: int) -> dict[str, Any]:
        cpu_s, began_s = protocol.cpu_s(both), time.perf_counter()
        for _ in range(count):
            child.handle.broadcast(protocol.PAYLOAD)
        handled = await child.handled.call_one()
        seconds = time.perf_counter() - began_s
        if handled != count:
            raise RuntimeError(f"{handled} of {count} messages were handled")
        used_s = protocol.cpu_s(both) - cpu_s
        return {"stream_per_s": count / seconds, "stream_cpu_us": 1e6 * used_s / count}

    async def _references(self, child: Any, count: int) -> dict[str, Any]:
        blob, times_us = os.urandom(protocol.BLOB_BYTES), []
        for n in range(count):
            began_ns = time.perf_counter_ns()
            path = protocol.SHARED_MEMORY / f"benchmark-{os.getpid()}-{n}"
            path.write_bytes(blob)
            await child.read.call_one(str(path))
            times_us.append((time.perf_counter_ns() - began_ns) / 1000)
            path.unlink()
        return {"reference_us": times_us}


def _start(children: int) -> tuple[Any, list[int]]:
    owner = this_host().spawn_procs(per_host={"one": 1}, name="owner").spawn("owner", Owner)
    return owner, owner.start.call_one(children).get()


def restart(params: dict[str, Any]) -> dict[str, Any]:
    owner, _ = _start(params["children"])
    numbers = protocol.victims(params["children"], params["kills"])
    return {"kill_ms": [owner.kill.call_one(number).get() for number in numbers]}


def messages(params: dict[str, Any]) -> dict[str, Any]:
    owner, _ = _start(1)
    figures: dict[str, Any] = owner.measure.call_one(params).get()
    return figures


def idle(params: dict[str, Any]) -> dict[str, Any]:
    _, pids = _start(params["children"])
    time.sleep(5.0)
    everyone = protocol.marked_pids()
    before_s, began_s = protocol.cpu_s(everyone), time.monotonic()
    time.sleep(params["seconds"])
    return protocol.idle_figures(everyone, pids, before_s, time.monotonic() - began_s)


if __name__ == "__main__":
    protocol.serve(
        {"restart": restart, "messages": messages, "idle": idle}, REASONS, lambda: version("torchmonarch")
    )
