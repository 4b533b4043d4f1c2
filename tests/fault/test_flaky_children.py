"""What flaky children need beyond OTP, on real processes: quarantine, budgets, replacement, live changes."""

import signal
import time

import pytest

from actors.board import SLOTS, ActorState
from actors.errors import ActorDied
from supervision import reports
from supervision.child_spec import Backoff, Breaker, Budget, ChildSpec, Failure, Retirement, SupervisorFlags
from supervision.messages import (
    ChildCounts,
    CountChildren,
    Managed,
    ReleaseChild,
    TerminateChild,
    UpdateChild,
    WhichChildren,
    start_child,
)
from supervision.supervisor import dynamic_supervisor_spec, supervisor_spec
from tests.fault.actors_under_test import (
    PATIENCE_S,
    Echo,
    Misbehave,
    Running,
    Who,
    eventually,
    pool,
    running,
    worker,
)

LONG_S = 600.0
LONG = Backoff(initial_s=LONG_S, max_s=LONG_S)


def breaker(max_failures: int) -> Breaker:
    return Breaker(max_failures=max_failures, within_s=LONG_S, open_s=LONG_S, healthy_s=LONG_S)


def await_state(system: Running, name: str, state: ActorState) -> None:
    eventually(lambda: system.row(name).state is state, f"{name} is {state}", system.explain)


def kill_until_quarantined(system: Running, name: str, failures: int) -> None:
    for _ in range(failures):
        system.await_new(name, system.kill(name))
    system.kill(name)
    await_state(system, name, ActorState.QUARANTINED)


def test_a_child_in_quarantine_is_left_alone_and_its_siblings_work_on_until_it_is_released() -> None:
    with running(pool("crowd", worker("a", breaker=breaker(2)), worker("b"), max_restarts=0)) as system:
        other = system.row("b")
        kill_until_quarantined(system, "a", 2)
        with pytest.raises(ActorDied):
            system.probe.ask("a", Who())
        assert system.probe.ask("b", Who()).pid == other.pid
        assert system.row("a").last_reason == "SIGKILL"
        counts = system.probe.ask("crowd", CountChildren())
        assert counts == ChildCounts(specs=2, active=1, supervisors=0, workers=2, quarantined=1)

        old = system.row("a")
        assert system.probe.ask("crowd", ReleaseChild(id="a")).ok
        assert system.await_new("a", old).state is ActorState.RUNNING


def test_a_failure_on_probation_brings_it_back_into_quarantine() -> None:
    quick = Breaker(max_failures=1, within_s=LONG_S, open_s=0.2, healthy_s=LONG_S)
    with running(pool("crowd", worker("a", breaker=quick), max_restarts=0)) as system:
        system.await_new("a", system.kill("a"))
        old = system.kill("a")
        system.await_new("a", old)
        system.probe.ask("crowd", UpdateChild(id="a", changes={"breaker": {"open_s": LONG_S}}))
        system.kill("a")
        await_state(system, "a", ActorState.QUARANTINED)


def test_a_pool_most_of_which_is_in_quarantine_gives_up() -> None:
    flags = SupervisorFlags(ordered=False, max_quarantined=0.5)
    children = tuple(worker(f"vm-{number}", breaker=breaker(0)) for number in range(3))
    with running(supervisor_spec("crowd", flags, children)) as system:
        old = system.row("crowd")
        system.kill("vm-0")
        await_state(system, "vm-0", ActorState.QUARANTINED)
        system.kill("vm-1")
        new = system.await_new("crowd", old)
        assert "67% of the children are in quarantine" in new.last_reason


def test_hangs_have_a_budget_of_their_own() -> None:
    budgets = {Failure.HANG: Budget(max_restarts=1, max_seconds=LONG_S)}
    flaky = worker("a", hang_deadline_s=0.5, budgets=budgets, breaker=breaker(100))
    with running(pool("crowd", flaky, max_restarts=0)) as system:
        for _ in range(3):
            system.await_new("a", system.kill("a"))
        system.await_new("a", system.kill("a", signal.SIGSTOP))
        system.kill("a", signal.SIGSTOP)
        await_state(system, "a", ActorState.QUARANTINED)
        last = reports.read(system.system.run_dir, "crowd")[-1]
        assert last.context == "child_quarantined"
        assert "over 1 failures of kind 'hang'" in last.reason


