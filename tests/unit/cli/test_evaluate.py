"""`dartrl eval`: what it refuses before it starts."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dart.cli.main import app
from dart.cli.train import training_config
from dart.config.config import Config, load_config
from dart.core.run_directory import RunPaths
from dart.inspect.report import RunReport, SuccessReport
from dart.preflight import requirements
from dart.run import evaluation

MISSING = (requirements.missing_policy,)


@pytest.fixture(autouse=True)
def only_the_policy_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a browser is installed does not matter here."""
    monkeypatch.setattr(requirements.require_installation, "__defaults__", (MISSING,))


def test_a_checkpoint_that_does_not_exist_is_named_again_as_the_argument(tmp_path: Path) -> None:
    ended = CliRunner().invoke(app, ["eval", str(tmp_path / "nothing")])

    assert ended.exit_code == 69
    assert f"no policy checkpoint in {tmp_path / 'nothing'}: name another one as CHECKPOINT;" in ended.output
    assert "training.policy" not in ended.output


def test_a_damaged_checkpoint_is_named_again_as_the_argument(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[]")
    (tmp_path / "model.safetensors").touch()

    ended = CliRunner().invoke(app, ["eval", str(tmp_path)])

    assert ended.exit_code == 69
    assert "config.json holds no JSON object; name another one as CHECKPOINT;" in ended.output


def test_the_directory_of_a_run_is_answered_with_the_checkpoint_of_its_newest_version(tmp_path: Path) -> None:
    for version in ("v000007", "v000012"):
        (tmp_path / "checkpoints" / version).mkdir(parents=True)

    ended = CliRunner().invoke(app, ["eval", str(tmp_path)])

    assert ended.exit_code == 69
    newest = tmp_path / "checkpoints" / "v000012"
    assert f"is the directory of a run and no checkpoint: name its newest version, {newest}" in ended.output


def a_training_run(root: Path) -> RunPaths:
    paths = RunPaths(root)
    root.mkdir()
    paths.config.write_text(load_config(None, ["tasks.train=['miniwob/enter-text']"]).to_toml())
    paths.report.write_text("{}")
    return paths


@pytest.mark.parametrize("versions", [[], ["v000007", "v000012"]])
def test_a_run_that_trains_is_not_continued_as_an_evaluation_and_the_command_named_instead_measures_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, versions: list[str]
) -> None:
    paths = a_training_run(tmp_path / "run")
    for version in versions:
        (paths.checkpoints / version).mkdir(parents=True)
    kept = paths.config.read_text()
    words = ["eval", "--resume", "--run-dir", str(paths.root)]

    refused = CliRunner().invoke(app, [*words, "--set", "training.learner=none"])

    assert refused.exit_code == 2, refused.output
    assert "is not an evaluation: its training.learner is 'grpo', expected 'none'" in refused.output
    assert (paths.config.read_text(), paths.report.read_text()) == (kept, "{}")

    asked: list[tuple[Config, Path]] = []

    def measured(config: Config, checkpoint: Path, **_: Any) -> evaluation.Measurement:
        asked.append((config, checkpoint))
        return evaluation.Measurement(RunReport(SuccessReport(), SuccessReport()))

    monkeypatch.setattr(evaluation, "evaluate", measured)
    monkeypatch.setattr(requirements.require_installation, "__defaults__", ((),))
    (named,) = re.findall("`dartrl (eval .*)`", refused.output)
    ended = CliRunner().invoke(app, [*named.split(), "-o", "json"])

    assert ended.exit_code == 0, ended.output
    ((config, checkpoint),) = asked
    expected = paths.checkpoints / versions[-1] if versions else load_config(None).training.policy
    assert (config.tasks.train, checkpoint) == (("miniwob/enter-text",), expected)


def test_a_configuration_for_an_evaluation_that_continues_is_refused(tmp_path: Path) -> None:
    words = ["eval", "--resume", "--run-dir", str(tmp_path), "-c", "laptop"]

    ended = CliRunner().invoke(app, words)

    assert ended.exit_code == 2
    assert "leave out --config" in ended.output


def a_run(root: Path, learner: str, *, began_s: float) -> RunPaths:
    """Leave the lock of a run, and its configuration unless `learner` is empty."""
    paths = RunPaths(root)
    root.mkdir(parents=True)
    if learner:
        paths.config.write_text(load_config(None, [f"training.learner={learner}"]).to_toml())
    paths.lock.touch()
    os.utime(paths.lock, (began_s, began_s))
    return paths


def test_the_newest_run_to_continue_is_no_evaluation_and_no_start_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    a_run(Path("runs/trained"), "grpo", began_s=1.0)
    a_run(Path("runs/measured"), "none", began_s=2.0)
    a_run(Path("runs/failed"), "", began_s=3.0)

    continued = training_config(None, (), None, resume=True)

    assert continued.run.dir == Path("runs/trained")


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize("words", [["train", "--resume"], ["up"], ["up", "--dry-run"]], ids=" ".join)
def test_an_evaluation_is_not_continued_as_a_run_that_trains_which_would_replace_its_report(
    tmp_path: Path, words: list[str]
) -> None:
    paths = a_run(tmp_path / "run", "none", began_s=1.0)
    paths.report.write_text("{}")

    ended = CliRunner().invoke(app, [*words, "--run-dir", str(paths.root)])

    assert ended.exit_code == 73, ended.output
    assert "is an evaluation; continue it with `dartrl eval --resume --run-dir" in " ".join(
        ended.output.split()
    )
    assert paths.report.read_text() == "{}"


@pytest.mark.parametrize("words", [["train", "--resume"], ["up"], ["eval", "--resume"]], ids=" ".join)
@pytest.mark.parametrize("is_there", [False, True], ids=["missing", "never begun"])
def test_a_directory_without_a_run_is_refused_as_one_that_holds_no_run_to_resume(
    tmp_path: Path, words: list[str], is_there: bool
) -> None:
    if is_there:
        a_run(tmp_path / "run", "", began_s=1.0)

    ended = CliRunner().invoke(app, [*words, "--run-dir", str(tmp_path / "run")])

    assert ended.exit_code == 73, ended.output
    assert "holds no run to resume; start one with" in " ".join(ended.output.split())
