"""Actors on several machines: who carries what, and what happens when a machine is lost.

On every machine, below one supervisor (rest_for_one, see `leader_spec` and `follower_spec`):

    hosts     leader only: decides by declared capability who carries what (`Hosts`)
    placed    a dynamic supervisor: the actors that were placed on this machine
    host      starts and stops them as the leader says (`HostSupervisor`)
    bridge    the encrypted link to the other machines (`actors.bridge`)

A machine that is lost to the leader is lost for good as far as its placed actors go: they are started
elsewhere under a higher number, the machine itself stops its own when it notices, and what it still sends
is refused. When it is back it bears a new epoch and may be given work again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.actor import Actor, Sender, receives
from actors.board import LIVING, ActorState, Board
from actors.bridge import Export, LinkDown, LinkUp
from actors.codec import from_plain, message, to_plain
from actors.errors import AskError, AskTimeout, MailboxFull, MalformedMessage
from actors.future import Future
from actors.link import LEASE_S
from actors.monitors import Exit
from supervision.child_spec import Backoff, ChildSpec, ChildType, Strategy, SupervisorFlags
from supervision.errors import InvalidChildSpec
from supervision.messages import Children, Managed, TerminateChild, WhichChildren, start_child
from supervision.placement import (
    INCARNATIONS_PER_PLACEMENT,
    CallOff,
    Carried,
    PlacedSpec,
    PlacementAction,
    PlacementCore,
    Start,
)
from supervision.spec_parsing import parse
from supervision.supervisor import dynamic_supervisor_spec, supervisor_spec

HOSTS, PLACED, HOST, BRIDGE = "hosts", "placed", "host", "bridge"
"""The names of the four on every machine's board. From elsewhere they are `host@b`, `hosts@a` and so on."""

RETRY_LOOK_S = 1.0
ANSWER_SLACK_S = 10.0
"""What a start may take beyond the child's start deadline: there and back, and an older one's end first."""

STOP_DEADLINE_S = 600.0
"""A stop takes what the child's own shutdown allows; this only bounds the wait for a supervisor."""

BRIDGE_BACKOFF_S = 1.0
"""A machine without its bridge is lost to the others after a lease; the bridge may not wait long."""

NO_EPOCH = -1
"""A follower without its leader takes no orders."""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class StartPlaced:
    """From the leader to a host: carry this actor. Answered by Carries once it is ready, or was refused."""

    epoch: int
    number: int
    child: Mapping[str, Any]


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class StopPlaced:
    """From the leader to a host: carry it no more. Answered by Carries."""

    epoch: int
    number: int
    name: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Carries:
    """How a host took an order.

    last_number   the highest placement of that name this host ever saw
    """

    ok: bool
    reason: str = ""
    last_number: int = 0


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """To `hosts`: carry this actor on some machine from now on (`place_actor`). Answered by Whereabouts."""

    spec: Mapping[str, Any]


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Displace:
    """To `hosts`: carry it nowhere any more. Answered by Whereabouts."""

    name: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class WhereIs:
    """To `hosts`. Answered by Whereabouts."""

    name: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """Which machine carries an actor; host is empty when none does, and reason says why."""

    name: str
    host: str = ""
    number: int = 0
    is_up: bool = False
    reason: str = ""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class WhichHosts:
    """To `hosts`. Answered by HostsNow."""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class HostNow:
    """One living machine."""

    host: str
    epoch: int
    capabilities: dict[str, int]
    carries: tuple[str, ...]


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class HostsNow:
    """Every living machine, the actors no machine was found for and why, and what was not believed.

    late      news of an epoch or a placement that is over
    refused   orders and news from those who may not give them
    """

    hosts: tuple[HostNow, ...]
    unplaced: dict[str, str]
    late: int
    refused: int = 0


def place_actor(spec: PlacedSpec) -> Place:
    """The call that has an actor placed."""
    return Place(spec=to_plain(spec))


