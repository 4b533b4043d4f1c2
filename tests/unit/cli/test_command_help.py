"""Every command explains itself."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from dart.cli.main import app
from dart.cli.output import Format


def commands(command: Any, path: str = "dartrl") -> Iterator[tuple[str, Any]]:
    """Every command with what is typed to get at it."""
    if hasattr(command, "commands"):
        for name, below in command.commands.items():
            yield from commands(below, f"{path} {name}")
    else:
        yield path, command


ALL = dict(commands(typer.main.get_command(app)))

LISTS = [path for path in ALL if path.endswith((" list", " versions", " events"))]


@pytest.mark.parametrize("path", ALL)
def test_a_command_has_examples_of_itself_and_help_for_every_option(path: str) -> None:
    command = ALL[path]

    assert f"* `{path}" in command.help
    for param in command.params:
        assert getattr(param, "help", "") or param.name == "help", param.name


@pytest.mark.parametrize("path", LISTS)
def test_a_list_can_be_had_in_every_format(path: str) -> None:
    output = next(param for param in ALL[path].params if param.name == "output")

    assert output.opts == ["--output", "-o"]
    assert output.default is Format.TABLE
