"""The limit: forked processes, two pipes each, one loop over epoll. No names, no checks, no framework.

Its restart is a fork as soon as the pidfd says the child has ended.
"""

import os
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.peers import protocol

REASONS = {"hang": "nothing looks whether a process hangs"}
MASS_GIVE_UP_S = 60.0
STREAM_END = b"."


class Process:
    """A child and the two pipes to it."""

    def __init__(self, serve: Any) -> None:
        to_child, from_child = os.pipe(), os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(to_child[1])
            os.close(from_child[0])
            serve(to_child[0], from_child[1])
            os._exit(0)
        os.close(to_child[0])
        os.close(from_child[1])
        self.pidfd = os.pidfd_open(self.pid)
        self.writes, self.reads = to_child[1], from_child[0]

    def status(self) -> int:
        """Collect the exit status, minus the signal, and close everything."""
        _, status = os.waitpid(self.pid, 0)
        for fd in (self.pidfd, self.writes, self.reads):
            os.close(fd)
        return os.waitstatus_to_exitcode(status)


def _echo(reads: int, writes: int) -> None:
    while data := os.read(reads, 4096):
        os.write(writes, data)


def _count(reads: int, writes: int) -> None:
    """Items are read one by one, as messages are; the last is another text."""
    size = len(protocol.PAYLOAD)
    with os.fdopen(reads, "rb") as items:
        while (item := items.read(size)).startswith(b"x"):
            pass
    os.write(writes, item[:1])


def _read_file(reads: int, writes: int) -> None:
    while path := os.read(reads, 4096):
        os.write(writes, str(len(Path(path.decode()).read_bytes())).encode())


class Parent:
    """Keeps its children alive."""

    def __init__(self, children: int) -> None:
        self.epoll = select.epoll()
        self.processes: dict[int, Process] = {}
        self._owners: dict[int, int] = {}
        self.wrong: list[str] = []
        for number in range(children):
            self.start(number)
        self.restart_until_answered(set(range(children)), MASS_GIVE_UP_S)

    def start(self, number: int) -> None:
        process = self.processes[number] = Process(_echo)
        os.set_blocking(process.reads, False)
        for fd in (process.pidfd, process.reads):
            self.epoll.register(fd, select.EPOLLIN)
            self._owners[fd] = number
        os.write(process.writes, b"ping")

    def restart_until_answered(self, waited_for: set[int], deadline_s: float) -> int:
        """Restart what ended until all these have answered; how many have not."""
        give_up_s = time.monotonic() + deadline_s
        while waited_for and time.monotonic() < give_up_s:
            for fd, _ in self.epoll.poll(1.0):
                number = self._owners[fd]
                process = self.processes[number]
                if fd == process.pidfd:
                    self._restart(number, process)
                elif self._has_answered(process):
                    waited_for.discard(number)
        return len(waited_for)

    def _restart(self, number: int, ended: Process) -> None:
        for fd in (ended.pidfd, ended.reads):
            self.epoll.unregister(fd)  # closing alone leaves it there: the siblings inherited it
        code = ended.status()
        if code != -signal.SIGKILL:
            self.wrong.append(f"exit code {code}")
        self.start(number)

    @staticmethod
    def _has_answered(process: Process) -> bool:
        """False also when the event was meant for an earlier bearer of the descriptor's number."""
        with suppress(BlockingIOError):
            return bool(os.read(process.reads, 4096))
        return False

    def kill(self, numbers: list[int], deadline_s: float) -> tuple[float, int]:
        """SIGKILL these; milliseconds until all have answered again, and how many have not."""
        began_ns = time.monotonic_ns()
        for number in numbers:
            os.kill(self.processes[number].pid, signal.SIGKILL)
        missed = self.restart_until_answered(set(numbers), deadline_s)
        return (time.monotonic_ns() - began_ns) / 1e6, missed


def restart(params: dict[str, Any]) -> dict[str, Any]:
    parent = Parent(params["children"])
    numbers = protocol.victims(params["children"], params["kills"])
    kills = [parent.kill([number], protocol.GIVE_UP_S) for number in numbers]
    mass_ms, missed = parent.kill(list(parent.processes), MASS_GIVE_UP_S)
    return {
        "kill_ms": [back_ms for back_ms, _ in kills],
        "mass_ms": [mass_ms],
        "missed": missed + sum(missed for _, missed in kills),
        "wrong_reasons": parent.wrong,
    }


def idle(params: dict[str, Any]) -> dict[str, Any]:
    parent = Parent(params["children"])
    pids = protocol.marked_pids()
    before_s, began_s = protocol.cpu_s(pids), time.monotonic()
    parent.epoll.poll(params["seconds"])
    actors = [process.pid for process in parent.processes.values()]
    return protocol.idle_figures(pids, actors, before_s, time.monotonic() - began_s)


def messages(params: dict[str, Any]) -> dict[str, Any]:
    return _round_trips(params["round_trips"]) | _stream(params["stream"]) | _references(params["references"])


def _round_trips(count: int) -> dict[str, Any]:
    child, payload, times_us = Process(_echo), protocol.PAYLOAD.encode(), []
    both = (os.getpid(), child.pid)
    cpu_s = protocol.cpu_s(both)
    for _ in range(count):
        began_ns = time.perf_counter_ns()
        os.write(child.writes, payload)
        os.read(child.reads, 4096)
        times_us.append((time.perf_counter_ns() - began_ns) / 1000)
    used_s = protocol.cpu_s(both) - cpu_s
    return {"round_trip_us": times_us, "round_trip_cpu_us": 1e6 * used_s / (2 * count)}


def _stream(count: int) -> dict[str, Any]:
    child, payload = Process(_count), protocol.PAYLOAD.encode()
    both = (os.getpid(), child.pid)
    cpu_s, began_s = protocol.cpu_s(both), time.perf_counter()
    for _ in range(count):
        os.write(child.writes, payload)
    os.write(child.writes, STREAM_END * len(payload))
    os.read(child.reads, 1)
    seconds = time.perf_counter() - began_s
    return {"stream_per_s": count / seconds, "stream_cpu_us": 1e6 * (protocol.cpu_s(both) - cpu_s) / count}


def _references(count: int) -> dict[str, Any]:
    child, blob, times_us = Process(_read_file), os.urandom(protocol.BLOB_BYTES), []
    for n in range(count):
        began_ns = time.perf_counter_ns()
        path = protocol.SHARED_MEMORY / f"benchmark-{os.getpid()}-{n}"
        path.write_bytes(blob)
        os.write(child.writes, str(path).encode())
        os.read(child.reads, 4096)
        times_us.append((time.perf_counter_ns() - began_ns) / 1000)
        path.unlink()
    return {"reference_us": times_us}


if __name__ == "__main__":
    measurements = {"restart": restart, "idle": idle, "messages": messages}
    protocol.serve(measurements, REASONS, lambda: f"os.pipe of Python {sys.version.split()[0]}")
