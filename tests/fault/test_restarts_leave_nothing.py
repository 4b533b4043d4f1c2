"""1,500 restarts, and nothing is more than before; `make soak` makes it 100,000."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

RESTARTS = 1500
PATIENCE_S = 240.0


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_restarts_leave_no_file_no_descriptor_no_memory_and_no_row(tmp_path: Path) -> None:
    """In a process of its own: every fork of a large one takes longer."""
    out = tmp_path / "soak.json"
    command = (sys.executable, "-m", "benchmarks.soak", "--restarts", str(RESTARTS), "--out", str(out))
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text())
    assert found["restarts"] >= RESTARTS
    assert found["broken"] == []
