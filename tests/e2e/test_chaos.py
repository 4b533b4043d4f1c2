"""A run of real browsers outlives faults of every kind: nothing is lost, doubled or left behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.chaos_faults import LOCKED

REPOSITORY = Path(__file__).resolve().parents[2]
DEADLINE_S = 900.0

pytestmark = [pytest.mark.long, pytest.mark.browser, pytest.mark.timeout(960)]


def test_a_run_outlives_minutes_of_faults(tmp_path: Path) -> None:
    out = tmp_path / "chaos.json"
    command = [sys.executable, "-m", "benchmarks.chaos", "--minutes", "2", "--alone", "--out", str(out)]
    # Half the environments of the long run: a smaller machine runs the two runs too.
    command += ["--set", "environments.count=4", "--set", "training.groups_per_update=1"]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    ended = subprocess.run(
        command,
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )

    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-2000:]
    found = json.loads(out.read_text())
    assert {verdict["what"] for verdict in found["verdicts"] if not verdict["is_kept"]} == set()
    assert found["faults_by_kind"].keys() >= {"SIGKILL store", "SIGKILL env-N", "SIGKILL rollout-N", LOCKED}
    # No fault is counted that was not done, and none was done without a trace in what the run itself wrote.
    assert found["never_due"] == []
    assert len(found["healings"]) >= len(found["signals"]) > 0
    assert all(healing["event"] and healing["work_s"] is not None for healing in found["healings"])
    assert found["useful_actions"] > 0
    assert found["audit"]["trained"] > 0
