"""What the error of a run says whose tree ended before its work was done."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from actors.board import ActorState, Board
from dart.config.config import load_config
from dart.core.errors import (
    ConfigurationError,
    DiskError,
    RunDirectoryError,
    TemporaryError,
    UnavailableError,
)
from dart.core.run_directory import RunPaths
from dart.policy.load import CheckpointError
from dart.policy.protocols import UnsupportedCheckpoint
from dart.run import app, evaluation
from supervision.reports import Offender, SupervisorReport, append

WHOLE = "/models/x has no image processor that can be used: it is not there; restore it"
CUT = "gave up: child 'rollout-0' failed once more (exit code 70: a.{}: /models/x has no"
UNUSABLE = ("UnsupportedCheckpoint", "CheckpointError")


def died(run_dir: Path, reason: str, context: str = "child_terminated") -> None:
    offender = Offender(id="rollout-0", incarnation=1, pid=7)
    append(
        run_dir,
        SupervisorReport(
            unix_s=1.0, supervisor="rollout_pool", context=context, reason=reason, offender=offender
        ),
    )


@pytest.mark.parametrize("kind", UNUSABLE)
def test_a_checkpoint_that_engines_cannot_load_is_named_in_full_and_is_no_temporary_error(
    tmp_path: Path, kind: str
) -> None:
    died(tmp_path, f"exit code 70: dart.policy.protocols.{kind}: {WHOLE}")
    died(tmp_path, "signal 9")
    died(tmp_path, f"once more (exit code 70: {kind}: {WHOLE}): over 1 restarts", "shutdown")

    with pytest.raises(UnavailableError) as error:
        app.refuse_early_end(CUT.format(kind), RunPaths(tmp_path), app.CONTINUE)

    assert str(error.value) == WHOLE


def test_a_wrong_configuration_that_an_actor_found_is_no_temporary_error(tmp_path: Path) -> None:
    whole = "task.py:make cannot be imported: No module named 'lib'"
    died(tmp_path, f"exit code 70: dart.core.errors.ConfigurationError: {whole}")
    cut = (
        "gave up: child 'env-0' failed once more (exit code 70: dart.core.errors.ConfigurationError: task.py"
    )

    with pytest.raises(ConfigurationError) as error:
        app.refuse_early_end(cut, RunPaths(tmp_path), app.CONTINUE)
    with pytest.raises(ConfigurationError, match=r"^task\.py$"):
        app.refuse_early_end(cut, RunPaths(tmp_path / "without reports"), app.CONTINUE)

    assert str(error.value) == whole


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    opened = Board.create(tmp_path / "board")
    yield opened
    opened.close()


def ended(board: Board, name: str, state: ActorState, reason: str = "") -> None:
    board.set_state(board.claim(name, "environment_pool"), state, last_reason=reason)


WRONG = "exit code 70: dart.core.errors.ConfigurationError: task.py:make cannot be imp"
ENVIRONMENTS = "env-000", "env-001"


def test_a_run_ends_at_once_when_each_environment_ended_because_the_configuration_is_wrong(
    board: Board, tmp_path: Path
) -> None:
    whole = "task.py:make cannot be imported: No module named 'lib'"
    ended(board, "env-000", ActorState.BACKOFF, WRONG)
    ended(board, "env-001", ActorState.STARTING, WRONG)

    with pytest.raises(ConfigurationError, match=r"^task\.py:make cannot be imp$"):
        app.refuse_wrong_configuration(board.rows(), ENVIRONMENTS, RunPaths(tmp_path))
    died(tmp_path, f"exit code 70: dart.core.errors.ConfigurationError: {whole}")
    with pytest.raises(ConfigurationError) as error:
        app.refuse_wrong_configuration(board.rows(), ENVIRONMENTS, RunPaths(tmp_path))

    assert str(error.value) == whole


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (ActorState.RUNNING, WRONG),  # it has come back since
        (ActorState.STOPPED, WRONG),  # it came back, and the run ends
        (ActorState.STARTING, ""),  # for the first time
        (ActorState.BACKOFF, "exit code 70: builtins.OSError: the disk is full"),
        (None, ""),  # it is not started yet
    ],
)
def test_a_run_goes_on_while_one_environment_may_have_a_right_configuration(
    board: Board, tmp_path: Path, state: ActorState | None, reason: str
) -> None:
    ended(board, "env-000", ActorState.BACKOFF, WRONG)
    if state is not None:
        ended(board, "env-001", state, reason)

    app.refuse_wrong_configuration(board.rows(), ENVIRONMENTS, RunPaths(tmp_path))


def test_without_its_report_the_verdict_itself_is_said(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="/models/x has no"):
        app.refuse_early_end(CUT.format(UNUSABLE[0]), RunPaths(tmp_path), app.CONTINUE)


@pytest.mark.parametrize(
    ("verdict", "error"),
    [
        ("", TemporaryError),
        ("gave up: child 'curator' failed once more", TemporaryError),
        ("gave up: StoreUnavailable: the disk is full", DiskError),
        ("gave up: BlobsUnavailable: the credentials are refused", DiskError),
        ("gave up: CheckpointNotWritten: checkpoint v000001 could not be written", DiskError),
        ("gave up: CorruptCheckpoint: checkpoint v000001: model.safetensors is corrupt", DiskError),
        ("gave up: OSError: [Errno 5] Input/output error", DiskError),
    ],
)
def test_the_error_of_a_run_that_can_go_on_ends_with_the_remedy(
    tmp_path: Path, verdict: str, error: type[Exception]
) -> None:
    with pytest.raises(error, match=r"; do this$"):
        app.refuse_early_end(verdict, RunPaths(tmp_path), "do this")


def test_the_names_of_unusable_checkpoints_are_those_of_their_errors() -> None:
    assert (UnsupportedCheckpoint.__name__, CheckpointError.__name__) == app.UNUSABLE


def test_a_record_that_another_run_has_taken_over_is_not_continued(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"^gave up: StoreTakenOver$"):
        app.refuse_early_end("gave up: StoreTakenOver", RunPaths(tmp_path), "do this")


def test_an_evaluation_without_a_directory_is_not_continued_after_a_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def train(*_: Any, remedy: str, **__: Any) -> NoReturn:
        raise TemporaryError(f"gave up; {remedy}")

    monkeypatch.setattr(evaluation, "train", train)
    config = load_config()

    with pytest.raises(TemporaryError) as lost:
        evaluation.evaluate(config, tmp_path)
    with pytest.raises(TemporaryError, match="continue with --resume"):
        evaluation.measure(evaluation.measuring(config, tmp_path, tmp_path / "run"))
    assert "--resume" not in str(lost.value)
    assert "--run-dir DIR" in str(lost.value)
