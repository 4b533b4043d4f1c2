"""The pages name commands, options and configuration keys that there are."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

from dart.cli.main import app, with_name
from dart.config.config import Config, field_rows
from tests.unit.docs.pages import PAGES, backticked, name_of
from tests.unit.docs.test_links import is_defined

_COMMAND = re.compile(r"(?<![\w@/.-])(?:\.venv/bin/)?dartrl (?!\w*://)([^`\n;&|#()]+)")
_KEY = re.compile(rf"(?:{'|'.join(Config.model_fields)})(?:\.\w+)+(?<!\.py)(?<!\.json)(?<!\.token)")

OPEN_KEYS = ("supervision.children.",)
"""Sections that take names of a run."""

PLACEHOLDER = "section.key"

_SET = re.compile(rf"--set '?(?!{PLACEHOLDER})([\w.]+)=")

every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


@every_page
def test_a_command_that_a_page_shows_is_there_with_its_options(page: Path) -> None:
    code = [*fenced(page), *backticked(page)]
    lines = [found[1] for text in code for found in _COMMAND.finditer(text)]
    assert [wrong for line in lines for wrong in what_is_wrong(line)] == []


def test_a_command_and_an_option_that_are_not_there_are_found() -> None:
    assert list(what_is_wrong("stauts")) == ["dartrl stauts"]
    assert list(what_is_wrong("actors show env-003 --stack")) == ["dartrl actors show --stack"]
    assert list(what_is_wrong("up laptop --detach --set run.seed=1")) == []


@every_page
def test_a_configuration_key_that_a_page_names_is_there(page: Path) -> None:
    named = [text for text in backticked(page) if _KEY.fullmatch(text) and not is_defined(text)]
    given = _SET.findall(page.read_text(encoding="utf-8"))
    assert [key for key in [*named, *given] if not is_key(key)] == []


def fenced(page: Path) -> Iterator[str]:
    """The lines of fenced blocks, with continued lines joined."""
    for block in re.findall(
        r"^ *```\w*\n(.*?)^ *```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    ):
        yield from block.replace("\\\n", " ").splitlines()


def what_is_wrong(line: str) -> Iterator[str]:
    """Each word after `dartrl` that is no command of its group and no option of its command."""
    command, path = command_line(), "dartrl"
    for word in with_name(command, words_of(line)):
        if word.startswith("-"):
            options = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
            if word.partition("=")[0] not in options | {"--help"}:
                yield f"{path} {word}"
        elif hasattr(command, "commands"):
            if word not in command.commands:
                yield f"{path} {word}"
                return
            command, path = command.commands[word], f"{path} {word}"


@cache
def command_line() -> Any:
    return typer.main.get_command(app)


def words_of(line: str) -> list[str]:
    """Words up to the first that is a placeholder or prose; brackets of usage lines are left out."""
    try:
        words = shlex.split(re.sub(r"[\[\]…,]", " ", line))
    except ValueError:
        words = line.split()
    return [word for word in words if not word.isupper()]


def is_key(key: str) -> bool:
    return key in known_keys() or key.startswith(OPEN_KEYS)


@cache
def known_keys() -> frozenset[str]:
    """All keys, and the sections that they are in."""
    keys = [key for key, _, _ in field_rows()]
    sections = {".".join(key.split(".")[:depth]) for key in keys for depth in range(1, key.count(".") + 1)}
    return frozenset(keys) | frozenset(sections) | {"supervision.children"}