def test_work_that_overruns_its_deadline_has_a_budget_of_its_own() -> None:
    budgets = {Failure.OVERDUE: Budget(max_restarts=1, max_seconds=LONG_S)}
    with running(pool("crowd", worker("a", budgets=budgets, breaker=breaker(100)))) as system:
        for how in ("overrun", "raise", "raise"):
            old = system.row("a")
            system.probe.tell("a", Misbehave(how=how))
            system.await_new("a", old)
        system.probe.tell("a", Misbehave(how="overrun"))
        await_state(system, "a", ActorState.QUARANTINED)
        last = reports.read(system.system.run_dir, "crowd")[-1]
        assert "WorkOverdue: the work 'slow work' is not done after 0.1 s" in last.reason
        assert "over 1 failures of kind 'overdue'" in last.reason


def test_in_an_outage_one_child_is_tried_and_its_first_use_brings_the_others_back() -> None:
    names = ("a", "b", "c")
    children = [worker(name, breaker=breaker(5), backoff=Backoff(initial_s=1.0)) for name in names]
    flags = SupervisorFlags(ordered=False, max_failing=0.5)
    with running(supervisor_spec("crowd", flags, tuple(children))) as system:
        killed = {name: system.kill(name) for name in names}
        eventually(lambda: "outage" in contexts(system), "an outage is reported", system.explain)
        (canary,) = (one.offender.id for one in told(system) if one.context == "outage")
        system.await_new(canary, killed[canary])
        others = [name for name in names if name != canary]
        assert not any(system.is_up(name) for name in others), "they wait for the one that is tried"
        system.probe.tell(canary, Misbehave(how="use"))
        for name in others:
            system.await_new(name, killed[name])
        assert contexts(system)[-1] == "outage_over"


def told(system: Running) -> tuple[reports.SupervisorReport, ...]:
    return reports.read(system.system.run_dir, "crowd")


def contexts(system: Running) -> list[str]:
    return [one.context for one in told(system)]


def test_a_retiring_child_still_answers_what_it_was_asked_before() -> None:
    spec = worker("a", retirement=Retirement(max_uses=1))
    with running(pool("crowd", spec)) as system:
        old = system.row("a")
        slow = system.probe.actor.ask("a", Echo(text="slow"), deadline_s=20.0)
        system.probe.tell("a", Misbehave(how="use"))
        new = system.await_new("a", old)
        assert system.probe.result(slow) == Echo(text="slow")
        assert new.incarnation == old.incarnation + 1
        assert "retired after 1 uses" in new.last_reason


@pytest.mark.long
def test_a_supervisor_lists_more_children_than_one_message_holds() -> None:
    broken = tuple(ChildSpec(id=f"vm-{n}", actor="nowhere:Nobody", backoff=LONG) for n in range(160))
    with running(pool("crowd", worker("good"), *broken, max_restarts=1000)) as system:
        first = system.probe.ask("crowd", WhichChildren())
        rest = system.probe.ask("crowd", WhichChildren(offset=len(first.children)))
        listed = [info.id for answer in (first, rest) for info in answer.children]
        assert first.total == 161
        assert listed == [*(f"vm-{n}" for n in reversed(range(160))), "good"]


def test_of_two_supervisors_told_to_start_one_name_at_once_one_does() -> None:
    with running(dynamic_supervisor_spec("left"), dynamic_supervisor_spec("right")) as system:
        for number in range(10):
            call = start_child(worker(f"x-{number}"))
            asked = [system.probe.actor.ask(name, call, deadline_s=PATIENCE_S) for name in ("left", "right")]
            answers = [system.probe.result(completion) for completion in asked]
            assert sorted(answer.ok for answer in answers) == [False, True], answers


def test_a_deadline_that_is_lowered_live_kills_nobody_healthy() -> None:
    with running(worker("a", hang_deadline_s=10.0)) as system:
        old = system.row("a")
        assert system.probe.ask("root", UpdateChild(id="a", changes={"hang_deadline_s": 0.5})).ok
        time.sleep(2.0)  # four deadlines, and less than the time between two beats
        assert system.row("a").incarnation == old.incarnation
        system.probe.tell("a", Misbehave(how="loop"))
        assert "hung: in Misbehave" in system.await_new("a", old).last_reason


