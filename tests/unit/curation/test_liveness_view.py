"""What the curator reads from the board: of environments only the one that is asked for."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.board import ActorState, Board
from dart.curation.liveness_view import SERVED_LOOK_S, LivenessView
from dart.telemetry.board_gauges import Gauge
from dart.telemetry.liveness import ACTOR_SILENT_S, ENGINE_SILENT_S

LEASE_S = 60.0


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    board = Board.create(tmp_path / "board", slots=16)
    for name, parent in (
        ("environment_pool", "root"),
        ("env-000", "environment_pool"),
        ("rollout-0", "root"),
    ):
        run(board, name, parent)
    yield board
    board.close()


@pytest.fixture
def view(board: Board, tmp_path: Path) -> LivenessView:
    return LivenessView(board, ["rollout-0"], tmp_path, LEASE_S)


def run(board: Board, name: str, parent: str) -> None:
    slot = board.claim(name, parent)
    board.set_state(slot, ActorState.RUNNING, started_unix_s=float(slot + 1), ready=1, beat_ns=board.now_ns())


def beat(board: Board, name: str, age_s: float) -> None:
    slot = board.find(name)
    assert slot is not None
    board.set(slot, beat_ns=board.now_ns() - int(age_s * 1e9))


def test_who_lives_and_since_when_is_read_when_it_is_asked_for(board: Board, view: LivenessView) -> None:
    liveness = view.refresh(0.0)
    run(board, "env-001", "environment_pool")

    assert (liveness.alive_since("env-000"), liveness.supervised_since("env-000")) == (2.0, 1.0)
    assert (liveness.alive_since("env-001"), liveness.supervised_since("env-001")) == (4.0, 1.0)
    assert (liveness.alive_since("env-002"), liveness.supervised_since("env-002")) == (None, None)


def test_no_look_reads_all_rows(board: Board, view: LivenessView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "rows", lambda: pytest.fail("all rows were read"))

    assert view.refresh(0.0).alive_since("env-000") == 2.0
    assert view.oldest_served(0.0) == 0


def test_a_silent_environment_does_not_live_unless_it_asks_for_work(board: Board, view: LivenessView) -> None:
    beat(board, "env-000", ACTOR_SILENT_S + 1.0)
    liveness = view.refresh(0.0)
    assert liveness.alive_since("env-000") is None

    view.asks("env-000")
    assert liveness.alive_since("env-000") == 2.0
    assert view.refresh(1.0).alive_since("env-000") is None, "that was long ago"


def test_after_a_time_without_an_engine_one_must_answer_for_a_lease(board: Board, view: LivenessView) -> None:
    assert view.refresh(0.0).engines_answer
    beat(board, "rollout-0", ENGINE_SILENT_S + 1.0)
    assert not view.refresh(10.0).engines_answer
    beat(board, "rollout-0", 0.0)
    assert not view.refresh(10.0 + LEASE_S / 2).engines_answer
    assert view.refresh(10.0 + LEASE_S).engines_answer


def test_the_served_versions_are_looked_at_again_after_a_moment(board: Board, view: LivenessView) -> None:
    assert view.oldest_served(0.0) == 0
    slot = board.find("rollout-0")
    assert slot is not None
    board.set_gauges(slot, {Gauge.SERVED_VERSION: 3})

    assert view.oldest_served(SERVED_LOOK_S / 2) == 0
    assert view.oldest_served(SERVED_LOOK_S) == 3


def test_a_wait_of_the_store_spares_running_environments_only(board: Board, view: LivenessView) -> None:
    run(board, "store", "root")
    for name, waited_unix_s in (("store", 70), ("env-000", 60)):
        slot = board.find(name)
        assert slot is not None
        board.set_gauges(slot, {Gauge.WAITED_UNIX_S: waited_unix_s})
    assert view.refresh(0.0).waited_unix_s("env-000") == 70

    slot = board.find("env-000")
    assert slot is not None
    board.set_state(slot, ActorState.STOPPED)
    assert view.waited_unix_s("env-000") == 0
