"""Which machine carries which actor: by declared capability, decided without any machine. Pure.

`place` is the policy; `PlacementCore` is the bookkeeping around it: hosts come and go, each with an epoch
that grows with every connection, and every start of an actor somewhere bears a placement number that grows
too. Whatever comes from an earlier epoch or an earlier placement is late, and changes nothing (the fencing
token of Kleppmann, "How to do distributed locking", 2016).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from supervision.child_spec import ChildSpec
from supervision.errors import InvalidChildSpec

RETRY_S = 5.0
"""After this a host that would not start an actor is asked again."""

INCARNATIONS_PER_PLACEMENT = 2**20
"""Restarts on one host before the numbers of the next placement begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedSpec:
    """A child, and what a machine must have to carry it."""

    child: ChildSpec
    needs: Mapping[str, int] = field(default_factory=dict)
    """`{"gpu": 1}`: one of the host's GPUs is taken. `{"vm_host": 0}`: the host must declare it, no more."""

    def __post_init__(self) -> None:
        if "@" in self.child.id:
            raise InvalidChildSpec(
                f"placed {self.child.id!r}: its id must have no '@', it belongs to no machine"
            )
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
    """Who goes where, and why the others go nowhere."""

    hosts: dict[str, str]
    """Actor name to host name."""
    unplaced: dict[str, str]
    """Actor name to the reason, host by host."""


def place(
    specs: Sequence[PlacedSpec],
    hosts: Mapping[str, Mapping[str, int]],
    carried: Mapping[str, str],
    barred: Iterable[tuple[str, str]] = (),
) -> Placement:
    """Assign every actor to a host that has what it needs.

    hosts     living hosts and their declared capabilities
    carried   actors that run already, and where; they stay as long as their host lives and suffices
    barred    (actor, host) pairs not to be tried, because that host refused
    The most demanding choose first; of the hosts that suffice the one with the fewest actors is taken, then
    the first by name. The same arguments give the same answer, whatever their order.
    """
    rooms = {name: _Room(dict(hosts[name])) for name in sorted(hosts)}
    bars = set(barred)
    found: dict[str, str] = {}
    for spec in sorted(specs, key=_demand):
        at = carried.get(spec.name)
        if at in rooms and rooms[at].suffices(spec.needs):
            rooms[at].take(spec)
            found[spec.name] = at
    unplaced: dict[str, str] = {}
    for spec in sorted((s for s in specs if s.name not in found), key=_demand):
        open_to = {name: room for name, room in rooms.items() if (spec.name, name) not in bars}
        fit = [name for name, room in open_to.items() if room.suffices(spec.needs)]
        if fit:
            best = min(fit, key=lambda name: (len(rooms[name].actors), name))
            rooms[best].take(spec)
            found[spec.name] = best
        else:
            unplaced[spec.name] = _why_nowhere(spec, rooms, open_to)
    return Placement(hosts=found, unplaced=unplaced)


@dataclass(slots=True)
class _Room:
    """What is left of one host."""

    free: dict[str, int]
    actors: list[str] = field(default_factory=list)

    def suffices(self, needs: Mapping[str, int]) -> bool:
        return all(name in self.free and self.free[name] >= amount for name, amount in needs.items())

    def take(self, spec: PlacedSpec) -> None:
        self.actors.append(spec.name)
        for name, amount in spec.needs.items():
            self.free[name] -= amount

    def lacks(self, needs: Mapping[str, int]) -> str:
        name = next(n for n, amount in needs.items() if self.free.get(n, -1) < amount)
        if name not in self.free:
            return f"declares no {name}"
        return f"has {self.free[name]} {name} left" + (
            f" beside {', '.join(self.actors)}" if self.actors else ""
        )


def _demand(spec: PlacedSpec) -> tuple[int, int, str]:
    return (-sum(spec.needs.values()), -len(spec.needs), spec.name)


def _why_nowhere(spec: PlacedSpec, rooms: Mapping[str, _Room], open_to: Mapping[str, _Room]) -> str:
    wanted = ", ".join(f"{amount} {name}" for name, amount in spec.needs.items()) or "nothing special"
    if not rooms:
        return f"needs {wanted}; no host is there"
    each = (
        f"{name} {room.lacks(spec.needs) if name in open_to else 'would not start it'}"
        for name, room in rooms.items()
    )
    return f"needs {wanted}; " + "; ".join(each)


# ---- the bookkeeping ----


@dataclass(frozen=True, slots=True)
class Start:
    """Have a host start an actor. `epoch` is the host's session, `number` this placement's own."""

    host: str
    epoch: int
    number: int
    spec: PlacedSpec


@dataclass(frozen=True, slots=True)
class CallOff:
    """Have a host stop an actor that is not wanted there any more, until it says that it has (`ended`)."""

    host: str
    epoch: int
    number: int
    name: str


PlacementAction = Start | CallOff


@dataclass(slots=True)
class CarryingHost:
    """One living machine as the leader knows it."""

    epoch: int
    capabilities: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Carried:
    """One actor on one machine."""

    host: str
    number: int
    is_up: bool = False
    """The host said that it was started."""


