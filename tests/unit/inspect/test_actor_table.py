"""Actors as the board, the kernel and the reports show them."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.board import LAUNCHER, ActorState, Board
from actors.process import parse_stat, start_ticks
from dart.core.errors import ConfigurationError, NotRunningError, UsageError
from dart.core.run_directory import RunPaths
from dart.inspect import actor_table
from dart.inspect.processes import ProcessState, parse, process_at
from dart.inspect.snapshot import ActorRow
from supervision import reports
from supervision.reports import Offender, SupervisorReport

NOW_S = 1000.0
WINDOWS = {"root": 120.0, "environment_pool": 60.0}


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    opened = Board.create(tmp_path / "board")
    yield opened
    opened.close()


def show(board: Board, name: str, parent: str, state: ActorState, **fields: object) -> None:
    board.set_state(board.claim(name, parent), state, **{"ready": 1, "beat_ns": board.now_ns(), **fields})


def rows(board: Board, run_dir: Path) -> dict[str, ActorRow]:
    return {row.name: row for row in actor_table.actor_rows(run_dir, board.rows(), WINDOWS, NOW_S)}


def failed(run_dir: Path, child: str, unix_s: float, context: str = "child_terminated") -> None:
    report = SupervisorReport(
        unix_s=unix_s,
        supervisor="environment_pool",
        context=context,
        reason="SIGKILL",
        offender=Offender(id=child),
    )
    reports.append(run_dir, report)


def test_an_actor_that_never_beat_has_no_last_beat_and_is_not_silent(board: Board, tmp_path: Path) -> None:
    show(board, "env-000", "environment_pool", ActorState.BACKOFF, beat_ns=0)

    row = rows(board, tmp_path)["env-000"]

    assert (row.beat_age_s, row.is_silent) == (None, False)


def test_a_continued_run_counts_no_failure_of_its_earlier_starts(board: Board, tmp_path: Path) -> None:
    show(board, "root", LAUNCHER, ActorState.RUNNING, started_unix_s=980.0)
    show(board, "env-000", "environment_pool", ActorState.RUNNING, restarts=1)
    for unix_s in (950.0, 960.0, 990.0):
        failed(tmp_path, "env-000", unix_s)

    row = rows(board, tmp_path)["env-000"]

    assert (row.restarts_in_window, row.restarts) == (1, 1)


def test_restarts_are_counted_in_the_window_of_the_budget_and_in_all(board: Board, tmp_path: Path) -> None:
    show(board, "env-000", "environment_pool", ActorState.RUNNING, restarts=7)
    for unix_s in (100.0, 930.0, 941.0, 999.0):
        failed(tmp_path, "env-000", unix_s)
    failed(tmp_path, "env-000", 999.5, "retired")
    failed(tmp_path, "env-001", 999.5)

    row = rows(board, tmp_path)["env-000"]

    assert (row.restarts_in_window, row.window_s, row.restarts) == (2, 60.0, 7)


def test_what_waits_says_until_when_and_has_no_age(board: Board, tmp_path: Path) -> None:
    show(
        board,
        "env-000",
        "environment_pool",
        ActorState.BACKOFF,
        retry_unix_s=NOW_S + 12,
        started_unix_s=NOW_S - 50,
    )
    show(board, "env-001", "environment_pool", ActorState.RUNNING, started_unix_s=NOW_S - 50)

    found = rows(board, tmp_path)

    assert (found["env-000"].retry_in_s, found["env-000"].age_s) == (12.0, None)
    assert (found["env-001"].retry_in_s, found["env-001"].age_s) == (None, 50.0)


def test_an_actor_held_back_by_an_outage_has_no_time_of_its_next_start(board: Board, tmp_path: Path) -> None:
    show(board, "env-000", "environment_pool", ActorState.QUARANTINED, retry_unix_s=0.0)

    assert rows(board, tmp_path)["env-000"].retry_in_s is None


def test_an_actor_without_a_process_does_nothing(board: Board, tmp_path: Path) -> None:
    """The board keeps the moment at which the last handler of an actor began."""
    since = {"handler": "step", "busy_since_ns": 1, "work": "load", "work_since_ns": 1}
    dead = {"pid": os.getpid(), "pid_start_ticks": 1}
    show(board, "env-000", "environment_pool", ActorState.STOPPED, **since)
    show(board, "env-001", "environment_pool", ActorState.RUNNING, **since, **dead)
    show(board, "env-002", "environment_pool", ActorState.RUNNING, **since)

    found = rows(board, tmp_path)

    for name in ("env-000", "env-001"):
        row = found[name]
        assert (row.busy_s, row.handler, row.work_s, row.work) == (0.0, "", 0.0, "")
    assert found["env-002"].busy_s > 0
    assert found["env-002"].handler == "step"


def test_a_process_that_is_gone_is_told_before_its_supervisor_knows(board: Board, tmp_path: Path) -> None:
    own = {"pid": os.getpid(), "pid_start_ticks": start_ticks(os.getpid())}
    show(board, "env-000", "environment_pool", ActorState.RUNNING, **own)
    show(board, "env-001", "environment_pool", ActorState.RUNNING, pid=os.getpid(), pid_start_ticks=1)

    found = rows(board, tmp_path)

    assert (found["env-000"].process, found["env-000"].is_well) == ("alive", True)
    assert found["env-000"].rss_bytes > 1_000_000
    assert (found["env-001"].process, found["env-001"].is_well) == ("gone", False)


def test_an_actor_of_another_machine_is_not_looked_for_here(board: Board, tmp_path: Path) -> None:
    show(board, "env-000", "environment_pool", ActorState.RUNNING, pid=1, pid_start_ticks=7, route=3)

    assert rows(board, tmp_path)["env-000"].is_well


STAT = "7 (a) (b) {} 1 7 7 0 -1 0 0 0 0 0 {} {} 0 0 20 0 1 0 {} 0 {} 0"


@pytest.mark.parametrize(
    ("letter", "state"),
    [("S", "alive"), ("R", "alive"), ("t", "alive"), ("T", "suspended"), ("Z", "gone"), ("X", "gone")],
)
def test_the_kernel_says_what_a_process_does(letter: str, state: str) -> None:
    assert parse(parse_stat(STAT.format(letter, 0, 0, 99, 5).encode()), 99).state == state


def test_memory_and_processor_time_are_in_bytes_and_seconds() -> None:
    found = parse(parse_stat(STAT.format("R", 250, 50, 99, 5).encode()), 99)

    assert found.rss_bytes == 5 * os.sysconf("SC_PAGE_SIZE")
    assert found.cpu_s == 300 / os.sysconf("SC_CLK_TCK")


def test_a_number_that_was_given_out_again_is_not_the_process() -> None:
    assert parse(parse_stat(STAT.format("R", 0, 0, 99, 5).encode()), 98).state is ProcessState.GONE
    assert process_at(2**22 + 1, 0).state is ProcessState.GONE


def test_everybody_below_a_supervisor_is_found_and_nobody_else(board: Board, tmp_path: Path) -> None:
    for name, parent in (
        ("root", "launcher"),
        ("environment_pool", "root"),
        ("env-000", "environment_pool"),
        ("store", "root"),
    ):
        show(board, name, parent, ActorState.RUNNING)
    found = list(rows(board, tmp_path).values())

    assert [row.name for row in actor_table.under(found, "environment_pool")] == [
        "environment_pool",
        "env-000",
    ]
    assert len(actor_table.under(found, "root")) == 4
    assert [row.name for row in actor_table.under(found, "store")] == ["store"]


def test_the_unwell_are_a_state_of_their_own_and_no_other_word_is(board: Board, tmp_path: Path) -> None:
    show(board, "env-000", "environment_pool", ActorState.RUNNING)
    show(board, "env-001", "environment_pool", ActorState.RUNNING, ready=0)
    show(board, "env-002", "environment_pool", ActorState.BACKOFF)
    found = list(rows(board, tmp_path).values())

    assert [row.name for row in actor_table.in_state(found, "unwell")] == ["env-001", "env-002"]
    assert [row.name for row in actor_table.in_state(found, "running")] == ["env-000", "env-001"]
    with pytest.raises(UsageError, match="there is no state 'well'; the states are starting, running"):
        actor_table.in_state(found, "well")


def test_an_unknown_actor_is_told_what_looks_like_it(board: Board, tmp_path: Path) -> None:
    show(board, "env-000", "environment_pool", ActorState.RUNNING)

    with pytest.raises(UsageError, match=r"no actor 'env-00'; did you mean env-000\?"):
        actor_table.find_actor("env-00", list(rows(board, tmp_path).values()))


def test_a_run_that_never_had_actors_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotRunningError, match="has no board of its actors"):
        actor_table.read_actors(tmp_path)


@pytest.mark.parametrize("left", [b"[run", b"\xff"], ids=["no TOML", "no text"])
def test_a_damaged_configuration_is_named_with_the_remedy(tmp_path: Path, left: bytes) -> None:
    paths = RunPaths(tmp_path)
    paths.config.write_bytes(left)
    Board.create(paths.board).close()

    with pytest.raises(ConfigurationError, match=r"config\.toml is damaged: .*; restore it from a copy"):
        actor_table.read_actors(tmp_path)


# ---- of which start of the run a board is ----

EARLIER_TICKS = 1
"""A start time at which no process of this test started."""


def started(paths: RunPaths, launcher: tuple[int, int] | None, root_ticks: int | None = None) -> None:
    """Leave the files of a start: the board, and processes.json while its actors are up."""
    board = Board.create(paths.board)
    show(board, "root", "launcher", ActorState.RUNNING, pid_start_ticks=root_ticks or 0)
    board.close()
    if launcher is not None:
        (paths.root / "processes.json").write_text(json.dumps({"launcher": launcher}))


OWN = os.getpid()


def test_a_clock_that_was_set_back_during_the_start_hides_no_board(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    started(paths, (OWN, start_ticks(OWN)))
    paths.lock.write_text(f"{OWN}\n")
    os.utime(paths.lock, (4e9, 4e9))
    assert not actor_table.is_of_earlier_part(paths, OWN)


@pytest.mark.parametrize(
    "launcher", [(OWN + 1, start_ticks(OWN)), (OWN, EARLIER_TICKS)], ids=["another pid", "the same pid again"]
)
def test_a_board_whose_launcher_is_not_the_holder_of_the_lock_is_of_an_earlier_start(
    tmp_path: Path, launcher: tuple[int, int]
) -> None:
    started(RunPaths(tmp_path), launcher)
    assert actor_table.is_of_earlier_part(RunPaths(tmp_path), OWN)


def test_while_no_actors_are_up_a_board_is_of_this_start_if_its_root_began_after_the_holder(
    tmp_path: Path,
) -> None:
    paths = RunPaths(tmp_path)
    started(paths, None, root_ticks=start_ticks(OWN) + 1)
    assert not actor_table.is_of_earlier_part(paths, OWN), "the run is ending"
    started(paths, None, root_ticks=EARLIER_TICKS)
    assert actor_table.is_of_earlier_part(paths, OWN), "the run is starting"
    assert actor_table.is_of_earlier_part(paths, 0), "the process that starts it has not written its pid"


def test_a_run_that_has_ended_and_a_directory_without_a_board_have_no_earlier_board(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    assert not actor_table.is_of_earlier_part(paths, OWN)
    started(paths, (OWN + 1, EARLIER_TICKS))
    assert not actor_table.is_of_earlier_part(paths, None)


def test_in_a_mirror_the_start_times_of_processes_of_this_machine_count_for_nothing(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    paths.mirror_of.write_text("postgresql://dartrl@db.example/run")
    started(paths, (OWN, EARLIER_TICKS))
    assert not actor_table.is_of_earlier_part(paths, OWN)
    assert actor_table.is_of_earlier_part(paths, OWN + 1)
