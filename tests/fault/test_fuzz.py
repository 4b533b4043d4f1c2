"""The fuzzing of every port, short; `make fuzz` sends a million frames."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fuzz import ACTORS, SUPERVISORS

REPOSITORY = Path(__file__).resolve().parents[2]
FRAMES = 20_000


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """From a process of its own: actors forked by a test runner would hold its memory, and that grows."""
    out = tmp_path_factory.mktemp("fuzz") / "fuzz.json"
    command = [sys.executable, "-m", "benchmarks.fuzz", "--frames", str(FRAMES), "--seed", "3"]
    subprocess.run([*command, "--out", str(out)], cwd=REPOSITORY, check=False, timeout=110.0)
    return json.loads(out.read_text())  # type: ignore[no-any-return]


def test_forged_frames_are_refused_in_every_port_and_everybody_answers_meanwhile(
    report: dict[str, Any],
) -> None:
    assert report["broken"] == []
    assert report["frames"] == FRAMES


def test_every_port_of_the_system_was_tried(report: dict[str, Any]) -> None:
    thespians = {f"{name} TCP" for name in ("admin", "logger", *SUPERVISORS)}
    assert set(report["places"]) == thespians | {f"{name} mail" for name in ACTORS}


def test_every_kind_of_forgery_was_sent(report: dict[str, Any]) -> None:
    sent = {kind for kinds in report["places"].values() for kind in kinds}
    assert {"replay", "bit_turned", "cut_short", "unsigned", "signed_with_another_key", "too_long"} <= sent
