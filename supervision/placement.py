"""Decides which host carries (runs) which actor, by the capabilities that the hosts declare. Pure.

`place` is the policy. `PlacementCore` keeps the state: which hosts are connected and which actors they carry.
Each host has an epoch that grows with every connection. Each start of an actor on a host gets a placement
number, which grows with every start. A report about an earlier epoch or placement is late and changes nothing
(the fencing token of Kleppmann, "How to do distributed locking", 2016).

A host that is lost again and again is treated like a child that fails again and again: it waits before it
gets work (`supervision.backoff`), then it is in quarantine (`supervision.circuit_breaker`).
"""

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice

from actors.board import ActorState
from supervision.backoff import backoff_s
from supervision.child_spec import Backoff, Breaker, ChildSpec
from supervision.circuit_breaker import Circuit, CircuitState, after_running, failed, on_probation
from supervision.errors import InvalidChildSpec

RETRY_S = 5.0
"""Seconds after which a host that refused to start an actor may be asked again."""

HIGHEST_NUMBER = 2**40
"""The highest placement number that is believed: times INCARNATIONS_PER_PLACEMENT it must fit on a board."""

HOST_BACKOFF = Backoff(initial_s=1.0, max_s=60.0, jitter=0.0, reset_after_s=120.0)
"""How long a host gets no work after it was lost, counted from the loss."""

HOST_BREAKER = Breaker(max_failures=3, within_s=600.0, open_s=600.0, healthy_s=120.0)
"""How often a host may be lost before it is in quarantine, and for how long it is then."""

HOSTS_IN_REASON = 8
ACTORS_IN_REASON = 3
"""A reason names at most HOSTS_IN_REASON hosts and ACTORS_IN_REASON actors of each, and counts the others."""

REFUSAL_LETTERS = 400
"""The longest reason of a host that did not start an actor, as it is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedSpec:
    """A child that the leader places on one of the hosts, and the capabilities that this host must have."""

    child: ChildSpec
    needs: Mapping[str, int] = field(default_factory=dict)
    """`{"gpu": 1}` takes one of the host's GPUs; `{"vm_host": 0}` only requires that the host declares it."""
    is_announced_to_all: bool = True
    """Whether every host hears of the actor and of those below it; if false, only the leader does."""
    weight: int = 1
    """As how many actors this one counts when hosts are compared: for a supervisor, its children."""

    def __post_init__(self) -> None:
        if "@" in self.child.id:
            raise InvalidChildSpec(
                f"placed {self.child.id!r}: its id must have no '@', because it belongs to no host"
            )
        if self.weight < 1:
            raise InvalidChildSpec(f"placed {self.child.id!r}: weight must be at least 1, got {self.weight}")
        for capability, amount in self.needs.items():
            if amount < 0:
                raise InvalidChildSpec(
                    f"placed {self.child.id!r}: needs.{capability} must be at least 0, got {amount}"
                )

    @property
    def name(self) -> str:
        return self.child.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The result of `place`: the host of each placed actor, and why the others have none."""

    hosts: dict[str, str]
    """The host of each placed actor, by the actor's name."""
    unplaced: dict[str, str]
    """Why no host carries an actor, by the actor's name; the reason lists each host."""


