"""Pykka: actors are threads of one process, so there is nothing to kill and nobody who restarts."""

import os
import time
from importlib.metadata import version
from typing import Any

import pykka

from benchmarks.peers import protocol

REASONS = {
    "restart": "Pykka's actors are threads, which nobody can kill; it has no supervisors",
    "hang": "Pykka does not look whether an actor hangs",
}


class Child(pykka.ThreadingActor):
    """Answers what it gets; counts items."""

    def __init__(self) -> None:
        super().__init__()
        self._handled = 0

    def on_receive(self, message: Any) -> Any:
        match message:
            case "handled":
                return self._handled
            case ("item", _):
                self._handled += 1
                return None
            case bytes():
                return len(message)
        return message


class Pinger(pykka.ThreadingActor):
    """Measures, actor to actor."""

    def on_receive(self, message: Any) -> dict[str, Any]:
        child, plan = message
        times_us = []
        cpu_s = time.process_time()
        for _ in range(plan["round_trips"]):
            began_ns = time.perf_counter_ns()
            child.ask(protocol.PAYLOAD)
            times_us.append((time.perf_counter_ns() - began_ns) / 1000)
        cpu_s = time.process_time() - cpu_s
        return {
            "round_trip_us": times_us,
            "round_trip_cpu_us": 1e6 * cpu_s / (2 * plan["round_trips"]),
            **_stream(child, plan["stream"]),
            **_references(child, plan["references"]),
        }


def _stream(child: Any, count: int) -> dict[str, Any]:
    cpu_s, began_s = time.process_time(), time.perf_counter()
    for _ in range(count):
        child.tell(("item", protocol.PAYLOAD))
    handled = child.ask("handled")
    seconds = time.perf_counter() - began_s
    if handled != count:
        raise RuntimeError(f"{handled} of {count} messages were handled")
    return {"stream_per_s": count / seconds, "stream_cpu_us": 1e6 * (time.process_time() - cpu_s) / count}


def _references(child: Any, count: int) -> dict[str, Any]:
    """Threads share memory: the object itself is the reference."""
    blob, times_us = os.urandom(protocol.BLOB_BYTES), []
    for _ in range(count):
        began_ns = time.perf_counter_ns()
        child.ask(blob)
        times_us.append((time.perf_counter_ns() - began_ns) / 1000)
    return {"reference_us": times_us}


def messages(params: dict[str, Any]) -> dict[str, Any]:
    try:
        figures: dict[str, Any] = Pinger.start().ask((Child.start(), params))
        return figures
    finally:
        pykka.ActorRegistry.stop_all()


def idle(params: dict[str, Any]) -> dict[str, Any]:
    before_bytes = protocol.private_bytes(os.getpid())
    try:
        for _ in range(params["children"]):
            Child.start().ask("handled")
        cpu_s = time.process_time()
        time.sleep(params["seconds"])
        used_s = time.process_time() - cpu_s
        each_bytes = (protocol.private_bytes(os.getpid()) - before_bytes) / params["children"]
    finally:
        pykka.ActorRegistry.stop_all()
    return {"idle_cpu_percent": 100 * used_s / params["seconds"], "private_mib": [each_bytes / 2**20]}


if __name__ == "__main__":
    protocol.serve({"messages": messages, "idle": idle}, REASONS, lambda: version("pykka"))
