"""The whole system once through, from the command line, with real browsers and real processes."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.small_disk import enlarge, small_disk

SMALL_DISK = "1000k"
"""Room for the first files of a run, not for its screenshots."""

REPOSITORY = Path(__file__).resolve().parents[2]
DEADLINE_S = 240.0

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.timeout(600)]


def started(*arguments: str | Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "120", "NO_COLOR": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "dart", *map(str, arguments)],
        cwd=REPOSITORY,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of a command that ends by itself."""
    try:
        stdout, stderr = process.communicate(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail(f"the command did not end within {DEADLINE_S:g} s: {process.communicate()[1][-2000:]}")
    return process.returncode, stdout, stderr


def wait_for_status(run: Path, wanted: int) -> dict[str, object]:
    """Ask `dartrl status` until it ends with the wanted code."""
    give_up_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < give_up_s:
        code, stdout, _ = ended(started("status", "--json", "--run-dir", run))
        if code == wanted:
            return dict(json.loads(stdout))
    pytest.fail(f"dartrl status did not end with {wanted} within {DEADLINE_S:g} s")


def processes_of(run: Path) -> list[psutil.Process]:
    """Processes that have a file of the run open or its path on their command line."""
    found = []
    for process in psutil.process_iter():
        try:
            words = [*process.cmdline(), *(file.path for file in process.open_files())]
        except psutil.Error:
            continue  # it ended, or is somebody else's
        if any(str(run) in word for word in words):
            found.append(process)
    return found


def test_a_run_shows_itself_and_leaves_table_curve_and_sound_books(tmp_path: Path) -> None:
    run = tmp_path / "run"
    lasting = ("--set", "training.updates=10", "--set", "run.minutes=20")
    process = started("train", "configs/smoke.toml", "--run-dir", run, *lasting)
    snapshot = wait_for_status(run, 0)
    tree = ended(started("tree", "--run-dir", run))

    code, stdout, stderr = ended(process)

    assert snapshot["healthy"] is True
    assert tree[0] == 0
    assert "env-001  running" in tree[1]
    assert code == 0, stderr
    assert "training" in stderr  # evaluations may pass between two lines
    assert "miniwob task" in stdout
    report = json.loads((run / "report.json").read_text())
    assert report["completed"]
    assert report["updates"] == 10
    assert report["issued"] == sum(report[fate] for fate in ("trained", "dropped", "stored", "leased"))
    assert [task["after"]["episodes"] for task in report["tasks"]] == [4, 4]
    assert [task["before"]["episodes"] for task in report["greedy"]["tasks"]] == [2, 2]
    assert report["left_out"]["after"]["episodes"] == 0
    assert (run / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert processes_of(run) == []
    assert ended(started("tree", "--run-dir", run))[0] == 3


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk with too little room for a run."""
    with small_disk(tmp_path / "disk", SMALL_DISK) as disk:
        yield disk


@pytest.mark.long
def test_a_full_disk_ends_a_run_with_74_and_with_room_it_goes_on(disk: Path) -> None:
    run = disk / "run"

    code, _, stderr = ended(started("train", "configs/smoke.toml", "--run-dir", run))

    assert code == 74, stderr
    last = stderr.splitlines()[-1]
    assert last.startswith("error: ")
    assert str(run) in last
    assert "--resume" in last
    assert processes_of(run) == []

    enlarge(disk, "64m")
    code, _, stderr = ended(started("train", "--resume", "--run-dir", run))

    assert code == 0, stderr
    assert json.loads((run / "report.json").read_text())["updates"] == 3
