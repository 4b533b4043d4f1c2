"""The processes of a supervisor's children, their rows on the board, and what they leave behind."""

import importlib
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from actors.board import INCARNATIONS_PER_PLACEMENT, LIVING, WAITING, ActorState, Board
from actors.clock import Clock
from actors.errors import ChildNotStarted
from actors.last_words import last_words, reason_of
from actors.process import (
    EXIT_IGNORED,
    EXIT_OVERDUE,
    EXIT_SHUTDOWN,
    exit_reason_of,
    kill_process,
    start_ticks,
)
from actors.runtime import Identity, Runtime
from actors.thespian_host import ChildProcess
from supervision import reports
from supervision.actions import Child, Ended, Status
from supervision.child_spec import ChildType
from supervision.errors import NameTaken
from supervision.hang import HangCheck, beat_s, check_hang
from supervision.reports import Death

IMPORTING = "import "
"""The beginning of a supervisor's handler on the board while it imports a module for its children."""

LONGEST_IMPORT_S = 600.0
"""How long a supervisor that runs may import a module, in seconds, before it counts as hung."""

OnExit = Callable[[str, int, Ended, Death], None]


@dataclass(slots=True)
class _Held:
    process: ChildProcess
    slot: int
    type: ChildType
    beat_s: float
    kill_reason: str = ""
    is_asked_to_stop: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """What the board shows of the earlier processes of a child."""

    issued: int
    """The highest incarnation that any earlier process had."""
    restarts: int
    last_reason: str


