"""What `status`, `tree` and `top` say of a suspended and of a restarting environment is true."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
DEADLINE_S = 400.0

pytestmark = [pytest.mark.long, pytest.mark.timeout(450)]


def test_what_is_told_of_a_suspended_and_a_restarting_environment_is_true(tmp_path: Path) -> None:
    out = tmp_path / "live.json"
    command = [sys.executable, "-m", "benchmarks.live_commands", "--quick", "--hangs-only", "--looks", "1"]
    ended = subprocess.run(
        [*command, "--out", str(out)],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )

    assert out.exists(), ended.stdout[-2000:] + ended.stderr[-2000:]
    found = json.loads(out.read_text())
    assert found["not_true"] == []
    assert {one["name"] for one in found["while_somebody_hangs"]} >= {"status", "tree, all suspended", "top"}
