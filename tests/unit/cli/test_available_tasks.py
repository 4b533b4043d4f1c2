"""`dartrl tasks available` lists the tasks that a configuration can train on."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dart.cli.main import app
from dart.environments.miniwob import own_pages

OWN_PAGES = Path(__file__).resolve().parents[3] / "examples" / "own_pages"


def available(*words: str) -> Any:
    ran = CliRunner().invoke(app, ["tasks", "available", *words, "--json"])
    assert ran.exit_code == 0, ran.output
    return {one["task_id"]: one["is_chosen"] for one in json.loads(ran.stdout)}


def test_all_installed_pages_are_listed_and_the_chosen_ones_are_marked() -> None:
    tasks = available("demo")

    assert len(tasks) == 130
    assert [task for task, is_chosen in tasks.items() if is_chosen] == ["miniwob/click-dialog"]


def test_pages_of_ones_own_are_listed() -> None:
    assert "miniwob/shop" in available("--set", f"environments.miniwob.pages={OWN_PAGES}")


def test_tasks_of_another_kind_are_listed_whatever_is_chosen() -> None:
    assert "sites/mail/easy" in available("--set", "environments.kind=sites")


def test_a_kind_whose_tasks_cannot_be_listed_says_so() -> None:
    ran = CliRunner().invoke(app, ["tasks", "available", "--set", "environments.kind=simulated"])

    assert (ran.exit_code, "no tasks of kind 'simulated' can be listed here" in ran.output) == (0, True)


def test_the_command_that_installs_the_pages_of_a_configuration_can_be_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_pages, "tasks_of", lambda _: ())
    file = tmp_path / "my run.toml"
    file.write_text("")
    ran = CliRunner().invoke(app, ["tasks", "available", str(file)])

    assert f"`dartrl setup '{file}'`" in ran.output
