"""The actor on each host that starts and stops the actors that the leader places there."""

from actors.actor import Actor, Sender, receives
from actors.board import INCARNATIONS_PER_PLACEMENT, LIVING, ActorState
from actors.bridge_messages import Export, LinkDown, LinkUp
from actors.errors import ActorError
from actors.future import Future
from actors.monitors import Exit
from supervision.child_spec import ChildSpec
from supervision.errors import InvalidChildSpec
from supervision.host_checks import is_own, last_placement, not_from
from supervision.host_messages import (
    ANSWER_SLACK_S,
    BRIDGE,
    HOSTS,
    PLACED,
    Carries,
    StartPlaced,
    StopPlaced,
)
from supervision.messages import Children, Managed, TerminateChild, WhichChildren, start_child
from supervision.spec_parsing import parse

STOP_DEADLINE_S = 600.0
"""The longest wait for the answer to a stop, in seconds. The child's `shutdown_s` limits the stop itself."""
NO_EPOCH = -1
"""The epoch of a follower without a session with the leader. No order has it, so none is obeyed."""


class HostSupervisor(Actor):
    """Starts and stops the actors that the leader places on this host; there is one on each host.

    Receives   LinkUp and LinkDown (bridge), StartPlaced and StopPlaced (the leader's `hosts`)
    Dies when  the dynamic supervisor `placed` does not answer
    On restart every actor that was placed here is stopped, and the session with the leader is opened anew

    args       follows (false on the leader), host (this host's name), capabilities
    """

    traps_exits = True
    """An actor of another host may link itself to this one; its end must not end this actor."""

    async def on_start(self) -> None:
        self._epoch = NO_EPOCH
        self._why = "the host supervisor was started anew"
        """Why the last epoch is over."""
        self._refused = 0
        self._leader = ""
        """The leader's name, from the last LinkUp; empty before it, and on the leader itself."""
        self._taken: dict[str, int] = {}
        """By name, the highest number of a placement that was started here. None is started twice."""
        self._announced_to_all: dict[str, bool] = {}
        """By name of each actor that was placed here, whether every host hears of it."""
        self._called_off: dict[str, int] = {}
        """By name, the highest number of a placement that was stopped. It is not started afterwards."""
        self._drained: Future[None] = Future()
        await self._stop_all()
        self._drained.succeed(None)
        if not self.args["follows"]:
            self._epoch = self.identity.incarnation
            own = LinkUp(host=self.args["host"], epoch=self._epoch, capabilities=self.args["capabilities"])
            self.tell(HOSTS, own)

    @receives(Exit)
    def ignore_exit(self, news: Exit, sender: Sender) -> None:
        """Ignore the end of an actor that had linked itself to this one."""

    @receives(LinkUp)
    async def link_up(self, news: LinkUp, sender: Sender) -> Managed | None:
        if not is_own(self.board, sender, BRIDGE):
            return Managed(ok=False, reason=self._refusal(news, sender))
        if not self.args["follows"]:
            return None
        self._leader = news.host
        if news.epoch != self._epoch:
            await self._enter(news.epoch)
        return None

    @receives(LinkDown)
    async def link_down(self, news: LinkDown, sender: Sender) -> Managed | None:
        if not is_own(self.board, sender, BRIDGE):
            return Managed(ok=False, reason=self._refusal(news, sender))
        if self.args["follows"]:
            await self._enter(NO_EPOCH, news.reason)
        elif not news.host:
            self._export_again()
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
        last = max(last_placement(self.board, spec.id), self._taken.get(spec.id, 0))
        why = self._why_not_start(order, spec.id, last)
        if why:
            return Carries(ok=False, reason=why, last_number=last)
        self._taken[spec.id] = order.number
        await self._terminate(spec.id)
        if order.epoch != self._epoch or self._is_called_off(order.number, spec.id):
            return Carries(
                ok=False, reason=f"placement {order.number} of {spec.id!r} was called off meanwhile"
            )
        try:
            self._number_from(spec.id, order.number)
        except ActorError as error:  # the board is full
            return Carries(ok=False, reason=str(error))
        self._announced_to_all[spec.id] = order.is_announced_to_all
        if not self._export(spec.id):  # read by the bridge before any mail of the actor or those below it
            del self._announced_to_all[spec.id]
            return Carries(ok=False, reason="the bridge of this host takes no messages now")
        deadline_s = spec.start_deadline_s + ANSWER_SLACK_S
        answer: Managed = await self.ask(PLACED, start_child(spec), deadline_s=deadline_s)
        if not answer.ok:
            self._announced_to_all.pop(spec.id, None)  # the bridge announces that its row is free
            return Carries(ok=False, reason=answer.reason, has_failed=self._has_failed(order, spec.id))
        return Carries(ok=True)

    @receives(StopPlaced)
    async def stop_placed(self, order: StopPlaced, sender: Sender) -> Carries:
        """Stop the actor of this placement or an earlier one; a start that still waits is called off."""
        if not self._is_of_leader(sender):
            return Carries(ok=False, reason=self._refusal(order, sender))
        if order.epoch != self._epoch or order.number < self._taken.get(order.name, 0):
            return Carries(ok=False, reason=f"placement {order.number} in epoch {order.epoch} is over")
        self._called_off[order.name] = order.number
        self._announced_to_all.pop(order.name, None)
        await self._terminate(order.name)
        return Carries(ok=True)

    # ---- inside ----

    def _export(self, name: str) -> bool:
        """Have the bridge announce a placed actor; False if it takes no messages.

        The answer is not waited for, because the bridge may itself wait for its agent. If the bridge ends
        before it reads this message, `_export_again` follows.
        """
        return self.tell(
            BRIDGE, Export(name=name, placed=True, is_announced_to_all=self._announced_to_all[name])
        )

    def _export_again(self) -> None:
        """Export the actors that were placed here again, because the leader's bridge was restarted."""
        for name in self._announced_to_all:
            self._export(name)

    def _is_of_leader(self, sender: Sender) -> bool:
        """Whether the sender is the leader's actor `hosts`.

        On a follower its name is `hosts@LEADER`, which only the leader's bridge can announce.
        """
        if not self.args["follows"]:
            return is_own(self.board, sender, HOSTS)
        return bool(self._leader) and sender.name == f"{HOSTS}@{self._leader}"

    def _refusal(self, content: object, sender: Sender) -> str:
        self._refused += 1
        why = not_from(sender, "its own bridge and the leader's hosts")
        self.log.warning("refused", message=type(content).__name__, reason=why, refused=self._refused)
        return why

    async def _enter(self, epoch: int, why: str = "") -> None:
        """Begin an epoch: stop what an earlier one placed here, before anything new is started."""
        self._epoch, self._why = epoch, why
        if self._drained.is_done:
            self._drained = Future()
            await self._stop_all()
            self._drained.succeed(None)

    async def _stop_all(self) -> None:
        """Stop all placed actors at the same time; each gets its own shutdown time."""
        while names := await self._placed():  # a look misses one if another ends between two answers
            self.log.warning("stopping_placed", epoch=self._epoch, stops=names, reason=self._why)
            for end in [self._terminate(name) for name in names]:
                await end

    async def _placed(self) -> list[str]:
        """The names of all placed actors; one answer carries a part of them."""
        names: list[str] = []
        while True:
            page: Children = await self.ask(PLACED, WhichChildren(offset=len(names)))
            names += [child.id for child in page.children]
            if not page.children or len(names) >= page.total:
                return names

    def _terminate(self, name: str) -> Future[Managed]:
        return self.ask(PLACED, TerminateChild(id=name), deadline_s=STOP_DEADLINE_S)

    def _why_not_start(self, order: StartPlaced, name: str, last: int) -> str:
        if order.epoch != self._epoch:
            return f"epoch {order.epoch} is over; the epoch is {self._epoch} now"
        if order.number <= last:
            return f"placement {order.number} of {name!r} is late: this host has seen placement {last}"
        slot = self.board.find(name)
        if slot is None or self.board.get(slot, "route") or self.board.get(slot, "parent") == PLACED:
            return ""
        is_taken = self.board.state(slot) in LIVING
        return f"{name!r} is an actor of this machine that was not placed" if is_taken else ""

    def _has_failed(self, order: StartPlaced, name: str) -> bool:
        """Whether an actor that did not get ready had a process, and was not ordered to stop."""
        if order.epoch != self._epoch or self._is_called_off(order.number, name):
            return False
        slot = self.board.find(name)
        first = order.number * INCARNATIONS_PER_PLACEMENT
        return slot is not None and self.board.get(slot, "incarnation") > first

    def _is_called_off(self, number: int, name: str) -> bool:
        return self._taken[name] != number or self._called_off.get(name, 0) >= number

    def _number_from(self, name: str, number: int) -> None:
        """Have the actor's incarnations begin at its placement's number, above those on earlier hosts."""
        first = number * INCARNATIONS_PER_PLACEMENT
        slot = self.board.claim(name, PLACED, incarnation=first)
        self.board.set_state(slot, ActorState.STOPPED, incarnation=first, route=0, pid=0, ready=0)
