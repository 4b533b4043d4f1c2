"""A run whose policy is on a hub: refused with the command that fetches it, or fetched at its start and used.

The hub is a server here that speaks its routes; huggingface_hub is the real one.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dart.config.hub import NOTE
from tests.patience import slowness
from tests.unit.preflight import test_hub_fetch
from tests.unit.preflight.test_hub_fetch import COMMIT, REPO, REPOSITORY, endpoint

__all__ = ["endpoint"]

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

DEADLINE_S = 240.0
POLICY = f"hf://{REPO}@main"
SETTINGS = (
    "rollout.engine='transformers'",
    "rollout.count=1",
    "environments.count=2",
    "simulation.steps_median=1.0",
    "context.answer_tokens=4",
    "training.learner='grpo'",
    f"training.policy='{POLICY}'",
    "run.minutes=60.0",
    *(f"supervision.{part}.start_deadline_s=1200.0" for part in ("rollout_pool", "trainer")),
    *(f"rollout.{what}_deadline_s=600.0" for what in ("load", "answer")),
    "web.port=0",
)


def started(folder: Path, endpoint: str, *more: str) -> subprocess.Popen[bytes]:
    """Start a run in `folder/run`, in a folder with no checkpoint."""
    known = {"HF_ENDPOINT": endpoint, "HF_HUB_OFFLINE": "0", "HF_HOME": str(folder / "home")}
    chosen = [word for setting in (*SETTINGS, *more) for word in ("--set", setting)]
    config = REPOSITORY / "configs" / "decoupling.toml"
    with (folder / "said").open("w") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "dart", "train", str(config), "--run-dir", "run", *chosen],
            cwd=folder,
            env={**os.environ, **known, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "200", "NO_COLOR": "1"},
            stdout=said,
            stderr=said,
        )


def episodes_played(folder: Path) -> int:
    """Ask `dartrl status`; 0 before the run shows itself."""
    command = [sys.executable, "-m", "dart", "status", "--json", "--run-dir", str(folder / "run")]
    asked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60 * slowness())
    try:
        return int(json.loads(asked.stdout)["trajectories"])
    except (ValueError, KeyError):
        return 0


@pytest.fixture
def hub(endpoint: str, tiny_qwen: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a hub with a tiny checkpoint."""
    files = {path.name: path.read_bytes() for path in tiny_qwen.iterdir()}
    monkeypatch.setattr(test_hub_fetch, "FILES", files)
    return endpoint


def test_a_run_fetches_its_policy_when_it_may_and_plays_with_it(hub: str, tmp_path: Path) -> None:
    refused = started(tmp_path, hub)
    refused.wait(DEADLINE_S * slowness())
    assert refused.returncode == 69
    assert f"dartrl policy fetch {POLICY}" in (tmp_path / "said").read_text()
    assert not (tmp_path / "run").exists()

    run = started(tmp_path, hub, "training.fetch_policy=true")
    give_up_s = time.monotonic() + DEADLINE_S * slowness()
    while not episodes_played(tmp_path):
        if run.poll() is not None or time.monotonic() > give_up_s:
            run.send_signal(signal.SIGTERM)
            pytest.fail(f"no episode was played: {(tmp_path / 'said').read_text()[-2000:]}")
    run.send_signal(signal.SIGINT)
    run.wait(DEADLINE_S * slowness())
    assert run.returncode == 130
    note = json.loads((tmp_path / "models/hub/owner--tiny@main" / NOTE).read_text())
    assert note["commit"] == COMMIT
