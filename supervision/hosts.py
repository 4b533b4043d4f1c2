"""The leader's actor that decides which host carries what, and what happens when a host is lost.

On every host, below one supervisor (rest_for_one, see `supervision.host_specs`):

    hosts     leader only: decides by declared capability who carries what (`Hosts`)
    placed    a dynamic supervisor: the actors that were placed on this host
    host      starts and stops them as the leader says (`supervision.host_supervisor`)
    bridge    exchanges mail with the other hosts (`actors.bridge`)

When the leader counts a host as lost, the host keeps none of its placed actors. The leader starts them on
other hosts under higher placement numbers. The lost host stops its own when it notices the loss, and what it
still sends is refused. When the host connects again, it has a new epoch and may get work again, after a wait
that grows if the host is lost again and again.
"""

from collections import deque

from actors.actor import Actor, Sender, receives
from actors.board import LIVING
from actors.bridge_messages import LinkDown, LinkUp
from actors.codec import from_plain, to_plain
from actors.errors import ActorError, AskError, AskTimeout, MailboxFull, MalformedMessage, MessageTooLarge
from actors.link import machine_row
from actors.monitors import Exit
from supervision import placement_failure, reports
from supervision.child_spec import Backoff, Breaker, Budget
from supervision.errors import InvalidChildSpec
from supervision.host_answers import UNPLACED_PER_ANSWER, hosts_now
from supervision.host_checks import is_here, is_own, last_placement, not_from
from supervision.host_messages import (
    ANSWER_SLACK_S,
    BRIDGE,
    HOST,
    Carries,
    Displace,
    HostsNow,
    Place,
    StartPlaced,
    StopPlaced,
    Whereabouts,
    WhereIs,
    WhichHosts,
)
from supervision.host_rows import HostRows
from supervision.messages import Managed
from supervision.placement import (
    HOST_BACKOFF,
    HOST_BREAKER,
    CallOff,
    Carried,
    PlacedSpec,
    PlacementCore,
    Start,
)
from supervision.placement_budget import PlacementBudget
from supervision.reports import Offender, SupervisorReport

RETRY_LOOK_S = 1.0
AWAIT_HOSTS_S = 30.0

STARTS_AT_ONCE = 256
"""The most start orders that are under way at the same time, because the mailbox of a bridge is bounded."""