class Hosts(Actor):
    """On the leader: the owner of who carries what. args: `placed`, specs as plain data.

    Receives   LinkUp and LinkDown (bridge, and its own machine's host), Place, Displace, WhereIs, WhichHosts
    Dies when  a spec in its args makes no sense
    On restart every machine's session is opened anew, and everything is placed again under higher numbers
    """

    traps_exits = True
    """Other machines may link to it; that must not end it."""

    def on_start(self) -> None:
        specs = [from_plain(plain, PlacedSpec) for plain in self.args.get("placed", ())]
        self._refused = 0
        self._own = ""  # the leader's own machine: its `host` is not behind the bridge
        numbers = (_last_number(self.board, spec.name) for spec in specs)
        self._core = PlacementCore(last_number=max(numbers, default=0))
        for spec in specs:
            self._carry_out(self._core.wanted(spec, self._now_s()))
        self.every(RETRY_LOOK_S, lambda: self._carry_out(self._core.tick(self._now_s())))

    @receives(Exit)
    def ignore_exit(self, news: Exit, sender: Sender) -> None:
        """Who linked to this one has ended."""

    @receives(LinkUp)
    def link_up(self, news: LinkUp, sender: Sender) -> Managed | None:
        if self._is_refused(news, sender, may=_is_own(self.board, sender, BRIDGE, HOST)):
            return Managed(ok=False, reason=_not_from(sender, "the bridge and the host of its machine"))
        self._own = news.host if sender.name == HOST else self._own
        self._carry_out(self._core.host_up(news.host, news.epoch, news.capabilities, self._now_s()))
        return None

    @receives(LinkDown)
    def link_down(self, news: LinkDown, sender: Sender) -> Managed | None:
        if self._is_refused(news, sender, may=_is_own(self.board, sender, BRIDGE)):
            return Managed(ok=False, reason=_not_from(sender, "the bridge of its machine"))
        lost = {name: h.epoch for name, h in self._core.hosts.items() if name != self._own}
        for host, epoch in lost.items() if not news.host else ((news.host, news.epoch),):
            self.log.warning("host_lost", host=host, epoch=epoch, reason=news.reason)
            self._carry_out(self._core.host_down(host, epoch, self._now_s()))
        return None

    @receives(Place)
    def place(self, call: Place, sender: Sender) -> Whereabouts:
        if self._is_refused(call, sender, may=_is_here(self.board, sender)):
            return Whereabouts(name="", reason=_not_from(sender, "actors of its machine"))
        try:
            spec = from_plain(call.spec, PlacedSpec)
        except (InvalidChildSpec, MalformedMessage) as error:
            return Whereabouts(name="", reason=str(error))
        self._core.last_number = max(self._core.last_number, _last_number(self.board, spec.name))
        self._carry_out(self._core.wanted(spec, self._now_s()))
        return self._whereabouts(spec.name)

    @receives(Displace)
    def displace(self, call: Displace, sender: Sender) -> Whereabouts:
        if self._is_refused(call, sender, may=_is_here(self.board, sender)):
            return Whereabouts(name=call.name, reason=_not_from(sender, "actors of its machine"))
        self._carry_out(self._core.unwanted(call.name, self._now_s()))
        return self._whereabouts(call.name)

    @receives(WhereIs)
    def where_is(self, call: WhereIs, sender: Sender) -> Whereabouts:
        return self._whereabouts(call.name)

    @receives(WhichHosts)
    def which_hosts(self, call: WhichHosts, sender: Sender) -> HostsNow:
        carried = self._core.carried
        hosts = tuple(
            HostNow(
                host=name,
                epoch=host.epoch,
                capabilities=dict(host.capabilities),
                carries=tuple(sorted(actor for actor, at in carried.items() if at.host == name)),
            )
            for name, host in sorted(self._core.hosts.items())
        )
        return HostsNow(
            hosts=hosts, unplaced=self._core.unplaced, late=self._core.late, refused=self._refused
        )

    # ---- inside ----

    def _carry_out(self, actions: list[PlacementAction]) -> None:
        for action in actions:
            match action:
                case Start():
                    self.log.info("placing", name=action.spec.name, host=action.host, number=action.number)
                    self.run(self._start(action))
                case CallOff():
                    self.run(self._call_off(action))
        if actions and self._core.unplaced:
            self.log.warning("not_placed", reasons=self._core.unplaced)

    async def _start(self, start: Start) -> None:
        name, child = start.spec.name, start.spec.child
        order = StartPlaced(epoch=start.epoch, number=start.number, child=to_plain(child))
        deadline_s = child.start_deadline_s + ANSWER_SLACK_S
        try:
            answer: Carries = await self.ask(self._address(start.host), order, deadline_s=deadline_s)
        except AskTimeout as error:
            self.log.warning("placement_unanswered", name=name, host=start.host, reason=str(error))
            self._carry_out(self._core.unanswered(name, start.number, self._now_s()))
            return
        except (AskError, MailboxFull) as error:
            answer = Carries(ok=False, reason=str(error))
        if answer.ok:
            self._core.started(name, start.number)
            return
        self.log.warning("placement_refused", name=name, host=start.host, reason=answer.reason)
        self._carry_out(self._core.refused(name, start.number, answer.last_number, self._now_s()))

    async def _call_off(self, order: CallOff) -> None:
        """Again and again, until the host says that it has stopped it, or is lost and stops it by itself."""
        content = StopPlaced(epoch=order.epoch, number=order.number, name=order.name)
        while self._core.is_ending(order):
            try:
                await self.ask(self._address(order.host), content, deadline_s=ANSWER_SLACK_S)
            except (AskError, MailboxFull) as error:
                self.log.warning("not_stopped_yet", name=order.name, host=order.host, reason=str(error))
                await self.sleep(RETRY_LOOK_S)
            else:
                self._carry_out(self._core.ended(order, self._now_s()))

    def _address(self, host: str) -> str:
        return HOST if host == self._own else f"{HOST}@{host}"

    def _whereabouts(self, name: str) -> Whereabouts:
        carried = self._core.carried.get(name)
        if carried is not None:
            why = self._why_not_up(name, carried)
            return Whereabouts(name=name, host=carried.host, number=carried.number, is_up=not why, reason=why)
        reason = self._core.unplaced.get(name, f"nobody asked to have {name!r} placed")
        return Whereabouts(name=name, reason=reason)

    def _why_not_up(self, name: str, carried: Carried) -> str:
        """What this machine's board says of it: its host tells when it ends, and whether for good."""
        if not carried.is_up:
            return f"it is being started on {carried.host!r}"
        slot = self.board.find(name)
        if slot is None or _last_number(self.board, name) != carried.number:
            return f"{carried.host!r} has not told of it yet"
        state = self.board.state(slot)
        why = str(self.board.get(slot, "last_reason"))
        return "" if state in LIVING else f"it does not run (state {state}{f': {why}' if why else ''})"

    def _is_refused(self, content: object, sender: Sender, *, may: bool) -> bool:
        """Whether it came from one who may not say it; then it is counted."""
        if not may:
            self._refused += 1
            self.log.warning("refused", message=type(content).__name__, sender=sender.name)
        return not may

    def _now_s(self) -> float:
        return self.clock.monotonic_s()