def place(
    specs: Sequence[PlacedSpec],
    hosts: Mapping[str, Mapping[str, int]],
    carried: Mapping[str, str] | None = None,
    barred: Mapping[tuple[str, str], str] | None = None,
    aside: Mapping[str, str] | None = None,
) -> Placement:
    """Assign every actor to a host that has what it needs.

    hosts     the connected hosts with the capabilities that they declare
    carried   the host of each actor that runs already; it stays if that host is there and has what it needs
    barred    (actor, host) pairs that are not tried, each with why the host did not start the actor
    aside     hosts that get no new actor, each with the reason

    Actors that the fewest hosts could carry are placed first, then those that need most. Each goes to the
    host with the fewest actors, counted by `weight`, that has what it needs; among equals, to the first by
    name. The result does not depend on the order of the items in the arguments.
    """
    carried, barred, aside = carried or {}, barred or {}, aside or {}
    demand = _Demand(hosts.values())
    rooms = {name: _Room(name, dict(hosts[name]), aside.get(name, "")) for name in sorted(hosts)}
    found: dict[str, str] = {}
    for spec in sorted(specs, key=demand):
        room = rooms.get(carried.get(spec.name, ""))
        if room is not None and room.suffices(spec.needs):
            room.take(spec)
            found[spec.name] = room.host
    unplaced: dict[str, str] = {}
    left = sorted((spec for spec in specs if spec.name not in found), key=demand)
    for _, alike in groupby(left, key=lambda spec: spec.needs):
        for spec, room in _place_alike(alike, rooms, barred):
            if room is not None:
                found[spec.name] = room.host
            else:
                unplaced[spec.name] = _why_nowhere(spec, rooms, barred)
    return Placement(hosts=found, unplaced=unplaced)


@dataclass(slots=True)
class _Room:
    """What one host has left of its capabilities, and the actors that it carries."""

    host: str
    free: dict[str, int]
    why_aside: str
    actors: list[str] = field(default_factory=list)
    weight: int = 0
    """The sum of the weights of these actors."""

    def suffices(self, needs: Mapping[str, int]) -> bool:
        return all(name in self.free and self.free[name] >= amount for name, amount in needs.items())

    def take(self, spec: PlacedSpec) -> None:
        self.actors.append(spec.name)
        self.weight += spec.weight
        for name, amount in spec.needs.items():
            self.free[name] -= amount

    def lacks(self, needs: Mapping[str, int]) -> str:
        name = next(n for n, amount in needs.items() if self.free.get(n, -1) < amount)
        if name not in self.free:
            return f"declares no {name}"
        return f"has {self.free[name]} {name} left" + (
            f" beside {_some(self.actors, ACTORS_IN_REASON)}" if self.actors else ""
        )


def _place_alike(
    specs: Iterable[PlacedSpec], rooms: Mapping[str, _Room], barred: Mapping[tuple[str, str], str]
) -> Iterator[tuple[PlacedSpec, _Room | None]]:
    """Place actors that have the same needs; yield each with its host's room, or None if no host has room."""
    heap: list[tuple[int, str]] | None = None
    for spec in specs:
        if heap is None:
            fit = (room for room in rooms.values() if not room.why_aside and room.suffices(spec.needs))
            heap = [(room.weight, room.host) for room in fit]
            heapq.heapify(heap)
        refusing = []
        while heap and (spec.name, heap[0][1]) in barred:
            refusing.append(heapq.heappop(heap))
        room = rooms[heapq.heappop(heap)[1]] if heap else None
        if room is not None:
            room.take(spec)
            if room.suffices(spec.needs):
                refusing.append((room.weight, room.host))
        for entry in refusing:
            heapq.heappush(heap, entry)
        yield spec, room


class _Demand:
    """Sort key: the order in which actors are placed. Actors with the same needs follow each other."""

    def __init__(self, hosts: Iterable[Mapping[str, int]]) -> None:
        self._amounts: dict[str, list[int]] = {}
        self._hosts = 0
        for declared in hosts:
            self._hosts += 1
            for capability, amount in declared.items():
                self._amounts.setdefault(capability, []).append(amount)
        for amounts in self._amounts.values():
            amounts.sort()

    def __call__(self, spec: PlacedSpec) -> tuple[int, int, int, list[tuple[str, int]], str]:
        needs = spec.needs
        could_carry = min((self._with(*need) for need in needs.items()), default=self._hosts)
        return could_carry, -sum(needs.values()), -len(needs), sorted(needs.items()), spec.name

    def _with(self, capability: str, amount: int) -> int:
        """The number of hosts that declare at least this amount of a capability."""
        amounts = self._amounts.get(capability, [])
        return len(amounts) - bisect_left(amounts, amount)


