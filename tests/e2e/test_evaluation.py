"""`dartrl eval`: an evaluation of its own, which is killed and goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from dart.core.records import EvaluationPhase
from dart.core.run_directory import RunPaths
from dart.inspect.actor_table import written_config
from dart.store.errors import StoreUnavailable
from dart.store.reader import StoreReader
from tests.patience import slowness

REPOSITORY = Path(__file__).resolve().parents[2]
TASKS = ("simulated/a", "simulated/b")
SETTINGS = f"""
[tasks]
train = ["{TASKS[0]}"]
[environments]
kind = "simulated"
count = 3
[rollout]
engine = "simulated"
count = 1
[simulation]
steps_median = 2.0
success = 0.5
generate_base_s = 0.02
[evaluation]
greedy_seeds_per_task = 0
"""


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dart", "eval", *map(str, arguments)],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "NO_COLOR": "1", "COLUMNS": "120"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def played(run_dir: Path) -> list[tuple[str, int]]:
    with suppress(StoreUnavailable), StoreReader(RunPaths(run_dir).store) as record:
        return [(one.task_id, one.seed) for one in record.evaluations(EvaluationPhase.BEFORE)]
    return []


@pytest.mark.long
def test_a_killed_evaluation_goes_on_and_plays_every_episode_once_without_a_trainer(tmp_path: Path) -> None:
    run_dir, config, episodes = tmp_path / "run", tmp_path / "eval.toml", 24
    config.write_text(SETTINGS)
    chosen = [word for task in TASKS for word in ("--tasks", task)]
    first = start(tmp_path, "-c", config, "-k", str(episodes), "--run-dir", run_dir, *chosen)
    gives_up_s = time.monotonic() + 60 * slowness()
    while len(played(run_dir)) < 4:
        assert first.poll() is None, first.communicate()
        assert time.monotonic() < gives_up_s, f"{len(played(run_dir))} episodes were played"
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    before = played(run_dir)
    assert len(before) < 2 * episodes, "the evaluation ended before it was killed; let it play more"

    second = start("--resume", "--run-dir", run_dir, "-o", "json")
    out, err = second.communicate(timeout=120 * slowness())
    assert second.returncode == 0, err
    assert played(run_dir)[: len(before)] == before
    assert Counter(played(run_dir)).most_common(1)[0][1] == 1
    told = json.loads(out)
    assert json.loads(RunPaths(run_dir).report.read_text()) == told
    (sampled,) = told["answers"]
    assert [row["before"]["episodes"] for row in sampled["tasks"]] == [episodes] * 2
    assert [one["k"] for one in sampled["pass_at_k"]] == [1, 2, 4, 8, 16, 24]
    assert sampled["pass_at_k"][0]["rate"] == sampled["mean"]["before"]["rate"]
    assert told["is_complete"]
    assert written_config(run_dir)["training"]["learner"] == "none"
    assert "learner_at" not in (RunPaths(run_dir).logs / "trainer.jsonl").read_text()


def test_an_evaluation_that_cannot_be_done_as_asked_is_refused_before_it_starts(tmp_path: Path) -> None:
    for arguments, problem in (
        (["--resume"], "--resume --run-dir DIR"),
        ([], "name either a checkpoint"),
        ([tmp_path, "--tasks", "osworld-45"], "osworld-ablation-45"),
    ):
        ended = start(*arguments)
        _, err = ended.communicate(timeout=60 * slowness())
        assert ended.returncode in (2, 78), err
        assert problem in err