class Hosts(Actor):
    """The actor on the leader that decides which host runs which placed actor.

    Receives   LinkUp (bridge, the leader's `host`), LinkDown (bridge), Place, Displace, WhereIs, WhichHosts
    Dies when  a spec in its args is not valid
    On restart every host's session is opened anew, and every actor is placed again under a higher number

    args       placed, awaits, backoff, breaker and failures of `leader_spec`, as plain data

    When placed actors have failed more often than `failures` allows, this actor says so in a file
    (`supervision.placement_failure`) and goes on. Its own end would only make it begin to count anew.

    This actor owns the rows `machine-HOST` of the other hosts on the leader's board. Such a row shows whether
    its host is connected and gets work, or was lost, and why. The rows of the host's actors are below it.
    """

    traps_exits = True
    """An actor of another host may link itself to this one; its end must not end this actor."""

    def on_start(self) -> None:
        specs = [from_plain(plain, PlacedSpec) for plain in self.args.get("placed", ())]
        self._refused = 0
        self._own = ""  # the leader's own host: its `host` is not behind the bridge
        self._is_to_decide = False
        self._to_start: deque[Start] = deque()
        self._starting = 0
        numbers = (last_placement(self.board, spec.name) for spec in specs)
        self._core = PlacementCore(
            last_number=max(numbers, default=0),
            backoff=from_plain(self.args["backoff"], Backoff) if "backoff" in self.args else HOST_BACKOFF,
            breaker=from_plain(self.args["breaker"], Breaker) if "breaker" in self.args else HOST_BREAKER,
        )
        failures = self.args.get("failures")
        self._budget = None if failures is None else PlacementBudget(from_plain(failures, Budget))
        self._rows = HostRows(self.board, self.identity.name, self.clock)
        self._rows.close_all()
        self._without_row: set[str] = set()
        self._decides_at_s = self._now_s() + AWAIT_HOSTS_S
        for spec in specs:
            self._core.wanted(spec)
        self._decide()
        self.every(RETRY_LOOK_S, self._look)

    @receives(Exit)
    def ignore_exit(self, news: Exit, sender: Sender) -> None:
        """Ignore the end of an actor that had linked itself to this one."""

    @receives(LinkUp)
    def link_up(self, news: LinkUp, sender: Sender) -> Managed | None:
        if self._is_refused(news, sender, may=is_own(self.board, sender, BRIDGE, HOST)):
            return Managed(ok=False, reason=not_from(sender, "the bridge and the host of the same machine"))
        self._own = news.host if sender.name == HOST else self._own
        self._core.host_up(news.host, news.epoch, news.capabilities, self._now_s())
        self._publish(news.host)
        self._decide_soon()
        return None

    @receives(LinkDown)
    def link_down(self, news: LinkDown, sender: Sender) -> Managed | None:
        if self._is_refused(news, sender, may=is_own(self.board, sender, BRIDGE)):
            return Managed(ok=False, reason=not_from(sender, "the bridge of the same machine"))
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
        if self._is_refused(call, sender, may=is_here(self.board, sender)):
            return Whereabouts(name="", reason=not_from(sender, "actors of the same machine"))
        try:
            spec = from_plain(call.spec, PlacedSpec)
        except (InvalidChildSpec, MalformedMessage) as error:
            return Whereabouts(name="", reason=str(error))
        self._core.last_number = max(self._core.last_number, last_placement(self.board, spec.name))
        self._core.wanted(spec)
        self._decide()
        return self._whereabouts(spec.name)

    @receives(Displace)
    def displace(self, call: Displace, sender: Sender) -> Whereabouts:
        if self._is_refused(call, sender, may=is_here(self.board, sender)):
            return Whereabouts(name=call.name, reason=not_from(sender, "actors of the same machine"))
        self._core.unwanted(call.name)
        if self._budget is not None:
            self._budget.forget(call.name)
        self._decide()
        return self._whereabouts(call.name)

    @receives(WhereIs)
    def where_is(self, call: WhereIs, sender: Sender) -> Whereabouts:
        return self._whereabouts(call.name)

    @receives(WhichHosts)
    def which_hosts(self, call: WhichHosts, sender: Sender) -> HostsNow:
        return hosts_now(self._core, call.offset, self._now_s(), refused=self._refused)

    # ---- inside ----

    def _look(self) -> None:
        self._count_restarts()
        self._decide()

    def _count_restarts(self) -> None:
        """Spend the budget for restarts of placed actors since the last look, which their rows show."""
        if self._budget is None:
            return
        for name, carried in self._core.carried.items():
            slot = self.board.find(name)
            if carried.is_up and slot is not None and last_placement(self.board, name) == carried.number:
                too_many = self._budget.was_up(
                    name,
                    carried.host,
                    carried.number,
                    restarts=int(self.board.get(slot, "restarts")),
                    reason=str(self.board.get(slot, "last_reason")),
                    for_s=RETRY_LOOK_S,
                    has_equal=self._core.has_equal_elsewhere,
                )
                self._say_too_many(too_many)

    def _say_too_many(self, why: str) -> None:
        """Have the program that started the tree learn that placed actors failed too often, if they did."""
        if why:
            self.log.error("placed_actors_failed", reason=why)
            placement_failure.write(self.identity.run_dir, why)

    def _decide_soon(self) -> None:
        """Have the next decision made after this turn, once for all the news that the turn brings."""
        if not self._is_to_decide:
            self._is_to_decide = True
            self.after(0.0, self._decide)

    def _is_too_soon(self) -> bool:
        """Whether the first placement still waits for hosts that are not connected yet."""
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
        self._rows.give_up_lost()
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
            is_announced_to_all=start.spec.is_announced_to_all,
        )
        deadline_s = child.start_deadline_s + ANSWER_SLACK_S
        try:
            answer: Carries = await self.ask(self._address(start.host), order, deadline_s=deadline_s)
        except AskTimeout as error:
            self.log.warning("placement_unanswered", name=name, host=start.host, reason=str(error))
            self._core.unanswered(name, start.number, self._now_s())
            self._decide_soon()
            return
        except (AskError, MailboxFull, MessageTooLarge) as error:
            answer = Carries(ok=False, reason=str(error))
        if answer.ok:
            self._core.started(name, start.number)
            return
        self.log.warning("placement_refused", name=name, host=start.host, reason=answer.reason)
        if self._budget is not None and answer.has_failed and self._is_still_meant(start):
            has_equal = self._core.has_equal_elsewhere
            self._say_too_many(self._budget.failed(name, start.host, answer.reason, has_equal=has_equal))
        self._core.refused(name, start.number, answer.last_number, self._now_s(), answer.reason)
        self._decide_soon()

    async def _call_off(self, order: CallOff) -> None:
        """Order a host to stop an actor, again and again, until the host has stopped it or is lost."""
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

    def _publish(self, host: str) -> None:
        """Write the row of a host, except for the leader's own host, whose supervisor has that row."""
        record = self._core.hosts.get(host)
        if record is None or host == self._own:
            return
        try:
            self._rows.publish(host, record)
        except ActorError as error:  # the board is full; the host gets work all the same
            if host not in self._without_row:
                self.log.warning("host_without_row", host=host, reason=str(error))
            self._without_row.add(host)
        else:
            self._without_row.discard(host)

    # ---- one actor ----

    def _address(self, host: str) -> str:
        return HOST if host == self._own else f"{HOST}@{host}"

    def _whereabouts(self, name: str) -> Whereabouts:
        carried = self._core.carried.get(name)
        if carried is not None:
            why = self._why_not_up(name, carried)
            return Whereabouts(name=name, host=carried.host, number=carried.number, is_up=not why, reason=why)
        reason = self._core.unplaced.get(name, f"no actor {name!r} is to be placed; send Place for it first")
        return Whereabouts(name=name, reason=reason)

    def _why_not_up(self, name: str, carried: Carried) -> str:
        """Why a placed actor does not run, by the row that its host announced; empty if it runs."""
        if not carried.is_up:
            return f"it is being started on {carried.host!r}"
        slot = self.board.find(name)
        if slot is None or last_placement(self.board, name) != carried.number:
            return f"host {carried.host!r} has started it, but not announced it yet"
        state = self.board.state(slot)
        why = str(self.board.get(slot, "last_reason"))
        return "" if state in LIVING else f"it does not run (state {state}{f': {why}' if why else ''})"

    def _is_refused(self, content: object, sender: Sender, *, may: bool) -> bool:
        """Whether a message is refused, because its sender may not send it (`may`); a refusal is counted."""
        if not may:
            self._refused += 1
            self.log.warning("refused", message=type(content).__name__, sender=sender.name)
        return not may

    def _now_s(self) -> float:
        return self.clock.monotonic_s()