def _why_nowhere(spec: PlacedSpec, rooms: Mapping[str, _Room], barred: Mapping[tuple[str, str], str]) -> str:
    wanted = ", ".join(f"{amount} {name}" for name, amount in spec.needs.items()) or "nothing special"
    if not rooms:
        return f"needs {wanted}; no host is there"
    each = [_why_not_there(spec, room, barred) for room in islice(rooms.values(), HOSTS_IN_REASON)]
    more = len(rooms) - len(each)
    return f"needs {wanted}; " + "; ".join(each) + (f"; and {more} hosts more" if more else "")


def _why_not_there(spec: PlacedSpec, room: _Room, barred: Mapping[tuple[str, str], str]) -> str:
    if room.why_aside:
        return f"{room.host} gets no work: {room.why_aside}"
    if (spec.name, room.host) in barred:
        return f"{room.host} did not start it: {barred[spec.name, room.host]}"
    return f"{room.host} {room.lacks(spec.needs)}"


def _some(names: Sequence[str], most: int) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


# ---- the bookkeeping ----


@dataclass(frozen=True, slots=True)
class Start:
    """Have a host start an actor. `epoch` is that of the host's session, `number` that of this placement."""

    host: str
    epoch: int
    number: int
    spec: PlacedSpec


@dataclass(frozen=True, slots=True)
class CallOff:
    """Have a host stop an actor that it must no longer carry; repeat the order until the host has done so."""

    host: str
    epoch: int
    number: int
    name: str


PlacementAction = Start | CallOff


@dataclass(slots=True)
class HostRecord:
    """What the leader knows of one host, which is connected or lost."""

    epoch: int
    capabilities: Mapping[str, int]
    is_there: bool = True
    since_s: float = 0.0
    """The moment since which the host gets work, or is lost."""
    sessions: int = 0
    """How many sessions the host has had, with the present one."""
    losses: int = 0
    losses_in_row: int = 0
    work_at_s: float = 0.0
    """The moment before which the host gets no work (backoff)."""
    circuit: Circuit = field(default_factory=Circuit)
    reason: str = ""
    """Why the host was lost the last time."""

    def is_quarantined(self, now_s: float) -> bool:
        return self.circuit.state is CircuitState.OPEN and now_s < self.circuit.open_until_s

    def free_at_s(self) -> float:
        """The moment from which the host may get work, after backoff and quarantine."""
        is_open = self.circuit.state is CircuitState.OPEN
        return max(self.work_at_s, self.circuit.open_until_s if is_open else 0.0)

    def state(self, now_s: float) -> ActorState:
        """The host's state in the words for children: `running` gets work, `stopped` is lost."""
        if self.is_quarantined(now_s):
            return ActorState.QUARANTINED
        if not self.is_there:
            return ActorState.STOPPED
        return ActorState.BACKOFF if now_s < self.free_at_s() else ActorState.RUNNING

    def why_aside(self, now_s: float) -> str:
        """Why the host gets no work although it is connected; empty when it gets work."""
        wait_s = self.free_at_s() - now_s
        if wait_s <= 0:
            return ""
        doing = "is in quarantine" if self.is_quarantined(now_s) else "waits"
        times = "once" if self.losses == 1 else f"{self.losses} times"
        return f"it was lost {times} ({self.reason}) and {doing} for {wait_s:.0f} s more"


@dataclass(frozen=True, slots=True)
class Carried:
    """The placement of one actor on one host."""

    host: str
    number: int
    is_up: bool = False
    """Whether the host has reported that the actor was started."""


