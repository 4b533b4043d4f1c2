"""An environment outside of the package is played, from a project of its own, and wrong code ends the run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SQUARE = REPOSITORY / "examples" / "own_environment.py"
CONFIGURATION = """
[tasks]
train = ["own/square"]
[environments]
kind = "own"
make = "own_environment.py:make"
count = 2
[curation]
rollouts_per_group = 4
step_cap = 4
[training]
groups_per_update = 1
updates = 1
[evaluation]
seeds_per_task = 2
greedy_seeds_per_task = 1
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def ran(project: Path) -> subprocess.CompletedProcess[str]:
    """`dartrl up run.toml`, run in the folder above the project."""
    (project / "run.toml").write_text(CONFIGURATION)
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "dart",
            "up",
            "project/run.toml",
            "--run-dir",
            "run",
            "--set",
            "web.enabled=false",
        ],
        cwd=project.parent,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def test_an_environment_in_a_file_beside_the_configuration_is_trained_on(project: Path) -> None:
    source = SQUARE.read_text()
    assert source.count('"PNG")') == 1
    (project / SQUARE.name).write_text(source.replace('"PNG")', '"PNG")\n        print("a screenshot")'))

    done = ran(project)

    assert done.returncode == 0, done.stderr[-2000:]
    assert '"updates": 1' in done.stderr + done.stdout
    assert "a screenshot" in done.stderr
    assert "a screenshot" not in done.stdout
    assert str(project / "own_environment.py:make") in (project.parent / "run" / "config.toml").read_text()


def test_a_file_that_needs_a_missing_library_ends_the_run_as_a_wrong_configuration(project: Path) -> None:
    (project / SQUARE.name).write_text(f"import no_such_library\n{SQUARE.read_text()}")

    done = ran(project)

    assert done.returncode == 78, done.stderr[-2000:]
    assert "own_environment.py:make cannot be imported" in done.stderr
    assert "No module named 'no_such_library'" in done.stderr
