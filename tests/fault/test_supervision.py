"""Supervision with real processes and real deaths."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from actors.actor import Stop
from actors.board import ActorState, Vitals
from actors.errors import ActorDied
from actors.lateness import LATE_S
from actors.process import is_alive
from supervision.child_spec import AutoShutdown, Backoff, ChildSpec, Restart, Strategy, SupervisorFlags
from supervision.messages import start_child
from supervision.supervisor import supervisor_spec
from tests.fault.actors_under_test import (
    PATIENCE_S,
    WORK_DEADLINE_S,
    Echo,
    Job,
    Me,
    Misbehave,
    Running,
    Who,
    eventually,
    pool,
    running,
    started,
    worker,
)
from tests.patience import slowness

HANG_S = 2.0
REST_FOR_ONE = SupervisorFlags(strategy=Strategy.REST_FOR_ONE, max_restarts=100, max_seconds=60.0)


@pytest.fixture(scope="module")
def tree() -> Iterator[Running]:
    """One tree for all the tests that only kill what comes back."""
    with running(
        worker("a", hang_deadline_s=HANG_S),
        worker("b", hang_deadline_s=HANG_S),
        pool("crowd", *(worker(f"crowd-{number}") for number in range(10))),
    ) as system:
        system.await_up("a", "b", "crowd", *(f"crowd-{number}" for number in range(10)))
        yield system


# ---- one death ----


def test_a_killed_actor_is_back_with_a_new_incarnation_and_working_mail(tree: Running) -> None:
    assert tree.probe.ask("a", Echo(text="before")) == Echo(text="before")
    old = tree.kill("a")
    new = tree.await_new("a", old)
    assert new.incarnation == old.incarnation + 1
    assert new.restarts == old.restarts + 1
    assert new.last_reason == "SIGKILL"
    assert tree.probe.ask("a", Who()) == Me(pid=new.pid, incarnation=new.incarnation)
    assert not is_alive(old.pid)


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV, signal.SIGUSR1, signal.SIGHUP])
def test_a_signal_that_ends_a_process_ends_it_and_is_named(tree: Running, number: signal.Signals) -> None:
    """Thespian traps all of them; a trapped SIGSEGV spins for ever."""
    old = tree.kill("a", number)
    assert tree.await_new("a", old).last_reason == number.name


def test_a_sigterm_announces_a_preemption_and_the_actor_ends_in_order_and_is_back(tree: Running) -> None:
    old = tree.kill("a", signal.SIGTERM)
    new = tree.await_new("a", old)
    assert new.last_reason == "preempted: a SIGTERM announced the end of its process"
    assert (new.restarts, new.incarnation) == (old.restarts, old.incarnation + 1)
    assert tree.probe.ask("a", Who()) == Me(pid=new.pid, incarnation=new.incarnation)
    assert '"event": "actor_stopped"' in (tree.system.run_dir / "logs" / "a.jsonl").read_text()


def test_ctrl_c_reaches_only_the_launcher(tree: Running) -> None:
    old = tree.kill("a", signal.SIGINT)
    assert tree.probe.ask("a", Who()) == Me(pid=old.pid, incarnation=old.incarnation)


def test_an_exception_leaves_a_crash_file_and_its_last_line_as_the_reason(tree: Running) -> None:
    old = tree.row("a")
    with pytest.raises(ActorDied):
        tree.probe.ask("a", Misbehave(how="raise"))
    new = tree.await_new("a", old)
    assert new.last_reason == "exit code 70: ZeroDivisionError: asked to"
    crash = tree.system.run_dir / "crash" / f"a.{old.incarnation}.txt"
    assert "in misbehave" in crash.read_text()
    assert '"event": "actor_crashed"' in (tree.system.run_dir / "logs" / "a.jsonl").read_text()


def test_a_handler_that_fails_is_run_once(tree: Running) -> None:
    """Thespian would run it a second time, on a copy of the message."""
    old = tree.row("a")
    tree.probe.tell("a", Misbehave(how="raise"))
    new = tree.await_new("a", old)
    tree.probe.ask("a", Who())
    assert tree.row("a").incarnation == new.incarnation


def test_an_exit_code_is_the_reason(tree: Running) -> None:
    old = tree.row("a")
    tree.probe.tell("a", Misbehave(how="exit"))
    assert tree.await_new("a", old).last_reason == "exit code 3"


def test_a_segfault_ends_the_process_leaves_its_trace_and_does_not_spin(tree: Running) -> None:
    old = tree.row("a")
    tree.probe.tell("a", Misbehave(how="segfault"))
    assert tree.await_new("a", old).last_reason == "SIGSEGV"
    assert not is_alive(old.pid)
    trace = tree.system.run_dir / "crash" / f"a.{old.incarnation}.fault"
    assert "Segmentation fault" in trace.read_text()


def test_a_death_of_one_is_nothing_to_its_sibling(tree: Running) -> None:
    sibling = tree.row("b")
    tree.await_new("a", tree.kill("a"))
    assert tree.row("b").incarnation == sibling.incarnation
    assert tree.probe.ask("b", Who()) == Me(pid=sibling.pid, incarnation=sibling.incarnation)


# ---- asks and deaths ----


def test_an_ask_to_an_actor_that_is_killed_ends_promptly(tree: Running) -> None:
    asked = tree.probe.actor.ask("a", Misbehave(how="never answer"), deadline_s=3600.0)
    tree.probe.ask("a", Echo())  # it has read the ask before
    old = tree.kill("a")
    started = time.monotonic()
    with pytest.raises(ActorDied, match="'a'"):
        tree.probe.result(asked)
    assert time.monotonic() - started < 5.0 * slowness()
    tree.await_new("a", old)


def test_an_ask_to_a_child_of_a_dead_supervisor_ends_promptly_too() -> None:
    """The one who would say on the board that it is gone is gone as well."""
    backoff = Backoff(initial_s=20.0)
    with running(pool("crowd", worker("c"), backoff=backoff)) as system:
        system.await_up("crowd", "c")
        asked = system.probe.actor.ask("c", Misbehave(how="never answer"), deadline_s=3600.0)
        system.probe.ask("c", Echo())
        system.kill("crowd")
        started = time.monotonic()
        with pytest.raises(ActorDied, match="'c'"):
            system.probe.result(asked)
        assert time.monotonic() - started < 5.0 * slowness()
        assert system.row("c").state is ActorState.STOPPED
        assert not system.row("c").ready


# ---- many deaths ----


def test_of_ten_children_killed_at_once_none_is_missed(tree: Running) -> None:
    """Thespian's own notices lose one in three times."""
    names = [f"crowd-{number}" for number in range(10)]
    before = {name: tree.row(name) for name in names}
    for name in names:
        os.kill(before[name].pid, signal.SIGKILL)
    for name in names:
        new = tree.await_new(name, before[name])
        assert new.incarnation == before[name].incarnation + 1
        assert new.last_reason == "SIGKILL"
        assert tree.probe.ask(name, Who()) == Me(pid=new.pid, incarnation=new.incarnation)