class ChildProcesses:
    """The processes of a supervisor's children, by child id and incarnation."""

    def __init__(
        self, board: Board, identity: Identity, runtime: Runtime, clock: Clock, on_exit: OnExit
    ) -> None:
        self._board = board
        self._identity = identity
        self._runtime = runtime
        self._clock = clock
        self._on_exit = on_exit
        self._held: dict[tuple[str, int], _Held] = {}

    # ---- names ----

    def claim(self, id_: str) -> None:
        """Get the row of a name, on which the child's state is published.

        Raises NameTaken when another supervisor has the name, ActorError when the board is full.
        """
        self._row(id_)

    def known(self, id_: str) -> Known:
        """Return what the board shows of earlier processes of a name, so that new incarnations are higher."""
        slot = self._board.find(id_)
        if slot is None:
            return Known(issued=self._first_number(), restarts=0, last_reason="")
        return Known(
            issued=max(self._first_number(), int(self._board.get(slot, "incarnation"))),
            restarts=int(self._board.get(slot, "restarts")),
            last_reason=str(self._board.get(slot, "last_reason")),
        )

    def _is_mine(self, slot: int) -> bool:
        return str(self._board.get(slot, "parent")) == self._identity.name

    def _first_number(self) -> int:
        """The lowest incarnation of a child; below a placed actor it is that of the actor's placement."""
        own = self._identity.incarnation
        return own - own % INCARNATIONS_PER_PLACEMENT

    def orphans(self, id_: str) -> set[tuple[int, int]]:
        """The (pid, start in ticks) of processes that an earlier supervisor may have left."""
        slot = self._own_row(id_)
        if slot is None or not self._board.get(slot, "pid"):
            return set()
        return {(self._board.get(slot, "pid"), self._board.get(slot, "pid_start_ticks"))}

    def refuse_taken(self, id_: str) -> None:
        """Raise NameTaken when another supervisor has the name; names are unique in the whole tree."""
        slot = self._board.find(id_)
        if slot is not None and not self._is_mine(slot):
            self._refuse_bearer(slot)

    def _refuse_bearer(self, slot: int) -> None:
        parent = str(self._board.get(slot, "parent"))
        is_wanted = self._board.state(slot) in LIVING | WAITING
        is_elsewhere, is_client = bool(self._board.get(slot, "route")), not parent
        is_held = is_elsewhere or is_client or self._runs(slot) or self._runs(self._board.find(parent))
        if is_wanted and is_held:
            name = str(self._board.get(slot, "name"))
            holder = "a client" if is_client else f"a child of {parent!r}"
            raise NameTaken(
                f"already_started: the name {name!r} belongs to {holder}; "
                "names are unique in the whole tree, so give the new child another name"
            )

    def _runs(self, slot: int | None) -> bool:
        pid = 0 if slot is None else int(self._board.get(slot, "pid"))
        if pid == 0:
            return False
        try:
            os.close(self._runtime.pidfd(pid))
        except ProcessLookupError:
            return False
        return True

    # ---- processes ----

    def preload(self, modules: Iterable[str]) -> None:
        """Import modules for children. Each is shown as this supervisor's handler while it is imported.

        Raises ChildNotStarted.
        """
        for module in modules:
            if module not in sys.modules:
                self._board.set(self._identity.slot, handler=f"{IMPORTING}{module}")
                _preload(module)

    def spawn(self, child: Child, incarnation: int) -> None:
        """Start a process for a child.

        Raises ActorError, NameTaken or OSError if no process or row can be had.
        """
        spec = child.spec
        slot = self._row(spec.id)
        last = int(self._board.get(slot, "incarnation"))
        if last >= incarnation:  # the row of an ended actor, just claimed; its address must not live again
            raise ChildNotStarted(f"its row had incarnation {last} before, so it needs a higher one")
        self._board.set_state(
            slot,
            ActorState.STARTING,
            incarnation=incarnation,
            pid=0,
            pid_start_ticks=0,
            route=0,
            ready=0,
            uses=0,
            own_exit=0,
            busy_since_ns=0,
            handler="",  # until its own `on_start` has begun
            work_since_ns=0,
            beat_ns=self._board.now_ns(),
            started_unix_s=self._clock.unix_s(),
            restarts=child.restarts,
            last_reason=child.last_reason,  # before the new process can be monitored
        )
        every_s = beat_s(spec.hang_deadline_s)
        process: ChildProcess = self._runtime.spawn(
            {
                "name": spec.id,
                "parent": self._identity.name,
                "slot": slot,
                "incarnation": incarnation,
                "actor": spec.actor,
                "args": dict(spec.args),
                "run_dir": str(self._identity.run_dir),
                "mail_dir": str(self._identity.mail_dir),
                "beat_s": every_s,
                "probe_every_s": spec.probe_every_s,
                "prints_reports": self._identity.prints_reports,
            }
        )
        try:
            self._board.set(slot, pid_start_ticks=start_ticks(process.pid), pid=process.pid)
            self._runtime.watch(process.pidfd, lambda: self._exited(spec.id, incarnation))
        except OSError:  # it runs, and cannot be watched; the next start must not get a second one beside it
            process.kill()
            process.close()
            raise
        self._held[spec.id, incarnation] = _Held(process, slot, spec.type, every_s)

    def asked_to_stop(self, id_: str, incarnation: int) -> None:
        held = self._held.get((id_, incarnation))
        if held is not None:
            held.is_asked_to_stop = True

    def kill(self, id_: str, incarnation: int, why: str) -> None:
        held = self._held.get((id_, incarnation))
        if held is not None:
            held.kill_reason = f"killed: {why}"
            held.process.kill()

    def pid(self, id_: str, incarnation: int) -> int:
        held = self._held.get((id_, incarnation))
        return held.process.pid if held is not None else 0

    def slot(self, id_: str, incarnation: int) -> int | None:
        """The row of a living process; None after its end."""
        held = self._held.get((id_, incarnation))
        return held.slot if held is not None else None

    def is_ready(self, id_: str, incarnation: int) -> bool:
        slot = self.slot(id_, incarnation)
        return slot is not None and bool(self._board.get(slot, "ready"))

    def uses(self, id_: str, incarnation: int) -> int:
        slot = self.slot(id_, incarnation)
        return 0 if slot is None else int(self._board.get(slot, "uses"))

    def check_hang(self, child: Child, counted_s: Callable[[float], float]) -> HangCheck:
        """Whether a child hangs, by its row on the board; a child without a process does not.

        While a supervisor starts, only its silence counts, and only while it waits for its children in its
        loop: the import of a module for them may take long, and shows no beat. The other children block in
        their start, so their start deadline alone counts. A supervisor that runs may import a module for
        LONGEST_IMPORT_S.

        counted_s   how many seconds of an age up to now count: not those in which this process was suspended
        """
        deadline_s = child.spec.hang_deadline_s
        held = self._held.get((child.spec.id, child.incarnation))
        if held is None:
            return HangCheck("", deadline_s)
        now_ns = self._board.now_ns()
        busy_ns, handler = self._board.get(held.slot, "busy_since_ns"), self._board.get(held.slot, "handler")
        busy_s = counted_s((now_ns - busy_ns) / 1e9) if busy_ns else 0.0
        imports = bool(busy_ns) and handler.startswith(IMPORTING) and busy_s <= LONGEST_IMPORT_S
        if imports or (child.status is Status.STARTING and (busy_ns or not handler)):
            return HangCheck("", deadline_s)
        return check_hang(
            busy_s=busy_s,
            handler=handler,
            silent_s=counted_s((now_ns - self._board.get(held.slot, "beat_ns")) / 1e9),
            beat_every_s=held.beat_s,
            deadline_s=deadline_s,
        )

    def publish(self, child: Child, state: ActorState, retry_unix_s: float) -> None:
        """Write a child's state to the board, where any process can read it.

        The row of a child that is down may belong to another supervisor by now; it is left as it is.
        """
        slot = self.slot(child.spec.id, child.incarnation)
        if slot is None:
            slot = self._own_row(child.spec.id)
        if slot is None:
            return
        self._board.set_state(
            slot,
            state,
            restarts=child.restarts,
            last_reason=child.last_reason,
            retry_unix_s=retry_unix_s,
        )

    def forget(self, id_: str) -> None:
        """Free the row of a child, unless another supervisor has the name by now."""
        slot = self._own_row(id_)
        if slot is None:
            return
        if not self._board.get(slot, "ended_incarnation"):  # it never had a process
            last = max(1, int(self._board.get(slot, "incarnation")))  # an earlier actor may have had it
            self._board.set(slot, incarnation=last)
            self._board.note_end(slot, last, "it was never started")
        self._board.set_state(slot, ActorState.FREE, ready=0)

    # ---- inside ----

    def _row(self, name: str) -> int:
        """Return the row of a name; if there is none, claim one under a lock."""
        slot = self._own_row(name)
        if slot is not None and self._board.state(slot) is not ActorState.FREE:
            return slot
        return self._board.claim(name, self._identity.name, check=self._refuse_bearer)

    def _own_row(self, name: str) -> int | None:
        slot = self._board.find(name)
        return slot if slot is not None and self._is_mine(slot) else None

    def _exited(self, id_: str, incarnation: int) -> None:
        held = self._held[id_, incarnation]
        code = held.process.returncode()
        if code is None:
            return  # the exit status is not there yet; the pidfd fires again
        self._runtime.unwatch(held.process.pidfd)
        held.process.close()
        del self._held[id_, incarnation]
        ended = self._ended(id_, incarnation, held, code)
        self._board.note_end(held.slot, incarnation, _reason_for_monitors(ended, held))
        self._board.set(held.slot, ready=0)
        if held.type is ChildType.SUPERVISOR:
            self._mark_dead_below(id_)
            self._mark_dead_behind(held.slot)
        death = self._death(id_, incarnation, held, code, gave_up=ended.shutdown)
        self._on_exit(id_, incarnation, ended, death)

    def _ended(self, id_: str, incarnation: int, held: _Held, code: int) -> Ended:
        reason = exit_reason_of(code)
        words = last_words(self._identity.run_dir, id_, incarnation)
        # A program may exit with any code; it has OTP's meaning only if the actor's runtime chose it.
        own_code = code if self._board.own_exit(held.slot) == code else None
        is_ignored = own_code == EXIT_IGNORED
        said = "ignored" if is_ignored else str(reason)
        return Ended(
            reason=held.kill_reason or (f"{said}: {words}" if words else said),
            normal=reason.is_normal,
            shutdown=own_code == EXIT_SHUTDOWN,
            by_signal=reason.signal is not None,
            ignored=is_ignored,
            overdue=own_code == EXIT_OVERDUE,
        )

    def _death(self, id_: str, incarnation: int, held: _Held, code: int, *, gave_up: bool) -> Death:
        run_dir = self._identity.run_dir
        reason = exit_reason_of(code)
        if reason.is_normal:
            return Death(pid=held.process.pid, exit_code=0)
        has_chain = gave_up and held.type is ChildType.SUPERVISOR  # else its last report is of another death
        return Death(
            pid=held.process.pid,
            exit_code=reason.code,
            signal=None if reason.signal is None else str(reason),
            last_words=reports.last_lines(run_dir / "crash" / f"{id_}.{incarnation}.txt"),
            log_lines=reports.last_lines(run_dir / "logs" / f"{id_}.jsonl"),
            chain=reports.chain_below(run_dir, id_) if has_chain else (),
        )

    def _mark_dead_below(self, name: str) -> None:
        """Mark the actors below a dead supervisor as stopped; the kernel has killed them with it.

        A child that has cleared its parent-death signal, for example by a change of user, still runs. Such a
        child is killed here.
        """
        below = self._board.slots_by_parent()
        dead = [name]
        for parent in dead:
            for row in map(self._board.vitals, below.get(parent, ())):
                if row.route:
                    continue
                kill_process(row.pid, row.pid_start_ticks)
                if row.state in LIVING | WAITING:
                    reason = f"its supervisor {parent!r} ended"
                    self._board.set_state(row.slot, ActorState.STOPPED, ready=0, last_reason=reason)
                    dead.append(row.name)

    def _mark_dead_behind(self, bridge: int) -> None:
        """Mark the actors of other hosts as stopped that were reached through a bridge that has ended."""
        for slot in self._board.slots_behind(bridge):
            if self._board.state(slot) in LIVING | WAITING:
                reason = "the bridge to its host ended"
                self._board.set_state(slot, ActorState.STOPPED, ready=0, last_reason=reason)


def _preload(module: str) -> None:
    """Import a module that children share. Raises ChildNotStarted when the module raises an error.

    A module that cannot be found is no error here: a child that needs it fails by itself.
    """
    try:
        importlib.import_module(module)
    except ImportError:
        return
    except BaseException as error:  # a module may raise anything, SystemExit included
        raise ChildNotStarted(f"its preload {module!r} cannot be imported: {reason_of(error)}") from error


def _reason_for_monitors(ended: Ended, held: _Held) -> str:
    """The reason of an end in OTP's words. A child that was asked to stop, and did, ended as `shutdown`."""
    if ended.shutdown or (ended.normal and held.is_asked_to_stop):
        return "shutdown"
    return "normal" if ended.normal or ended.ignored else ended.reason


def state_of(child: Child) -> ActorState:
    """A child's state in the board's words."""
    match child.status:
        case Status.STARTING:
            return ActorState.STARTING
        case Status.RUNNING:
            return ActorState.RUNNING
        case Status.STOPPING:
            return ActorState.STOPPING
    if child.is_quarantined:
        return ActorState.QUARANTINED
    return ActorState.STOPPED if child.target.value == "down" else ActorState.BACKOFF
