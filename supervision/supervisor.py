"""The supervisor actor: it carries out what `supervision.core` decides.

Receives   Stop (from its own supervisor or the launcher)
Watches    the pidfd of every child (exits), the vitals board (readiness, hangs)
Dies when  the restart budget is spent (exit `shutdown`: its own supervisor decides), or its work is done
On restart its children are gone with it (the kernel saw to that) and are started anew
"""

import time
from typing import Any, ClassVar

from actors.actor import Actor, ChildReady, Sender, Stop, receives
from actors.board import ActorState
from actors.codec import from_plain, to_plain
from actors.completion import Completion
from actors.process import EXIT_SHUTDOWN, exit_reason_of, is_alive
from actors.shell import ChildProcess, last_words, leave_last_words
from supervision.child_spec import ChildSpec, SupervisorFlags
from supervision.core import (
    Action,
    AskToStop,
    Child,
    Finish,
    Kill,
    Report,
    Spawn,
    Status,
    SupervisorCore,
    Target,
)

SCAN_S = 0.2
"""How often the board is scanned for hung children (21 us for 200 slots)."""

TRANSITION_SCAN_S = 0.02
"""While a child starts or stops."""

ORPHANS_END_S = 5.0
"""Invariant no-orphans. A pid still there then is another process's by now."""

_BOARD_STATES = {
    Status.STARTING: ActorState.STARTING,
    Status.RUNNING: ActorState.RUNNING,
    Status.STOPPING: ActorState.STOPPING,
}

_LIVING = frozenset({ActorState.STARTING, ActorState.RUNNING, ActorState.STOPPING, ActorState.BACKOFF})


def supervisor_spec(
    id_: str, flags: SupervisorFlags, children: tuple[ChildSpec, ...], **spec: Any
) -> ChildSpec:
    """A child spec whose child is itself a supervisor."""
    shutdown_s = 1.0 + sum(child.shutdown_s for child in children)
    return ChildSpec(
        id=id_,
        actor="supervision.supervisor:Supervisor",
        args=supervisor_args(flags, children),
        **{"shutdown_s": shutdown_s, "start_deadline_s": 5.0 + sum(c.start_deadline_s for c in children)}
        | spec,
    )


def supervisor_args(flags: SupervisorFlags, children: tuple[ChildSpec, ...]) -> dict[str, Any]:
    """What a Supervisor is started with, as plain data."""
    return {"flags": to_plain(flags), "children": [to_plain(child) for child in children]}


