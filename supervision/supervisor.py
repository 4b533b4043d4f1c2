"""The supervisor actor: it carries out what `supervision.core` decides.

Receives   Stop (from its own supervisor or the launcher), ChildReady and UsedUp (from its children),
           the management calls of `supervision.messages` (from anyone with the run's key)
Watches    the pidfd of every child (exits), the vitals board (hangs, uses)
Dies when  the restart budget is spent (exit `shutdown`: its own supervisor decides), or its work is done
On restart its children are gone with it (the kernel saw to that) and are started anew; dynamic ones are not
           remembered (OTP), whoever wanted them starts them again
"""

import math
from collections.abc import Callable
from typing import Any, ClassVar

from actors.actor import Actor, Sender, receives
from actors.board import ActorState, second_row
from actors.codec import from_plain, to_plain
from actors.errors import ActorError
from actors.future import Future
from actors.process import EXIT_SHUTDOWN, is_running, kill_the_same
from actors.system_messages import ChildReady, Stop, UsedUp
from actors.thespian_host import leave_last_words
from supervision import management, reports
from supervision.actions import (
    Action,
    Answer,
    AskToStop,
    Child,
    Ended,
    Finish,
    Forget,
    Kill,
    Promote,
    Report,
    Spawn,
    SpawnSpare,
    Status,
    Target,
)
from supervision.child_processes import ChildProcesses, state_of
from supervision.child_spec import LONGEST_S, ChildSpec, ChildType, SupervisorFlags
from supervision.core import SupervisorCore
from supervision.errors import SupervisionError
from supervision.messages import (
    ChildCounts,
    ChildInfo,
    Children,
    CountChildren,
    DeleteChild,
    Managed,
    ReleaseChild,
    RestartChild,
    StartChild,
    TerminateChild,
    UpdateChild,
    UpdateFlags,
    WhichChildren,
)
from supervision.patch import changed, parse
from supervision.reports import Death, Offender, SupervisorReport

STARTING_LOOK_S = 0.25
"""Children say that they are ready; this is for a word that got lost."""

USES_LOOK_S = 1.0
"""How often uses are read from the board, where a child has a limit: its own word may get lost, and does not
know of a limit that was changed since its start."""

SOONEST_LOOK_S = 0.005

LEFTOVER_LOOK_S = 0.02

CHILDREN_PER_ANSWER = 150
REASON_LETTERS_IN_LIST = 120
REASON_LETTERS = 4000
"""Answers travel by mail, which carries 64 KB; the whole reason is in the report."""

ORPHANS_END_S = 5.0
"""Invariant no-orphans: what the kernel has to kill is gone by then."""


def supervisor_spec(
    id_: str, flags: SupervisorFlags, children: tuple[ChildSpec, ...] = (), **spec: Any
) -> ChildSpec:
    """A child spec whose child is itself a supervisor.

    It may take as long to stop as its children may (OTP waits for ever; a stopped process never ends).
    """
    waits = [child.shutdown_s for child in children]
    shutdown_s = _in_a_spec(1.0 + (sum(waits) if flags.ordered else max(waits, default=5.0)))
    start_deadline_s = _in_a_spec(5.0 + sum(child.start_deadline_s for child in children))
    defaults: dict[str, Any] = {
        "shutdown_s": shutdown_s,
        "start_deadline_s": start_deadline_s,
        "type": ChildType.SUPERVISOR,
    }
    return ChildSpec(
        id=id_,
        actor="supervision.supervisor:Supervisor",
        args=supervisor_args(flags, children),
        **defaults | spec,
    )


def _in_a_spec(seconds: float) -> float:
    """The sum of times as a time that a spec may hold."""
    return seconds if math.isinf(seconds) else min(seconds, LONGEST_S)


def dynamic_supervisor_spec(id_: str, *, max_children: int = 0, **limits: Any) -> ChildSpec:
    """A supervisor that starts empty and is told whom to start (Elixir DynamicSupervisor).

    limits   further fields of SupervisorFlags: max_restarts, max_seconds, max_quarantined, max_failing
    """
    flags = SupervisorFlags(dynamic=True, ordered=False, max_children=max_children, **limits)
    return supervisor_spec(id_, flags)


