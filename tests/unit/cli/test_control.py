"""What the commands that steer a run send, what they print, and with which code they end."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dart.cli.main import app
from dart.core.types import ACTORS_MOST
from dart.run.control_protocol import (
    ControlAnswer,
    ControlOutcome,
    Drain,
    Pause,
    ReleaseActor,
    Request,
    RestartActor,
    Resume,
    Scale,
    StopActor,
)


class FakeRun:
    """A run that records the requests and gives all of them the same outcome."""

    def __init__(self) -> None:
        self.outcome = ControlOutcome.DONE
        self.requests: list[Request] = []

    def answer(self, root: Path, call: Request) -> ControlAnswer:
        self.requests.append(call)
        return ControlAnswer(self.outcome, self.outcome.value)


@pytest.fixture(autouse=True)
def run(monkeypatch: pytest.MonkeyPatch) -> FakeRun:
    fake = FakeRun()
    monkeypatch.setattr("dart.run.steering.request", fake.answer)
    return fake


@pytest.mark.parametrize(
    ("words", "request_"),
    [
        ("actors restart env-003", RestartActor(name="env-003")),
        ("actors stop env-003 --wait 30", StopActor(name="env-003", wait_ms=30_000)),
        ("quarantine release env-003", ReleaseActor(name="env-003")),
        ("pause", Pause()),
        ("resume", Resume()),
        ("drain", Drain(wait_ms=60_000)),
        ("scale environments=24", Scale(environments=24)),
        ("scale rollouts=3 environments=60", Scale(rollouts=3, environments=60)),
    ],
)
def test_a_command_sends_its_request(words: str, request_: Request, run: FakeRun, tmp_path: Path) -> None:
    CliRunner().invoke(app, [*words.split(), "--run-dir", str(tmp_path)])
    assert run.requests == [request_]


@pytest.mark.parametrize(
    "what",
    ["environments", "environments=0", f"rollouts={ACTORS_MOST + 1}", "rollouts=-1", "rollouts=many"],
)
def test_a_count_that_no_pool_can_have_is_refused_and_nothing_is_sent(
    what: str, run: FakeRun, tmp_path: Path
) -> None:
    result = CliRunner().invoke(app, ["scale", what, "--run-dir", str(tmp_path)])
    assert (result.exit_code, run.requests) == (2, [])
    assert f"with a count from 1 to {ACTORS_MOST}, got {what!r}" in result.stderr


@pytest.mark.parametrize(
    ("outcome", "words", "code"),
    [
        (ControlOutcome.DONE, "pause", 0),
        (ControlOutcome.DONE, "drain", 0),
        (ControlOutcome.UNDER_WAY, "pause", 0),
        (ControlOutcome.UNDER_WAY, "pause --wait 0", 75),
        (ControlOutcome.UNDER_WAY, "drain", 75),
        (ControlOutcome.REFUSED, "pause", 1),
        (ControlOutcome.REFUSED, "drain", 1),
        (ControlOutcome.SILENT, "pause", 4),
        (ControlOutcome.SILENT, "drain", 4),
    ],
)
def test_the_exit_code_says_what_became_of_the_request(
    outcome: ControlOutcome, words: str, code: int, run: FakeRun, tmp_path: Path
) -> None:
    run.outcome = outcome
    result = CliRunner().invoke(app, [*words.split(), "--run-dir", str(tmp_path)])
    assert result.exit_code == code
    assert (f"error: {outcome}\n" in result.stderr) == (code != 0)


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