@dataclass(slots=True)
class PlacementCore:
    """Who carries what. Feed it what happened; it answers with what to do. Not thread-safe; one owner."""

    last_number: int = 0
    specs: dict[str, PlacedSpec] = field(default_factory=dict)
    hosts: dict[str, CarryingHost] = field(default_factory=dict)
    carried: dict[str, Carried] = field(default_factory=dict)
    unplaced: dict[str, str] = field(default_factory=dict)
    late: int = 0
    """Answers from an earlier epoch or placement; they changed nothing."""
    _ending: dict[str, CallOff] = field(default_factory=dict)
    """Called off, and not known to have ended: started nowhere meanwhile, or there might be two."""
    _barred: dict[tuple[str, str], float] = field(default_factory=dict)
    """(actor, host) that refused, and until when it is not tried again."""

    def wanted(self, spec: PlacedSpec, now_s: float) -> list[PlacementAction]:
        """Carry this actor from now on. A name that is carried already is left as it is."""
        self.specs.setdefault(spec.name, spec)
        return self._reconcile(now_s)

    def unwanted(self, name: str, now_s: float) -> list[PlacementAction]:
        """Carry it no more."""
        self.specs.pop(name, None)
        self.unplaced.pop(name, None)
        carried = self.carried.pop(name, None)
        if carried is None:
            return []
        return [self._call_off(name, carried), *self._reconcile(now_s)]

    def is_ending(self, order: CallOff) -> bool:
        """Whether the host still has to say that it stopped the actor."""
        return self._ending.get(order.name) == order

    def ended(self, order: CallOff, now_s: float) -> list[PlacementAction]:
        """The host says that the actor does not run there any more."""
        if not self.is_ending(order):
            self.late += 1
            return []
        del self._ending[order.name]
        return self._reconcile(now_s)

    def host_up(
        self, host: str, epoch: int, capabilities: Mapping[str, int], now_s: float
    ) -> list[PlacementAction]:
        """A host is connected. It carries nothing: what it carried in an earlier epoch it has stopped."""
        known = self.hosts.get(host)
        if known is not None and epoch <= known.epoch:
            self.late += 1
            return []
        self._forget(host)
        self.hosts[host] = CarryingHost(epoch, dict(capabilities))
        return self._reconcile(now_s)

    def host_down(self, host: str, epoch: int, now_s: float) -> list[PlacementAction]:
        """A host is lost: what it carried goes elsewhere."""
        known = self.hosts.get(host)
        if known is None or known.epoch != epoch:
            self.late += 1
            return []
        self._forget(host)
        return self._reconcile(now_s)

    def started(self, name: str, number: int) -> None:
        """The host says that it runs the actor."""
        carried = self.carried.get(name)
        if carried is None or carried.number != number:
            self.late += 1
            return
        self.carried[name] = Carried(carried.host, number, is_up=True)

    def refused(self, name: str, number: int, last_number: int, now_s: float) -> list[PlacementAction]:
        """The host would not, or could not, start it: another one is tried first.

        last_number   the highest placement of that name the host ever saw; ours is repeated above it
        """
        carried = self.carried.get(name)
        if carried is None or carried.number != number:
            self.late += 1
            return []
        del self.carried[name]
        if last_number < number:
            self._barred[name, carried.host] = now_s + RETRY_S
        self.last_number = max(self.last_number, last_number)
        return self._reconcile(now_s)

    def unanswered(self, name: str, number: int, now_s: float) -> list[PlacementAction]:
        """The host said nothing in time: it may run the actor after all, so that is called off first."""
        carried = self.carried.get(name)
        if carried is None or carried.number != number:
            self.late += 1
            return []
        del self.carried[name]
        self._barred[name, carried.host] = now_s + RETRY_S
        return [self._call_off(name, carried), *self._reconcile(now_s)]

    def tick(self, now_s: float) -> list[PlacementAction]:
        """Time passed: hosts that refused are tried again."""
        due = [pair for pair, until_s in self._barred.items() if until_s <= now_s]
        for pair in due:
            del self._barred[pair]
        return self._reconcile(now_s) if due else []

    def _forget(self, host: str) -> None:
        self.hosts.pop(host, None)
        self.carried = {name: c for name, c in self.carried.items() if c.host != host}
        self._ending = {name: order for name, order in self._ending.items() if order.host != host}
        self._barred = {pair: until_s for pair, until_s in self._barred.items() if pair[1] != host}

    def _call_off(self, name: str, carried: Carried) -> CallOff:
        order = CallOff(carried.host, self.hosts[carried.host].epoch, carried.number, name)
        self._ending[name] = order
        return order

    def _reconcile(self, now_s: float) -> list[PlacementAction]:
        capabilities = {name: host.capabilities for name, host in self.hosts.items()}
        at = {name: carried.host for name, carried in self.carried.items()}
        ending = {name: order.host for name, order in self._ending.items() if name in self.specs}
        free = tuple(spec for name, spec in self.specs.items() if name not in ending)
        placement = place(free, capabilities, at, self._barred)
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
