"""The supervisor actor on the bench: what it makes of pidfds, the board and its own decisions."""

import math
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actors.actor import Actor, Stop
from actors.board import ActorState, Vitals
from actors.future import Future
from actors.last_words import last_words
from actors.process import EXIT_IGNORED, EXIT_SHUTDOWN, start_ticks
from actors.system_messages import Preempted
from actors.testing import InMemoryChild, InMemorySystem
from supervision import reports, supervisor
from supervision.child_processes import IMPORTING, LONGEST_IMPORT_S
from supervision.child_spec import (
    AutoShutdown,
    Breaker,
    ChildSpec,
    ChildType,
    Restart,
    Retirement,
    SupervisorFlags,
)
from supervision.messages import (
    ANSWER_ROOM_S,
    MANAGEMENT_DEADLINE_S,
    Managed,
    RestartChild,
    StartChild,
    TerminateChild,
    UpdateChild,
    start_child,
)
from supervision.reports import Offender, SupervisorReport
from supervision.supervisor import ORPHANS_END_S, Supervisor, dynamic_supervisor_spec, supervisor_args
from tests.unit.supervision.travellers import Where


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[InMemorySystem]:
    (tmp_path / "crash").mkdir()
    with InMemorySystem(tmp_path) as bench:
        yield bench


def child(id_: str, restart: Restart = Restart.PERMANENT) -> ChildSpec:
    return ChildSpec(id=id_, actor="module:Class", restart=restart)


class Tree:
    """A supervisor named `sup` and the children it forked."""

    def __init__(
        self, bench: InMemorySystem, *specs: ChildSpec, flags: SupervisorFlags | None = None
    ) -> None:
        self.bench = bench
        self.sup = bench.start(Supervisor, "sup", supervisor_args(flags or SupervisorFlags(), specs))
        self.runtime = bench.runtimes["sup"]

    def processes(self) -> list[str]:
        return [f"{p.boot['name']}.{p.boot['incarnation']}" for p in self.runtime.spawned]

    def process(self, name: str) -> InMemoryChild:
        return next(p for p in reversed(self.runtime.spawned) if p.boot["name"] == name)

    def row(self, name: str) -> Vitals:
        slot = self.bench.board.find(name)
        assert slot is not None
        return self.bench.board.vitals(slot)

    def is_ready(self) -> bool:
        return self.row("sup").ready

    def write(self, name: str, **columns: Any) -> None:
        """Write to a child's row what its process would."""
        slot = self.bench.board.find(name)
        assert slot is not None
        self.bench.board.set(slot, **columns)

    def get_ready(self, *names: str) -> None:
        for name in names:
            self.write(name, ready=1, beat_ns=self.bench.board.now_ns())
            self.bench.advance(0.5)


def test_it_starts_its_children_in_order_and_is_ready_when_all_are(bench: InMemorySystem) -> None:
    tree = Tree(bench, child("a"), child("b"))
    assert tree.processes() == ["a.1"]
    tree.get_ready("a")
    assert tree.processes() == ["a.1", "b.1"]
    assert not tree.is_ready()
    tree.get_ready("b")
    assert tree.is_ready()
    assert [tree.row(name).state for name in "ab"] == [ActorState.RUNNING] * 2


