"""Thespian as it comes (TCP base), with the supervisor its manual suggests: recreate on ChildActorExited.

None of this project's repairs are in these processes.
"""

import os
import signal
import socket
import time
from collections import deque
from datetime import timedelta
from pathlib import Path
from typing import Any

from thespian.actors import Actor, ActorSystem, ChildActorExited, WakeupMessage

from benchmarks.peers import protocol

MASS_GIVE_UP_S = 10.0
"""Exits that were not reported by then are lost; the rest takes under 8 s even for 400."""
START_S = 60.0
WHOLE = timedelta(seconds=400)

REASONS = {"hang": "Thespian does not look whether an actor hangs"}


class Child(Actor):  # type: ignore[misc]  # Thespian is untyped
    """What is killed, and what is written to."""

    def __init__(self) -> None:
        super().__init__()
        self._handled = 0

    def receiveMessage(self, message: Any, sender: Any) -> None:
        match message:
            case ("ping", number):
                self.send(sender, ("pong", number, os.getpid()))
            case {"text": _}:
                self.send(sender, message)
            case ("item", _, is_last):
                self._handled += 1
                if is_last:
                    self.send(sender, ("handled", self._handled))
            case ("read", path):
                self.send(sender, ("bytes", len(Path(path).read_bytes())))


class Recreating(Actor):  # type: ignore[misc]
    """Creates children, recreates what exited, kills as it was told, and answers with the times."""

    def receiveMessage(self, message: Any, sender: Any) -> None:
        match message:
            case {"children": _}:
                self._begin(message, sender)
            case ("pong", number, pid):
                self._answered(number, pid)
            case ChildActorExited():
                self._recreate(message.childAddress)
            case WakeupMessage():
                message.payload()

    def _recreate(self, address: Any) -> None:
        if address in self._children:  # a second notice of one exit finds nothing
            self._create(self._children.index(address))

    def _create(self, number: int) -> None:
        self._children[number] = self.createActor(Child)
        self.send(self._children[number], ("ping", number))

    # ---- the measurement ----

    def _begin(self, plan: dict[str, Any], asker: Any) -> None:
        self._plan, self._asker = plan, asker
        self._children: list[Any] = [None] * plan["children"]
        self._pids: dict[int, int] = {}
        self._queue = deque(plan["victims"])
        self._how = "start"
        self._figures: dict[str, Any] = {"missed": 0}
        self._struck_ns = {number: time.monotonic_ns() for number in range(plan["children"])}
        for number in range(plan["children"]):
            self._create(number)
        self._call_after(START_S, self._give_up_on(0))
        self._strikes = 0

    def _answered(self, number: int, pid: int) -> None:
        now_ns = time.monotonic_ns()
        self._pids[number] = pid
        if number in self._struck_ns:
            back_ms = (now_ns - self._struck_ns.pop(number)) / 1e6
            self._figures.setdefault(f"{self._how}_ms", []).append(back_ms)
            if not self._struck_ns:
                self._go_on()

    def _go_on(self) -> None:
        if self._how == "start" and self._plan["idle_s"]:
            self._how = "idle"
            self._call_after(2.0, self._begin_idle)
        elif self._queue:
            self._how = "kill"
            self._strike([self._queue.popleft()], protocol.GIVE_UP_S)
        elif self._how == "kill":
            self._how = "mass"
            self._strike(list(self._pids), MASS_GIVE_UP_S)
        else:
            self.send(self._asker, self._figures)

    def _strike(self, numbers: list[int], give_up_s: float) -> None:
        self._strikes += 1
        self._call_after(give_up_s, self._give_up_on(self._strikes))
        began_ns = time.monotonic_ns()
        self._struck_ns = dict.fromkeys(numbers, began_ns)
        for number in numbers:
            os.kill(self._pids[number], signal.SIGKILL)

    def _give_up_on(self, strike: int) -> Any:
        def give_up() -> None:
            if strike == self._strikes and self._struck_ns:
                self._figures["missed"] += len(self._struck_ns)
                self._figures.pop(f"{self._how}_ms", None)  # not all are back: no time until they are
                self._struck_ns = {}
                self._go_on()

        return give_up

    def _begin_idle(self) -> None:
        pids = protocol.marked_pids()
        before_s, began_s = protocol.cpu_s(pids), time.monotonic()

        def end() -> None:
            passed_s = time.monotonic() - began_s
            self._figures |= protocol.idle_figures(pids, self._pids.values(), before_s, passed_s)
            self._go_on()

        self._call_after(self._plan["idle_s"], end)

    def _call_after(self, seconds: float, callback: Any) -> None:
        self.wakeupAfter(timedelta(seconds=seconds), callback)


