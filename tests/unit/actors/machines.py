"""Several machines in one test: a bench for each, and wires of memory that can be cut, slowed and held."""

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from actors.actor import Actor
from actors.bridge import Bridge, FollowerBridge, LeaderBridge
from actors.future import Future
from actors.testing import InMemorySystem

STEP_S = 0.05


class Cable:
    """The way between the leader and one follower."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.now_s = now_s
        self.delay_s = 0.0
        self.loses_up = False
        self.loses_down = False
        self.is_held = False
        """What goes up arrives only when it is let go."""
        self.up: deque[tuple[float, int, bytes]] = deque()
        self.down: dict[int, deque[tuple[float, bytes]]] = {}
        self.connections = 0
        self.route = 0

    def cut(self) -> None:
        self.loses_up = self.loses_down = True

    def heal(self) -> None:
        self.loses_up = self.loses_down = False


class LeaderEnd:
    """A wire with all followers on it."""

    fds = ()
    strangers = 0

    def __init__(self, cables: dict[str, Cable]) -> None:
        self._cables = cables
        self._came_from = 0

    def send(self, host: str, frame: bytes) -> bool:
        cable = self._cables.get(host)
        if cable is None or not cable.route:
            return False
        if not cable.loses_down:
            cable.down[cable.route].append((cable.now_s() + cable.delay_s, frame))
        return True

    def receive(self) -> tuple[str, bytes] | None:
        for host, cable in self._cables.items():
            if cable.up and cable.up[0][0] <= cable.now_s() and not cable.is_held:
                _, self._came_from, frame = cable.up.popleft()
                return host, frame
        return None

    def settle(self, host: str) -> None:
        self._cables[host].route = self._came_from

    def close(self, linger_ms: int = 0) -> None:
        """Nothing to close."""


class FollowerEnd:
    """One connection; what it sent arrives even when it is closed."""

    fds = ()
    strangers = 0

    def __init__(self, cable: Cable) -> None:
        self._cable = cable
        cable.connections += 1
        self._connection = cable.connections
        cable.down[self._connection] = deque()

    def send(self, host: str, frame: bytes) -> bool:
        if not self._cable.loses_up:
            self._cable.up.append((self._cable.now_s() + self._cable.delay_s, self._connection, frame))
        return True

    def receive(self) -> tuple[str, bytes] | None:
        mine = self._cable.down[self._connection]
        return ("", mine.popleft()[1]) if mine and mine[0][0] <= self._cable.now_s() else None

    def settle(self, host: str) -> None:
        """There is one connection."""

    def close(self, linger_ms: int = 0) -> None:
        """Nothing to close."""


class Machines:
    """Machine `a` leads, the others follow. A context manager: leaving it closes them."""

    def __init__(self, folder: Path, followers: tuple[str, ...]) -> None:
        self.benches: dict[str, InMemorySystem] = {}
        for host in ("a", *followers):
            (folder / host).mkdir(parents=True)
            self.benches[host] = InMemorySystem(folder / host, live_children=True)
        clock = self.benches["a"].clock
        self.cables = {host: Cable(clock.monotonic_s) for host in followers}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for bench in self.benches.values():
            bench.__exit__()

    def start_bridge(self, host: str, /, **args: Any) -> Any:
        cables = self.cables

        class Leader(LeaderBridge):
            def open_wire(self) -> LeaderEnd:
                return LeaderEnd(cables)

        class Follower(FollowerBridge):
            def open_wire(self) -> FollowerEnd:
                return FollowerEnd(cables[host])

        kind: type[Bridge] = Leader if host == "a" else Follower
        return self.benches[host].start(kind, "bridge", args | {"host": host})

    def start(self, host: str, actor: type[Actor], name: str, /, **args: Any) -> Any:
        return self.benches[host].start(actor, name, args)

    def bridge(self, host: str) -> Any:
        return self.benches[host].actor("bridge")

    def run(self, seconds: float) -> None:
        """Time passes on all machines alike."""
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


@contextlib.contextmanager
def machines(folder: Path, *followers: str, **args: Any) -> Iterator[Machines]:
    """Leader `a` and these followers, linked, each with its bridge. args go to every bridge."""
    with Machines(folder, followers) as together:
        for host in together.benches:
            together.start_bridge(host, **args)
        together.run(3 * STEP_S)
        yield together
