"""The supervisor actor on the bench: what it makes of pidfds, the board and its own decisions."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.actor import Stop
from actors.board import ActorState, Vitals
from actors.process import EXIT_SHUTDOWN, start_ticks
from actors.shell import last_words
from actors.testing import Bench, BenchChild
from supervision.child_spec import AutoShutdown, ChildSpec, ChildType, Restart, SupervisorFlags
from supervision.supervisor import ORPHANS_END_S, Supervisor, supervisor_args


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    (tmp_path / "crash").mkdir()
    with Bench(tmp_path) as bench:
        yield bench


def child(id_: str, restart: Restart = Restart.PERMANENT) -> ChildSpec:
    return ChildSpec(id=id_, actor="module:Class", restart=restart)


class Tree:
    """A supervisor named `sup` and the children it forked."""

    def __init__(self, bench: Bench, *specs: ChildSpec, flags: SupervisorFlags | None = None) -> None:
        self.bench = bench
        self.sup = bench.start(Supervisor, "sup", supervisor_args(flags or SupervisorFlags(), specs))
        self.runtime = bench.runtimes["sup"]

    def processes(self) -> list[str]:
        return [f"{p.boot['name']}.{p.boot['incarnation']}" for p in self.runtime.spawned]

    def process(self, name: str) -> BenchChild:
        return next(p for p in reversed(self.runtime.spawned) if p.boot["name"] == name)

    def row(self, name: str) -> Vitals:
        slot = self.bench.board.find(name)
        assert slot is not None
        return self.bench.board.vitals(slot)

    def is_ready(self) -> bool:
        return self.row("sup").ready

    def get_ready(self, *names: str) -> None:
        for name in names:
            slot = self.bench.board.find(name)
            assert slot is not None
            self.bench.board.set(slot, ready=1, beat_ns=time.monotonic_ns())
            self.bench.advance(0.5)


def test_it_starts_its_children_in_order_and_is_ready_when_all_are(bench: Bench) -> None:
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
    with Bench(tmp_path / "live", live_children=True) as bench:
        specs = tuple(ChildSpec(id=id_, actor="actors.actor:Actor") for id_ in "abc")
        bench.start(Supervisor, "sup", supervisor_args(SupervisorFlags(), specs))
        bench.settle()
        assert bench.row("sup").ready
        assert bench.clock.monotonic_s() == 0.0


def test_it_is_ready_though_a_child_is_done_for_good(bench: Bench) -> None:
    pool = SupervisorFlags(ordered=False)
    tree = Tree(bench, child("job", Restart.TRANSIENT), child("a"), flags=pool)
    tree.process("job").end(0)
    tree.get_ready("a")
    assert tree.is_ready()
    assert tree.row("job").state is ActorState.STOPPED


def test_an_exit_whose_status_is_not_there_yet_is_looked_at_again(bench: Bench) -> None:
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


def test_a_new_process_is_not_taken_for_ready_because_the_last_one_was(bench: Bench) -> None:
    tree = Tree(bench, child("a"))
    tree.get_ready("a")
    tree.process("a").end(-9)
    bench.settle()
    assert not tree.row("a").ready
    assert tree.row("a").state is ActorState.STARTING


def test_it_starts_nobody_while_a_process_of_an_earlier_supervisor_still_runs(bench: Bench) -> None:
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


def test_a_pid_that_belongs_to_somebody_else_by_now_is_not_waited_for(bench: Bench) -> None:
    slot = bench.board.claim("a", "sup")
    bench.board.set(slot, pid=1, pid_start_ticks=start_ticks(1) + 1)
    assert Tree(bench, child("a")).processes() == ["a.1"]


def test_what_the_kernel_does_not_kill_in_time_is_not_waited_for_for_ever(bench: Bench) -> None:
    slot = bench.board.claim("a", "sup")
    bench.board.set(slot, pid=1, pid_start_ticks=start_ticks(1))
    tree = Tree(bench, child("a"))
    assert tree.processes() == []
    bench.advance(ORPHANS_END_S + 0.1)
    assert tree.processes() == ["a.1"]


def test_told_to_stop_while_it_waits_it_starts_nobody(bench: Bench) -> None:
    slot = bench.board.claim("a", "sup")
    bench.board.set(slot, pid=1, pid_start_ticks=start_ticks(1))
    tree = Tree(bench, child("a"))
    bench.tell("sup", Stop())
    bench.settle()
    assert tree.runtime.exit_code == 0
    assert tree.processes() == []


def test_the_children_of_a_dead_pool_are_marked_dead_at_every_depth(bench: Bench) -> None:
    tree = Tree(bench, ChildSpec(id="pool", actor="module:Class", type=ChildType.SUPERVISOR))
    tree.get_ready("pool")
    for name, parent in (("inner", "pool"), ("leaf", "inner"), ("stranger", "another")):
        bench.board.set_state(bench.board.claim(name, parent), ActorState.RUNNING, ready=1)
    tree.process("pool").end(-9)
    bench.settle()
    assert (tree.row("inner").state, tree.row("leaf").state) == (ActorState.STOPPED, ActorState.STOPPED)
    assert tree.row("leaf").last_reason == "its supervisor 'inner' ended"
    assert tree.row("stranger").state is ActorState.RUNNING


def test_giving_up_it_says_why_and_exits_as_shutdown(bench: Bench, tmp_path: Path) -> None:
    tree = Tree(bench, child("a"), flags=SupervisorFlags(max_restarts=0))
    tree.get_ready("a")
    tree.process("a").end(-9)
    bench.settle()
    assert tree.runtime.exit_code == EXIT_SHUTDOWN
    assert last_words(tmp_path, "sup", 1).startswith("gave up: child 'a' failed once more (SIGKILL)")


def test_done_it_exits_normally_and_leaves_no_crash_file(bench: Bench, tmp_path: Path) -> None:
    job = ChildSpec(id="job", actor="module:Class", restart=Restart.TRANSIENT, significant=True)
    tree = Tree(bench, job, flags=SupervisorFlags(auto_shutdown=AutoShutdown.ANY_SIGNIFICANT))
    tree.get_ready("job")
    tree.process("job").end(0)
    bench.settle()
    assert tree.runtime.exit_code == 0
    assert tree.row("sup").last_reason == "done: significant child 'job' ended: normal"
    assert list((tmp_path / "crash").iterdir()) == []
