"""`dartrl init` writes a project to start from, and overwrites nothing."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dart.cli.main import app
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


def test_a_file_is_no_folder_for_a_project(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")

    assert run(tmp_path / "file")[0] == 73
    assert run(tmp_path / "file" / "below")[0] == 73