class HostSupervisor(Actor):
    """One per machine: starts and stops what the leader places here. args: `follows`, `host`, `capabilities`.

    Receives   LinkUp and LinkDown (bridge), StartPlaced and StopPlaced (the leader's `hosts`)
    Dies when  its dynamic supervisor does not answer
    On restart whatever was placed here is stopped, and the link is opened anew
    """

    traps_exits = True
    """Other machines may link to it; that must not end it."""

    async def on_start(self) -> None:
        self._epoch = NO_EPOCH
        self._refused = 0
        self._leader = ""
        """As its bridge says; empty on the leader itself."""
        self._taken: dict[str, int] = {}
        """By name, the highest placement that was ordered; none is taken twice."""
        self._called_off: dict[str, int] = {}
        """By name, the highest placement that was to be stopped; it is not started after."""
        self._drained: Future[None] = Future()
        await self._stop_all()
        self._drained.succeed(None)
        if not self.args["follows"]:
            self._epoch = self.identity.incarnation
            own = LinkUp(host=self.args["host"], epoch=self._epoch, capabilities=self.args["capabilities"])
            self.tell(HOSTS, own)

    @receives(Exit)
    def ignore_exit(self, news: Exit, sender: Sender) -> None:
        """Who linked to this one has ended."""

    @receives(LinkUp)
    async def link_up(self, news: LinkUp, sender: Sender) -> Managed | None:
        if not _is_own(self.board, sender, BRIDGE):
            return Managed(ok=False, reason=self._refusal(news, sender))
        self._leader = news.host
        if news.epoch != self._epoch:
            await self._enter(news.epoch)
        return None

    @receives(LinkDown)
    async def link_down(self, news: LinkDown, sender: Sender) -> Managed | None:
        if not _is_own(self.board, sender, BRIDGE):
            return Managed(ok=False, reason=self._refusal(news, sender))
        await self._enter(NO_EPOCH)
        return None

    @receives(StartPlaced)
    async def start_placed(self, order: StartPlaced, sender: Sender) -> Carries:
        if not self._is_of_leader(sender):
            return Carries(ok=False, reason=self._refusal(order, sender))
        await self._drained
        try:
            spec = parse(order.child, ChildSpec)
        except InvalidChildSpec as error:  # the leader may run another version
            return Carries(ok=False, reason=str(error))
        last = max(_last_number(self.board, spec.id), self._taken.get(spec.id, 0))
        why = self._why_not_start(order, spec.id, last)
        if why:
            return Carries(ok=False, reason=why, last_number=last)
        self._taken[spec.id] = order.number
        await self._terminate(spec.id)
        if order.epoch != self._epoch or self._is_called_off(order.number, spec.id):
            return Carries(
                ok=False, reason=f"placement {order.number} of {spec.id!r} was called off meanwhile"
            )
        self._number_from(spec.id, order.number)
        deadline_s = spec.start_deadline_s + ANSWER_SLACK_S
        answer: Managed = await self.ask(PLACED, start_child(spec), deadline_s=deadline_s)
        if not answer.ok:
            return Carries(ok=False, reason=answer.reason)
        await self.ask(BRIDGE, Export(name=spec.id, placed=True))
        return Carries(ok=True)

    @receives(StopPlaced)
    async def stop_placed(self, order: StopPlaced, sender: Sender) -> Carries:
        """Of this placement or an earlier one; one that is still waiting for its turn is called off."""
        if not self._is_of_leader(sender):
            return Carries(ok=False, reason=self._refusal(order, sender))
        if order.epoch != self._epoch or order.number < self._taken.get(order.name, 0):
            return Carries(ok=False, reason=f"placement {order.number} in epoch {order.epoch} is over")
        self._called_off[order.name] = order.number
        await self._terminate(order.name)
        return Carries(ok=True)

    # ---- inside ----

    def _is_of_leader(self, sender: Sender) -> bool:
        """The leader's `hosts`: here on the leader itself, else as only the leader's bridge can name it."""
        if not self.args["follows"]:
            return _is_own(self.board, sender, HOSTS)
        return bool(self._leader) and sender.name == f"{HOSTS}@{self._leader}"

    def _refusal(self, content: object, sender: Sender) -> str:
        self._refused += 1
        why = _not_from(sender, "its own bridge and the leader's hosts")
        self.log.warning("refused", message=type(content).__name__, reason=why, refused=self._refused)
        return why

    async def _enter(self, epoch: int) -> None:
        """What an earlier epoch placed here is stopped before anything new is started."""
        self._epoch = epoch
        if self._drained.is_done:
            self._drained = Future()
            await self._stop_all()
            self._drained.succeed(None)

    async def _stop_all(self) -> None:
        """All at once: each has its own time to end."""
        children: Children = await self.ask(PLACED, WhichChildren())
        if children.children:
            self.log.warning("draining", epoch=self._epoch, stops=[child.id for child in children.children])
        for end in [self._terminate(child.id) for child in children.children]:
            await end

    def _terminate(self, name: str) -> Future[Managed]:
        return self.ask(PLACED, TerminateChild(id=name), deadline_s=STOP_DEADLINE_S)

    def _why_not_start(self, order: StartPlaced, name: str, last: int) -> str:
        if order.epoch != self._epoch:
            return f"epoch {order.epoch} is over, {self._epoch} is now"
        if order.number <= last:
            return f"placement {order.number} of {name!r} is late: {last} was here"
        slot = self.board.find(name)
        if slot is None or self.board.get(slot, "route") or self.board.get(slot, "parent") == PLACED:
            return ""
        is_taken = self.board.state(slot) in LIVING
        return f"{name!r} is an actor of this machine that was not placed" if is_taken else ""

    def _is_called_off(self, number: int, name: str) -> bool:
        return self._taken[name] != number or self._called_off.get(name, 0) >= number

    def _number_from(self, name: str, number: int) -> None:
        """Its supervisor goes on counting here: incarnations grow from machine to machine."""
        slot = self.board.claim(name, PLACED)
        first = number * INCARNATIONS_PER_PLACEMENT
        self.board.set_state(slot, ActorState.STOPPED, incarnation=first, route=0, pid=0, ready=0)


