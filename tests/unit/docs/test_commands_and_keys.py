"""The pages name commands, options and keys that there are, and show configurations that are valid."""

import re
import shlex
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

from dart.cli.main import app, with_name
from dart.config.cluster import is_cluster_file, load_cluster
from dart.config.config import Config, field_rows, load_config
from tests.unit.docs.pages import PAGES, ROOT, backticked, name_of
from tests.unit.docs.test_links import is_defined

_COMMAND = re.compile(r"(?<![\w@/.-])(?:\.venv/bin/)?dartrl (?!\w*://)([^`\n;&|#()]+)")
_KEY = re.compile(rf"(?:{'|'.join(Config.model_fields)})(?:\.\w+)+(?<!\.py)(?<!\.json)(?<!\.token)")

OPEN_KEYS = ("supervision.children.",)
"""Sections that take names of a run."""

PLACEHOLDER = "section.key"

_TOML = re.compile(r"^```toml\n(.*?)^```$", re.DOTALL | re.MULTILINE)

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
def test_a_command_in_a_block_can_be_typed_as_it_is(page: Path) -> None:
    for line in fenced(page):
        for command in _COMMAND.finditer(line):
            parse(command[1])


def test_a_command_without_its_argument_or_with_a_wrong_value_is_found() -> None:
    for line in ("why", "up --wait soon", "actors list -o yaml"):
        with pytest.raises(typer.BadParameter):
            parse(line)


@every_page
def test_a_configuration_key_that_a_page_names_is_there(page: Path) -> None:
    keys = (text.partition(" = ")[0] for text in backticked(page))
    named = [key for key in keys if _KEY.fullmatch(key) and not is_defined(key)]
    given = _SET.findall(page.read_text(encoding="utf-8"))
    assert [key for key in [*named, *given] if not is_key(key)] == []


@every_page
def test_a_configuration_that_a_page_shows_is_valid(page: Path, tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "own_environment.py", tmp_path)
    for block in _TOML.findall(page.read_text(encoding="utf-8")):
        (file := tmp_path / "shown.toml").write_text(block)
        load_cluster(file) if is_cluster_file(file) else load_config(file)


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


def parse(line: str) -> None:
    """Parse a command line, and run nothing. Raises a usage error if `dartrl` would refuse it."""
    command = command_line()
    words = with_name(command, shlex.split(line))
    while hasattr(command, "commands"):
        command, words = command.commands[words[0]], words[1:]
    command.make_context("dartrl", words)


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