class Pinger(Actor):  # type: ignore[misc]
    """Measures messages on being told how many of each; answers with the figures."""

    def receiveMessage(self, message: Any, sender: Any) -> None:
        match message:
            case {"round_trips": _}:
                self._plan, self._asker = message, sender
                self._figures: dict[str, Any] = {"round_trip_us": [], "reference_us": []}
                self._child = self.createActor(Child)
                self._warm_ups, self._began_ns = 20, 0
                self.send(self._child, {"text": protocol.PAYLOAD})
            case {"text": _}:
                self._round_trip_ended(sender)
            case ("handled", count):
                self._stream_ended(count)
            case ("bytes", count):
                self._reference_ended(count)

    def _round_trip_ended(self, child: Any) -> None:
        times_us = self._figures["round_trip_us"]
        if self._warm_ups:
            self._warm_ups -= 1
            if not self._warm_ups:
                self._both = [pid for pid in protocol.marked_pids() if pid != os.getppid()]
                self._cpu_s = protocol.cpu_s(self._both)
        else:
            times_us.append((time.perf_counter_ns() - self._began_ns) / 1000)
        if len(times_us) == self._plan["round_trips"]:
            used_s = protocol.cpu_s(self._both) - self._cpu_s
            self._figures["round_trip_cpu_us"] = 1e6 * used_s / (2 * len(times_us))
            self._begin_stream()
            return
        self._began_ns = time.perf_counter_ns()
        self.send(child, {"text": protocol.PAYLOAD})

    def _begin_stream(self) -> None:
        count = self._plan["stream"]
        self._cpu_s, self._began_ns = protocol.cpu_s(self._both), time.perf_counter_ns()
        for number in range(1, count + 1):
            self.send(self._child, ("item", protocol.PAYLOAD, number == count))

    def _stream_ended(self, count: int) -> None:
        if count != self._plan["stream"]:
            raise RuntimeError(f"{count} of {self._plan['stream']} messages were handled")
        seconds = (time.perf_counter_ns() - self._began_ns) / 1e9
        self._figures["stream_per_s"] = count / seconds
        self._figures["stream_cpu_us"] = 1e6 * (protocol.cpu_s(self._both) - self._cpu_s) / count
        self._blob = os.urandom(protocol.BLOB_BYTES)
        self._send_reference()

    def _send_reference(self) -> None:
        self._began_ns = time.perf_counter_ns()
        self._path = protocol.SHARED_MEMORY / f"benchmark-{os.getpid()}"
        self._path.write_bytes(self._blob)
        self.send(self._child, ("read", str(self._path)))

    def _reference_ended(self, count: int) -> None:
        self._figures["reference_us"].append((time.perf_counter_ns() - self._began_ns) / 1000)
        self._path.unlink()
        if len(self._figures["reference_us"]) < self._plan["references"]:
            self._send_reference()
        else:
            self.send(self._asker, self._figures)


def _run(actor: str, plan: dict[str, Any]) -> dict[str, Any]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    system = ActorSystem("multiprocTCPBase", {"Admin Port": port}, logDefs={"version": 1})
    figures: dict[str, Any] | None = system.ask(
        system.createActor(f"benchmarks.peers.plain_thespian.{actor}"), plan, WHOLE
    )
    # No shutdown: with a lost exit it would never end. The benchmark ends every process it marked.
    if not isinstance(figures, dict):
        raise RuntimeError(f"no figures within {WHOLE}: {figures}")
    return figures


def restart(params: dict[str, Any]) -> dict[str, Any]:
    victims = protocol.victims(params["children"], params["kills"])
    return _run("Recreating", {"children": params["children"], "victims": victims, "idle_s": 0.0})


def idle(params: dict[str, Any]) -> dict[str, Any]:
    return _run("Recreating", {"children": params["children"], "victims": [], "idle_s": params["seconds"]})


def messages(params: dict[str, Any]) -> dict[str, Any]:
    return _run("Pinger", params)


def _version() -> str:
    from importlib.metadata import version

    return version("thespian")


if __name__ == "__main__":
    protocol.serve({"restart": restart, "idle": idle, "messages": messages}, REASONS, _version)
