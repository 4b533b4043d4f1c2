"""This project, through its public interface: a supervisor's children, and one actor that measures.

    root                 one_for_one, ordered
    ├── prober           kills, asks, notes the time
    └── pool             one_for_one: the children, without backoff and with no end of restarts

A replacement says hello to the prober when it starts; the prober asks it at once, and the clock stops when
the answer is there. Nothing is polled.
"""

import ctypes
import json
import os
import signal
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.actor import Actor, Sender, receives
from actors.codec import message
from actors.errors import AskError
from actors.future import Future
from actors.system import ActorSystem, RootSpec
from benchmarks.peers import protocol
from supervision.child_spec import AutoShutdown, Backoff, ChildSpec, Restart, SupervisorFlags
from supervision.supervisor import supervisor_args, supervisor_spec

PROBER = "prober"
WHOLE_S = 140.0
START_S = 60.0
MASS_GIVE_UP_S = 60.0

REASON_S = 0.5
"""How long after the replacement's answer the reason of the exit may be written; counted as late."""

NEVER_HUNG_S = 120.0

WINDOW = 250
"""Messages of a stream between two acknowledgements; two windows may be under way."""

EXPECTED_REASON = {
    "kill": "SIGKILL",
    "mass": "SIGKILL",
    "segfault": "SIGSEGV",
    "exit": "exit code 3",
    "exit_in_start": "exit code 9",
    "stop": "hung",
    "loop": "hung",
}


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """A child has started."""

    pid: int


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Answered by itself."""

    text: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One message of a stream."""

    text: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """Asks, and answers, how many items were handled."""

    count: int = 0


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A file to read; answered by how many bytes it held."""

    path: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Misbehave:
    how: str


class Child(Actor):
    """What is killed, and what is written to."""

    def on_start(self) -> None:
        self._items = 0
        flag = _flag(self.args["folder"], self.identity.name)
        if flag.exists():
            flag.unlink()
            os._exit(9)
        self.tell(PROBER, Hello(pid=os.getpid()))

    @receives(Text)
    def echo(self, call: Text, sender: Sender) -> Text:
        return call

    @receives(Item)
    def handle(self, item: Item, sender: Sender) -> None:
        self._items += 1

    @receives(Handled)
    def handled(self, call: Handled, sender: Sender) -> Handled:
        return Handled(count=self._items)

    @receives(Reference)
    def read(self, call: Reference, sender: Sender) -> Handled:
        return Handled(count=len(Path(call.path).read_bytes()))

    @receives(Misbehave)
    def misbehave(self, call: Misbehave, sender: Sender) -> None:
        match call.how:
            case "segfault":
                ctypes.string_at(0)
            case "exit":
                os._exit(3)
            case "loop":
                while True:
                    pass


class Prober(Actor):
    """Goes through `args["steps"]`, writes the figures to `args["out"]`, and ends; that ends the system."""

    def on_start(self) -> None:
        self._pids: dict[str, int] = {}
        self._steps = deque(self.args["steps"])
        self._queue: deque[str] = deque()
        self._how = "start"
        self._struck_ns = {f"child-{n}": time.monotonic_ns() for n in range(self.args["children"])}
        self._figures: dict[str, Any] = {"wrong_reasons": [], "late_reasons": 0, "missed": 0}
        self._doubtful: list[str] = []
        self._strikes = 0
        self.after(START_S, self._check_started)

    def _check_started(self) -> None:
        if self._how == "start":
            raise RuntimeError(f"not started within {START_S} s: {', '.join(self._struck_ns)}")

    @receives(Hello)
    async def hello(self, hello: Hello, sender: Sender) -> None:
        try:
            await self.ask(sender.name, Text(text=""), deadline_s=protocol.GIVE_UP_S)
        except AskError:
            return  # it died again; its successor says hello, too
        now_ns = time.monotonic_ns()
        self._pids[sender.name] = hello.pid
        struck_ns = self._struck_ns.pop(sender.name, None)
        if struck_ns is None:
            return
        self._figures.setdefault(f"{self._how}_ms", []).append((now_ns - struck_ns) / 1e6)
        if not self._has_right_reason(sender.name):
            self._doubtful.append(sender.name)
        if not self._struck_ns:
            self._end_strike()

    # ---- strikes ----

    def _has_right_reason(self, name: str) -> bool:
        return EXPECTED_REASON.get(self._how, "") in self._reason(name)

    def _reason(self, name: str) -> str:
        slot = self.board.find(name)
        return str(self.board.get(slot, "last_reason")) if slot is not None else "not on the board"

    def _end_strike(self) -> None:
        """Go on, after a while where a replacement was up before the reason was written."""
        if self._doubtful:
            self.after(REASON_S, self._judge_reasons)
        else:
            self._go_on()

    def _judge_reasons(self) -> None:
        wrong = [name for name in self._doubtful if not self._has_right_reason(name)]
        self._figures["late_reasons"] += len(self._doubtful) - len(wrong)
        self._figures["wrong_reasons"] += [f"{self._how} of {name}: {self._reason(name)!r}" for name in wrong]
        self._doubtful = []
        self._go_on()

    def _go_on(self) -> None:
        if self._queue:
            self._strike([self._queue.popleft()], protocol.GIVE_UP_S)
        elif self._steps:
            self._begin(self._steps.popleft())
        else:
            Path(self.args["out"]).write_text(json.dumps(self._figures))
            self.stop()

    def _begin(self, step: dict[str, Any]) -> None:
        self._how = step["how"]
        if self._how == "idle":
            self._begin_idle(step["seconds"])
        elif self._how == "messages":
            self.run(self._measure_messages(step))
        elif self._how == "mass":
            self._strike(list(self._pids), MASS_GIVE_UP_S)
        else:
            self._queue.extend(f"child-{n}" for n in step["victims"])
            self._go_on()

    def _strike(self, names: list[str], give_up_s: float) -> None:
        self._strikes += 1
        strike = self._strikes
        self.after(give_up_s, lambda: self._give_up(strike))
        began_ns = time.monotonic_ns()
        self._struck_ns = dict.fromkeys(names, began_ns)
        for name in names:
            self._hit(name, self._pids[name])

    def _hit(self, name: str, pid: int) -> None:
        match self._how:
            case "kill" | "mass":
                os.kill(pid, signal.SIGKILL)
            case "exit_in_start":
                _flag(self.args["folder"], name).touch()
                os.kill(pid, signal.SIGKILL)
            case "stop":
                self.run(self._note_found(pid))
                os.kill(pid, signal.SIGSTOP)
            case "loop":
                self.run(self._note_found(pid))
                self.tell(name, Misbehave(how="loop"))
            case how:
                self.tell(name, Misbehave(how=how))

    async def _note_found(self, pid: int) -> None:
        """How much later than the liveness deadline a hung child was killed."""
        how, began_ns, pidfd = self._how, time.monotonic_ns(), os.pidfd_open(pid)
        ended_ns = await self.in_thread(
            lambda: protocol.wait_gone_ns(pidfd), name="waiting for its end", deadline_s=60.0
        )
        if ended_ns:
            beyond_ms = (ended_ns - began_ns) / 1e6 - self.args["hang_deadline_s"] * 1000
            self._figures.setdefault(f"{how}_beyond_ms", []).append(beyond_ms)

    def _give_up(self, strike: int) -> None:
        if strike == self._strikes and self._struck_ns:
            self._figures["missed"] += len(self._struck_ns)
            self._figures.pop(f"{self._how}_ms", None)  # not all are back: there is no time until they are
            self._struck_ns = {}
            self._end_strike()

    # ---- doing nothing ----

    def _begin_idle(self, seconds: float) -> None:
        pids = protocol.marked_pids()
        before_s, began_s = protocol.cpu_s(pids), time.monotonic()

        def end() -> None:
            passed_s = time.monotonic() - began_s
            self._figures |= protocol.idle_figures(pids, self._pids.values(), before_s, passed_s)
            self._go_on()

        self.after(seconds, end)

    # ---- messages ----

    async def _measure_messages(self, step: dict[str, Any]) -> None:
        both = (os.getpid(), self._pids["child-0"])
        await self._warm_up()
        self._figures |= await self._round_trips(step["round_trips"], both)
        self._figures |= await self._stream(step["stream"], both)
        self._figures |= await self._references(step["references"])
        self._go_on()

    async def _warm_up(self) -> None:
        for _ in range(100):
            await self.ask("child-0", Text(text=protocol.PAYLOAD))

    async def _round_trips(self, count: int, both: tuple[int, int]) -> dict[str, Any]:
        times_us = []
        cpu_s = protocol.cpu_s(both)
        for _ in range(count):
            began_ns = time.perf_counter_ns()
            await self.ask("child-0", Text(text=protocol.PAYLOAD))
            times_us.append((time.perf_counter_ns() - began_ns) / 1000)
        cpu_s = protocol.cpu_s(both) - cpu_s
        return {"round_trip_us": times_us, "round_trip_cpu_us": 1e6 * cpu_s / (2 * count)}

    async def _stream(self, count: int, both: tuple[int, int]) -> dict[str, Any]:
        cpu_s, began_s = protocol.cpu_s(both), time.perf_counter()
        under_way: deque[Future[Handled]] = deque()
        for sent in range(1, count + 1):
            while not self.tell("child-0", Item(text=protocol.PAYLOAD)):
                await self._let_it_catch_up(under_way)
            if sent % WINDOW == 0:
                under_way.append(self.ask("child-0", Handled(), deadline_s=60.0))
                if len(under_way) > 2:
                    await under_way.popleft()
        handled = 0
        while under_way:
            handled = (await under_way.popleft()).count
        if handled != count:
            handled = (await self.ask("child-0", Handled())).count
        seconds = time.perf_counter() - began_s
        cpu_s = protocol.cpu_s(both) - cpu_s
        if handled != count:
            raise RuntimeError(f"{handled} of {count} messages were handled")
        return {"stream_per_s": count / seconds, "stream_cpu_us": 1e6 * cpu_s / count}

    async def _let_it_catch_up(self, under_way: "deque[Future[Handled]]") -> None:
        """The mailbox is full: wait for the acknowledgement of what was sent before."""
        if under_way:
            await under_way.popleft()
        else:
            await self.sleep(0.001)

    async def _references(self, count: int) -> dict[str, Any]:
        times_us = []
        blob = os.urandom(protocol.BLOB_BYTES)
        for n in range(count):
            began_ns = time.perf_counter_ns()
            path = protocol.SHARED_MEMORY / f"benchmark-{os.getpid()}-{n}"
            path.write_bytes(blob)
            answer = await self.ask("child-0", Reference(path=str(path)))
            times_us.append((time.perf_counter_ns() - began_ns) / 1000)
            path.unlink()
            if answer.count != len(blob):
                raise RuntimeError(f"{answer.count} of {len(blob)} bytes arrived")
        return {"reference_us": times_us}


def _flag(folder: str, name: str) -> Path:
    """While this file is there, the next start of the child fails."""
    return Path(folder) / f"{name}.fails"


def run_tree(
    children: int, steps: list[dict[str, Any]], hang_deadline_s: float = NEVER_HUNG_S
) -> dict[str, Any]:
    """Start the tree, let the prober go through the steps, hand back what it wrote."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/tmp", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "mail").mkdir()
        out = folder / "figures.json"
        args = {"folder": name, "children": children, "steps": steps, "out": str(out)}
        root = RootSpec(
            name="root",
            actor="supervision.supervisor:Supervisor",
            args=_tree(children, args | {"hang_deadline_s": hang_deadline_s}),
        )
        with ActorSystem(folder, folder / "mail", root, prints_reports=False) as system:
            if not system.wait(WHOLE_S) or not out.exists():
                raise RuntimeError(f"no figures within {WHOLE_S} s: {system.verdict()}")
        figures: dict[str, Any] = json.loads(out.read_text())
        return figures


