"""What `dartrl train --resume` and `dartrl up` say at once about the run that they continue."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from dart.cli.main import app as app_of_dartrl
from dart.core.errors import TemporaryError
from dart.core.run_directory import RunPaths
from dart.preflight import requirements
from dart.run import app
from dart.run.site import OneMachine
from dart.store.checkpoints import CheckpointState, checkpoint_name, write_checkpoint
from dart.store.reader import StoreReader
from tests.fake_pool import TOKEN, FakePool, of_osworld, remember, served
from tests.recorded_run import TASKS, record_run

STARTED = "the run was started"

TASKS_ADDED = ("miniwob/click-test",)


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunPaths:
    def train(*_: Any, **__: Any) -> None:
        raise TemporaryError(STARTED)

    monkeypatch.setattr(requirements, "require_installation", lambda *_: None)
    monkeypatch.setattr(app, "train", train)
    paths = record_run(tmp_path / "run")
    write_checkpoint(paths.checkpoints, CheckpointState(version=1, learner={}), _write_weights)
    return paths


def _write_weights(folder: Path) -> None:
    (folder / "weights").write_bytes(b"whole")


def said_by(paths: RunPaths, *words: str) -> str:
    return " ".join(ended_by(paths, *words).output.split())


def ended_by(paths: RunPaths, *words: str) -> Result:
    return CliRunner().invoke(app_of_dartrl, [*words, "--run-dir", str(paths.root)])


def report_of(paths: RunPaths, **about: object) -> None:
    paths.report.write_text(json.dumps({"completed": True, "policy_version": 1, **about}))


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize("words", [("train", "--resume"), ("up",)], ids=" ".join)
def test_a_run_that_goes_on_with_other_values_names_them_with_the_earlier_ones(
    paths: RunPaths, words: tuple[str, ...]
) -> None:
    said = said_by(paths, *words, "--set", "environments.count=3", "--set", "training.lr=0.5")

    assert "this run goes on with other values than before: " in said
    assert "environments.count (before: " in said
    assert "training.lr (before: " in said
    assert STARTED in said


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize("words", [("train", "--resume"), ("up",)], ids=" ".join)
def test_a_run_that_goes_on_with_its_own_values_says_nothing_of_them(
    paths: RunPaths, words: tuple[str, ...]
) -> None:
    said = said_by(paths, *words)

    assert "other values" not in said
    assert STARTED in said


@pytest.mark.usefixtures("hangup")
def test_many_other_values_are_counted_and_long_ones_cut(paths: RunPaths) -> None:
    tasks = f"tasks.train={json.dumps([*TASKS, *TASKS_ADDED])}"
    training = ("lr=0.5", "updates=7", "weight_decay=0.5", "groups_per_update=3")
    sets = [tasks, "run.seed=7", *(f"training.{one}" for one in training)]

    said = said_by(paths, "up", *(word for one in sets for word in ("--set", one)))

    assert "and 2 more." in said
    assert "run.seed (before: 0), " in said


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize("words", [("train", "--resume"), ("up",), ("up", "--detach")], ids=" ".join)
def test_a_run_on_a_cluster_is_not_continued_on_its_control_node_alone(
    paths: RunPaths, words: tuple[str, ...]
) -> None:
    paths.cluster.write_text("/etc/dartrl/c.toml")

    ended = ended_by(paths, *words)

    said = " ".join(ended.output.replace("error: ", "").split())
    assert ended.exit_code == 73
    assert f"continue it with `dartrl up /etc/dartrl/c.toml --run-dir {paths.root}`" in said
    assert STARTED not in said


@pytest.mark.usefixtures("hangup")
def test_a_run_file_moves_a_run_from_its_cluster_to_one_machine(paths: RunPaths) -> None:
    paths.cluster.write_text("/etc/dartrl/c.toml")

    said = said_by(paths, "up", str(paths.config), "--set", "environments.count=3")

    assert STARTED in said
    assert "To keep the values of a run, write them into the file that you start it with" in said
    OneMachine().prepare(paths)
    assert paths.up_command == f"dartrl up --run-dir {paths.root}"


@pytest.mark.parametrize("words", [("train",), ("up",), ("config", "show")], ids=" ".join)
def test_the_directory_of_a_run_in_place_of_a_configuration_is_answered_with_what_to_type(
    paths: RunPaths, words: tuple[str, ...]
) -> None:
    ended = CliRunner().invoke(app_of_dartrl, [*words, str(paths.root)])

    assert ended.exit_code == 78
    said = " ".join(ended.output.replace("error: ", "").split())
    assert (
        f"{paths.root}: is the directory of a run: to continue the run, give --run-dir {paths.root}" in said
    )
    assert f"the configuration of the run is {paths.config}" in said


NO_EVALUATION = ("--set", "evaluation.after=false")
FINISHED = ("--set", "training.updates=1", *NO_EVALUATION)
"""The recorded run has one update."""


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize(
    "words", [("train", "--resume"), ("up",), ("up", "--detach"), ("up", "--dry-run")], ids=" ".join
)
def test_a_finished_run_is_not_started_again_and_the_message_says_how_to_train_on(
    paths: RunPaths, words: tuple[str, ...]
) -> None:
    report_of(paths)

    ended = ended_by(paths, *words, *FINISHED)

    assert ended.exit_code == 0, ended.output
    assert f"the run in {paths.root} is done, and nothing was started: 1 of 1 updates. " in ended.output
    assert "add --set training.updates=N to the command" in ended.output
    assert "would continue" not in ended.output


@pytest.mark.usefixtures("hangup")
def test_a_finished_run_gives_back_the_machines_that_it_has_left(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DARTRL_POOL_TOKEN", TOKEN)
    report_of(paths)
    pool = FakePool()
    pool.running = {"left": 1}
    remember(paths.root, emulator_ids=["left"])
    with served(pool) as address:
        kept = of_osworld("provider=pool", f"pool.server={address}")
        monkeypatch.setattr("dart.run.machines.kept_config", lambda _: kept)
        looked = ended_by(paths, "up", "--dry-run", *FINISHED)
        assert (looked.exit_code, pool.running) == (0, {"left": 1}), looked.output
        ended = ended_by(paths, "up", *FINISHED)

    assert ended.exit_code == 0, ended.output
    assert "gave back 1 machine" in ended.output
    assert pool.running == {}


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize(
    ("about", "more"),
    [
        ({}, ("--set", "training.updates=2")),
        ({}, ("--set", "evaluation.after=true")),
        ({"completed": False}, ()),
        ({"policy_version": 0}, ()),
    ],
    ids=["more updates", "an evaluation is left", "it was ended or failed", "the report is older"],
)
def test_a_run_with_something_to_do_is_started(
    paths: RunPaths, about: dict[str, object], more: tuple[str, ...]
) -> None:
    report_of(paths, **about)

    assert STARTED in said_by(paths, "up", *FINISHED, *more)


def test_a_run_whose_time_is_used_up_says_so_with_every_limit_that_it_has_reached(paths: RunPaths) -> None:
    report_of(paths)

    said = said_by(paths, "train", "--resume", *FINISHED, "--set", "run.minutes=1.5")

    assert "1 of 1 updates, 1.5 of 1.5 minutes. " in said
    assert "add --set training.updates=N --set run.minutes=N to the command" in said


def test_a_run_whose_last_seconds_are_kept_free_for_a_last_update_is_finished(paths: RunPaths) -> None:
    report_of(paths)

    said = said_by(paths, "train", "--resume", *NO_EVALUATION, "--set", "run.minutes=1.75")

    assert "nothing was started: 1.5 of 1.75 minutes. To train on, add --set run.minutes=N" in said


def test_a_run_that_has_played_its_actions_is_finished_and_one_with_an_action_left_is_not(
    paths: RunPaths,
) -> None:
    report_of(paths)
    with StoreReader(paths.store) as reader:
        played = reader.totals().steps

    done, left = (
        said_by(paths, "train", "--resume", *NO_EVALUATION, "--set", f"training.actions={most}")
        for most in (played, played + 1)
    )

    assert (
        f"nothing was started: {played} of {played} actions. To train on, add --set training.actions=N"
        in done
    )
    assert STARTED in left


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff", b'{"completed": true, "policy_version": null}'])
def test_a_run_with_a_damaged_report_is_started(paths: RunPaths, content: bytes) -> None:
    paths.report.write_bytes(content)

    assert STARTED in said_by(paths, "up", *FINISHED)


def test_a_finished_run_whose_record_is_lost_is_left_to_the_start_that_says_so(paths: RunPaths) -> None:
    report_of(paths)
    paths.store.unlink()

    assert STARTED in said_by(paths, "train", "--resume", *FINISHED)


@pytest.mark.usefixtures("hangup")
def test_a_finished_run_is_started_if_its_newest_checkpoint_is_damaged(paths: RunPaths) -> None:
    report_of(paths)
    (paths.checkpoints / checkpoint_name(1) / "weights").write_bytes(b"other")

    assert STARTED in said_by(paths, "up", *FINISHED)
