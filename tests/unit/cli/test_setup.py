"""`dartrl setup` installs what is missing, or only says it."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dart.cli.main import app
from dart.preflight import installer, requirements
from dart.preflight.installer import Command


def run(*arguments: str) -> tuple[int, str]:
    ended = CliRunner().invoke(app, ["setup", *arguments])
    return ended.exit_code, ended.output


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """One thing is missing; the commands that were run to install it."""
    commands: list[Sequence[str]] = []

    def install(command: Command, **_: object) -> None:
        commands.append(command)

    monkeypatch.setattr(installer, "missing_installations", lambda _: [("bring", "it")])
    monkeypatch.setattr(installer, "install", install)
    return commands


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the end nothing is missing."""
    for check in ("missing_packages", "missing_browser"):
        monkeypatch.setattr(requirements, check, lambda _: iter(()))


@pytest.mark.usefixtures("complete")
def test_what_is_missing_is_installed(ran: list[Sequence[str]]) -> None:
    assert run() == (0, "nothing is missing\n")
    assert ran == [("bring", "it")]


@pytest.mark.usefixtures("complete")
def test_a_check_installs_nothing(ran: list[Sequence[str]]) -> None:
    assert run("--check") == (0, "nothing is missing\n")
    assert ran == []


@pytest.mark.usefixtures("ran")
def test_what_is_missing_in_the_end_is_said_with_its_remedy(tmp_path: Path) -> None:
    code, output = run("--check", "--set", f"environments.executable={tmp_path / 'none'}")

    assert code == 69
    assert f"error: {tmp_path / 'none'} is not a Chromium that starts: no such program; install" in output
