"""What Tab offers: names of the run, at once or not at all."""

from pathlib import Path
from threading import Event

import typer

from actors.board import ActorState, Board
from dart.cli.options import offer, offer_actors, offer_tasks


def context(run_dir: Path) -> typer.Context:
    made = typer.Context(typer.main.get_command(typer.Typer(callback=lambda: None)))
    made.params["run_dir"] = run_dir
    return made


def test_actors_and_tasks_of_the_run_are_offered(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[tasks]\ntrain = ["miniwob/click-tab", "miniwob/enter-text"]\n')
    board = Board.create(tmp_path / "board")
    for name in ("root", "env-000", "env-001"):
        board.set_state(board.claim(name, "root"), ActorState.RUNNING)
    board.close()

    assert offer_actors(context(tmp_path), "env-") == ["env-000", "env-001"]
    assert offer_tasks(context(tmp_path), "miniwob/c") == ["miniwob/click-tab"]


def test_without_a_run_nothing_is_offered_and_nothing_is_said(tmp_path: Path) -> None:
    assert offer_actors(context(tmp_path / "nowhere"), "") == []
    assert offer_tasks(context(tmp_path / "nowhere"), "") == []


def test_names_that_do_not_come_in_time_are_not_waited_for() -> None:
    never = Event()

    assert offer("", lambda: ["late"] if never.wait(60.0) else [], limit_s=0.01) == []
    never.set()
