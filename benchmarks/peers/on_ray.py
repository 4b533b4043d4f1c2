"""Ray: an actor with `max_restarts=-1` is started again by Ray itself, one at a time, without its state."""

import os
import signal
import time
from typing import Any

import ray

from benchmarks.peers import protocol

REASONS = {"hang": "Ray does not look whether an actor hangs; only a caller's own timeout ends its wait"}
MASS_GIVE_UP_S = 60.0
RESTARTED = {"max_restarts": -1, "max_task_retries": -1, "num_cpus": 0}


class _Child:
    """What is killed, and what is written to."""

    def __init__(self) -> None:
        self._handled = 0

    def pid(self) -> int:
        return os.getpid()

    def echo(self, text: str) -> str:
        return text

    def handle(self, text: str) -> None:
        self._handled += 1

    def handled(self) -> int:
        return self._handled

    def read(self, blob: bytes) -> int:
        return len(blob)


class _Pinger:
    """Measures, actor to actor."""

    def measure(self, child: Any, plan: dict[str, Any]) -> dict[str, Any]:
        both = (os.getpid(), ray.get(child.pid.remote()))
        for _ in range(20):
            ray.get(child.echo.remote(protocol.PAYLOAD))
        return (
            self._round_trips(child, both, plan["round_trips"])
            | self._stream(child, both, plan["stream"])
            | self._references(child, plan["references"])
        )

    def _round_trips(self, child: Any, both: tuple[int, int], count: int) -> dict[str, Any]:
        times_us = []
        cpu_s = protocol.cpu_s(both)
        for _ in range(count):
            began_ns = time.perf_counter_ns()
            ray.get(child.echo.remote(protocol.PAYLOAD))
            times_us.append((time.perf_counter_ns() - began_ns) / 1000)
        used_s = protocol.cpu_s(both) - cpu_s
        return {"round_trip_us": times_us, "round_trip_cpu_us": 1e6 * used_s / (2 * count)}

    def _stream(self, child: Any, both: tuple[int, int], count: int) -> dict[str, Any]:
        cpu_s, began_s = protocol.cpu_s(both), time.perf_counter()
        for _ in range(count):
            child.handle.remote(protocol.PAYLOAD)
        handled = ray.get(child.handled.remote())
        seconds = time.perf_counter() - began_s
        if handled != count:
            raise RuntimeError(f"{handled} of {count} messages were handled")
        used_s = protocol.cpu_s(both) - cpu_s
        return {"stream_per_s": count / seconds, "stream_cpu_us": 1e6 * used_s / count}

    def _references(self, child: Any, count: int) -> dict[str, Any]:
        """Through Ray's own object store."""
        blob, times_us = os.urandom(protocol.BLOB_BYTES), []
        for _ in range(count):
            began_ns = time.perf_counter_ns()
            ray.get(child.read.remote(ray.put(blob)))
            times_us.append((time.perf_counter_ns() - began_ns) / 1000)
        return {"reference_us": times_us}


def _start() -> None:
    ray.init(
        num_cpus=os.cpu_count(), include_dashboard=False, logging_level="ERROR", log_to_driver=False,
        object_store_memory=200 * 2**20,
    )  # fmt: skip


def _children(count: int) -> tuple[list[Any], list[int]]:
    actor = ray.remote(**RESTARTED)(_Child)
    children = [actor.remote() for _ in range(count)]
    return children, ray.get([child.pid.remote() for child in children])


def messages(params: dict[str, Any]) -> dict[str, Any]:
    _start()
    children, _ = _children(1)
    figures: dict[str, Any] = ray.get(
        ray.remote(num_cpus=0)(_Pinger).remote().measure.remote(children[0], params)
    )
    return figures


def restart(params: dict[str, Any]) -> dict[str, Any]:
    """A call is handed to Ray at once; Ray keeps it until the replacement is there."""
    _start()
    children, pids = _children(params["children"])
    kill_ms = []
    for number in protocol.victims(params["children"], params["kills"]):
        began_ns = time.monotonic_ns()
        os.kill(pids[number], signal.SIGKILL)
        pids[number] = _successor(children[number], pids[number])
        kill_ms.append((time.monotonic_ns() - began_ns) / 1e6)
    began_ns = time.monotonic_ns()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    _, missed = ray.wait(
        [child.pid.remote() for child in children], num_returns=len(children), timeout=MASS_GIVE_UP_S
    )
    mass_ms = (time.monotonic_ns() - began_ns) / 1e6
    return {"kill_ms": kill_ms, "mass_ms": [mass_ms], "missed": len(missed)}


def _successor(child: Any, killed: int) -> int:
    """The pid of who answers now; a first answer may still be the killed one's."""
    while (pid := ray.get(child.pid.remote(), timeout=protocol.GIVE_UP_S)) == killed:
        pass
    return int(pid)


def idle(params: dict[str, Any]) -> dict[str, Any]:
    _start()
    _, pids = _children(params["children"])
    time.sleep(5.0)
    everyone = protocol.marked_pids()
    before_s, began_s = protocol.cpu_s(everyone), time.monotonic()
    time.sleep(params["seconds"])
    return protocol.idle_figures(everyone, pids, before_s, time.monotonic() - began_s)


if __name__ == "__main__":
    protocol.serve(
        {"restart": restart, "messages": messages, "idle": idle}, REASONS, lambda: str(ray.__version__)
    )
