"""`dartrl explore`: what it says at its end, and which run it continues."""

import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dart.cli.main import app
from dart.cli.train import training_config
from dart.config.config import Config, load_config
from dart.core.run_directory import RunPaths
from dart.preflight import requirements
from dart.run import exploration
from dart.run.exploration import ExplorationProgress, ExplorationResult

pytestmark = pytest.mark.slow

DONE = ExplorationProgress(
    task_id="sites/shop/explore", actions=9, most_actions=9, screens=4, shapes=3, open_screens=1, edges=5
)


def explored(monkeypatch: pytest.MonkeyPatch, refused: int = 0) -> list[Config]:
    """The configurations of the explorations that follow; none is made.

    refused   how many contexts engines refuse
    """
    asked: list[Config] = []

    def explore(config: Config, **_: Any) -> ExplorationResult:
        asked.append(config)
        return ExplorationResult(progress=(DONE,), stopped_by=0, contexts_refused=refused)

    monkeypatch.setattr(exploration, "explore", explore)
    monkeypatch.setattr(requirements, "require_installation", lambda *_, **__: None)
    return asked


@pytest.mark.parametrize("refused", [0, 3])
def test_the_number_of_refused_contexts_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    asked = explored(monkeypatch, refused)
    keys = ("--set", "exploration.prior=model", "--set", "exploration.prior_context_bytes=2000")
    result = CliRunner().invoke(app, ["explore", "sites/shop", "--run-dir", str(tmp_path / "run"), *keys])

    told = " ".join(result.output.split())
    assert result.exit_code == 0, told
    assert asked[0].exploration.prior_context_bytes == 2000
    assert "4 screens of 3 shapes" in told
    assert (f"refused the text of exploration.prior_context_bytes {refused} times" in told) == bool(refused)


def test_a_limit_above_the_largest_one_and_a_misspelled_key_are_refused(tmp_path: Path) -> None:
    for words, problem in (
        ("exploration.prior_context_bytes=9000", "8192"),
        ("exploration.prior_contxt_bytes=400", "did you mean exploration.prior_context_bytes"),
    ):
        place = ("--run-dir", str(tmp_path / "run"))
        result = CliRunner().invoke(app, ["explore", "sites/shop", *place, "--set", words])
        assert result.exit_code == 78
        assert problem in " ".join(result.stderr.split())


def a_run(root: Path, *actors: str, began_s: float, actions: int = 50) -> RunPaths:
    """Leave the files of a run that explored `sites/mail` and was moved afterwards.

    actors   names of the actors that have a log
    """
    paths = RunPaths(root)
    paths.logs.mkdir(parents=True)
    keys = ("environments.kind='sites'", "tasks.train=['sites/mail/explore']", "run.dir='elsewhere'")
    settings = (*keys, "exploration.tasks=['sites/mail/explore']", f"exploration.actions={actions}")
    paths.config.write_text(load_config(None, settings).to_toml())
    for actor in actors:
        (paths.logs / f"{actor}.jsonl").touch()
    paths.lock.touch()
    os.utime(paths.lock, (began_s, began_s))
    return paths


@pytest.mark.parametrize(
    ("words", "folder", "actions"),
    [
        (("--run-dir", "runs/old"), "runs/old", 20),
        (("sites/mail",), "runs/explore-sites-mail", 30),
        ((), "runs/moved", 40),
    ],
    ids=["the named one", "that of the site", "the newest"],
)
def test_an_exploration_continues_in_its_directory_with_its_own_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], folder: str, actions: int
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = explored(monkeypatch)
    a_run(Path("runs/old"), "exploration", began_s=1.0, actions=20)
    a_run(Path("runs/explore-sites-mail"), "exploration", began_s=2.0, actions=30)
    a_run(Path("runs/moved"), "exploration", began_s=3.0, actions=40)
    a_run(Path("runs/trained"), "curator", "exploration", began_s=4.0)
    a_run(Path("runs/aligned"), began_s=5.0)

    ran = CliRunner().invoke(app, ["explore", "--resume", *words])

    assert ran.exit_code == 0, ran.output
    (config,) = asked
    assert (str(config.run.dir), config.exploration.actions) == (folder, actions)


def test_a_run_that_plays_tasks_is_not_continued_as_an_exploration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = explored(monkeypatch)
    a_run(Path("runs/trained"), "curator", began_s=1.0)

    named = CliRunner().invoke(app, ["explore", "--resume", "--run-dir", "runs/trained"])
    newest = CliRunner().invoke(app, ["explore", "--resume"])
    missing = CliRunner().invoke(app, ["explore", "sites/shop", "--resume"])

    assert (named.exit_code, newest.exit_code, missing.exit_code, asked) == (2, 3, 73, [])
    assert "is not an exploration: it plays tasks; continue it with `dartrl up" in named.output
    assert "there is no exploration in runs/" in newest.output
    assert "runs/explore-sites-shop holds no run to resume" in missing.output


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize(
    "words", [("up",), ("up", "--detach"), ("up", "--dry-run"), ("train", "--resume")], ids=" ".join
)
def test_an_exploration_is_not_continued_as_a_run_that_plays_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    a_run(Path("runs/explored"), "exploration", began_s=1.0)

    named = CliRunner().invoke(app, [*words, "--run-dir", "runs/explored"])
    newest = CliRunner().invoke(app, [*words])

    assert (named.exit_code, newest.exit_code) == (73, 3)
    assert "is an exploration; continue it with `dartrl explore --resume --run-dir" in named.output
    assert "no run in runs/ but explorations and evaluations, which `dartrl explore` and" in newest.output


def test_the_newest_run_to_continue_is_no_exploration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    a_run(Path("runs/old"), "curator", began_s=1.0)
    a_run(Path("runs/trained"), "curator", "exploration", began_s=2.0)
    a_run(Path("runs/explored"), "exploration", began_s=3.0)

    continued = training_config(None, (), None, resume=True)

    assert continued.run.dir == Path("runs/trained")


def test_a_file_says_where_its_exploration_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = explored(monkeypatch)
    paths = a_run(Path("elsewhere"), "exploration", began_s=1.0)
    a_run(Path("runs/newer"), "exploration", began_s=2.0)

    ran = CliRunner().invoke(app, ["explore", "--resume", "-c", str(paths.config)])

    assert ran.exit_code == 0, ran.output
    assert [config.run.dir for config in asked] == [Path("elsewhere")]