def test_a_killed_supervisor_is_back_with_all_its_children_and_none_of_the_old(tree: Running) -> None:
    names = [f"crowd-{number}" for number in range(10)]
    before = {name: tree.row(name) for name in names}
    tree.await_new("crowd", tree.kill("crowd"))
    for name in names:
        new = tree.await_new(name, before[name])
        assert not is_alive(before[name].pid), f"two {name} at once"
        assert tree.probe.ask(name, Who()) == Me(pid=new.pid, incarnation=new.incarnation)


# ---- hangs ----


@pytest.mark.parametrize(
    ("how", "words"), [("stop", ""), ("loop", "in Misbehave for"), ("sleep", "in Misbehave for")]
)
def test_a_hung_actor_is_killed_and_back_within_its_hang_deadline_and_a_second(
    tree: Running, how: str, words: str
) -> None:
    old = tree.row("b")
    tree.probe.tell("b", Misbehave(how=how))
    started = time.monotonic()
    new = tree.await_new("b", old)
    took_s = time.monotonic() - started
    assert f"killed: hung: {words}" in new.last_reason
    assert HANG_S - 0.3 < took_s < HANG_S + 1.0 + scheduling_slack_s()


def suspend(tree: Running, seconds: float) -> list[Vitals]:
    """Suspend every process for so long; returns the rows of these processes."""
    before = [row for row in tree.system.board.rows() if row.pid]
    for row in before:
        os.kill(row.pid, signal.SIGSTOP)
    time.sleep(seconds)
    for row in before:
        os.kill(row.pid, signal.SIGCONT)
        if row.name == "root":
            time.sleep(0.5)  # it finds every child silent
    return before


def test_a_run_that_was_suspended_goes_on_with_the_same_processes(tree: Running) -> None:
    before = suspend(tree, HANG_S + 2.0)
    time.sleep(HANG_S)
    after = [row for row in tree.system.board.rows() if row.pid]
    assert [(row.name, row.pid) for row in after] == [(row.name, row.pid) for row in before]
    assert tree.probe.ask("crowd-9", Echo(text="here")) == Echo(text="here")