@dataclass(slots=True)
class PlacementCore:
    """Which host carries which actor. Report each event; `decide` returns what to do.

    Events only change the state, so the loss of a hundred hosts leads to one decision. Not thread-safe; one
    owner.
    """

    last_number: int = 0
    backoff: Backoff = HOST_BACKOFF
    breaker: Breaker = HOST_BREAKER
    specs: dict[str, PlacedSpec] = field(default_factory=dict)
    hosts: dict[str, HostRecord] = field(default_factory=dict)
    carried: dict[str, Carried] = field(default_factory=dict)
    unplaced: dict[str, str] = field(default_factory=dict)
    late: int = 0
    """The number of reports about an earlier epoch or placement, which changed nothing."""
    _ending: dict[str, CallOff] = field(default_factory=dict)
    """By name, actors that were called off and may still run. Until they end, none is started elsewhere."""
    _barred: dict[tuple[str, str], tuple[float, str]] = field(default_factory=dict)
    """By (actor, host), why the host did not start the actor, and until when it is not tried again for it."""
    _repeated: set[tuple[str, str]] = field(default_factory=set)
    """(actor, host) pairs that were tried again at once under a higher number, which is done only once."""
    _orders: list[PlacementAction] = field(default_factory=list)
    _is_undecided: bool = False
    _aside: set[str] = field(default_factory=set)
    """Hosts that got no work at the last decision."""

    # ---- what is wanted ----

    def wanted(self, spec: PlacedSpec) -> None:
        """Place this actor from now on. Nothing changes if an actor of the name is placed already."""
        self.specs.setdefault(spec.name, spec)
        self._is_undecided = True

    def unwanted(self, name: str) -> None:
        """Stop this actor, and place it no more."""
        self.specs.pop(name, None)
        self.unplaced.pop(name, None)
        carried = self.carried.pop(name, None)
        if carried is not None:
            self._call_off(name, carried)

    def has_equal_elsewhere(self, name: str, host: str) -> bool:
        """Whether an actor that needs the same capabilities, in any amount, is up on another host."""
        needs = self.specs[name].needs.keys()
        return any(
            one.is_up and one.host != host and self.specs[other].needs.keys() == needs
            for other, one in self.carried.items()
        )

    # ---- hosts ----

    def host_up(self, host: str, epoch: int, capabilities: Mapping[str, int], now_s: float) -> None:
        """Note that a host has connected. It carries no actor: it has stopped those of its earlier epoch."""
        known = self.hosts.get(host)
        if known is not None and epoch <= known.epoch:
            self.late += 1
            return
        self._forget(host)
        record = known or HostRecord(epoch, {})
        record.epoch, record.capabilities, record.is_there = epoch, dict(capabilities), True
        record.since_s = max(now_s, record.free_at_s())
        record.sessions += 1
        self.hosts[host] = record
        self._is_undecided = True

    def host_down(self, host: str, epoch: int, now_s: float, reason: str, *, is_failure: bool = True) -> None:
        """Note that a host is lost. Its actors are placed on other hosts.

        is_failure   False if the leader itself gave up the connection; the host then need not wait for work
        """
        known = self.hosts.get(host)
        if known is None or known.epoch != epoch or not known.is_there:
            self.late += 1
            return
        self._forget(host)
        known.is_there, known.reason = False, reason
        if is_failure:
            self._note_loss(known, now_s)
        known.since_s = now_s
        self._is_undecided = True

    def _note_loss(self, host: HostRecord, now_s: float) -> None:
        served_s = max(0.0, now_s - host.since_s)
        host.losses += 1
        host.losses_in_row = 1 if served_s >= self.backoff.reset_after_s else host.losses_in_row + 1
        host.work_at_s = now_s + backoff_s(self.backoff, host.losses_in_row, 0.5)
        circuit = after_running(host.circuit, self.breaker, served_s)
        host.circuit = failed(circuit, self.breaker, now_s, own_clock_s=now_s)

    # ---- what hosts answer ----

    def is_ending(self, order: CallOff) -> bool:
        """Whether the host has not reported yet that it stopped the actor."""
        return self._ending.get(order.name) == order

    def ended(self, order: CallOff) -> None:
        """Note the report of a host that it has stopped the actor."""
        if not self.is_ending(order):
            self.late += 1
            return
        del self._ending[order.name]
        self._is_undecided = True

    def started(self, name: str, number: int) -> None:
        """Note the report of a host that it runs the actor."""
        carried = self.carried.get(name)
        if carried is None or carried.number != number:
            self.late += 1
            return
        self.carried[name] = Carried(carried.host, number, is_up=True)
        self._repeated.discard((name, carried.host))

    def refused(self, name: str, number: int, last_number: int, now_s: float, reason: str) -> None:
        """Note that a host refused or failed to start the actor.

        If the host has seen a higher number than this placement's, the actor is placed again at once under a
        number above that, but only once. Otherwise this host is not tried again for RETRY_S.

        last_number   the highest placement number of that name that the host has seen
        """
        carried = self.carried.get(name)
        if carried is None or carried.number != number:
            self.late += 1
            return
        del self.carried[name]
        at = name, carried.host
        if number <= last_number <= HIGHEST_NUMBER and at not in self._repeated:
            self._repeated.add(at)
            self.last_number = max(self.last_number, last_number)
        else:
            self._bar(at, now_s, reason)
        self._is_undecided = True

    def unanswered(self, name: str, number: int, now_s: float) -> None:
        """Note that a host did not answer in time. It may run the actor, so the placement is called off."""
        carried = self.carried.get(name)
        if carried is None or carried.number != number:
            self.late += 1
            return
        del self.carried[name]
        self._bar((name, carried.host), now_s, "it did not answer in time")
        self._call_off(name, carried)

    def _bar(self, at: tuple[str, str], now_s: float, reason: str) -> None:
        self._barred[at] = now_s + RETRY_S, reason[:REFUSAL_LETTERS]

    # ---- decisions ----

    def decide(self, now_s: float) -> list[PlacementAction]:
        """Return the orders that follow from the events since the last call and from the passing of time."""
        self._let_time_pass(now_s)
        orders, self._orders = self._orders, []
        if self._is_undecided:
            self._is_undecided = False
            orders += self._reconcile(now_s)
        return orders

    def _let_time_pass(self, now_s: float) -> None:
        """Let hosts be tried again whose time is over, after a refusal, a backoff or a quarantine."""
        due = [pair for pair, (until_s, _) in self._barred.items() if until_s <= now_s]
        for pair in due:
            del self._barred[pair]
        for host in self.hosts.values():
            if host.is_there and now_s >= host.free_at_s():
                served_s = now_s - host.since_s
                host.circuit = after_running(on_probation(host.circuit), self.breaker, served_s)
        is_any_back = any(not self.hosts[host].why_aside(now_s) for host in self._aside)
        self._is_undecided = self._is_undecided or bool(due) or is_any_back

    def _forget(self, host: str) -> None:
        self.carried = {name: c for name, c in self.carried.items() if c.host != host}
        self._ending = {name: order for name, order in self._ending.items() if order.host != host}
        self._barred = {pair: why for pair, why in self._barred.items() if pair[1] != host}
        self._repeated = {pair for pair in self._repeated if pair[1] != host}

    def _call_off(self, name: str, carried: Carried) -> None:
        order = CallOff(carried.host, self.hosts[carried.host].epoch, carried.number, name)
        self._ending[name] = order
        self._orders.append(order)
        self._is_undecided = True

    def _reconcile(self, now_s: float) -> list[PlacementAction]:
        there = {name: host for name, host in self.hosts.items() if host.is_there}
        aside = {name: why for name, host in there.items() if (why := host.why_aside(now_s))}
        self._aside = set(aside)
        ending = {name: order.host for name, order in self._ending.items() if name in self.specs}
        placement = place(
            tuple(spec for name, spec in self.specs.items() if name not in ending),
            {name: host.capabilities for name, host in there.items()},
            {name: carried.host for name, carried in self.carried.items()},
            {pair: why for pair, (_, why) in self._barred.items()},
            aside,
        )
        self.unplaced = placement.unplaced | {
            name: f"it is being stopped on {host!r} first" for name, host in ending.items()
        }
        return [
            self._start(name, host)
            for name, host in sorted(placement.hosts.items())
            if name not in self.carried
        ]

    def _start(self, name: str, host: str) -> Start:
        self.last_number += 1
        self.carried[name] = Carried(host, self.last_number)
        return Start(host, self.hosts[host].epoch, self.last_number, self.specs[name])
