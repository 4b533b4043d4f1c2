"""The verifier as a process: an evaluation starts it, and goes on when it is killed."""

import os
import signal
from pathlib import Path

import pytest

from dart.config.sections import EvaluationSettings, GroundingSettings
from dart.core.screenspot import GroundingDataError, read_screenspot
from dart.grounding.jobs import ask_verifier, evaluate_job, train_job, train_verifier_job
from dart.grounding.verifier_actor import NAME, VerifierActor
from supervision import supervised, worker
from tests.unit.grounding.samples import data_set

pytestmark = pytest.mark.slow

STOP_AT = 0.01
"""Any score is good enough."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set, a model and a verifier."""
    folder = tmp_path_factory.mktemp("verifier")
    settings = GroundingSettings(data=(data_set(folder / "data"),), updates=1, batch=2)
    train_job(settings, folder / "model", lambda line: None)
    train_verifier_job(settings, folder / "verifier", lambda line: None)
    return folder


def test_an_evaluation_runs_its_verifier_under_a_supervisor(folder: Path) -> None:
    settings = EvaluationSettings(verifier=str(folder / "verifier"), verifier_stop_at=STOP_AT)

    report = evaluate_job(folder / "model", folder / "data", settings)

    assert report.verifier == str(folder / "verifier")
    assert report.candidates_per_query == 1.0


def test_a_verifier_that_is_killed_comes_back_and_is_asked_again(folder: Path) -> None:
    child = worker(NAME, VerifierActor, {"checkpoint": str(folder / "verifier")})
    sample = read_screenspot(folder / "data")[0]
    with supervised(child, start_deadline_s=300.0) as system:
        before = ask_verifier(system, sample, [(0.2, 0.4), (0.7, 0.4)], STOP_AT)
        killed = system.vitals(NAME).pid
        os.kill(killed, signal.SIGKILL)
        after = ask_verifier(system, sample, [(0.2, 0.4), (0.7, 0.4)], STOP_AT)

        assert system.vitals(NAME).pid != killed
    assert after == before


def test_a_screenshot_that_it_cannot_read_is_the_evaluations_error(folder: Path, tmp_path: Path) -> None:
    child = worker(NAME, VerifierActor, {"checkpoint": str(folder / "verifier")})
    data_set(tmp_path)
    sample = read_screenspot(tmp_path)[0]
    sample.image.write_text("no image")
    with (
        supervised(child, start_deadline_s=300.0) as system,
        pytest.raises(GroundingDataError, match="cannot be decoded"),
    ):
        ask_verifier(system, sample, [(0.5, 0.5)], STOP_AT)