def _last_number(board: Board, name: str) -> int:
    """The placement an actor on this board was last seen under."""
    slot = board.find(name)
    return 0 if slot is None else int(board.get(slot, "incarnation")) // INCARNATIONS_PER_PLACEMENT


def _is_here(board: Board, sender: Sender) -> bool:
    """Whether it is an actor of this machine, or its launcher: names from elsewhere have a route."""
    slot = board.find(sender.name)
    return "@" not in sender.name and (slot is None or not board.get(slot, "route"))


def _is_own(board: Board, sender: Sender, *names: str) -> bool:
    return sender.name in names and _is_here(board, sender)


def _not_from(sender: Sender, who: str) -> str:
    return f"this is taken from {who} only, not from {sender.name!r}"


# ---- the trees ----


def leader_spec(
    *,
    host: str,
    listen: str,
    keys: Path,
    followers: Mapping[str, str],
    placed: tuple[PlacedSpec, ...] = (),
    capabilities: Mapping[str, int] | None = None,
    exports: tuple[str, ...] = (),
    lease_s: float = LEASE_S,
) -> ChildSpec:
    """The machine that decides. Put it below the machine's root supervisor, before whoever needs the others.

    listen      "tcp://10.0.0.1:7000", one address of this machine
    keys        folder of this machine's key pair (`python -m actors.curve FOLDER`)
    followers   host name to public key: nobody else gets in
    placed      actors to be carried by whichever machine has what they need
    exports     names of this machine that others may write to, besides `hosts`; there they are `name@host`
    lease_s     silence after which a machine counts as lost, here and there
    """
    own = {"host": host, "capabilities": dict(capabilities or {})}
    link = {
        **own,
        "listen": listen,
        "keys": str(keys),
        "followers": dict(followers),
        "exports": [HOSTS, *exports],
        "tells": [HOSTS],
        "lease_s": lease_s,
    }
    plain = [to_plain(spec) for spec in placed]
    hosts = ChildSpec(id=HOSTS, actor=f"{__name__}:Hosts", args={"placed": plain})
    return _machine_spec(host, hosts, *_carrying(own, follows=False), _bridge_spec("LeaderBridge", link))


