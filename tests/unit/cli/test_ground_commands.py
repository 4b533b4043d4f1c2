"""`dartrl ground`: its results for people and programs, and its errors with their exit codes."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dart.cli.main import app
from dart.config.sections import GroundingSettings
from tests.unit.grounding.samples import data_set

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from dart.grounding.jobs import train_job

    folder = tmp_path_factory.mktemp("ground")
    settings = GroundingSettings(data=(data_set(folder / "data"),), updates=1, batch=2)
    train_job(settings, folder / "checkpoint", lambda line: None)
    return folder / "checkpoint"


def run(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["ground", *words])
    return result.exit_code, result.stdout, result.stderr


def test_a_measurement_is_a_table_with_the_prompt_below(checkpoint: Path) -> None:
    code, out, _ = run("eval", str(checkpoint), str(checkpoint.parent / "data"))

    assert code == 0
    assert "accuracy" in out
    assert "any of 3" in out
    assert "prompt '<image> {instruction} <step_0> <answer> <click> <pointer>'" in out


def test_json_has_every_figure_and_what_is_needed_to_measure_again(checkpoint: Path) -> None:
    code, out, _ = run("eval", str(checkpoint), str(checkpoint.parent / "data"), "--zoom", "-o", "json")
    report = json.loads(out)

    assert code == 0
    assert report["rows"][0]["samples"] == 3
    assert (report["head"], report["is_zoomed"], report["screen_sizes_px"]) == ("pointer", True, ["160x210"])


@pytest.mark.parametrize(
    ("option", "made"),
    [((), "the head pointer"), (("--verifier",), "a verifier")],
    ids=["policy", "verifier"],
)
def test_training_writes_a_checkpoint_and_never_over_another(
    checkpoint: Path, tmp_path: Path, option: tuple[str, ...], made: str
) -> None:
    data = f'grounding.data=["{checkpoint.parent / "data"}"]'
    words = (*option, "--set", data, "--set", "grounding.updates=1", "--set", "grounding.batch=2")
    code, out, _ = run("train", *words, "--out", str(tmp_path / "out"))
    lines = out.splitlines()
    assert (code, lines[0], lines[-1]) == (0, f"training {made} on 3 samples", f"wrote {tmp_path / 'out'}")
    assert (tmp_path / "out" / "model.safetensors").exists()

    code, _, err = run("train", *words, "--out", str(tmp_path / "out"))
    assert code == 73
    assert "exists already" in err


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (("eval", "{checkpoint}", "{gone}"), 69, "has no annotations"),
        (("eval", "{gone}", "{data}"), 69, "expected a policy checkpoint"),
        (("train", "--out", "{gone}"), 78, "grounding.data is empty"),
        (
            ("eval", "{checkpoint}", "{data}", "--zoom", "--set", "evaluation.verifier=v"),
            2,
            "exclude each other",
        ),
    ],
)
def test_what_is_wrong_is_one_message_and_a_code(
    checkpoint: Path, tmp_path: Path, words: tuple[str, ...], code: int, problem: str
) -> None:
    places = {"checkpoint": checkpoint, "gone": tmp_path / "gone", "data": checkpoint.parent / "data"}
    found, _, err = run(*(word.format(**places) if word.startswith("{") else word for word in words))

    assert found == code
    assert problem in err
    assert "Traceback" not in err
