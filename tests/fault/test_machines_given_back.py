"""A run that is ended by force gives back the machine that its killed environment held.

The run and the server of machines are real; on the machine no guest answers, so the environment holds it and
waits for it.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dart.core.run_directory import RunPaths
from dart.environments.osworld.providers import free_port
from tests.fake_pool import TOKEN, FakePool, served
from tests.fault.daemons import await_taken
from tests.patience import slowness
from tests.real_command import REPOSITORY
from tests.unit.environments.osworld.fake_evaluators import make_evaluators

DEADLINE_S = 120.0
EVALUATOR = {"func": "exact_match", "result": {"type": "screen"}, "expected": {"type": "rule", "rules": {}}}
TASK = {"instruction": "Do it.", "evaluator": EVALUATOR}
SETTINGS = (
    *("environments.kind=osworld", "environments.count=1", 'tasks.train=["osworld/os/one"]'),
    *("environments.osworld.provider=pool", 'rollout.engine="simulated"', 'training.learner="simulated"'),
    *("web.enabled=false", "evaluation.before=false", "evaluation.after=false", "run.minutes=20"),
)


@pytest.fixture
def pool() -> FakePool:
    pool = FakePool()
    pool.port_of_guests = free_port()
    return pool


@pytest.fixture
def run(tmp_path: Path, pool: FakePool) -> Iterator["subprocess.Popen[str]"]:
    """A run whose environment holds a machine."""
    task = tmp_path / "tasks" / "os" / "one.json"
    task.parent.mkdir(parents=True)
    task.write_text(json.dumps(TASK))
    evaluators = make_evaluators(tmp_path / "venv")
    with served(pool) as address:
        places = {"tasks": tmp_path / "tasks", "evaluators": evaluators, "pool.server": address}
        chosen = (*SETTINGS, *(f"environments.osworld.{key}={value}" for key, value in places.items()))
        with command(tmp_path, "train", *(word for one in chosen for word in ("--set", one))) as process:
            try:
                await_machine(process, pool)
                yield process
            finally:
                process.kill()


def command(folder: Path, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "dart", *words, "--run-dir", str(folder / "run")],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY), "DARTRL_POOL_TOKEN": TOKEN},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def await_machine(process: "subprocess.Popen[str]", pool: FakePool) -> None:
    give_up_s = time.monotonic() + DEADLINE_S * slowness()
    while not pool.running:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < give_up_s, "no machine was asked for"
        time.sleep(0.05)


@pytest.mark.slow
def test_a_second_signal_ends_the_run_and_gives_back_its_machine(
    tmp_path: Path, pool: FakePool, run: "subprocess.Popen[str]"
) -> None:
    run.send_signal(signal.SIGTERM)
    await_taken(RunPaths(tmp_path / "run"), run)
    run.send_signal(signal.SIGTERM)
    _, said = run.communicate(timeout=DEADLINE_S * slowness())

    assert run.returncode == 128 + signal.SIGTERM, said
    assert "gave back 1 machine\n" in said
    assert pool.running == {}


@pytest.mark.slow
def test_down_gives_back_the_machine_of_a_run_whose_main_process_was_killed(
    tmp_path: Path, pool: FakePool, run: "subprocess.Popen[str]"
) -> None:
    run.kill()
    run.wait()
    down = command(tmp_path, "down")
    _, said = down.communicate(timeout=DEADLINE_S * slowness())

    assert down.returncode == 0, said
    assert "gave back 1 machine\n" in said
    assert pool.running == {}
