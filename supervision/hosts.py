"""Actors on several hosts: who carries what, and what happens when a host is lost.

On every host, below one supervisor (rest_for_one, see `leader_spec` and `follower_spec`):

    hosts     leader only: decides by declared capability who carries what (`Hosts`)
    placed    a dynamic supervisor: the actors that were placed on this host
    host      starts and stops them as the leader says (`HostSupervisor`)
    bridge    the way to the other hosts (`actors.bridge`)

A host that is lost to the leader is lost for good as far as its placed actors go: they are started elsewhere
under a higher number, the host itself stops its own when it notices, and what it still sends is refused. When
it is back it bears a new epoch and may be given work again, later each time if it is lost again and again.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.actor import Actor, Sender, receives
from actors.board import LIVING, ActorState, Board
from actors.bridge import Export, Exported, LinkDown, LinkUp, wire_name
from actors.codec import from_plain, message, to_plain
from actors.errors import AskError, AskTimeout, MailboxFull, MalformedMessage
from actors.future import Future
from actors.link import LEASE_S, machine_row
from actors.monitors import Exit
from supervision import reports
from supervision.child_spec import Backoff, Breaker, ChildSpec, ChildType, Strategy, SupervisorFlags
from supervision.errors import InvalidChildSpec
from supervision.messages import (
    Children,
    DeleteChild,
    Managed,
    ReleaseChild,
    RestartChild,
    StartChild,
    TerminateChild,
    UpdateChild,
    UpdateFlags,
    WhichChildren,
    start_child,
)
from supervision.placement import (
    HOST_BACKOFF,
    HOST_BREAKER,
    INCARNATIONS_PER_PLACEMENT,
    CallOff,
    Carried,
    HostRecord,
    PlacedSpec,
    PlacementCore,
    Start,
)
from supervision.reports import Offender, SupervisorReport
from supervision.spec_parsing import parse
from supervision.supervisor import dynamic_supervisor_spec, supervisor_spec

HOSTS, PLACED, HOST, BRIDGE = "hosts", "placed", "host", "bridge"
"""The names of the four on every host's board. From elsewhere they are `host@b`, `hosts@a` and so on."""

RETRY_LOOK_S = 1.0
ANSWER_SLACK_S = 10.0
"""What a start may take beyond the child's start deadline: there and back, and an older one's end first."""

STOP_DEADLINE_S = 600.0
"""A stop takes what the child's own shutdown allows; this only bounds the wait for a supervisor."""

BRIDGE_BACKOFF_S = 1.0
"""A host without its bridge is lost to the others after a lease; the bridge may not wait long."""

LEAST_HANG_S = 5.0
"""A bridge on a busy machine may be silent for a while."""

AWAIT_HOSTS_S = 30.0

STARTS_AT_ONCE = 256
"""Orders to start that are under way at the same time; mail to one bridge is bounded."""

HOSTS_PER_ANSWER = 64
UNPLACED_PER_ANSWER = 20
REASON_LETTERS = 1000
"""Mail carries 64 KB."""

MANAGEMENT = (StartChild, TerminateChild, RestartChild, DeleteChild, ReleaseChild, UpdateChild, UpdateFlags)
"""What a supervisor is told to do. Whoever may say it can have any actor started there."""

NO_EPOCH = -1
"""A follower without its leader takes no orders."""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class StartPlaced:
    """From the leader to a host: carry this actor. Answered by Carries once it is ready, or was refused."""

    epoch: int
    number: int
    child: Mapping[str, Any]
    is_told_to_all: bool = True


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
    """To `hosts`: carry this actor on some host from now on (`place_actor`). Answered by Whereabouts."""

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
    """Which host carries an actor; host is empty when none does, and reason says why."""

    name: str
    host: str = ""
    number: int = 0
    is_up: bool = False
    reason: str = ""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class WhichHosts:
    """To `hosts`. Answered by HostsNow, HOSTS_PER_ANSWER hosts at a time, from `offset` on."""

    offset: int = 0


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class HostNow:
    """One host that is there, or was lost.

    state        running: it gets work; backoff, quarantined: it was lost too often and gets none for
                 `retry_in_s`; stopped: it is lost
    losses       how often it was lost
    reason       why it was lost last
    """

    host: str
    epoch: int
    capabilities: dict[str, int]
    carries: tuple[str, ...]
    state: str = "running"
    losses: int = 0
    retry_in_s: float = 0.0
    reason: str = ""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class HostsNow:
    """The hosts, the actors no host was found for and why, and what was not believed.

    unplaced   the first UNPLACED_PER_ANSWER of `unplaced_total`
    late       news of an epoch or a placement that is over
    refused    orders and news from those who may not give them
    """

    hosts: tuple[HostNow, ...]
    total: int
    unplaced: dict[str, str]
    unplaced_total: int
    late: int
    refused: int = 0


