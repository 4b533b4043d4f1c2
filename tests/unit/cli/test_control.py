"""What the commands that steer a run print."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dart.cli.main import app
from dart.run.control_protocol import ControlAnswer, ControlOutcome, Request


@pytest.fixture(autouse=True)
def done(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that carries out every request."""

    def answer(root: Path, call: Request) -> ControlAnswer:
        return ControlAnswer(ControlOutcome.DONE, "done")

    monkeypatch.setattr("dart.run.steering.request", answer)


@pytest.mark.parametrize(
    ("words", "waits"),
    [
        (
            "scale rollouts=3 environments=9 --wait 600",
            "600 s until the run has 3 rollouts and 9 environments",
        ),
        ("actors restart rollout-0 --wait 60", "60 s until rollout-0 runs again"),
        ("drain", "60 s until no episode and no update runs"),
    ],
)
def test_a_command_that_waits_says_how_long_and_for_what(words: str, waits: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [*words.split(), "--run-dir", str(tmp_path)])
    assert (result.stdout, result.stderr) == ("done\n", f"waiting up to {waits}\n")


@pytest.mark.parametrize("words", ["scale rollouts=3", "drain --wait 0"])
def test_a_command_that_does_not_wait_prints_the_answer_alone(words: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [*words.split(), "--run-dir", str(tmp_path)])
    assert (result.stdout, result.stderr) == ("done\n", "")
