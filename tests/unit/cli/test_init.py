"""`dartrl init` writes a project to start from, and overwrites nothing."""

import errno
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click.testing
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from dart.cli.main import app
from dart.config.bundled import bundled_names
from dart.config.config import differences, load_config


def run(*arguments: str | Path) -> tuple[int, str]:
    ended = CliRunner().invoke(app, ["init", *map(str, arguments)])
    return ended.exit_code, ended.output


def test_a_new_project_is_the_laptop_job_with_its_comments(tmp_path: Path) -> None:
    code, output = run(tmp_path / "mine")

    assert (code, output.split()[-1]) == (0, str(tmp_path / "mine" / "README.md"))
    written = tmp_path / "mine" / "train.toml"
    assert list(differences(load_config(Path("laptop")), load_config(written))) == []
    assert "# held out: never trained on" in written.read_text()
    readme = (tmp_path / "mine" / "README.md").read_text()
    assert readme.startswith("# mine\n")
    assert "dartrl train train.toml" in readme


def test_a_project_begins_with_the_configuration_that_is_named(tmp_path: Path) -> None:
    assert run(tmp_path, "--from", "desktop")[0] == 0

    assert load_config(tmp_path / "train.toml").environments.kind == "desktop"


def test_an_unknown_template_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    code, output = run(tmp_path, "--from", "desktpo")

    assert code == 2
    assert "did you mean desktop?" in output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("there", ["train.toml", "README.md"])
def test_nothing_is_overwritten(tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("mine")

    code, output = run(tmp_path)

    assert code == 73
    assert f"{there} exists already; name another folder" in output
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(there, "mine")]


@pytest.mark.parametrize("refused", ["train.toml", "README.md"])
def test_a_full_disk_leaves_no_file_that_would_pass_for_a_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    opened = Path.open

    @contextmanager
    def on_full_disk(path: Path, *words: Any, **options: Any) -> Iterator[Any]:
        with opened(path, *words, **options) as file:
            yield file
            if path == tmp_path / refused:  # at the close, when the text is written
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full_disk:
        full_disk.setattr(Path, "open", on_full_disk)
        code, output = run(tmp_path)

    assert (code, list(tmp_path.iterdir())) == (74, [])
    assert f"No space left on device at {tmp_path}" in output
    assert run(tmp_path)[0] == 0


def test_a_file_is_no_folder_for_a_project(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")

    assert run(tmp_path / "file")[0] == 73
    assert run(tmp_path / "file" / "below")[0] == 73


def test_a_folder_that_the_system_cannot_make_is_refused_with_the_reason() -> None:
    code, output = run("/proc/foo")

    assert (code, output) == (73, "error: No such file or directory: /proc/foo; name another folder\n")


@pytest.mark.parametrize("template", ["cluster", "osworld-uitars-7b-two-nodes"])
def test_the_readme_of_a_cluster_file_has_the_commands_that_take_it(tmp_path: Path, template: str) -> None:
    assert run(tmp_path, "--from", template)[0] == 0

    readme = (tmp_path / "README.md").read_text()
    assert "dartrl up train.toml --dry-run" in readme
    assert "dartrl train" not in readme
    assert "dartrl setup" not in readme
    checked = CliRunner().invoke(app, ["config", "check", str(tmp_path / "train.toml")])
    assert (checked.exit_code, checked.output) == (0, f"{tmp_path / 'train.toml'}: valid\n")


@pytest.mark.parametrize(
    ("template", "setup"),
    [
        ("laptop", "install the browser and the pages of the tasks, once"),
        ("sites", "install the browser, once"),
        ("osworld-uitars-7b", "say what is missing, and the remedy"),
        ("desktop", "say what is missing, and the remedy"),
    ],
)
def test_the_readme_says_what_setup_does_for_these_environments(
    tmp_path: Path, template: str, setup: str
) -> None:
    assert run(tmp_path, "--from", template)[0] == 0

    assert f"dartrl setup train.toml      # {setup}\n" in (tmp_path / "README.md").read_text()


def parsed(words: list[str]) -> dict[str, Any]:
    """The values that a command of dartrl gets for a command line; the command does nothing."""
    program: Any = get_command(app)
    command, given = program, {}
    for word in words:
        command = getattr(command, "commands", {}).get(word, command)
    command.callback = lambda **values: given.update(values)
    ended = click.testing.CliRunner().invoke(program, words)
    assert ended.exit_code == 0, ended.output
    return given


@pytest.mark.parametrize("template", bundled_names())
def test_a_project_can_begin_with_every_bundled_configuration_and_its_readme_has_a_command_that_takes_it(
    tmp_path: Path, template: str
) -> None:
    assert run(tmp_path, "--from", template)[0] == 0

    readme = (tmp_path / "README.md").read_text()
    lines = [
        shlex.split(line, comments=True) for line in readme.splitlines() if line.startswith("    dartrl ")
    ]
    given = {words[1]: parsed(words[1:]) for words in lines}
    cluster = {"cluster": "up", "osworld-uitars-7b-two-nodes": "up"}
    other = {"explore": "explore", "align": "align", "grounding": "ground", **cluster}.get(template, "train")
    assert given[other]["config"] == Path("train.toml")
    assert given.keys() & {"explore", "align", "ground", "up", "train"} == {other}