def test_work_in_a_thread_is_done_though_its_deadline_passed_while_the_run_was_suspended(
    tree: Running,
) -> None:
    asked = tree.probe.actor.ask("a", Misbehave(how="work"), deadline_s=3600.0)
    eventually(lambda: tree.row("a").work == "slow work", "it works", tree.explain)
    suspend(tree, WORK_DEADLINE_S + 1.0)
    assert tree.probe.result(asked) is None


def test_a_launcher_that_was_suspended_itself_does_not_take_the_root_for_hung(
    tree: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tree.row("root")
    os.kill(root.pid, signal.SIGSTOP)
    time.sleep(0.5)
    silent_s = tree.system.root_beat_age_s()
    assert silent_s >= 0.5
    monkeypatch.setattr("actors.system.has_ended", lambda _, timeout_s: time.sleep(timeout_s + 2 * LATE_S))
    tree.system.wait(0.0)
    assert tree.system.root_beat_age_s() < silent_s + LATE_S, "what was lost is no silence"
    os.kill(root.pid, signal.SIGCONT)


def scheduling_slack_s() -> float:
    """What a machine with more to do than processors adds; nothing on an idle one."""
    overload = os.getloadavg()[0] / (os.cpu_count() or 1)
    return max(0.0, overload - 1.0)


# ---- starts that fail ----


def test_a_restart_that_fails_at_start_is_tried_until_it_holds(tmp_path: Path) -> None:
    args = {"starts_that_fail": 2, "how": "exit", "count_in": str(tmp_path / "count")}
    with running(pool("crowd", worker("a", args=args))) as system:
        system.await_up("a")
        assert system.row("a").incarnation == 3
        assert system.row("a").last_reason == "exit code 3"


@pytest.mark.parametrize(
    ("how", "words"),
    [("exit", "exit code 3"), ("raise", "ZeroDivisionError: asked to"), ("segfault", "SIGSEGV")],
)
def test_a_first_start_that_fails_ends_the_run_and_says_why(tmp_path: Path, how: str, words: str) -> None:
    args = {"starts_that_fail": 99, "how": how, "count_in": str(tmp_path / "count")}
    with started(worker("good"), worker("bad", args=args)) as system:
        assert system.system.wait(PATIENCE_S)
        assert "gave up: child 'bad' failed to start" in system.system.verdict()
        assert words in system.system.verdict()


def test_an_actor_that_does_not_exist_is_a_start_that_fails_and_every_level_says_why() -> None:
    missing = ChildSpec(id="bad", actor="no_such_module:Class", start_deadline_s=PATIENCE_S)
    with started(pool("crowd", missing, max_restarts=1)) as system:
        assert system.system.wait(PATIENCE_S)
        assert "child 'crowd' failed to start" in system.system.verdict()
        assert "child 'bad' failed once more" in system.system.verdict()
        assert "No module named 'no_such_module'" in system.system.verdict()


def test_a_start_that_takes_too_long_is_killed_and_named(tmp_path: Path) -> None:
    args = {"starts_that_fail": 1, "how": "sleep", "count_in": str(tmp_path / "count")}
    with running(pool("crowd", worker("a", args=args, start_deadline_s=1.0))) as system:
        system.await_up("a")
        assert system.row("a").incarnation == 2
        assert system.row("a").last_reason == "killed: not ready within 1 s"


def test_a_pool_that_hangs_while_its_children_start_is_found_long_before_its_start_deadline(
    tmp_path: Path,
) -> None:
    count = tmp_path / "count"
    count.touch()
    args = {"starts_that_fail": 99, "how": "sleep", "count_in": str(count)}
    crowd = (worker(f"a-{number}", args=args) for number in range(3))
    with started(pool("crowd", *crowd, hang_deadline_s=HANG_S)) as system:
        eventually(lambda: count.read_text() == "xxx", "all are forked", system.explain)
        time.sleep(0.5)  # it waits in its loop
        system.kill("crowd", signal.SIGSTOP)
        assert system.system.wait(PATIENCE_S)
        assert "child 'crowd' failed to start: killed: hung: no beat for" in system.system.verdict()


def test_a_supervisor_that_imports_a_module_for_longer_than_its_hang_deadline_does_not_hang() -> None:
    flags = SupervisorFlags(dynamic=True, ordered=False)
    with running(supervisor_spec("sessions", flags, hang_deadline_s=HANG_S)) as system:
        late = worker("late", preload=("tests.fault.slow_to_import",), start_deadline_s=PATIENCE_S)
        assert system.probe.ask("sessions", start_child(late)).ok
        assert (system.row("sessions").incarnation, system.row("late").incarnation) == (1, 1)


# ---- escalation ----


def test_a_pool_that_gives_up_takes_those_after_it_along_and_none_before() -> None:
    with running(
        worker("before"), pool("crowd", worker("a"), max_restarts=1), worker("after"), flags=REST_FOR_ONE
    ) as system:
        system.await_up("before", "crowd", "a", "after")
        before, crowd, after = (system.row(name) for name in ("before", "crowd", "after"))
        system.await_new("a", system.kill("a"))
        system.kill("a")
        new = system.await_new("crowd", crowd)
        assert "gave up: child 'a' failed once more (SIGKILL): over 1 restarts in 60 s" in new.last_reason
        system.await_new("after", after)
        assert system.row("after").last_reason.startswith(
            "restarted along with 'crowd': exit code 75: gave up"
        )
        assert system.row("before").incarnation == before.incarnation
        system.await_up("a")
        assert system.probe.ask("a", Echo(text="again")) == Echo(text="again")


def test_a_root_that_gives_up_ends_the_run_and_leaves_nothing() -> None:
    with running(worker("a"), flags=SupervisorFlags(max_restarts=0)) as system:
        system.await_up("a")
        system.kill("a")
        assert system.system.wait(PATIENCE_S)
        assert system.system.verdict().startswith("gave up: child 'a' failed once more (SIGKILL)")


def test_a_significant_child_that_is_done_ends_the_run_normally() -> None:
    job = ChildSpec(id="job", actor=f"{Job.__module__}:Job", restart=Restart.TRANSIENT, significant=True)
    flags = SupervisorFlags(auto_shutdown=AutoShutdown.ANY_SIGNIFICANT)
    with started(worker("a"), job, flags=flags) as system:
        assert system.system.wait(PATIENCE_S)
        assert system.system.verdict() == "done: significant child 'job' ended: normal"


def test_a_pool_is_up_though_one_of_its_children_is_done_already() -> None:
    job = ChildSpec(id="job", actor=f"{Job.__module__}:Job", restart=Restart.TEMPORARY)
    with running(pool("crowd", job, worker("a"))) as system:
        system.await_up("crowd", "a")
        eventually(
            lambda: system.row("job").state is ActorState.FREE,
            "the job is done and forgotten",
            system.explain,
        )


# ---- stopping ----


def test_stop_ends_children_in_reverse_order_and_the_root_normally() -> None:
    with running(worker("a"), worker("b"), worker("c")) as system:
        system.await_up("a", "b", "c")
        system.system.stop()
        assert system.system.wait(PATIENCE_S)
        assert system.system.verdict() == ""
        stopped = {name: _moment(system, name, "actor_stopped") for name in ("a", "b", "c", "root")}
        assert sorted(stopped, key=lambda name: stopped[name]) == ["c", "b", "a", "root"]


def _moment(system: Running, name: str, event: str) -> str:
    for line in (system.system.run_dir / "logs" / f"{name}.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry["event"] == event:
            return str(entry["timestamp"])
    raise AssertionError(f"{name} did not log {event}")


@pytest.mark.parametrize("how", ["stop", "loop"])
def test_a_grandchild_that_does_not_react_does_not_block_the_stop(how: str) -> None:
    """Thespian's recursive exit would wait for it for ever."""
    with running(pool("crowd", worker("a", shutdown_s=1.0), worker("b", shutdown_s=1.0))) as system:
        system.await_up("a", "b")
        system.probe.tell("a", Misbehave(how=how))
        eventually(lambda: system.row("a").busy_s is not None, "a hangs", system.explain)
        system.system.stop()
        assert system.system.wait(PATIENCE_S)
        assert system.system.verdict() == ""


def test_an_actor_told_to_stop_by_anyone_ends_normally_and_a_permanent_one_comes_back() -> None:
    with running(worker("a")) as system:
        system.await_up("a")
        old = system.row("a")
        system.probe.tell("a", Stop())
        assert system.await_new("a", old).last_reason == "normal"


def test_a_supervisor_that_was_not_the_last_writes_on_where_its_predecessor_ended(tree: Running) -> None:
    """Incarnations never repeat: a late answer must not be taken for a new one's."""
    old = tree.row("crowd-3")
    tree.await_new("crowd", tree.kill("crowd"))
    new = tree.await_new("crowd-3", old)
    assert new.incarnation == old.incarnation + 1


def test_ten_restarts_leave_no_descriptor_behind(tree: Running) -> None:
    root = psutil.Process(tree.pid("root"))
    tree.await_new("a", tree.kill("a"))
    before = root.num_fds()
    for _ in range(10):
        tree.await_new("a", tree.kill("a"))
    assert root.num_fds() <= before + 2