class Supervisor(Actor):
    """Starts, watches, restarts and stops its children. Holds no thread: it forks."""

    forks: ClassVar[bool] = True

    def on_start(self) -> Completion[None]:
        flags = from_plain(self.args["flags"], SupervisorFlags)
        specs = tuple(from_plain(spec, ChildSpec) for spec in self.args["children"])
        self._core = SupervisorCore(flags, specs)
        self._processes: dict[str, ChildProcess] = {}
        self._kill_reasons: dict[str, str] = {}
        self._slots = {spec.id: self.board.claim(spec.id, self.identity.name) for spec in specs}
        for id_, child in self._core.children.items():
            # Incarnations go on where an earlier supervisor left them, so that no two ever share a number.
            child.incarnation = self.board.get(self._slots[id_], "incarnation")
            child.restarts = self.board.get(self._slots[id_], "restarts")
        self._all_up: Completion[None] = Completion()
        self._all_down: Completion[None] = Completion()
        leftovers = {int(self.board.get(slot, "pid")) for slot in self._slots.values()} - {0}
        self._start_once_gone(leftovers, self._now_s() + ORPHANS_END_S)
        return self._all_up

    def on_stop(self) -> Completion[None]:
        self._carry_out(self._core.stop("told to stop", self._now_s()))
        return self._all_down

    # ---- what happens ----

    @receives(ChildReady)
    def child_ready(self, message: ChildReady, sender: Sender) -> None:
        """The board says so too; the next scan reads it there."""

    def _start_once_gone(self, leftovers: set[int], give_up_s: float) -> None:
        """The kernel kills an earlier supervisor's children, but after it: never two of one child at once."""
        if any(is_alive(pid) for pid in leftovers) and self._now_s() < give_up_s:
            self.after(TRANSITION_SCAN_S, lambda: self._start_once_gone(leftovers, give_up_s))
            return
        self._scan()

    def _scan(self) -> None:
        now_s = self._now_s()
        for id_, child in self._core.children.items():
            if child.status is Status.STARTING and self.board.get(self._slots[id_], "ready"):
                self._carry_out(self._core.ready(id_, child.incarnation, now_s))
            elif child.status is Status.RUNNING:
                self._check_hung(id_, child)
        self._carry_out(self._core.tick(now_s))
        if self._core.finishing is None and all(_is_settled_up(c) for c in self._core.children.values()):
            self._all_up.succeed(None)
        settled = all(c.status in (Status.RUNNING, Status.DOWN) for c in self._core.children.values())
        until_due_s = max(TRANSITION_SCAN_S, self._core.next_wake_s() - now_s)
        self.after(min(SCAN_S, until_due_s) if settled else TRANSITION_SCAN_S, self._scan)

    def _check_hung(self, id_: str, child: Child) -> None:
        vitals = self.board.vitals(self._slots[id_])
        limit_s = child.spec.hang_deadline_s
        why = ""
        if vitals.beat_age_s is not None and vitals.beat_age_s > limit_s:
            why = f"hung: no beat for {vitals.beat_age_s:.1f} s"
        elif vitals.busy_s is not None and vitals.busy_s > limit_s:
            why = f"hung: in {vitals.handler} for {vitals.busy_s:.1f} s"
        if why:
            self._carry_out(self._core.hung(id_, child.incarnation, why, self._now_s()))

    def _exited(self, id_: str) -> None:
        process = self._processes[id_]
        code = process.returncode()
        if code is None:
            return  # the pidfd fired, the exit status is not collected yet: it fires again
        self.runtime.unwatch(process.pidfd)
        process.close()
        del self._processes[id_]
        child = self._core.children[id_]
        reason = exit_reason_of(code)
        # A supervisor that gives up ends as OTP's `shutdown`, which is normal; giving up at the start is not.
        is_normal = reason.is_normal or (code == EXIT_SHUTDOWN and child.was_ready)
        text = self._kill_reasons.pop(id_, "") or self._describe(id_, child, str(reason))
        self._mark_dead_below(id_)
        self._carry_out(self._core.exited(id_, child.incarnation, text, is_normal, self._now_s()))

    def _mark_dead_below(self, id_: str) -> None:
        """The kernel took a dead supervisor's children along; nobody else is left to say so on the board."""
        for row in self.board.rows():
            if row.parent == id_ and row.state in _LIVING:
                self.board.set_state(
                    row.slot, ActorState.STOPPED, ready=0, last_reason=f"its supervisor {id_!r} ended"
                )
                self._mark_dead_below(row.name)

    def _describe(self, id_: str, child: Child, reason: str) -> str:
        words = last_words(self.identity.run_dir, id_, child.incarnation)
        return f"{reason}: {words}" if words else reason

    # ---- what is done about it ----

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Spawn(id_, incarnation):
                    self._spawn(id_, incarnation)
                case AskToStop(id_):
                    self.tell(id_, Stop())
                case Kill(id_, why):
                    self._kill(id_, why)
                case Report():
                    self._report(action)
                case Finish():
                    self._finish(action)
        self._publish()

    def _spawn(self, id_: str, incarnation: int) -> None:
        spec = self._core.children[id_].spec
        slot = self._slots[id_]
        self.board.set_state(
            slot,
            ActorState.STARTING,
            incarnation=incarnation,
            pid=0,
            ready=0,
            busy_since_ns=0,
            work_since_ns=0,
            beat_ns=time.monotonic_ns(),
            started_unix_s=self.clock.unix_s(),
        )
        process: ChildProcess = self.runtime.spawn(
            {
                "name": id_,
                "parent": self.identity.name,
                "slot": slot,
                "incarnation": incarnation,
                "actor": spec.actor,
                "args": dict(spec.args),
                "run_dir": str(self.identity.run_dir),
                "mail_dir": str(self.identity.mail_dir),
            }
        )
        self._processes[id_] = process
        self.board.set(slot, pid=process.pid)
        self.runtime.watch(process.pidfd, lambda: self._exited(id_))

    def _kill(self, id_: str, why: str) -> None:
        if id_ in self._processes:
            self._kill_reasons[id_] = f"killed: {why}"
            self._processes[id_].kill()

    def _report(self, report: Report) -> None:
        level = self.log.error if report.context == "shutdown" else self.log.warning
        level(
            "supervisor_report",
            supervisor=self.identity.name,
            context=report.context,
            reason=report.reason,
            offender=report.offender,
        )

    def _finish(self, finish: Finish) -> None:
        self._all_down.succeed(None)
        if self._is_stopping:
            return  # on_stop was waiting for this; the actor ends normally
        self.log.info("supervisor_finished", reason=finish.reason, normal=finish.normal)
        verdict = "done" if finish.normal else "gave up"
        self.board.set(self.identity.slot, last_reason=f"{verdict}: {finish.reason}")
        if not finish.normal:
            leave_last_words(self.identity, f"{verdict}: {finish.reason}")
        self.runtime.exit(0 if finish.normal else EXIT_SHUTDOWN)

    def _publish(self) -> None:
        """The children's states on the board, for everyone to read."""
        for id_, child in self._core.children.items():
            state = _BOARD_STATES.get(child.status)
            if state is None:
                state = ActorState.STOPPED if child.spec.id not in self._waiting() else ActorState.BACKOFF
            retry = (
                child.start_at_s - self._now_s() + self.clock.unix_s() if state is ActorState.BACKOFF else 0.0
            )
            self.board.set_state(
                self._slots[id_],
                state,
                restarts=child.restarts,
                last_reason=child.last_reason,
                retry_unix_s=retry,
            )

    def _waiting(self) -> set[str]:
        return {id_ for id_, c in self._core.children.items() if c.target.value != "down"}

    def _now_s(self) -> float:
        return self.clock.monotonic_s()


def _is_settled_up(child: Child) -> bool:
    """It runs, or it is done for good."""
    return child.status is Status.RUNNING or (child.status is Status.DOWN and child.target is Target.DOWN)