def place_actor(spec: PlacedSpec) -> Place:
    """The call that has an actor placed."""
    return Place(spec=to_plain(spec))


class Hosts(Actor):
    """On the leader: the owner of who carries what. args: those of `leader_spec`, as plain data.

    Receives   LinkUp and LinkDown (bridge, and its own host's `host`), Place, Displace, WhereIs, WhichHosts
    Dies when  a spec in its args makes no sense
    On restart every host's session is opened anew, and everything is placed again under higher numbers

    The row `machine-HOST` of every other host on the leader's board is this actor's: it says whether the host
    is there, gets work, or was lost, and why. The rows of what the host carries are below it.
    """

    traps_exits = True
    """Other hosts may link to it; that must not end it."""

    def on_start(self) -> None:
        specs = [from_plain(plain, PlacedSpec) for plain in self.args.get("placed", ())]
        self._refused = 0
        self._own = ""  # the leader's own host: its `host` is not behind the bridge
        self._is_to_decide = False
        self._to_start: deque[Start] = deque()
        self._starting = 0
        numbers = (_last_number(self.board, spec.name) for spec in specs)
        self._core = PlacementCore(
            last_number=max(numbers, default=0),
            backoff=from_plain(self.args["backoff"], Backoff) if "backoff" in self.args else HOST_BACKOFF,
            breaker=from_plain(self.args["breaker"], Breaker) if "breaker" in self.args else HOST_BREAKER,
        )
        self._close_rows()
        self._decides_at_s = self._now_s() + AWAIT_HOSTS_S
        for spec in specs:
            self._core.wanted(spec)
        self._decide()
        self.every(RETRY_LOOK_S, self._decide)

    @receives(Exit)
    def ignore_exit(self, news: Exit, sender: Sender) -> None:
        """Who linked to this one has ended."""

    @receives(LinkUp)
    def link_up(self, news: LinkUp, sender: Sender) -> Managed | None:
        if self._is_refused(news, sender, may=_is_own(self.board, sender, BRIDGE, HOST)):
            return Managed(ok=False, reason=_not_from(sender, "the bridge and the host of its machine"))
        self._own = news.host if sender.name == HOST else self._own
        self._core.host_up(news.host, news.epoch, news.capabilities, self._now_s())
        self._publish(news.host)
        self._decide_soon()
        return None

    @receives(LinkDown)
    def link_down(self, news: LinkDown, sender: Sender) -> Managed | None:
        if self._is_refused(news, sender, may=_is_own(self.board, sender, BRIDGE)):
            return Managed(ok=False, reason=_not_from(sender, "the bridge of its machine"))
        there = {name: h.epoch for name, h in self._core.hosts.items() if name != self._own and h.is_there}
        for host, epoch in there.items() if not news.host else ((news.host, news.epoch),):
            self._lost(host, epoch, news.reason, is_failure=not news.is_given_up)
        self._decide_soon()
        return None

    def _lost(self, host: str, epoch: int, reason: str, *, is_failure: bool) -> None:
        self.log.warning("host_lost", host=host, epoch=epoch, reason=reason)
        self._core.host_down(host, epoch, self._now_s(), reason, is_failure=is_failure)
        self._publish(host)
        record = self._core.hosts.get(host)
        if record is None or record.epoch != epoch or not is_failure:
            return
        is_quarantined = record.is_quarantined(self._now_s())
        report = SupervisorReport(
            unix_s=self.clock.unix_s(),
            supervisor=self.identity.name,
            context="child_quarantined" if is_quarantined else "child_terminated",
            reason=f"host {host!r} is lost: {reason}",
            offender=Offender(id=machine_row(host), incarnation=record.sessions),
        )
        reports.append(self.identity.run_dir, report)
        if self.identity.prints_reports:
            reports.show(self.identity.run_dir, report)

    @receives(Place)
    def place(self, call: Place, sender: Sender) -> Whereabouts:
        if self._is_refused(call, sender, may=_is_here(self.board, sender)):
            return Whereabouts(name="", reason=_not_from(sender, "actors of its machine"))
        try:
            spec = from_plain(call.spec, PlacedSpec)
        except (InvalidChildSpec, MalformedMessage) as error:
            return Whereabouts(name="", reason=str(error))
        self._core.last_number = max(self._core.last_number, _last_number(self.board, spec.name))
        self._core.wanted(spec)
        self._decide()
        return self._whereabouts(spec.name)

    @receives(Displace)
    def displace(self, call: Displace, sender: Sender) -> Whereabouts:
        if self._is_refused(call, sender, may=_is_here(self.board, sender)):
            return Whereabouts(name=call.name, reason=_not_from(sender, "actors of its machine"))
        self._core.unwanted(call.name)
        self._decide()
        return self._whereabouts(call.name)

    @receives(WhereIs)
    def where_is(self, call: WhereIs, sender: Sender) -> Whereabouts:
        return self._whereabouts(call.name)

    @receives(WhichHosts)
    def which_hosts(self, call: WhichHosts, sender: Sender) -> HostsNow:
        carries: dict[str, list[str]] = {}
        for actor, at in self._core.carried.items():
            carries.setdefault(at.host, []).append(actor)
        page = sorted(self._core.hosts)[call.offset : call.offset + HOSTS_PER_ANSWER]
        unplaced = sorted(self._core.unplaced.items())[:UNPLACED_PER_ANSWER]
        return HostsNow(
            hosts=tuple(self._host_now(name, tuple(sorted(carries.get(name, ())))) for name in page),
            total=len(self._core.hosts),
            unplaced={name: reason[:REASON_LETTERS] for name, reason in unplaced},
            unplaced_total=len(self._core.unplaced),
            late=self._core.late,
            refused=self._refused,
        )

    def _host_now(self, name: str, carries: tuple[str, ...]) -> HostNow:
        record, now_s = self._core.hosts[name], self._now_s()
        return HostNow(
            host=name,
            epoch=record.epoch,
            capabilities=dict(record.capabilities),
            carries=carries,
            state=record.state(now_s).value,
            losses=record.losses,
            retry_in_s=max(0.0, record.free_at_s() - now_s),
            reason=record.reason,
        )

    # ---- inside ----

    def _decide_soon(self) -> None:
        """Once for all the news of this turn."""
        if not self._is_to_decide:
            self._is_to_decide = True
            self.after(0.0, self._decide)

    def _is_too_soon(self) -> bool:
        """Whether hosts that the first placement waits for are still on their way."""
        is_missing = not set(self.args.get("awaits", ())) <= {
            name for name, host in self._core.hosts.items() if host.is_there
        }
        if not is_missing:
            self._decides_at_s = 0.0
        return self._now_s() < self._decides_at_s

    def _decide(self) -> None:
        self._is_to_decide = False
        if self._is_too_soon():
            return
        before = dict(self._core.unplaced)
        for action in self._core.decide(self._now_s()):
            match action:
                case Start():
                    self._to_start.append(action)
                case CallOff():
                    self.run(self._call_off(action))
        self._start_next()
        for host in self._core.hosts:
            self._publish(host)
        if self._core.unplaced and self._core.unplaced != before:
            shown = dict(sorted(self._core.unplaced.items())[:UNPLACED_PER_ANSWER])
            self.log.warning("not_placed", count=len(self._core.unplaced), reasons=shown)

    def _start_next(self) -> None:
        while self._to_start and self._starting < STARTS_AT_ONCE:
            start = self._to_start.popleft()
            if self._is_still_meant(start):
                self._starting += 1
                self.log.info("placing", name=start.spec.name, host=start.host, number=start.number)
                self.run(self._start(start))

    def _is_still_meant(self, start: Start) -> bool:
        carried = self._core.carried.get(start.spec.name)
        return carried is not None and carried.number == start.number

    async def _start(self, start: Start) -> None:
        await self._order_start(start)
        self._starting -= 1
        self._start_next()

    async def _order_start(self, start: Start) -> None:
        name, child = start.spec.name, start.spec.child
        order = StartPlaced(
            epoch=start.epoch,
            number=start.number,
            child=to_plain(child),
            is_told_to_all=start.spec.is_told_to_all,
        )
        deadline_s = child.start_deadline_s + ANSWER_SLACK_S
        try:
            answer: Carries = await self.ask(self._address(start.host), order, deadline_s=deadline_s)
        except AskTimeout as error:
            self.log.warning("placement_unanswered", name=name, host=start.host, reason=str(error))
            self._core.unanswered(name, start.number, self._now_s())
            self._decide_soon()
            return
        except (AskError, MailboxFull) as error:
            answer = Carries(ok=False, reason=str(error))
        if answer.ok:
            self._core.started(name, start.number)
            return
        self.log.warning("placement_refused", name=name, host=start.host, reason=answer.reason)
        self._core.refused(name, start.number, answer.last_number, self._now_s())
        self._decide_soon()

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
                self._core.ended(order)
                self._decide_soon()

    # ---- the rows of hosts ----

    def _close_rows(self) -> None:
        """Hosts that an earlier incarnation knew are there when the bridge says so again."""
        for row in self.board.rows():
            if row.parent == self.identity.name and row.state is not ActorState.FREE:
                self.board.set_state(
                    row.slot, ActorState.STOPPED, ready=0, last_reason="hosts was started anew"
                )

    def _publish(self, host: str) -> None:
        """Write the row of a host, if it says something new. The leader's own host has a real row."""
        record = self._core.hosts.get(host)
        if record is None or host == self._own:
            return
        slot = self.board.find(machine_row(host))
        if slot is None:
            slot = self.board.claim(machine_row(host), self.identity.name)
        state, wait_s = record.state(self._now_s()), record.free_at_s() - self._now_s()
        is_same = self.board.state(slot) is state and self.board.get(slot, "incarnation") == record.sessions
        if is_same and self.board.get(slot, "restarts") == record.losses:
            return
        is_free = state is ActorState.RUNNING
        self._write_row(slot, record, started_unix_s=self.clock.unix_s() if record.is_there else 0.0)
        retry_unix_s = 0.0 if is_free or wait_s <= 0 else self.clock.unix_s() + wait_s
        self.board.set_state(slot, state, ready=int(is_free), retry_unix_s=retry_unix_s)

    def _write_row(self, slot: int, record: HostRecord, *, started_unix_s: float) -> None:
        self.board.set(
            slot,
            incarnation=record.sessions,
            restarts=record.losses,
            last_reason=f"the host is lost: {record.reason}" if record.reason else "",
            started_unix_s=started_unix_s,
        )

    # ---- one actor ----

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
    """One per host: starts and stops what the leader places here. args: `follows`, `host`, `capabilities`.

    Receives   LinkUp and LinkDown (bridge), StartPlaced and StopPlaced (the leader's `hosts`)
    Dies when  its dynamic supervisor does not answer
    On restart whatever was placed here is stopped, and the link is opened anew
    """

    traps_exits = True
    """Other hosts may link to it; that must not end it."""

    async def on_start(self) -> None:
        self._epoch = NO_EPOCH
        self._why = "the host supervisor was started anew"
        """Why the last epoch is over."""
        self._refused = 0
        self._leader = ""
        """As its bridge says; empty on the leader itself."""
        self._taken: dict[str, int] = {}
        """By name, the highest placement that was ordered; none is taken twice."""
        self._told_to_all: dict[str, bool] = {}
        """What was placed here, and whether every host is told of it."""
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
        if not self.args["follows"]:
            return None
        self._leader = news.host
        if news.epoch != self._epoch:
            await self._enter(news.epoch)
        return None

    @receives(LinkDown)
    async def link_down(self, news: LinkDown, sender: Sender) -> Managed | None:
        if not _is_own(self.board, sender, BRIDGE):
            return Managed(ok=False, reason=self._refusal(news, sender))
        if self.args["follows"]:
            await self._enter(NO_EPOCH, news.reason)
        elif not news.host:
            await self._export_again()
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
        self._told_to_all[spec.id] = order.is_told_to_all
        await self._export(spec.id)
        return Carries(ok=True)

    @receives(StopPlaced)
    async def stop_placed(self, order: StopPlaced, sender: Sender) -> Carries:
        """Of this placement or an earlier one; one that is still waiting for its turn is called off."""
        if not self._is_of_leader(sender):
            return Carries(ok=False, reason=self._refusal(order, sender))
        if order.epoch != self._epoch or order.number < self._taken.get(order.name, 0):
            return Carries(ok=False, reason=f"placement {order.number} in epoch {order.epoch} is over")
        self._called_off[order.name] = order.number
        self._told_to_all.pop(order.name, None)
        await self._terminate(order.name)
        return Carries(ok=True)

    # ---- inside ----

    def _export(self, name: str) -> Future[Exported]:
        return self.ask(BRIDGE, Export(name=name, placed=True, is_told_to_all=self._told_to_all[name]))

    async def _export_again(self) -> None:
        """The leader's bridge was started anew, and what was placed here goes on: tell the others again."""
        for end in [self._export(name) for name in self._told_to_all]:
            await end

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

    async def _enter(self, epoch: int, why: str = "") -> None:
        """What an earlier epoch placed here is stopped before anything new is started."""
        self._epoch, self._why = epoch, why
        if self._drained.is_done:
            self._drained = Future()
            await self._stop_all()
            self._drained.succeed(None)

    async def _stop_all(self) -> None:
        """All at once: each has its own time to end."""
        children: Children = await self.ask(PLACED, WhichChildren())
        if children.children:
            stops = [child.id for child in children.children]
            self.log.warning("stopping_placed", epoch=self._epoch, stops=stops, reason=self._why)
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
    wire: Path,
    placed: tuple[PlacedSpec, ...] = (),
    awaits: tuple[str, ...] = (),
    capabilities: Mapping[str, int] | None = None,
    services: tuple[str, ...] = (),
    exports: tuple[str, ...] = (),
    lease_s: float = LEASE_S,
    backoff: Backoff = HOST_BACKOFF,
    breaker: Breaker = HOST_BREAKER,
) -> ChildSpec:
    """The host that decides. Put it below the host's root supervisor, before whoever needs the others.

    wire        path of the socket at which this host's agent listens (`actors.wire`)
    placed      actors to be carried by whichever host has what they need
    awaits      hosts that the first placement waits for, at most AWAIT_HOSTS_S, so that it sees them all
    services    names of this host that others know as they are, with every row below them
    exports     names of this host that others may write to, besides `hosts`; there they are `name@host`
    lease_s     silence after which a host counts as lost, here and there
    backoff     how long a host that was lost gets no work
    breaker     how often a host may be lost before it is in quarantine
    """
    own = {"host": host, "capabilities": dict(capabilities or {})}
    link = {
        **own,
        "wire": str(wire),
        "services": list(services),
        "exports": [HOSTS, *exports],
        "tells": [HOSTS, HOST],
        "orders": [wire_name(order) for order in MANAGEMENT],
        "lease_s": lease_s,
    }
    decides = {
        "placed": [to_plain(spec) for spec in placed],
        "awaits": list(awaits),
        "backoff": to_plain(backoff),
        "breaker": to_plain(breaker),
    }
    hosts = ChildSpec(id=HOSTS, actor=f"{__name__}:Hosts", args=decides)
    return _machine_spec(
        host, hosts, *_carrying(own, follows=False), _bridge_spec("actors.leader_bridge:LeaderBridge", link)
    )


