"""The smallest form of `benchmarks.cluster`: real Ray nodes in namespaces, one fault of each kind."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fault import network

pytestmark = pytest.mark.timeout(580)


def test_no_rollout_is_lost_when_a_node_is_killed_frozen_and_cut_off_and_no_stale_engine_is_asked(
    tmp_path: Path,
) -> None:
    why_not = network.why_not()
    if why_not:
        pytest.skip(f"NODES THAT ARE LOST ARE NOT TESTED: {why_not}")
    out = tmp_path / "cluster.json"
    command = [sys.executable, "-m", "benchmarks.cluster", "--quick", "--out", str(out)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=560, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = json.loads(out.read_text())
    assert sorted(trial["kind"] for trial in found["trials"]) == ["cut", "freeze", "kill", "stale"]
    lost = [trial for trial in found["trials"] if trial["kind"] != "stale"]
    assert all(trial["engines"] and trial["unrouted_s"] is not None for trial in lost)
