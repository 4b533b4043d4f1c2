"""A real run whose updates take longer than their deadline: the batch is not repeated for ever."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulated_job import SIMULATED_JOB

REPOSITORY = Path(__file__).resolve().parents[2]

CONFIG = f"""{SIMULATED_JOB}
training.update_deadline_s = 1.0
simulation.update_base_s = 600.0
"""


@pytest.mark.timeout(300)
def test_a_run_whose_updates_overrun_their_deadline_ends_and_names_the_key_to_raise(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(CONFIG)
    command = [sys.executable, "-m", "dart", "train", "run.toml", "--run-dir", "run"]

    ended = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert ended.returncode == 75, ended.stderr
    assert "the work 'update' is not done after 1.0 s, its deadline" in ended.stderr
    assert "if it was only slow, raise training.update_deadline_s" in ended.stderr
    assert "over 2 failures of kind 'overdue'" in ended.stderr