def follower_spec(
    *,
    host: str,
    leader: str,
    wire: Path,
    capabilities: Mapping[str, int] | None = None,
    exports: tuple[str, ...] = (),
    lease_s: float = LEASE_S,
) -> ChildSpec:
    """A host that carries what the leader places there. The arguments mirror `leader_spec`.

    leader      the leader's name
    lease_s     until the leader was heard for the first time; then the leader's own holds
    """
    own = {"host": host, "capabilities": dict(capabilities or {})}
    link = {
        **own,
        "leader": leader,
        "wire": str(wire),
        "exports": [HOST, *exports],
        "tells": [HOST],
        "orders": [wire_name(order) for order in MANAGEMENT],
        "lease_s": lease_s,
    }
    return _machine_spec(
        host, *_carrying(own, follows=True), _bridge_spec("actors.follower_bridge:FollowerBridge", link)
    )


def _carrying(own: Mapping[str, Any], *, follows: bool) -> tuple[ChildSpec, ChildSpec]:
    host = ChildSpec(id=HOST, actor=f"{__name__}:HostSupervisor", args={**own, "follows": follows})
    return dynamic_supervisor_spec(PLACED, max_restarts=10, max_seconds=60.0), host


def _bridge_spec(actor: str, link: Mapping[str, Any]) -> ChildSpec:
    """Its type is supervisor: when it ends, the rows it made (names from elsewhere) end with it.

    A bridge that hangs is lost to the others after a lease; here it is killed soon after, so that what was
    placed behind it is stopped.
    """
    return ChildSpec(
        id=BRIDGE,
        actor=actor,
        args=dict(link),
        type=ChildType.SUPERVISOR,
        backoff=Backoff(max_s=BRIDGE_BACKOFF_S),
        hang_deadline_s=max(LEAST_HANG_S, 2 * link["lease_s"]),
    )


def _machine_spec(host: str, *children: ChildSpec) -> ChildSpec:
    flags = SupervisorFlags(strategy=Strategy.REST_FOR_ONE, max_restarts=10, max_seconds=60.0)
    return supervisor_spec(machine_row(host), flags, children)
