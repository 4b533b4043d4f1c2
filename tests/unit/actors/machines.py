"""Several hosts in one test: a bench for each, and wires of memory that can be cut, slowed and held."""

import contextlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from actors.actor import Actor
from actors.bridge import Bridge
from actors.follower_bridge import FollowerBridge
from actors.future import Future
from actors.leader_bridge import LeaderBridge
from actors.testing import InMemorySystem

STEP_S = 0.05


@dataclass
class Cable:
    """The plug of one host."""

    delay_s: float = 0.0
    loses_up: bool = False
    loses_down: bool = False
    is_held: bool = False
    """What the host sends arrives only when it is let go."""

    def cut(self) -> None:
        self.loses_up = self.loses_down = True

    def heal(self) -> None:
        self.loses_up = self.loses_down = False


class MemoryWire:
    """One host's way to the others. What was sent arrives even when the sender's bridge has ended."""

    fds = ()
    malformed = 0

    def __init__(self, machines: "Machines", host: str) -> None:
        self._machines = machines
        self._host = host

    def send(self, host: str, frame: bytes) -> bool:
        self._machines.carry(self._host, host, frame)
        return True

    def receive(self) -> tuple[str, bytes] | None:
        return self._machines.next_for(self._host)

    def close(self, linger_s: float = 0.0) -> None:
        """Nothing to close."""


class Machines:
    """Host `a` leads, the others follow. A context manager: leaving it closes them."""

    def __init__(self, folder: Path, followers: tuple[str, ...]) -> None:
        self.benches: dict[str, InMemorySystem] = {}
        for host in ("a", *followers):
            (folder / host).mkdir(parents=True)
            self.benches[host] = InMemorySystem(folder / host, live_children=True)
        self.cables = {host: Cable() for host in self.benches}
        self.on_the_way: dict[tuple[str, str], deque[tuple[float, bytes]]] = {}
        """By sender and receiver: when a frame is there, and the frame."""
        self.sent_bytes: dict[tuple[str, str], int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for bench in self.benches.values():
            bench.__exit__()

    # ---- the wire ----

    def carry(self, sender: str, to: str, frame: bytes) -> None:
        """Take a frame that a host sends. The wire loses what goes through a cut cable."""
        self.sent_bytes[sender, to] = self.sent_bytes.get((sender, to), 0) + len(frame)
        if to in self.cables and not (self.cables[sender].loses_up or self.cables[to].loses_down):
            due_s = self._now_s() + self.cables[sender].delay_s + self.cables[to].delay_s
            self.on_the_way.setdefault((sender, to), deque()).append((due_s, frame))

    def next_for(self, host: str) -> tuple[str, bytes] | None:
        for (sender, to), frames in self.on_the_way.items():
            if to == host and frames and frames[0][0] <= self._now_s() and not self.cables[sender].is_held:
                return sender, frames.popleft()[1]
        return None

    def deliver(self, sender: str, to: str, frame: bytes) -> None:
        """Have a frame arrive now, as if `sender` had sent it; an empty one is the agent's own word."""
        self.on_the_way.setdefault((sender, to), deque()).appendleft((0.0, frame))
        self.run(STEP_S)

    # ---- hosts ----

    def start_bridge(self, host: str, /, **args: Any) -> Any:
        machines = self

        class Leader(LeaderBridge):
            def open_wire(self) -> MemoryWire:
                return MemoryWire(machines, host)

        class Follower(FollowerBridge):
            def open_wire(self) -> MemoryWire:
                return MemoryWire(machines, host)

        kind: type[Bridge] = Leader if host == "a" else Follower
        return self.benches[host].start(kind, "bridge", {"host": host, "leader": "a"} | args)

    def start(self, host: str, actor: type[Actor], name: str, /, *, parent: str = "", **args: Any) -> Any:
        above = {"parent": parent} if parent else {}
        return self.benches[host].start(actor, name, args, **above)

    def bridge(self, host: str) -> Any:
        return self.benches[host].actor("bridge")

    def run(self, seconds: float) -> None:
        """Time passes on all hosts alike."""
        for _ in range(round(seconds / STEP_S)):
            for bench in self.benches.values():
                bench.advance(STEP_S)

    def ask(self, host: str, to: str, content: Any, *, deadline_s: float = 5.0) -> Future[Any]:
        return self.benches[host].ask(to, content, deadline_s=deadline_s)

    def answer(self, host: str, to: str, content: Any) -> Any:
        """Ask and wait for what comes."""
        completion = self.ask(host, to, content)
        for _ in range(200):
            if completion.is_done:
                break
            self.run(STEP_S)
        return completion.result()

    def _now_s(self) -> float:
        return self.benches["a"].clock.monotonic_s()


@contextlib.contextmanager
def machines(folder: Path, *followers: str, **args: Any) -> Iterator[Machines]:
    """Leader `a` and these followers, linked, each with its bridge. args go to every bridge."""
    with Machines(folder, followers) as together:
        for host in together.benches:
            together.start_bridge(host, **args)
        together.run(4 * STEP_S)
        yield together
