"""No process to be had, or no room on the board: a start that failed, and no end of the supervisor."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from actors.board import SLOTS, ActorState
from actors.errors import ChildNotStarted
from actors.process import start_ticks
from supervision import child_processes
from supervision.messages import DeleteChild, RestartChild, TerminateChild, start_child
from tests.conformance.world import BenchWorld, Ping, below, child


@pytest.fixture
def world(tmp_path: Path) -> Iterator[BenchWorld]:
    world = BenchWorld(tmp_path)
    yield world
    world.close()


def fail_next(world: BenchWorld, times: int) -> None:
    """The root's next forks fail."""
    runtime = world.bench.runtimes["root"]
    spawn: Callable[[Mapping[str, Any]], Any] = runtime.spawn
    left = [times]

    def spawn_or_not(boot: Mapping[str, Any]) -> Any:
        if left[0]:
            left[0] -= 1
            raise ChildNotStarted("no process could be forked")
        return spawn(boot)

    runtime.spawn = spawn_or_not  # type: ignore[method-assign]


def test_a_restart_for_which_no_process_is_to_be_had_is_tried_again(world: BenchWorld) -> None:
    world.grow(child("a"), child("b"))
    fail_next(world, 2)
    world.end_and_await_next("a", "kill")
    assert world.lives("a", "b") == (4, 1)
    assert world.call(Ping(), "a") == Ping()
    reasons = [why for _, why in world.reported("child_terminated")]
    assert reasons == ["SIGKILL", *["could not be started: no process could be forked"] * 2]


def test_a_start_that_is_asked_for_and_gets_no_process_is_an_error(world: BenchWorld) -> None:
    world.grow(child("a"))
    fail_next(world, 1)
    refused = world.call(start_child(child("b")))
    assert (refused.ok, refused.reason) == (False, "could not be started: no process could be forked")
    assert list(world.which()) == ["a"]


def test_a_process_that_cannot_be_watched_does_not_run_on_beside_the_next_one(
    world: BenchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.grow(child("a"))
    failures = [OSError(12, "Cannot allocate memory")]

    def start_ticks_or_not(pid: int) -> int:
        if failures:
            raise failures.pop()
        return start_ticks(pid)

    monkeypatch.setattr(child_processes, "start_ticks", start_ticks_or_not)
    world.end_and_await_next("a", "kill")
    spawned = world.bench.runtimes["root"].spawned
    assert [process.was_killed for process in spawned] == [False, True, False]
    assert world.lives("a") == (3,)
    assert [why for _, why in world.reported("child_terminated")] == [
        "SIGKILL",
        "could not be started: [Errno 12] Cannot allocate memory",
    ]


def test_starts_without_a_process_fill_no_board(world: BenchWorld) -> None:
    world.grow(child("a"))
    fail_next(world, SLOTS)
    for number in range(SLOTS):
        refused = world.call(start_child(child(f"b-{number}")))
        assert refused.reason == "could not be started: no process could be forked"
    assert world.call(start_child(child("c"))).ok


def test_a_start_without_a_process_gives_no_number_of_its_row_away_again(world: BenchWorld) -> None:
    world.grow(child("a"))
    board = world.bench.board
    for number in range(SLOTS - len(board.rows())):
        slot = board.claim(f"other-{number}", "test")
    board.set_state(slot, ActorState.FREE, incarnation=57, ended_incarnation=57)
    fail_next(world, 1)
    assert not world.call(start_child(child("b"))).ok
    started = world.call(start_child(child("c")))
    assert started.ok
    assert started.incarnation > 57
    assert board.find("c") == slot, "the board has no other row"


def test_a_board_that_is_full_is_an_error_for_whoever_asks_for_one_more(world: BenchWorld) -> None:
    world.grow(child("a"))
    for number in range(SLOTS - len(world.bench.board.rows())):
        world.bench.board.claim(f"other-{number}", "test")
    refused = world.call(start_child(child("b")))
    assert f"the board holds {SLOTS} actors and is full" in refused.reason
    world.end_and_await_next("a", "kill")


def test_the_name_of_an_actor_that_lives_on_another_host_is_not_taken_from_it(world: BenchWorld) -> None:
    world.grow(child("a"))
    board = world.bench.board
    slot = board.claim("b", "machine-elsewhere")
    board.set_state(slot, ActorState.RUNNING, incarnation=7, route=1)
    refused = world.call(start_child(child("b")))
    assert not refused.ok
    assert "already_started: the name 'b' belongs to a child of 'machine-elsewhere'" in refused.reason
    board.set_state(slot, ActorState.STOPPED)
    assert world.call(start_child(child("b"))).incarnation == 8, "its host was lost"


def take_over(world: BenchWorld, **left: Any) -> None:
    """Two supervisors, `left` and `right`; `x` is terminated under the one and started under the other."""
    world.grow(below("left", child("x"), child("y"), **left), below("right"))
    assert world.call(TerminateChild(id="x"), "left").ok
    assert world.call(start_child(child("x")), "right").ok


def test_a_name_that_another_supervisor_has_now_costs_the_first_one_nothing(world: BenchWorld) -> None:
    take_over(world)
    world.end_and_await_next("y", "kill")
    assert world.lives("left", "right", "x") == (1, 1, 2)
    assert world.row("x").parent == "right"
    assert world.is_up("x")
    assert world.which("left")["x"].state == "undefined"


def test_a_supervisor_that_forgets_a_name_leaves_the_row_of_the_one_that_has_it(world: BenchWorld) -> None:
    take_over(world)
    assert world.call(DeleteChild(id="x"), "left").ok
    assert world.call(Ping(), "x") == Ping()
    assert world.is_up("x")


def test_a_name_is_started_again_only_where_it_runs(world: BenchWorld) -> None:
    take_over(world)
    refused = world.call(RestartChild(id="x"), "left")
    assert not refused.ok
    assert "already_started: the name 'x' belongs to a child of 'right'" in refused.reason
    assert world.call(TerminateChild(id="x"), "right").ok
    assert world.call(RestartChild(id="x"), "left").incarnation == 3, "no two processes share a number"
    refused = world.call(RestartChild(id="x"), "right")
    assert "already_started: the name 'x' belongs to a child of 'left'" in refused.reason
    assert world.is_up("x")


def test_a_restarted_supervisor_does_not_take_a_name_from_another(world: BenchWorld) -> None:
    take_over(world, ordered=False)
    world.kill("left")
    world.until(lambda: bool(world.reported("child_terminated", "left")), "left has tried to start x")
    _, why = world.reported("child_terminated", "left")[0]
    assert why.startswith("could not be started: already_started: the name 'x' belongs to a child of 'right'")
    assert world.lives("x", "left", "right") == (2, 2, 1)
    assert world.call(Ping(), "x") == Ping()
