"""The supervisor actor: it carries out what `supervision.core` decides.

Receives   Stop (from its own supervisor or the launcher), ChildReady and Preempted (from its children), the
           management calls of `supervision.messages` (from any process with the run's key)
Watches    the pidfd of every child (exits), the vitals board (hangs, uses)
Dies when  the restart budget is spent (exit `shutdown`: its own supervisor decides), or its work is done
On restart the kernel has killed its children, and it starts them anew. As in OTP, it does not remember
           dynamic children: the actor that wanted them starts them again
"""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, ClassVar

from actors.actor import Actor, Sender, receives
from actors.board import ActorState
from actors.codec import from_plain, to_plain
from actors.errors import ActorError
from actors.future import Future
from actors.lateness import Lateness
from actors.process import EXIT_SHUTDOWN, is_running, kill_process
from actors.system_messages import ChildReady, Preempted, Stop
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
    Report,
    Spawn,
    Status,
    Target,
)
from supervision.child_processes import ChildProcesses, state_of
from supervision.child_spec import LONGEST_S, ChildSpec, ChildType, SupervisorFlags
from supervision.core import SupervisorCore
from supervision.errors import NameTaken, SupervisionError
from supervision.hang import HangCheck
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
from supervision.reports import Death, Offender, SupervisorReport
from supervision.spec_parsing import changed, parse

STARTING_CHECK_S = 0.25
"""How often a starting child's row is read, in case its `ChildReady` got lost."""

USES_CHECK_S = 1.0
"""How often the uses of a child with a limit are read from the board. Where there are outages, the uses of
each child are read: one that has worked stays up."""

CHECKS_PER_DEADLINE = 4
"""How often at least a child is checked within its hang deadline, or within its shutdown time while it stops.
A supervisor that was suspended notices it by a check that comes late, so one must be due before a healthy
child counts as hung or as one that did not stop."""

SOONEST_CHECK_S = 0.005

ORPHAN_CHECK_S = 0.02

CHILDREN_PER_ANSWER = 150
REASON_LETTERS_IN_LIST = 120
REASON_LETTERS = 4000
"""The longest reason in an answer, because mail carries 64 KB. The whole reason is in the report."""

ALONE_START_S = 30.0
"""The start deadline of a supervisor that starts without children, in seconds; that of any other actor."""

ORPHANS_END_S = 5.0
"""The longest wait for the end of orphans. By then the kernel has killed them (invariant no-orphans)."""


def supervisor_spec(
    id_: str, flags: SupervisorFlags, children: tuple[ChildSpec, ...] = (), **spec: Any
) -> ChildSpec:
    """A child spec whose child is itself a supervisor.

    By default its `shutdown_s` is long enough for all its children to stop. OTP waits for ever instead, but a
    process that is suspended never ends. `start_deadline_s` is long enough for all children one after the
    other, also in a pool: if no first start succeeds, the pool tries its children again. A supervisor that
    hangs while it starts is found by its beats, much sooner.
    """
    waits = [child.shutdown_s for child in children]
    shutdown_s = in_a_spec(1.0 + (sum(waits) if flags.ordered else max(waits, default=5.0)))
    start_deadline_s = in_a_spec(5.0 + sum(child.start_deadline_s for child in children))
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


def in_a_spec(seconds: float) -> float:
    """Return the sum of times, limited to the longest time that a spec may have."""
    return seconds if math.isinf(seconds) else min(seconds, LONGEST_S)


def dynamic_supervisor_spec(
    id_: str, *, max_children: int = 0, shutdown_s: float = 6.0, **limits: Any
) -> ChildSpec:
    """A supervisor that starts without children; they are started by calls (Elixir DynamicSupervisor).

    shutdown_s   seconds in which it and its children end, before all are killed. The children are not known
                 here: make it a second longer than the longest `shutdown_s` of a child
    limits       further fields of SupervisorFlags: max_restarts, max_seconds, max_quarantined, max_failing
    """
    flags = SupervisorFlags(dynamic=True, ordered=False, max_children=max_children, **limits)
    return supervisor_spec(id_, flags, shutdown_s=shutdown_s, start_deadline_s=ALONE_START_S)


def supervisor_args(flags: SupervisorFlags, children: tuple[ChildSpec, ...]) -> dict[str, Any]:
    """The args of a Supervisor, as plain data."""
    return {"flags": to_plain(flags), "children": [to_plain(child) for child in children]}