def _tree(children: int, args: dict[str, Any]) -> dict[str, Any]:
    prober = ChildSpec(
        id=PROBER,
        actor="benchmarks.peers.ours:Prober",
        args=args,
        restart=Restart.TEMPORARY,
        significant=True,
        hang_deadline_s=NEVER_HUNG_S,
    )
    pool = tuple(
        ChildSpec(
            id=f"child-{n}",
            actor="benchmarks.peers.ours:Child",
            args={"folder": args["folder"]},
            shutdown_s=0.0,
            start_deadline_s=START_S,
            hang_deadline_s=args["hang_deadline_s"],
            preload=("benchmarks.peers.ours",),  # as plain Thespian, whose parent has imported it as well
            backoff=Backoff(initial_s=0.0, max_s=0.0),
        )
        for n in range(children)
    )
    flags = SupervisorFlags(max_restarts=1_000_000, max_seconds=1.0, ordered=False)
    keeps = {"start_deadline_s": START_S, "hang_deadline_s": NEVER_HUNG_S}
    top = SupervisorFlags(max_restarts=0, auto_shutdown=AutoShutdown.ANY_SIGNIFICANT)
    return supervisor_args(top, (prober, supervisor_spec("pool", flags, pool, **keeps)))


def restart(params: dict[str, Any]) -> dict[str, Any]:
    children = params["children"]
    kills: list[dict[str, Any]] = [{"how": "kill", "victims": protocol.victims(children, params["kills"])}]
    if params["faults"]:
        faulty = protocol.victims(children, params["faults"])
        kills += [{"how": how, "victims": faulty} for how in ("segfault", "exit", "exit_in_start")]
    return run_tree(children, [*kills, {"how": "mass"}])


def hang(params: dict[str, Any]) -> dict[str, Any]:
    steps = [
        {"how": "stop", "victims": protocol.victims(params["children"], params["stops"])},
        {"how": "loop", "victims": protocol.victims(params["children"], params["loops"])},
    ]
    return run_tree(params["children"], steps, params["hang_deadline_s"])


def messages(params: dict[str, Any]) -> dict[str, Any]:
    return run_tree(1, [{"how": "messages"} | params])


def idle(params: dict[str, Any]) -> dict[str, Any]:
    settle = {"how": "idle", "seconds": 2.0}
    return run_tree(params["children"], [settle, {"how": "idle", "seconds": params["seconds"]}])


def _version() -> str:
    from dart import __version__

    return __version__


MEASUREMENTS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "restart": restart,
    "hang": hang,
    "messages": messages,
    "idle": idle,
}

if __name__ == "__main__":
    protocol.serve(MEASUREMENTS, {}, _version)