def test_it_hears_of_each_child_that_is_ready_while_it_starts_and_waits_for_no_look(tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    with InMemorySystem(tmp_path / "live", live_children=True) as bench:
        specs = tuple(ChildSpec(id=id_, actor="actors.actor:Actor") for id_ in "abc")
        bench.start(Supervisor, "sup", supervisor_args(SupervisorFlags(), specs))
        bench.settle()
        assert bench.row("sup").ready
        assert bench.clock.monotonic_s() == 0.0


class NeverStops(Actor):
    """Waits in `on_stop` until it is killed."""

    def on_stop(self) -> Future[None]:
        return Future()


def test_a_child_is_told_to_stop_by_the_moment_at_which_it_is_killed_also_after_a_change_of_its_spec(
    tmp_path: Path,
) -> None:
    (tmp_path / "live").mkdir()
    with InMemorySystem(tmp_path / "live", live_children=True) as bench:
        spec = ChildSpec(id="a", actor=f"{__name__}:NeverStops", shutdown_s=60.0)
        bench.start(Supervisor, "sup", supervisor_args(SupervisorFlags(), (spec,)))
        bench.settle()
        assert bench.actor("a").stop_by_s == math.inf
        bench.ask("sup", UpdateChild(id="a", changes={"shutdown_s": 20.0}))
        bench.ask("sup", TerminateChild(id="a"))
        bench.settle()
        assert bench.actor("a").stop_by_s == bench.clock.monotonic_s() + 20.0


def test_it_is_ready_though_a_child_is_done_for_good(bench: InMemorySystem) -> None:
    pool = SupervisorFlags(ordered=False)
    tree = Tree(bench, child("job", Restart.TRANSIENT), child("a"), flags=pool)
    tree.process("job").end(0)
    tree.get_ready("a")
    assert tree.is_ready()
    assert tree.row("job").state is ActorState.STOPPED


def test_an_exit_whose_status_is_not_there_yet_is_looked_at_again(bench: InMemorySystem) -> None:
    tree = Tree(bench, child("a"))
    tree.get_ready("a")
    process = tree.process("a")
    process.end(None)
    bench.turn("sup")
    assert tree.processes() == ["a.1"], "nothing is known yet"
    process.end(70)
    bench.settle()
    assert tree.processes() == ["a.1", "a.2"]
    assert tree.row("a").last_reason == "exit code 70"


def test_a_new_process_is_not_taken_for_ready_because_the_last_one_was(bench: InMemorySystem) -> None:
    tree = Tree(bench, child("a"))
    tree.get_ready("a")
    tree.process("a").end(-9)
    bench.settle()
    assert not tree.row("a").ready
    assert tree.row("a").state is ActorState.STARTING


@pytest.fixture
def unkillable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that hang in the kernel itself do not end when they are killed."""
    monkeypatch.setattr(supervisor, "kill_process", lambda pid, ticks: False)


def test_a_process_that_outlived_an_earlier_supervisor_is_killed(bench: InMemorySystem) -> None:
    """The kernel does not, where it has cleared its death signal."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as leftover:
        slot = bench.board.claim("a", "sup")
        bench.board.set(slot, pid=leftover.pid, pid_start_ticks=start_ticks(leftover.pid), incarnation=4)
        Tree(bench, child("a"))
        assert leftover.wait() == -signal.SIGKILL


@pytest.mark.usefixtures("unkillable")
def test_it_starts_nobody_while_a_process_of_an_earlier_supervisor_still_runs(bench: InMemorySystem) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as leftover:
        slot = bench.board.claim("a", "sup")
        bench.board.set(slot, pid=leftover.pid, pid_start_ticks=start_ticks(leftover.pid), incarnation=4)
        tree = Tree(bench, child("a"))
        bench.advance(ORPHANS_END_S / 2)
        assert tree.processes() == []
        leftover.kill()
        leftover.wait()
        bench.advance(0.5)
        assert tree.processes() == ["a.5"]


def test_a_pid_that_belongs_to_somebody_else_by_now_is_not_waited_for(bench: InMemorySystem) -> None:
    slot = bench.board.claim("a", "sup")
    bench.board.set(slot, pid=1, pid_start_ticks=start_ticks(1) + 1)
    assert Tree(bench, child("a")).processes() == ["a.1"]


@pytest.mark.usefixtures("unkillable")
def test_what_the_kernel_does_not_kill_in_time_is_not_waited_for_for_ever(bench: InMemorySystem) -> None:
    slot = bench.board.claim("a", "sup")
    bench.board.set(slot, pid=1, pid_start_ticks=start_ticks(1))
    tree = Tree(bench, child("a"))
    assert tree.processes() == []
    bench.advance(ORPHANS_END_S + 0.1)
    assert tree.processes() == ["a.1"]


def test_told_to_stop_while_it_waits_it_starts_nobody(bench: InMemorySystem) -> None:
    slot = bench.board.claim("a", "sup")
    bench.board.set(slot, pid=1, pid_start_ticks=start_ticks(1))
    tree = Tree(bench, child("a"))
    bench.tell("sup", Stop())
    bench.settle()
    assert tree.runtime.exit_code == 0
    assert tree.processes() == []


def test_the_children_of_a_dead_pool_are_marked_dead_at_every_depth(bench: InMemorySystem) -> None:
    tree = Tree(bench, ChildSpec(id="pool", actor="module:Class", type=ChildType.SUPERVISOR))
    tree.get_ready("pool")
    for name, parent in (("inner", "pool"), ("leaf", "inner"), ("stranger", "another")):
        bench.board.set_state(bench.board.claim(name, parent), ActorState.RUNNING, ready=1)
    tree.process("pool").end(-9)
    bench.settle()
    assert (tree.row("inner").state, tree.row("leaf").state) == (ActorState.STOPPED, ActorState.STOPPED)
    assert tree.row("leaf").last_reason == "its supervisor 'inner' ended"
    assert tree.row("stranger").state is ActorState.RUNNING


def test_giving_up_it_says_why_and_exits_as_shutdown(bench: InMemorySystem, tmp_path: Path) -> None:
    tree = Tree(bench, child("a"), flags=SupervisorFlags(max_restarts=0))
    tree.get_ready("a")
    tree.process("a").end(-9)
    bench.settle()
    assert tree.runtime.exit_code == EXIT_SHUTDOWN
    assert last_words(tmp_path, "sup", 1).startswith("gave up: child 'a' failed once more (SIGKILL)")


def test_giving_up_is_no_success_though_it_is_told_to_stop_meanwhile(
    bench: InMemorySystem, tmp_path: Path
) -> None:
    tree = Tree(bench, child("slow"), child("a"), flags=SupervisorFlags(max_restarts=0))
    tree.get_ready("slow", "a")
    tree.process("a").end(-9)
    bench.settle()
    bench.tell("sup", Stop())
    bench.settle()
    assert tree.runtime.exit_code is None, "it waits for its other child"
    tree.process("slow").end(0)
    bench.settle()
    assert tree.runtime.exit_code == EXIT_SHUTDOWN
    assert tree.row("sup").last_reason.startswith("gave up: child 'a' failed once more (SIGKILL)")
    assert last_words(tmp_path, "sup", 1).startswith("gave up: child 'a' failed once more (SIGKILL)")


def test_done_it_exits_normally_and_leaves_no_crash_file(bench: InMemorySystem, tmp_path: Path) -> None:
    job = ChildSpec(id="job", actor="module:Class", restart=Restart.TRANSIENT, significant=True)
    tree = Tree(bench, job, flags=SupervisorFlags(auto_shutdown=AutoShutdown.ANY_SIGNIFICANT))
    tree.get_ready("job")
    tree.process("job").end(0)
    bench.settle()
    assert tree.runtime.exit_code == 0
    assert tree.row("sup").last_reason == "done: significant child 'job' ended: normal"
    assert list((tmp_path / "crash").iterdir()) == []


@pytest.mark.parametrize("code", [EXIT_SHUTDOWN, EXIT_IGNORED])
def test_an_exit_code_of_a_users_own_is_a_crash_whatever_it_means_elsewhere(
    bench: InMemorySystem, code: int
) -> None:
    tree = Tree(bench, child("a", Restart.TRANSIENT))
    tree.get_ready("a")
    tree.process("a").end(code)
    bench.settle()
    assert tree.processes() == ["a.1", "a.2"]
    assert tree.row("a").last_reason == f"exit code {code}"


def test_the_row_of_a_child_that_ignored_its_start_says_so(bench: InMemorySystem) -> None:
    tree = Tree(bench, child("a"))
    slot = bench.board.find("a")
    assert slot is not None
    bench.board.note_own_exit(slot, EXIT_IGNORED)
    tree.process("a").end(EXIT_IGNORED)
    bench.settle()
    assert (tree.row("a").state, tree.row("a").last_reason) == (ActorState.STOPPED, "ignored")


def test_a_long_handler_is_killed_with_a_reason_that_says_what_to_do(bench: InMemorySystem) -> None:
    tree = Tree(bench, child("a"))
    tree.get_ready("a")
    slot = bench.board.find("a")
    assert slot is not None
    now_ns = bench.board.now_ns()
    bench.board.set(slot, beat_ns=now_ns, busy_since_ns=now_ns, handler="Work")
    for _ in range(11):
        bench.advance(1.0)
        bench.board.set(slot, beat_ns=bench.board.now_ns())
    tree.process("a").end(-9)
    bench.settle()
    why = tree.row("a").last_reason
    assert why.startswith("killed: hung: in Work for 10.")
    for word in ("hang_deadline_s=10", "in_thread", "still_working()"):
        assert word in why


def starting_pool(bench: InMemorySystem, **row: Any) -> Tree:
    """A tree whose pool takes an hour to start, gave its last beat now, and shows `row` on the board."""
    spec = ChildSpec(id="pool", actor="module:Class", type=ChildType.SUPERVISOR, start_deadline_s=3600.0)
    tree = Tree(bench, spec)
    tree.write("pool", beat_ns=bench.board.now_ns(), **row)
    return tree


def test_a_pool_that_hangs_while_it_waits_for_its_children_is_killed_after_its_hang_deadline(
    bench: InMemorySystem,
) -> None:
    tree = starting_pool(bench, handler="on_start")
    bench.advance(9.0)
    assert not tree.process("pool").was_killed
    bench.advance(1.5)
    assert tree.process("pool").was_killed
    tree.process("pool").end(-9)
    bench.settle()
    assert tree.row("pool").last_reason.startswith("killed: hung: no beat for 10.")


def test_a_pool_that_beats_may_start_for_longer_than_its_hang_deadline(bench: InMemorySystem) -> None:
    tree = starting_pool(bench, handler="on_start")
    for _ in range(10):
        bench.advance(5.0)
        tree.write("pool", beat_ns=bench.board.now_ns())
    assert not tree.process("pool").was_killed


def test_a_pool_that_imports_a_module_for_its_children_is_not_taken_for_hung(bench: InMemorySystem) -> None:
    tree = starting_pool(bench, handler="finished work and timers", busy_since_ns=bench.board.now_ns())
    bench.advance(60.0)
    assert not tree.process("pool").was_killed


def test_a_pool_whose_own_module_is_still_imported_is_not_taken_for_hung(bench: InMemorySystem) -> None:
    tree = starting_pool(bench, handler="on_start")
    tree.get_ready("pool")
    tree.process("pool").end(-9)
    bench.advance(60.0)
    assert tree.processes() == ["pool.1", "pool.2"]
    assert not tree.process("pool").was_killed


def test_a_run_that_was_frozen_kills_no_healthy_child_when_it_goes_on(bench: InMemorySystem) -> None:
    tree = Tree(bench, child("a"), child("busy"))
    tree.get_ready("a", "busy")
    busy = bench.board.find("busy")
    assert busy is not None
    bench.board.set(busy, busy_since_ns=bench.board.now_ns(), handler="Work")
    bench.clock.advance(3600.0)  # no actor had a turn
    bench.tell("sup", Preempted(incarnation=0))  # what is read first in that turn does not hide the lateness
    bench.turn("sup")
    tree.get_ready("a", "busy")
    bench.advance(1.0)
    assert not any(process.was_killed for process in tree.runtime.spawned)


def assert_killed_ten_seconds_after_a_freeze(bench: InMemorySystem, tree: Tree) -> None:
    """Freeze the run for an hour. Assert that the child `a` is killed some ten seconds later."""
    bench.clock.advance(3600.0)
    bench.advance(9.0)
    assert not tree.process("a").was_killed
    bench.advance(2.0)
    assert tree.process("a").was_killed


def test_a_child_that_hangs_after_a_freeze_is_found_within_its_deadline(bench: InMemorySystem) -> None:
    tree = Tree(bench, child("a"))
    tree.get_ready("a")
    assert_killed_ten_seconds_after_a_freeze(bench, tree)


@pytest.mark.parametrize("frozen_s", [6.0, 9.0, 9.9])
def test_a_freeze_that_ends_right_before_a_check_is_noticed_as_well(
    bench: InMemorySystem, frozen_s: float
) -> None:
    tree = Tree(bench, child("a"))
    tree.get_ready("a")
    bench.clock.advance(frozen_s)
    bench.advance(4.9)  # the child beats after half its deadline
    assert not tree.process("a").was_killed


def test_a_child_that_starts_while_the_run_is_frozen_loses_none_of_its_time(bench: InMemorySystem) -> None:
    tree = Tree(bench, replace(child("a"), start_deadline_s=30.0))
    bench.advance(20.0)
    assert_killed_ten_seconds_after_a_freeze(bench, tree)


@pytest.mark.parametrize("frozen_s", [3.0, 3.9, 3600.0])
def test_a_child_that_stops_while_the_run_is_frozen_loses_none_of_its_time(
    bench: InMemorySystem, frozen_s: float
) -> None:
    tree = Tree(bench, replace(child("a"), shutdown_s=5.0))
    tree.get_ready("a")
    bench.ask("sup", TerminateChild(id="a"))
    bench.advance(1.0)
    bench.clock.advance(frozen_s)
    bench.advance(4.9)
    assert not tree.process("a").was_killed
    bench.advance(2.0)
    assert tree.process("a").was_killed


def test_a_call_that_is_read_first_after_a_freeze_does_not_have_a_stopping_child_killed(
    bench: InMemorySystem,
) -> None:
    tree = Tree(bench, child("a"), child("b"))
    tree.get_ready("a", "b")
    bench.ask("sup", TerminateChild(id="a"))
    bench.advance(1.0)
    bench.clock.advance(3600.0)
    bench.ask("sup", UpdateChild(id="b", changes={"start_deadline_s": 60.0}))
    bench.advance(1.0)
    assert not tree.process("a").was_killed


def turn_late(tree: Tree, *, every_s: float, within_s: float, beats: bool = False) -> None:
    """Let time pass while the supervisor has a turn only now and then, and child a beats or does not."""
    for _ in range(int(within_s / every_s)):
        tree.bench.clock.advance(every_s)
        if beats:
            tree.write("a", beat_ns=tree.bench.board.now_ns())
        tree.bench.settle()


@pytest.mark.parametrize("every_s", [2.0, 4.0, 6.0])
@pytest.mark.parametrize("is_busy", [False, True])
def test_a_supervisor_whose_every_check_is_late_finds_a_child_that_hangs(
    bench: InMemorySystem, every_s: float, is_busy: bool
) -> None:
    spec = replace(child("a"), hang_deadline_s=10.0)
    tree = Tree(bench, spec)
    tree.get_ready("a")
    if is_busy:
        tree.write("a", busy_since_ns=bench.board.now_ns())
    turn_late(tree, every_s=every_s, within_s=3.6 * spec.hang_deadline_s, beats=is_busy)
    assert tree.process("a").was_killed


def test_a_supervisor_whose_every_check_is_late_kills_a_child_that_does_not_start(
    bench: InMemorySystem,
) -> None:
    tree = Tree(bench, replace(child("a"), start_deadline_s=5.0))
    turn_late(tree, every_s=1.5, within_s=40.0)
    assert tree.process("a").was_killed


def test_a_supervisor_whose_every_check_is_late_kills_a_child_that_does_not_stop(
    bench: InMemorySystem,
) -> None:
    tree = Tree(bench, replace(child("a"), shutdown_s=5.0, hang_deadline_s=math.inf))
    tree.get_ready("a")
    bench.ask("sup", TerminateChild(id="a"))
    turn_late(tree, every_s=2.5, within_s=15.0)
    assert tree.process("a").was_killed


def test_a_supervisor_whose_every_check_is_late_kills_no_child_that_beats(bench: InMemorySystem) -> None:
    tree = Tree(bench, child("a"))
    tree.get_ready("a")
    turn_late(tree, every_s=4.0, within_s=200.0, beats=True)
    assert not tree.process("a").was_killed


BROKEN_MODULES = {
    "a value error": "raise ValueError('broken at import')",
    "an end": "raise SystemExit(3)",
    "a syntax error": "def",
}


@pytest.mark.parametrize("source", BROKEN_MODULES.values(), ids=BROKEN_MODULES)
def test_a_preload_that_raises_costs_the_child_and_nobody_else(
    bench: InMemorySystem, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_preload.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    tree = Tree(bench, child("a"))
    tree.get_ready("a")
    spec = replace(child("b"), preload=("broken_preload",))
    asked = bench.ask("sup", start_child(spec))
    bench.settle()
    refused = asked.result()
    assert not refused.ok
    assert "its preload 'broken_preload' cannot be imported" in refused.reason
    assert bench.is_alive("sup")
    assert tree.processes() == ["a.1"]


def test_a_supervisor_that_imports_a_module_for_a_child_hangs_only_after_ten_minutes(tmp_path: Path) -> None:
    with InMemorySystem(tmp_path, live_children=True) as bench:
        below = dynamic_supervisor_spec("pool")
        bench.start(Supervisor, "sup", supervisor_args(SupervisorFlags(), (below,)))
        bench.settle()
        bench.hang("pool", handler=f"{IMPORTING}torch")
        bench.advance(LONGEST_IMPORT_S - 1.0)
        assert bench.row("pool").incarnation == 1
        bench.advance(below.hang_deadline_s)
        assert bench.row("pool").incarnation == 2
        assert "hung: in import torch" in bench.row("pool").last_reason


def test_a_preload_that_is_not_there_is_left_to_the_child(bench: InMemorySystem) -> None:
    tree = Tree(bench, replace(child("a"), preload=("no_such_module",)))
    assert tree.processes() == ["a.1"]


def test_a_call_that_starts_a_child_waits_as_long_as_the_child_may_take() -> None:
    spec = replace(child("a"), start_deadline_s=100.0)
    assert start_child(spec).answer_within_s == 100.0 + ANSWER_ROOM_S
    assert start_child(replace(spec, start_deadline_s=math.inf)).answer_within_s == MANAGEMENT_DEADLINE_S
    assert StartChild(spec={"start_deadline_s": "soon"}).answer_within_s == MANAGEMENT_DEADLINE_S
    assert TerminateChild(id="a").answer_within_s == MANAGEMENT_DEADLINE_S


def test_a_child_that_starts_slowly_is_waited_for(bench: InMemorySystem) -> None:
    tree = Tree(bench, child("a"))
    tree.get_ready("a")
    asked = bench.ask("sup", start_child(child("b")))
    bench.advance(20.0)
    tree.get_ready("b")
    assert asked.result().ok


def test_a_termination_is_answered_though_the_child_is_started_again_in_the_same_turn(
    bench: InMemorySystem,
) -> None:
    tree = Tree(bench, child("a"))
    tree.get_ready("a")
    terminated = bench.ask("sup", TerminateChild(id="a"))
    bench.settle()
    tree.process("a").end(0)
    restarted = bench.ask("sup", RestartChild(id="a"))
    bench.settle()
    tree.get_ready("a")
    assert terminated.result().ok
    assert restarted.result().incarnation == 2


def test_a_termination_is_answered_when_the_board_shows_it(
    bench: InMemorySystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = Tree(bench, child("a"))
    tree.get_ready("a")
    bench.ask("sup", TerminateChild(id="a"))
    bench.settle()
    shown: list[ActorState] = []
    succeed = Future.succeed

    def spied(future: Future[Any], value: Any) -> None:
        if isinstance(value, Managed):
            shown.append(tree.row("a").state)
        succeed(future, value)

    monkeypatch.setattr(Future, "succeed", spied)
    tree.process("a").end(0)
    bench.settle()
    assert shown
    assert set(shown) == {ActorState.STOPPED}


def test_a_crash_is_printed_with_its_traceback_and_what_is_no_failure_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(reports, "say_on_console", said.append)
    died = SupervisorReport(
        unix_s=0.0,
        supervisor="sup",
        context="child_terminated",
        reason="exit code 70: KeyError: 'x'",
        offender=Offender(id="a", incarnation=2),
    )
    (tmp_path / "crash").mkdir()
    (tmp_path / "crash" / "a.2.txt").write_text("Traceback:\n  here\nKeyError: 'x'\n")
    reports.show(tmp_path, died)
    reports.show(tmp_path, replace(died, context="retired"))
    assert said == [
        "[sup] 'a' (incarnation 2) ended: exit code 70: KeyError: 'x'\nTraceback:\n  here\nKeyError: 'x'\n"
    ]


def test_a_child_is_replaced_within_a_second_after_it_was_used_up(tmp_path: Path) -> None:
    policy = Retirement(max_uses=3)
    tool = ChildSpec(id="tool", actor="tests.unit.supervision.travellers:Tool", retirement=policy)
    with InMemorySystem(tmp_path, live_children=True) as bench:
        bench.start(Supervisor, "sup", supervisor_args(SupervisorFlags(), (tool,)))
        bench.settle()
        answered_by = []
        for _ in range(9):
            answer = bench.ask("tool", Where())
            bench.advance(1.1)
            answered_by.append(answer.result().incarnation)
    assert answered_by == [1, 1, 1, 2, 2, 2, 3, 3, 3]


@pytest.mark.parametrize("max_uses", [0, 1000])
def test_children_that_work_between_their_failures_are_no_outage_whether_their_uses_are_limited_or_not(
    bench: InMemorySystem, tmp_path: Path, max_uses: int
) -> None:
    policy = Retirement(max_uses=max_uses)
    specs = [replace(child(name), breaker=Breaker(), retirement=policy) for name in "abcde"]
    tree = Tree(bench, *specs, flags=SupervisorFlags(ordered=False, max_failing=0.5))
    tree.get_ready(*"abcde")
    for name in "abcd":
        tree.process(name).end(-9)
        bench.advance(2.0)
        tree.get_ready(name)
        tree.write(name, uses=5)
        for _ in range(4):
            bench.advance(1.0)
            for sibling in "abcde":
                tree.write(sibling, beat_ns=bench.board.now_ns())
    reported = [report.context for report in reports.read(tmp_path, "sup")]
    assert reported == ["child_terminated"] * 4


def test_a_preemption_counts_also_while_the_supervisor_waits_for_the_first_start_of_another_child(
    tmp_path: Path,
) -> None:
    quick = ChildSpec(id="quick", actor="tests.unit.supervision.travellers:Traveller")
    slow = ChildSpec(id="slow", actor="tests.unit.supervision.travellers:Slow")
    with InMemorySystem(tmp_path, live_children=True) as bench:
        bench.start(Supervisor, "sup", supervisor_args(SupervisorFlags(ordered=False), (quick, slow)))
        bench.settle()
        bench.actor("quick").announce_preemption()
        bench.advance(1.0)
        assert (bench.row("sup").ready, bench.row("quick").incarnation) == (False, 2)
        bench.advance(3.0)
        assert bench.row("sup").ready
        assert bench.row("quick").restarts == 0


def test_a_child_whose_log_cannot_be_read_is_restarted_all_the_same(
    bench: InMemorySystem, tmp_path: Path
) -> None:
    (tmp_path / "logs" / "a.jsonl").mkdir(parents=True)  # a folder is no file that can be read
    tree = Tree(bench, child("a"))
    tree.get_ready("a")
    tree.process("a").end(-signal.SIGKILL)
    bench.settle()
    assert tree.processes() == ["a.1", "a.2"]