def test_changes_that_are_no_changes_are_refused_and_harm_nobody() -> None:
    with running(worker("a")) as system:
        for changes in (
            {"backoff": {1: 2}},
            {"backoff": {"factor": 1e300}},
            {"breaker": 3},
            {"restart": "often"},
        ):
            answer = system.probe.ask("root", UpdateChild(id="a", changes=changes))
            assert not answer.ok
            assert answer.reason
        assert system.row("root").incarnation == 1


def test_a_dynamic_supervisor_starts_whom_it_is_told_and_says_why_not() -> None:
    with running(dynamic_supervisor_spec("sessions", max_children=2)) as system:
        answers = [system.probe.ask("sessions", start_child(worker(name))) for name in ("x", "y", "z", "x")]
        assert [(answer.ok, answer.reason) for answer in answers] == [
            (True, ""),
            (True, ""),
            (False, "max_children"),
            (False, "already_started"),
        ]
        assert [child.id for child in system.probe.ask("sessions", WhichChildren()).children] == ["y", "x"]
        assert system.probe.ask("sessions", TerminateChild(id="x")) == Managed(ok=True)
        assert system.probe.ask("sessions", start_child(worker("z"))).ok
        broken = ChildSpec(id="w", actor="nowhere:Nobody")
        system.probe.ask("sessions", TerminateChild(id="y"))
        answer = system.probe.ask("sessions", start_child(broken))
        assert not answer.ok
        assert "No module named 'nowhere'" in answer.reason


def test_a_name_is_given_once_in_the_whole_tree() -> None:
    with running(worker("a"), dynamic_supervisor_spec("sessions")) as system:
        answer = system.probe.ask("sessions", start_child(worker("a")))
        assert not answer.ok
        assert answer.reason.startswith("already_started: the name 'a' belongs to a child of 'root'")


def test_a_wrong_key_of_a_change_is_named() -> None:
    with running(worker("a", hang_deadline_s=LONG_S)) as system:
        wrong = system.probe.ask("root", UpdateChild(id="a", changes={"hang_deadline": 1.0}))
        assert wrong == Managed(
            ok=False,
            reason="'hang_deadline' is no field of ChildSpec; did you mean 'hang_deadline_s'?",
        )


def test_a_report_keeps_what_a_post_mortem_needs() -> None:
    with running(pool("crowd", worker("a"), max_restarts=0)) as system:
        old = system.row("a")
        upper = system.row("crowd")
        system.probe.tell("a", Misbehave(how="raise"))
        system.await_new("crowd", upper)
        death, end = reports.read(system.system.run_dir, "crowd")[:2]
        assert (death.context, death.supervisor) == ("child_terminated", "crowd")
        assert (death.offender.id, death.offender.pid) == ("a", old.pid)
        assert (death.exit_code, death.signal) == (70, None)
        assert death.last_words[-1] == "ZeroDivisionError: asked to"
        assert '"event": "actor_crashed"' in death.log_lines[-1]
        assert end.context == "shutdown"
        above = reports.read(system.system.run_dir, "root")[-1]
        assert above.offender.id == "crowd"
        assert above.chain[0] == end.reason


def test_a_dynamic_supervisor_may_have_more_children_in_its_life_than_the_board_has_rows() -> None:
    with running(dynamic_supervisor_spec("sessions", max_children=1)) as system:
        board = system.system.board
        taken = len(board.rows())
        for number in range(taken, SLOTS):  # sessions of earlier
            slot = board.claim(f"old-{number}", "sessions")
            board.set_state(slot, ActorState.FREE, incarnation=3, ended_incarnation=3)
        for number in range(3):
            spec = worker(f"session-{number}")
            assert system.probe.ask("sessions", start_child(spec)) == Managed(ok=True, incarnation=4)
            assert system.probe.ask(f"session-{number}", Who()).incarnation == 4
            assert system.probe.ask("sessions", TerminateChild(id=f"session-{number}")).ok
