"""What makes sense to be done to an actor, judged by the board."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from actors.board import LAUNCHER, ActorState, Board, Vitals
from dart.core.errors import NotRunningError
from dart.core.run_directory import claimed
from dart.run.actor_conditions import (
    Quarantined,
    condition,
    known,
    quarantined,
    why_not_restart,
    why_not_stop,
)

PARENTS = {
    "root": LAUNCHER,
    "curator": "root",
    "environment_pool": "root",
    "env-000": "environment_pool",
    "env-001": "environment_pool",
    "control": "",
}

ON_A_CLUSTER = {
    "root": LAUNCHER,
    "store": "root",
    "machine-a": "root",
    **dict.fromkeys(("hosts", "placed", "host", "bridge"), "machine-a"),
    "environment_pool-0": "placed",
    "env-000": "environment_pool-0",
    "machine-b": "hosts",
    "host@b": "machine-b",
    "rollout_pool-0": "machine-b",
    "rollout-0": "rollout_pool-0",
}


def rows_below(parents: Mapping[str, str], tmp_path: Path) -> list[Vitals]:
    board = Board.create(tmp_path / "board")
    for name, parent in parents.items():
        board.set_state(board.claim(name, parent), ActorState.RUNNING, ready=1)
    found = board.rows()
    board.close()
    return found


@pytest.fixture
def rows(tmp_path: Path) -> list[Vitals]:
    return rows_below(PARENTS, tmp_path)


@pytest.fixture
def actors(rows: list[Vitals]) -> dict[str, Vitals]:
    return known(rows)


def test_clients_and_forgotten_children_are_no_actors(rows: list[Vitals]) -> None:
    forgotten = [replace(row, state=ActorState.FREE) if row.name == "env-000" else row for row in rows]

    assert set(known(forgotten)) == {"root", "curator", "environment_pool", "env-001"}


@pytest.mark.parametrize(
    ("name", "restart", "stop"),
    [
        ("env-000", "", ""),
        ("curator", "", "cannot go on without curator"),
        ("environment_pool", "", "cannot go on without environment_pool"),
        ("root", "root of the tree", "root of the tree"),
        ("env-00", "no actor 'env-00'; did you mean", "no actor 'env-00'; did you mean"),
        ("control", "no actor 'control'", "no actor 'control'"),
    ],
)
def test_what_can_be_restarted_and_what_can_be_stopped(
    actors: dict[str, Vitals], name: str, restart: str, stop: str
) -> None:
    for reason, told in ((why_not_restart(name, actors), restart), (why_not_stop(name, actors), stop)):
        assert told in reason
        assert bool(told) == bool(reason)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("environment_pool-0", "the actors below it, such as env-000"),
        ("rollout_pool-0", "the actors below it, such as rollout-0"),
        ("placed", "`dartrl actors restart machine-a`"),
        ("hosts", "`dartrl actors restart machine-a`"),
        ("bridge", "`dartrl actors restart machine-a`"),
        ("machine-b", "`ray stop`"),
        ("host@b", "`ray stop`"),
    ],
)
def test_what_the_nodes_of_a_cluster_carry_is_not_managed_alone(
    tmp_path: Path, name: str, remedy: str
) -> None:
    actors = known(rows_below(ON_A_CLUSTER, tmp_path))
    for reason in (why_not_restart(name, actors), why_not_stop(name, actors)):
        assert reason.startswith(f"{name} ")
        assert remedy in reason


@pytest.mark.parametrize("name", ["env-000", "rollout-0", "machine-a", "store"])
def test_actors_of_every_node_can_be_restarted(tmp_path: Path, name: str) -> None:
    assert why_not_restart(name, known(rows_below(ON_A_CLUSTER, tmp_path))) == ""


def test_the_condition_of_an_actor_names_what_it_hangs_in(actors: dict[str, Vitals]) -> None:
    stuck = replace(actors["env-000"], handler="Generate", busy_s=32.0, beat_age_s=32.0)

    assert condition("env-000", {"env-000": stuck}) == (
        "env-000 is running, in Generate for 32.0 s, without a sign of life for 32.0 s"
    )
    assert condition("env-009", {}) == "env-009 does not exist"


@pytest.mark.parametrize("supervisor", ["environment_pool", "root"])
def test_the_condition_of_a_supervisor_names_the_actors_below_it_that_start_or_stop(
    actors: dict[str, Vitals], supervisor: str
) -> None:
    beside = {"curator": replace(actors["curator"], state=ActorState.STOPPING, parent="another")}
    changing = actors | beside | {"env-001": replace(actors["env-001"], state=ActorState.STARTING)}
    assert condition(supervisor, changing) == f"{supervisor} is running; env-001 is starting"


def test_an_actor_that_is_stopping_is_silent_too_and_one_that_is_down_is_not(
    actors: dict[str, Vitals],
) -> None:
    for state, silent in (
        (ActorState.STOPPING, ", without a sign of life for 32.0 s"),
        (ActorState.BACKOFF, ""),
    ):
        row = replace(actors["env-000"], state=state, beat_age_s=32.0)
        assert condition("env-000", {"env-000": row}) == f"env-000 is {state}{silent}"


def test_actors_in_quarantine_are_those_of_a_run_that_runs(tmp_path: Path) -> None:
    with pytest.raises(NotRunningError):
        quarantined(tmp_path)
    with claimed(tmp_path / "run", resume=False, config_toml="") as directory:
        with pytest.raises(NotRunningError, match="is not running, so no actor is in quarantine"):
            quarantined(directory.paths.root)
        board = Board.create(directory.paths.board)
        for name, retry_unix_s in (("env-001", 0.0), ("env-000", 5.0), ("env-002", 7.0)):
            state = ActorState.RUNNING if name == "env-002" else ActorState.QUARANTINED
            fields = {"restarts": 3, "last_reason": "signal 9", "retry_unix_s": retry_unix_s}
            board.set_state(board.claim(name, "environment_pool"), state, **fields)
        board.close()
        found = quarantined(directory.paths.root)
    expected = Quarantined(name="env-000", retry_unix_s=5.0, restarts=3, last_reason="signal 9")
    assert found == (expected, replace(expected, name="env-001", retry_unix_s=None))
    with pytest.raises(NotRunningError, match="is not running, so no actor is in quarantine"):
        quarantined(tmp_path / "run")


def test_of_many_actors_that_start_the_condition_names_the_first_ones(actors: dict[str, Vitals]) -> None:
    start = {f"env-{n:03d}": replace(actors["env-000"], state=ActorState.STARTING) for n in range(5)}
    assert condition("environment_pool", actors | start) == (
        "environment_pool is running; env-000 is starting; env-001 is starting; env-002 is starting; "
        "2 others start or stop"
    )