def supervisor_args(flags: SupervisorFlags, children: tuple[ChildSpec, ...]) -> dict[str, Any]:
    """What a Supervisor is started with, as plain data."""
    return {"flags": to_plain(flags), "children": [to_plain(child) for child in children]}


class Supervisor(Actor):
    """Starts, watches, restarts and stops its children. Holds no thread: it forks."""

    forks: ClassVar[bool] = True

    def on_start(self) -> Future[None]:
        flags = from_plain(self.args["flags"], SupervisorFlags)
        specs = tuple(from_plain(spec, ChildSpec) for spec in self.args["children"])
        self._core = SupervisorCore(flags, specs)
        self._brood = ChildProcesses(self.board, self.identity, self.runtime, self.clock, self._exited)
        self._deaths: dict[str, tuple[int, Death]] = {}
        self._reports: list[tuple[Report, Child | None, int, Death]] = []
        self._starts: dict[str, Future[Managed]] = {}
        self._ends: dict[str, list[Future[Managed]]] = {}
        self._look_at_s = math.inf
        self._all_up: Future[None] = Future()
        self._all_down: Future[None] = Future()
        for id_, child in self._core.children.items():
            # Numbers go on where an earlier supervisor left them, so that no two processes share one.
            known = self._brood.known(id_)
            child.issued, child.restarts, child.last_reason = known.issued, known.restarts, known.last_reason
        leftovers = {process for id_ in self._core.children for process in self._brood.leftovers(id_)}
        self._start_once_gone(leftovers, self._now_s() + ORPHANS_END_S)
        return self._all_up

    def on_stop(self) -> Future[None]:
        self._carry_out(self._core.stop("told to stop", self._now_s()))
        return self._all_down

    # ---- what happens ----

    @receives(ChildReady)
    def child_ready(self, word: ChildReady, child: Sender) -> None:
        id_ = child.name.removesuffix(second_row(""))  # a spare is not yet called by the child's name
        self._carry_out(self._core.ready(id_, word.incarnation, self._now_s()))

    @receives(UsedUp)
    def child_used_up(self, word: UsedUp, child: Sender) -> None:
        id_ = child.name.removesuffix(second_row(""))
        uses = self._brood.uses(id_, word.incarnation)
        self._carry_out(self._core.used(id_, word.incarnation, uses, self._now_s()))

    def _exited(self, id_: str, incarnation: int, ended: Ended, death: Death) -> None:
        self._deaths[id_] = (incarnation, death)
        self._carry_out(self._core.exited(id_, incarnation, ended, self._now_s()))

    def _start_once_gone(self, leftovers: set[tuple[int, int]], give_up_s: float) -> None:
        """The kernel kills an earlier supervisor's children, but after it: not two of one child at once.

        One it cannot kill (it hangs in the kernel itself) is not waited for for ever.
        """
        for pid, ticks in leftovers:
            kill_the_same(pid, ticks)  # one that has cleared its death signal would stay for ever
        is_any_left = any(is_running(pid, ticks) for pid, ticks in leftovers)
        if is_any_left and self._now_s() < give_up_s:
            self.after(LEFTOVER_LOOK_S, lambda: self._start_once_gone(leftovers, give_up_s))
            return
        if is_any_left:
            self.log.error("leftovers_not_gone", processes=sorted(leftovers), after_s=ORPHANS_END_S)
        self._look()

    def _look(self) -> None:
        """Time passed: who hangs, who got ready unheard, what is due; and when to look again."""
        self._look_at_s = math.inf
        for id_, child in list(self._core.children.items()):
            for incarnation in _starting(child):
                if self._brood.is_ready(id_, incarnation):
                    self._carry_out(self._core.ready(id_, incarnation, self._now_s()))
            if child.status is Status.RUNNING:
                self._look_at_running(id_, child)
        self._carry_out(self._core.tick(self._now_s()))

    def _look_at_running(self, id_: str, child: Child) -> None:
        _, why = self._brood.hang(child)
        if why:
            self._carry_out(self._core.hung(id_, child.incarnation, why))
        if child.spec.retirement.max_uses or self._core.outage.is_on:
            uses = self._brood.uses(id_, child.incarnation)
            self._carry_out(self._core.used(id_, child.incarnation, uses, self._now_s()))

    # ---- management ----

    @receives(StartChild)
    async def start_child(self, call: StartChild, _: Sender) -> Managed:
        def act() -> management.Outcome:
            spec = parse(call.spec, ChildSpec)
            self._brood.refuse_taken(spec.id)
            return management.start_child(
                self._core, spec, self._now_s(), issued=lambda: self._brood.known(spec.id).issued
            )

        return await self._manage(str(call.spec.get("id", "")), act, self._when_started)

    @receives(RestartChild)
    async def restart_child(self, call: RestartChild, _: Sender) -> Managed:
        return await self._manage(
            call.id, lambda: management.restart_child(self._core, call.id, self._now_s()), self._when_started
        )

    @receives(TerminateChild)
    async def terminate_child(self, call: TerminateChild, _: Sender) -> Managed:
        return await self._manage(
            call.id, lambda: management.terminate_child(self._core, call.id, self._now_s()), self._when_ended
        )

    @receives(DeleteChild)
    async def delete_child(self, call: DeleteChild, _: Sender) -> Managed:
        return await self._manage(
            call.id, lambda: management.delete_child(self._core, call.id, self._now_s()), self._when_ended
        )

    @receives(ReleaseChild)
    async def release_child(self, call: ReleaseChild, _: Sender) -> Managed:
        return await self._manage(
            call.id, lambda: management.release_child(self._core, call.id, self._now_s()), self._when_started
        )

    @receives(UpdateChild)
    async def update_child(self, call: UpdateChild, _: Sender) -> Managed:
        def act() -> management.Outcome:
            child = self._core.children.get(call.id)
            spec = None if child is None else changed(child.spec, call.changes)
            return management.update_child(self._core, call.id, spec, self._now_s())

        return await self._manage(call.id, act, self._when_started)

    @receives(UpdateFlags)
    async def update_flags(self, call: UpdateFlags, _: Sender) -> Managed:
        def act() -> management.Outcome:
            flags = changed(self._core.flags, call.changes)
            return management.update_flags(self._core, flags, self._now_s())

        return await self._manage("", act, self._when_started)

    @receives(WhichChildren)
    def which_children(self, call: WhichChildren, _: Sender) -> Children:
        newest_first = list(reversed(self._core.children.values()))
        page = newest_first[call.offset : call.offset + CHILDREN_PER_ANSWER]
        return Children(children=tuple(self._info(child) for child in page), total=len(newest_first))

    @receives(CountChildren)
    def count_children(self, _: CountChildren, __: Sender) -> ChildCounts:
        counts = management.count_children(self._core)
        supervisors = sum(c.spec.type is ChildType.SUPERVISOR for c in self._core.children.values())
        return ChildCounts(
            specs=counts.specs,
            active=counts.active,
            supervisors=supervisors,
            workers=counts.specs - supervisors,
            restarting=counts.restarting,
            quarantined=counts.quarantined,
        )

    async def _manage(
        self,
        id_: str,
        act: Callable[[], management.Outcome],
        wait: Callable[[str], Future[Managed]],
    ) -> Managed:
        """Do it, and answer when it is done; what makes no sense is an answer too, never a crash."""
        try:
            actions, refusal = act()
        except (SupervisionError, ActorError) as error:
            return Managed(ok=False, reason=str(error)[:REASON_LETTERS])
        if refusal is not management.WAITS:
            self._carry_out(actions)
            self._publish()  # whoever hears that it is done finds it done on the board
            return self._managed(id_, ok=not refusal, reason=refusal)
        answer = wait(id_)
        self._carry_out(actions)
        return await answer

    def _when_started(self, id_: str) -> Future[Managed]:
        return self._starts.setdefault(id_, Future())

    def _when_ended(self, id_: str) -> Future[Managed]:
        answer: Future[Managed] = Future()
        self._ends.setdefault(id_, []).append(answer)
        return answer

    def _managed(self, id_: str, *, ok: bool, reason: str) -> Managed:
        child = self._core.children.get(id_)
        is_up = child is not None and child.status is not Status.DOWN
        incarnation = child.incarnation if child is not None and is_up else 0
        return Managed(ok=ok, reason=reason[:REASON_LETTERS], incarnation=incarnation)

    def _info(self, child: Child) -> ChildInfo:
        return ChildInfo(
            id=child.spec.id,
            state=management.describe(child),
            type=child.spec.type.value,
            restart=child.spec.restart.value,
            pid=self._brood.pid(child.spec.id, child.incarnation),
            incarnation=child.incarnation,
            restarts=child.restarts,
            last_reason=child.last_reason[:REASON_LETTERS_IN_LIST],
        )

    # ---- what is done about it ----

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Spawn(id_, incarnation):
                    self._spawn(id_, incarnation, is_spare=False)
                case SpawnSpare(id_, incarnation):
                    self._spawn(id_, incarnation, is_spare=True)
                case Promote(id_, incarnation):
                    self._deaths.pop(id_, None)
                    self._brood.promote(id_, incarnation)
                case AskToStop(id_, incarnation, finish):
                    self._brood.told_to_stop(id_, incarnation)
                    self.tell(id_, Stop(finish=finish), incarnation=incarnation)
                case Kill(id_, incarnation, why):
                    self._brood.kill(id_, incarnation, why)
                case Report():
                    child = self._core.children.get(action.offender)
                    self._reports.append((action, child, *self._deaths.get(action.offender, (0, Death()))))
                case Answer(id_, ok, reason):
                    self._answer_start(id_, ok, reason)
                case Forget(id_):
                    self._forgotten(id_)
                case Finish():
                    self._finish(action)
        self._look_later()

    def _spawn(self, id_: str, incarnation: int, *, is_spare: bool) -> None:
        """No process to be had, or no room on the board, is a start that failed: the others run on."""
        self._deaths.pop(id_, None)
        self.still_working()  # hundreds of starts in one turn are work, not a hang
        try:
            self._brood.spawn(self._core.children[id_], incarnation, is_spare=is_spare)
        except (ActorError, OSError) as error:
            ended = Ended(f"could not be started: {error}")
            self.after(0.0, lambda: self._exited(id_, incarnation, ended, Death()))

    def _answer_start(self, id_: str, ok: bool, reason: str) -> None:
        if id_ in self._starts:
            self._starts.pop(id_).succeed(self._managed(id_, ok=ok, reason=reason))

    def _forgotten(self, id_: str) -> None:
        slot = self.board.find(id_)
        if slot is not None:
            self.board.set_state(slot, ActorState.FREE, ready=0)
        self._deaths.pop(id_, None)

    def _look_later(self) -> None:
        """After this turn: publish, answer who waited for an end, and find out when to look again."""
        if self._look_at_s > self._now_s():
            self._look_at_s = self._now_s()
            self.after(0.0, self._settle_turn)

    def _settle_turn(self) -> None:
        self._write_reports()
        self._publish()
        self._answer_ends()
        if self._core.finishing is None and self._is_up():
            self._all_up.succeed(None)
        now_s = self._now_s()
        look_at_s = max(now_s + SOONEST_LOOK_S, self._next_look_s())
        self._look_at_s = look_at_s
        if look_at_s < math.inf:
            self.after(look_at_s - now_s, lambda: self._look_if_due(look_at_s))

    def _look_if_due(self, look_at_s: float) -> None:
        if look_at_s == self._look_at_s:  # nothing happened meanwhile that made for another moment
            self._look()

    def _next_look_s(self) -> float:
        moments = [self._core.next_wake_s()]
        now_s = self._now_s()
        for child in self._core.children.values():
            if child.status is Status.STARTING or child.spare is not None:
                moments.append(now_s + STARTING_LOOK_S)
            elif child.status is Status.RUNNING and not child.is_killed:
                moments.append(now_s + self._brood.hang(child)[0])
                if child.spec.retirement.max_uses or self._core.outage.is_on:
                    moments.append(now_s + USES_LOOK_S)
        return min(moments)

    def _is_up(self) -> bool:
        """Everyone runs or is done. In a pool some run and the rest was tried: one flaky child keeps none."""
        waiting = [child for child in self._core.children.values() if not _is_where_it_should_be(child)]
        if self._core.flags.ordered or not waiting:
            return not waiting
        is_any_up = any(child.status is Status.RUNNING for child in self._core.children.values())
        return is_any_up and all(child.failures_in_row > 0 for child in waiting)

    def _answer_ends(self) -> None:
        for id_ in list(self._ends):
            child = self._core.children.get(id_)
            if child is None or child.is_gone:
                for answer in self._ends.pop(id_):
                    answer.succeed(Managed(ok=True))

    def _publish(self) -> None:
        for child in self._core.children.values():
            state = state_of(child)
            is_held = math.isinf(child.start_at_s)  # by an outage, until another child holds
            is_waiting = state in (ActorState.BACKOFF, ActorState.QUARANTINED) and not is_held
            retry_unix_s = child.start_at_s - self._now_s() + self.clock.unix_s() if is_waiting else 0.0
            self._brood.publish(child, state, retry_unix_s)

    def _write_reports(self) -> None:
        """Once the replacements are under way: nobody waits for a disk."""
        waiting, self._reports = self._reports, []
        for report, child, incarnation, death in waiting:
            self._log_report(report)
            written = SupervisorReport(
                unix_s=self.clock.unix_s(),
                supervisor=self.identity.name,
                context=report.context,
                reason=report.reason,
                offender=Offender(
                    id=report.offender,
                    incarnation=incarnation,
                    pid=death.pid,
                    restart=child.spec.restart.value if child else "",
                    shutdown_s=child.spec.shutdown_s if child else 0.0,
                ),
                exit_code=death.exit_code,
                signal=death.signal,
                last_words=death.last_words,
                log_lines=death.log_lines,
                chain=death.chain,
                taken_along=report.taken_along,
            )
            reports.append(self.identity.run_dir, written)
            if self.identity.prints_reports:
                reports.show(self.identity.run_dir, written)

    def _log_report(self, report: Report) -> None:
        level = self.log.error if report.context in ("shutdown", "outage") else self.log.warning
        level(
            "supervisor_report",
            supervisor=self.identity.name,
            context=report.context,
            reason=report.reason,
            offender=report.offender,
        )

    def _finish(self, finish: Finish) -> None:
        self._write_reports()
        self._publish()
        self._all_down.succeed(None)
        if self.is_stopping:
            return  # on_stop was waiting for this; the actor ends normally
        self.log.info("supervisor_finished", reason=finish.reason, normal=finish.normal)
        verdict = "done" if finish.normal else "gave up"
        self.board.set(self.identity.slot, last_reason=f"{verdict}: {finish.reason}")
        if not finish.normal:
            leave_last_words(self.identity, f"{verdict}: {finish.reason}")
        self.runtime.exit(0 if finish.normal else EXIT_SHUTDOWN)

    def _now_s(self) -> float:
        return self.clock.monotonic_s()


def _starting(child: Child) -> list[int]:
    """Incarnations of a child that are not ready yet."""
    own = [child.incarnation] if child.status is Status.STARTING else []
    return own if child.spare is None else [*own, child.spare.incarnation]


def _is_where_it_should_be(child: Child) -> bool:
    """It runs, or it is done for good."""
    return child.status is Status.RUNNING or (child.status is Status.DOWN and child.target is Target.DOWN)
