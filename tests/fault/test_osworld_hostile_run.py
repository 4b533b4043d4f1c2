"""A whole run in which some guests answer evaluations with code: it goes on, and they earn nothing.

It needs `make osworld-score`. Single evaluations are in `test_osworld_evaluators` and
`test_osworld_hostile_files`.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from dart.core.run_directory import RunPaths
from dart.environments.osworld.judgements import read_judgements
from dart.environments.osworld.providers import free_port
from dart.store.reader import StoreReader
from tests.fault import test_osworld_evaluators
from tests.fault.test_osworld_evaluators import EVALUATORS
from tests.unit.environments.osworld.guest_server import FakeDesktop, guest_server

REPOSITORY = Path(__file__).resolve().parents[2]
TASK = "osworld/os/favourites"
DEADLINE_S = 240.0
REACHED = EVALUATORS / "reached-by-a-run"

pytestmark = [*test_osworld_evaluators.pytestmark, pytest.mark.timeout(2 * DEADLINE_S)]

SAID = {
    "honest": "['a', 'b']",
    "takes memory": "'a' * 10**11",
    "runs a program": f"__import__('os').system('touch {REACHED}') or ['c']",
}
"""What the command of the task's evaluation prints on each machine. The evaluator calls `eval` on it."""

SETTINGS = (
    *("environments.kind=osworld", f"environments.count={len(SAID)}", f'tasks.train=["{TASK}"]'),
    *('environments.osworld.provider="addresses"', 'environments.osworld.renew="keep"'),
    f"environments.osworld.evaluators={EVALUATORS}",
    *('rollout.engine="simulated"', 'training.learner="simulated"', "curation.step_cap=1"),
    *("evaluation.before=false", "evaluation.after=false", "run.minutes=20"),
)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The addresses of guests by what they do."""
    servers = []
    for name, said in SAID.items():
        home = tmp_path / name
        home.mkdir()
        (home / "said").write_text(said)
        desktop = FakeDesktop(home)
        desktop.add_window("Work")
        app = guest_server(desktop)
        servers.append(
            uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=free_port(), log_level="error"))
        )
    threads = [threading.Thread(target=server.run, daemon=True) for server in servers]
    for thread in threads:
        thread.start()
    yield {name: f"127.0.0.1:{server.config.port}" for name, server in zip(SAID, servers, strict=True)}
    for server in servers:
        server.should_exit = True
    for thread in threads:
        thread.join(timeout=10)


def test_a_run_goes_on_beside_guests_that_answer_with_code(tmp_path: Path, machines: dict[str, str]) -> None:
    look = {"type": "vm_command_line", "command": "cat said", "shell": True}
    wanted = {"type": "rule", "rules": {"expected": ["a", "b"]}}
    evaluator = {"func": "check_gnome_favorite_apps", "result": look, "expected": wanted}
    tasks = tmp_path / "tasks"
    (tasks / "os").mkdir(parents=True)
    (tasks / "os" / "favourites.json").write_text(
        json.dumps({"instruction": "Do it.", "evaluator": evaluator})
    )
    addresses = json.dumps(list(machines.values()))
    run_dir = tmp_path / "run"
    chosen = (*SETTINGS, f"environments.osworld.tasks={tasks}", f"environments.osworld.addresses={addresses}")
    run = subprocess.Popen(
        [sys.executable, "-m", "dart", "train", "--run-dir", str(run_dir)]
        + [word for one in chosen for word in ("--set", one)],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        await_scores(run, run_dir)
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=DEADLINE_S)
    finally:
        run.kill()
    assert run.returncode == 130, errors

    assert not REACHED.exists()
    scored = [(one.environment, one.score) for one in read_judgements(run_dir)]
    assert {score for environment, score in scored if environment == "env-000"} == {1.0}
    assert {score for environment, score in scored if environment != "env-000"} <= {0.0}
    with StoreReader(RunPaths(run_dir).store) as record:
        assert record.integrity(staleness_bound=1) == ()


def await_scores(run: "subprocess.Popen[str]", run_dir: Path) -> None:
    """Wait until the honest machine was scored three times after another machine's evaluator failed."""
    gives_up_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < gives_up_s:
        assert run.poll() is None, run.communicate()[1]
        honest = [one for one in read_judgements(run_dir) if one.environment == "env-000"]
        logs = RunPaths(run_dir).logs
        failed = sum("could not be scored" in log.read_text() for log in logs.glob("env-*.jsonl"))
        if len(honest) >= 3 and failed:
            return
        time.sleep(0.2)
    raise TimeoutError("no machine was scored three times beside one whose evaluation failed")
