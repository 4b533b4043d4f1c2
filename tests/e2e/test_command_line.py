"""The command line from outside: what it prints where, and with which code it ends."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from dart import __version__
from dart.rundir import claimed

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A folder that looks like a checkpoint until it is loaded."""
    folder = tmp_path / "policy"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    save_file({"weight": np.zeros(1, np.float32)}, folder / "model.safetensors")
    return folder


def dartrl(*arguments: str | Path, cwd: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "120", "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-m", "dart", *map(str, arguments)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_help_lists_every_command() -> None:
    ended = dartrl("--help")

    assert ended.returncode == 0
    for command in ("train", "eval", "pretrain", "status", "tree", "config"):
        assert f"│ {command} " in ended.stdout


@pytest.mark.parametrize(
    "command", ["train", "eval", "pretrain", "status", "tree", "config check", "config show"]
)
def test_every_command_explains_itself_with_examples(command: str) -> None:
    ended = dartrl(*command.split(), "--help")

    assert ended.returncode == 0
    assert f"• dartrl {command}" in ended.stdout


def test_the_version_is_that_of_the_package() -> None:
    assert dartrl("--version").stdout == f"dartrl {__version__}\n"


def test_an_unknown_command_is_wrong_usage() -> None:
    assert dartrl("trian").returncode == 2


def test_the_shipped_configurations_are_good() -> None:
    ended = dartrl("config", "check", "configs/laptop.toml", "configs/smoke.toml")

    assert (ended.returncode, ended.stdout) == (0, "configs/laptop.toml, configs/smoke.toml: good\n")


def test_every_problem_of_every_file_is_on_stderr_with_code_78(tmp_path: Path) -> None:
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    first.write_text("[training]\nclip_epsilon = 0.2\nlr = 0")
    second.write_text("[runs]\n")

    ended = dartrl("config", "check", first, second)

    assert ended.returncode == 78
    assert ended.stdout == ""
    assert ended.stderr.splitlines() == [
        f"error: {first}: training.lr must be greater than 0, got 0 (default 0.0003; Learning rate of AdamW)",
        f"error: {first}: training.clip_epsilon is not a key; "
        "did you mean training.clip_low or training.clip_high?",
        f"error: {second}: runs is not a key; did you mean run?",
    ]


def test_the_shown_configuration_is_toml_with_origins() -> None:
    ended = dartrl("config", "show", "configs/smoke.toml", "--set", "training.lr=1e-5")

    shown = tomllib.loads(ended.stdout)
    assert shown["training"]["lr"] == 1e-5
    assert "lr = 1e-05  # --set\n" in ended.stdout
    assert "count = 2  # configs/smoke.toml\n" in ended.stdout


def test_a_run_without_browser_and_policy_names_both_with_code_69(tmp_path: Path) -> None:
    missing = ("--set", "environments.executable=/no/browser", "--set", "training.policy=/no/policy")

    ended = dartrl("train", "--run-dir", tmp_path / "run", *missing)

    assert ended.returncode == 69
    assert "no browser at /no/browser" in ended.stderr
    assert "no policy checkpoint in /no/policy" in ended.stderr
    assert not (tmp_path / "run").exists()


def test_a_directory_that_holds_a_run_ends_with_73_and_both_ways_out(tmp_path: Path, policy: Path) -> None:
    run = tmp_path / "run"
    with claimed(run, resume=False, config_toml="# the first"):
        pass

    ended = dartrl("train", "--run-dir", run, "--set", f"training.policy={policy}")

    assert ended.returncode == 73
    assert "holds a run already" in ended.stderr
    assert "--resume" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert (run / "config.toml").read_text() == "# the first"


def test_a_directory_in_use_ends_with_73_and_names_the_process(tmp_path: Path, policy: Path) -> None:
    run = tmp_path / "run"
    with claimed(run, resume=False, config_toml=""):
        ended = dartrl("train", "--resume", "--run-dir", run, "--set", f"training.policy={policy}")

    assert ended.returncode == 73
    assert f"taken by process {os.getpid()}" in ended.stderr


def test_status_and_tree_without_any_run_end_with_3(tmp_path: Path) -> None:
    for command in ("status", "tree"):
        ended = dartrl(command, cwd=tmp_path)

        assert ended.returncode == 3
        assert "there is no run in runs/" in ended.stderr


def test_status_of_a_run_that_shows_nothing_yet_ends_with_4(tmp_path: Path) -> None:
    with claimed(tmp_path / "run", resume=False, config_toml=""):
        ended = dartrl("status", "--run-dir", tmp_path / "run")

    assert ended.returncode == 4
    assert "ask again in a moment" in ended.stderr


def test_status_of_a_run_that_ended_before_it_began_ends_with_3(tmp_path: Path) -> None:
    with claimed(tmp_path / "run", resume=False, config_toml=""):
        pass

    ended = dartrl("status", "--run-dir", tmp_path / "run", "--json")

    assert (ended.returncode, ended.stdout) == (3, "")


def test_a_foreign_supervision_package_stops_every_command_with_78(tmp_path: Path) -> None:
    (tmp_path / "supervision").mkdir()
    (tmp_path / "supervision" / "__init__.py").write_text("")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from dart.cli.main import main; main()"

    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 78
    assert "pip uninstall supervision" in ended.stderr


def test_pretraining_does_not_overwrite_a_checkpoint(policy: Path) -> None:
    ended = dartrl("pretrain", "--out", policy)

    assert ended.returncode == 73
    assert json.loads((policy / "config.json").read_text()) == {}
