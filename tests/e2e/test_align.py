"""The whole loop of a site in a real browser: killed in the middle, interrupted, resumed to its report."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.pointing import make_pointing

SITE = "sites/mail"
DEADLINE_S = 280.0

TINY = (
    *("environments.count=2", "run.minutes=60", "training.actions=8", "training.groups_per_update=1"),
    *("curation.rollouts_per_group=2", "evaluation.seeds_per_task=2", "evaluation.greedy_seeds_per_task=0"),
    *("grounding.updates=2", "grounding.warmup_updates=1", "grounding.batch=2"),
)

pytestmark = [pytest.mark.browser, pytest.mark.long, pytest.mark.timeout(6 * DEADLINE_S)]


def aligning(run_dir: Path, *words: str) -> "subprocess.Popen[str]":
    overrides = [word for value in TINY for word in ("--set", value)]
    return subprocess.Popen(
        [sys.executable, "-m", "dart", "align", "--run-dir", str(run_dir), *overrides, *words],
        env={**os.environ, "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def stopped_when(
    process: "subprocess.Popen[str]", number: signal.Signals, is_time: Callable[[], bool]
) -> tuple[int, str]:
    """Send a signal once it is time; returns the exit code and the output."""
    give_up_s = time.monotonic() + DEADLINE_S
    while not is_time():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < give_up_s, f"it was not time within {DEADLINE_S:g} s"
        time.sleep(0.1)
    process.send_signal(number)
    output, _ = process.communicate(timeout=DEADLINE_S)
    return process.returncode, output


def test_a_loop_that_is_killed_and_interrupted_goes_on_to_its_report(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    explored, measured = run_dir / "explore.json", run_dir / "measure-base.json"

    killed = aligning(run_dir, SITE, "--actions", "60", "--explorers", "2")
    code, _ = stopped_when(killed, signal.SIGKILL, (run_dir / "explore" / "store.db").exists)
    assert code == -signal.SIGKILL
    assert not explored.exists(), "a killed stage is not finished"

    interrupted = aligning(run_dir, "--resume")
    code, output = stopped_when(interrupted, signal.SIGINT, measured.exists)
    assert code == 130, output
    assert f"Go on with: dartrl align --resume --run-dir {run_dir}" in output
    finished_s = explored.stat().st_mtime

    other = shutil.copytree("configs/base-policy-pointer", tmp_path / "other")
    refused = aligning(run_dir, "--resume", "--set", f"grounding.base={other}")
    output, _ = refused.communicate(timeout=DEADLINE_S)
    assert refused.returncode == 2, output
    assert f"grounding.base is {other}, but the base policy that was measured is" in output
    assert not measured.exists(), "--resume measures it"

    resumed = aligning(run_dir, "--resume")
    output, _ = resumed.communicate(timeout=3 * DEADLINE_S)
    assert resumed.returncode == 0, output
    assert "1 of 6, explore: finished before" in output
    assert "2 of 6, data: finished before" in output
    assert explored.stat().st_mtime == finished_s, "no finished stage is repeated"
    check_report(run_dir, actions=60)
    assert [path.name for path in run_dir.iterdir() if path.name.endswith(".new")] == []


def check_report(run_dir: Path, actions: int) -> None:
    report = json.loads((run_dir / "report.json").read_text())
    assert report["site"] == f"{SITE}/explore"
    assert report["explored"]["actions"] >= actions
    overall, *kinds = report["accuracy"]
    assert overall["before"]["episodes"] == overall["after"]["episodes"] == report["samples"]["test"]
    assert {row["name"] for row in kinds} <= {"element", "order", "outcome"}
    (success,) = report["success"]
    assert success["name"] == f"{SITE}/easy, sampled"
    assert success["before"]["episodes"] == 2
    assert success["after"] is None or success["after"]["episodes"] == 2, "none without an update"


def test_the_loop_runs_with_the_layout_of_qwen_and_its_prior(tiny_qwen: Path, tmp_path: Path) -> None:
    make_pointing(tiny_qwen, tmp_path / "pointing")
    run_dir = tmp_path / "run"
    base = ("--set", f"grounding.base={tmp_path / 'pointing'}", "--set", "exploration.prior=model")

    ended = aligning(run_dir, SITE, "--actions", "30", "--explorers", "2", *base)
    output, _ = ended.communicate(timeout=3 * DEADLINE_S)

    assert ended.returncode == 0, output
    check_report(run_dir, actions=30)
    assert any("visual" in name for name in load_file(run_dir / "align" / "model.safetensors"))


def test_an_exploration_without_a_test_split_is_one_error_and_can_be_continued(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"

    ended = aligning(
        run_dir, SITE, "--actions", "2", "--explorers", "1", "--set", "exploration.lease_actions=1"
    )
    output, _ = ended.communicate(timeout=DEADLINE_S)

    assert ended.returncode == 2
    assert "error: stage 2 of 6, data:" in output
    assert "explore with more" in output
    assert f"`dartrl align --resume --run-dir {run_dir}`" in output
    assert not (run_dir / "explore.json").exists(), "--resume explores further"
    assert not (run_dir / "data").exists()