def follower_spec(
    *,
    host: str,
    connect: str,
    leader_key: str,
    keys: Path,
    capabilities: Mapping[str, int] | None = None,
    exports: tuple[str, ...] = (),
    lease_s: float = LEASE_S,
) -> ChildSpec:
    """A machine that carries what the leader places there. The arguments mirror `leader_spec`.

    lease_s     until the leader was heard for the first time; then the leader's own holds
    """
    own = {"host": host, "capabilities": dict(capabilities or {})}
    link = {
        **own,
        "connect": connect,
        "leader_key": leader_key,
        "keys": str(keys),
        "exports": [HOST, *exports],
        "tells": [HOST],
        "lease_s": lease_s,
    }
    return _machine_spec(host, *_carrying(own, follows=True), _bridge_spec("FollowerBridge", link))


def _carrying(own: Mapping[str, Any], *, follows: bool) -> tuple[ChildSpec, ChildSpec]:
    host = ChildSpec(id=HOST, actor=f"{__name__}:HostSupervisor", args={**own, "follows": follows})
    return dynamic_supervisor_spec(PLACED, max_restarts=10, max_seconds=60.0), host


def _bridge_spec(kind: str, link: Mapping[str, Any]) -> ChildSpec:
    """Its type is supervisor: when it ends, the rows it made (names from elsewhere) end with it."""
    return ChildSpec(
        id=BRIDGE,
        actor=f"actors.bridge:{kind}",
        args=dict(link),
        type=ChildType.SUPERVISOR,
        backoff=Backoff(max_s=BRIDGE_BACKOFF_S),
    )


def _machine_spec(host: str, *children: ChildSpec) -> ChildSpec:
    flags = SupervisorFlags(strategy=Strategy.REST_FOR_ONE, max_restarts=10, max_seconds=60.0)
    return supervisor_spec(f"machine-{host}", flags, children)