class Supervisor(Actor):
    """Starts, watches, restarts and stops its children. Holds no thread, because it forks."""

    forks: ClassVar[bool] = True

    def on_start(self) -> Future[None]:
        described = self.described()
        flags = from_plain(described["flags"], SupervisorFlags)
        specs = tuple(from_plain(spec, ChildSpec) for spec in described["children"])
        self._core = SupervisorCore(flags, specs)
        self._processes = ChildProcesses(self.board, self.identity, self.runtime, self.clock, self._exited)
        self._deaths: dict[str, tuple[int, Death]] = {}
        self._reports: list[tuple[Report, Child | None, int, Death]] = []
        self._starts: dict[str, Future[Managed]] = {}
        self._ends: dict[str, list[Future[Managed]]] = {}
        self._check_at_s = math.inf
        self._awake_s = self._now_s()
        """The moment since which this process waits for the next check or event."""
        self._lateness = Lateness()
        self._all_up: Future[None] = Future()
        self._all_down: Future[None] = Future()
        for id_, child in self._core.children.items():
            with suppress(NameTaken):  # then its start fails, for this reason
                self._processes.claim(id_)
            # Continue the numbers of an earlier supervisor, so that no two processes share an incarnation.
            known = self._processes.known(id_)
            child.issued, child.restarts, child.last_reason = known.issued, known.restarts, known.last_reason
        orphans = {process for id_ in self._core.children for process in self._processes.orphans(id_)}
        self._start_after(orphans, self._now_s() + ORPHANS_END_S)
        return self._all_up

    def described(self) -> Mapping[str, Any]:
        """The flags and the child specs, as `supervisor_args` makes them; a subclass may derive them."""
        return self.args

    def on_stop(self) -> Future[None]:
        self._carry_out(self._core.stop("asked to stop", self._now_s()))
        return self._all_down

    # ---- events ----

    @receives(ChildReady)
    def child_ready(self, ready: ChildReady, child: Sender) -> None:
        self._carry_out(self._core.ready(child.name, ready.incarnation, self._now_s()))

    @receives(Preempted)
    def child_preempted(self, notice: Preempted, child: Sender) -> None:
        self._carry_out(self._core.preempted(child.name, notice.incarnation, self._now_s()))

    def _exited(self, id_: str, incarnation: int, ended: Ended, death: Death) -> None:
        self._deaths[id_] = (incarnation, death)
        self._carry_out(self._core.exited(id_, incarnation, ended, self._now_s()))
        self._answer_ends()  # before another call of this turn starts the child again

    def _start_after(self, orphans: set[tuple[int, int]], give_up_s: float) -> None:
        """Start the children when those of an earlier supervisor have ended, so that no child runs twice.

        The kernel kills them after their supervisor. If a process hangs in the kernel, the wait ends at
        `give_up_s`, a monotonic time.
        """
        for pid, ticks in orphans:
            kill_process(pid, ticks)  # for one that has cleared its death signal
        is_any_left = any(is_running(pid, ticks) for pid, ticks in orphans)
        if is_any_left and self._now_s() < give_up_s:
            self.after(ORPHAN_CHECK_S, lambda: self._start_after(orphans, give_up_s))
            return
        if is_any_left:
            self.log.error("orphans_not_gone", processes=sorted(orphans), after_s=ORPHANS_END_S)
        self._check()

    def _check(self) -> None:
        """Find the children that hang and those that are ready but sent no message; do what is due by now."""
        self._check_at_s = math.inf
        for id_, child in list(self._core.children.items()):
            if child.status is Status.STARTING and self._processes.is_ready(id_, child.incarnation):
                self._carry_out(self._core.ready(id_, child.incarnation, self._now_s()))
            if child.status is Status.RUNNING or _starts_children(child):
                self._end_if_hung(id_, child)
            if child.status is Status.RUNNING and self._counts_uses(child):
                self._check_uses(id_, child)
        self._carry_out(self._core.tick(self._now_s()))

    def _end_if_hung(self, id_: str, child: Child) -> None:
        why = self._check_hang(child).why
        if why:
            self._carry_out(self._core.hung(id_, child.incarnation, why))

    def _check_uses(self, id_: str, child: Child) -> None:
        uses = self._processes.uses(id_, child.incarnation)
        is_used_up = 0 < child.spec.retirement.max_uses <= uses
        if uses != child.uses or is_used_up:  # else `used` decides nothing, and it reads all children
            self._carry_out(self._core.used(id_, child.incarnation, uses, self._now_s()))

    def _counts_uses(self, child: Child) -> bool:
        """Whether a child's uses decide anything: when it is replaced, or whether it stays up (`outage`)."""
        return child.spec.retirement.max_uses > 0 or self._core.flags.max_failing < 1

    def _check_hang(self, child: Child) -> HangCheck:
        now_s = self._now_s()
        return self._processes.check_hang(child, lambda age_s: self._lateness.counted_s(age_s, now_s))

    # ---- management ----

    @receives(StartChild)
    async def start_child(self, call: StartChild, _: Sender) -> Managed:
        def act() -> management.Outcome:
            spec = parse(call.spec, ChildSpec)
            self._processes.refuse_taken(spec.id)
            return management.start_child(
                self._core, spec, self._now_s(), issued=lambda: self._claimed(spec.id)
            )

        return await self._manage(str(call.spec.get("id", "")), act, self._when_started)

    def _claimed(self, id_: str) -> int:
        """Claim the row of a new child; returns the highest incarnation of the name so far."""
        self._processes.claim(id_)
        return self._processes.known(id_).issued

    @receives(RestartChild)
    async def restart_child(self, call: RestartChild, _: Sender) -> Managed:
        def act() -> management.Outcome:
            child = self._core.children.get(call.id)
            if child is not None:
                self._processes.refuse_taken(call.id)
                self._continue_numbers(child)
            return management.restart_child(self._core, call.id, self._now_s())

        return await self._manage(call.id, act, self._when_started)

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
        return management.count_children(self._core)

    async def _manage(
        self,
        id_: str,
        act: Callable[[], management.Outcome],
        wait: Callable[[str], Future[Managed]],
    ) -> Managed:
        """Carry out a management call, and return its answer once it is done. An invalid call is refused."""
        self._note_lateness(self._check_at_s)  # the call may be read before the check that came late
        try:
            actions, refusal = act()
        except (SupervisionError, ActorError) as error:
            return Managed(ok=False, reason=str(error)[:REASON_LETTERS])
        if refusal is not management.WAITS:
            self._carry_out(actions)
            self._publish()  # the caller finds the change on the board
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
            pid=self._processes.pid(child.spec.id, child.incarnation),
            incarnation=child.incarnation,
            restarts=child.restarts,
            last_reason=child.last_reason[:REASON_LETTERS_IN_LIST],
        )

    # ---- actions ----

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Spawn(id_, incarnation):
                    self._spawn(id_, incarnation)
                case AskToStop(id_, incarnation, within_s, finish):
                    self._processes.asked_to_stop(id_, incarnation)
                    self.tell(id_, Stop(finish=finish, within_s=within_s), incarnation=incarnation)
                case Kill(id_, incarnation, why):
                    self._processes.kill(id_, incarnation, why)
                case Report():
                    child = self._core.children.get(action.offender)
                    self._reports.append((action, child, *self._deaths.get(action.offender, (0, Death()))))
                case Answer(id_, ok, reason):
                    self._answer_start(id_, ok, reason)
                case Forget(id_):
                    self._forgotten(id_)
                case Finish():
                    self._finish(action)
        self._schedule_check()

    def _spawn(self, id_: str, incarnation: int) -> None:
        """Start a process. If it cannot be forked, or the board is full, the start counts as failed."""
        self._deaths.pop(id_, None)
        child = self._core.children[id_]
        try:
            self._processes.preload(child.spec.preload)
            self.still_working()  # an import, or hundreds of starts in one turn, are work and no hang
            self._processes.spawn(child, incarnation)
        except (ActorError, NameTaken, OSError) as error:
            self._continue_numbers(child)
            ended = Ended(f"could not be started: {error}")
            self.after(0.0, lambda: self._exited(id_, incarnation, ended, Death()))

    def _continue_numbers(self, child: Child) -> None:
        """Have the next process of a child get a higher incarnation than any that had its name elsewhere."""
        child.issued = max(child.issued, self._processes.known(child.spec.id).issued)

    def _answer_start(self, id_: str, ok: bool, reason: str) -> None:
        if id_ in self._starts:
            self._starts.pop(id_).succeed(self._managed(id_, ok=ok, reason=reason))

    def _forgotten(self, id_: str) -> None:
        self._processes.forget(id_)
        self._deaths.pop(id_, None)

    def _schedule_check(self) -> None:
        """Have reports written and states published once, after the current turn (`_settle_turn`)."""
        if self._check_at_s > self._now_s():
            self._check_at_s = self._now_s()
            self.after(0.0, self._settle_turn)

    def _settle_turn(self) -> None:
        self._write_reports()
        self._publish()
        self._answer_ends()
        if self._core.finishing is None and self._is_up():
            self._all_up.succeed(None)
        now_s = self._now_s()
        check_at_s = max(now_s + SOONEST_CHECK_S, self._next_check_s())
        self._check_at_s, self._awake_s = check_at_s, now_s
        if check_at_s < math.inf:
            self.after(check_at_s - now_s, lambda: self._check_if_due(check_at_s))

    def _check_if_due(self, check_at_s: float) -> None:
        self._note_lateness(check_at_s)
        if check_at_s == self._check_at_s:  # else an event has set another moment meanwhile
            self._check()

    def _note_lateness(self, due_s: float) -> None:
        now_s = self._now_s()
        if lost_s := self._lateness.note(self._awake_s, due_s, now_s):
            self._core.resumed(lost_s, now_s)

    def _next_check_s(self) -> float:
        moments = [self._core.next_wake_s()]
        now_s = self._now_s()
        for child in self._core.children.values():
            if _is_ending(child):
                moments.append(now_s + child.spec.shutdown_s / CHECKS_PER_DEADLINE)
            if child.status is Status.STARTING:
                moments.append(now_s + STARTING_CHECK_S)
            elif child.status is Status.RUNNING and not child.is_killed:
                often_s = child.spec.hang_deadline_s / CHECKS_PER_DEADLINE
                moments.append(now_s + min(often_s, self._check_hang(child).again_in_s))
                if self._counts_uses(child):
                    moments.append(now_s + USES_CHECK_S)
        return min(moments)

    def _is_up(self) -> bool:
        """Whether every child runs or is done; in a pool, whether one runs and all others were tried once."""
        waiting = [child for child in self._core.children.values() if not _is_on_target(child)]
        if self._core.flags.ordered or not waiting:
            return not waiting
        is_any_up = any(child.status is Status.RUNNING for child in self._core.children.values())
        return is_any_up and all(child.failures_in_row > 0 for child in waiting)

    def _answer_ends(self) -> None:
        for id_ in list(self._ends):
            child = self._core.children.get(id_)
            if child is None or child.status is Status.DOWN:
                if child is not None:
                    self._publish_child(child)  # the caller may start the name elsewhere
                for answer in self._ends.pop(id_):
                    answer.succeed(Managed(ok=True))

    def _publish(self) -> None:
        for child in self._core.children.values():
            self._publish_child(child)

    def _publish_child(self, child: Child) -> None:
        state = state_of(child)
        is_held = math.isinf(child.start_at_s)  # by an outage, until another child stays up
        is_waiting = state in (ActorState.BACKOFF, ActorState.QUARANTINED) and not is_held
        retry_unix_s = child.start_at_s - self._now_s() + self.clock.unix_s() if is_waiting else 0.0
        self._processes.publish(child, state, retry_unix_s)

    def _write_reports(self) -> None:
        """Write reports after the restarts, which must not wait for a disk."""
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
        if self.is_stopping and finish.normal:
            self._all_down.succeed(None)
            return  # on_stop has waited for this; the actor ends normally
        self.log.info("supervisor_finished", reason=finish.reason, normal=finish.normal)
        verdict = "done" if finish.normal else "gave up"
        self.board.set(self.identity.slot, last_reason=f"{verdict}: {finish.reason}")
        if not finish.normal:
            leave_last_words(self.identity, f"{verdict}: {finish.reason}")
        self.runtime.exit(0 if finish.normal else EXIT_SHUTDOWN)

    def _now_s(self) -> float:
        return self.clock.monotonic_s()


def _starts_children(child: Child) -> bool:
    """Whether the child is a supervisor that waits for its own children's start."""
    return child.status is Status.STARTING and child.spec.type is ChildType.SUPERVISOR


def _is_ending(child: Child) -> bool:
    """Whether the child was asked to end and has not been killed."""
    return child.status is Status.STOPPING and not child.is_killed


def _is_on_target(child: Child) -> bool:
    """Whether the child runs, or is down for good."""
    return child.status is Status.RUNNING or (child.status is Status.DOWN and child.target is Target.DOWN)
