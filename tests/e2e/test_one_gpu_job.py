"""`configs/one-gpu-miniwob.toml` by its real command, with real browsers and without a GPU."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dart.config.config import load_config
from dart.core.records import EvaluationPhase
from dart.core.run_directory import RunPaths
from dart.policy.adapter_files import ADAPTER_CONFIG, ADAPTER_FOLDER, ADAPTER_WEIGHTS, BASE_FILE, base_of
from dart.store.checkpoints import STATE_FILE, checkpoint_name, files_of, load_checkpoint
from dart.store.reader import StoreReader
from tests.patience import slowness
from tests.pointing import make_clicking
from tests.real_command import REPOSITORY, train

CONFIG = REPOSITORY / "configs" / "one-gpu-miniwob.toml"
DEADLINE_S = 300.0

pytestmark = [
    *(pytest.mark.long, pytest.mark.browser, pytest.mark.timeout(3600)),
]

UPDATES = 2

TASK, TABS = "miniwob/click-tab", ((28, 69), (72, 69), (116, 69))
"""A task of the job in which a random click succeeds often enough, and where its three tabs are."""

WITHOUT_A_GPU = ("rollout.engine=transformers", "rollout.gpus=[]", "training.gpus=[]")

SMALL = (
    f"tasks.train=['{TASK}']",
    "environments.count=2",
    f"training.updates={UPDATES}",
    "training.groups_per_update=1",
    "evaluation.seeds_per_task=1",
    "evaluation.greedy_seeds_per_task=1",
)
"""All that is set beside the policy, the engine and the GPUs. The adapter, its publication, bfloat16,
gradient checkpointing, the KL term and curation are those of the file."""


def trained(policy: Path, run: Path) -> "subprocess.CompletedProcess[str]":
    settings = (f"training.policy='{policy}'", *WITHOUT_A_GPU, *SMALL)
    return train(CONFIG, run, settings, deadline_s=DEADLINE_S * slowness())


def weight_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in files_of(folder) if path.suffix == ".safetensors")


def test_the_job_for_one_gpu_trains_an_adapter_and_measures_the_version_that_it_trained(
    tiny_qwen: Path, tmp_path: Path
) -> None:
    pytest.importorskip("peft", reason="the adapter needs peft: pip install 'dartrl[lora]'")
    policy, paths = tmp_path / "policy", RunPaths(tmp_path / "run")
    make_clicking(tiny_qwen, policy, TABS)

    ended = trained(policy, paths.root)

    assert ended.returncode == 0, ended.stderr
    report: dict[str, Any] = json.loads(paths.report.read_text())
    assert report["completed"]
    assert (report["updates"], report["policy_version"]) == (UPDATES, UPDATES)
    assert (report["restarts"], sum(report["faults"].values()), report["violations"]) == (0, 0, [])
    with StoreReader(paths.store) as record:
        assert record.integrity(staleness_bound=load_config(CONFIG).curation.staleness) == ()
        served = {
            phase: {one.policy_version for one in record.evaluations(phase)} for phase in EvaluationPhase
        }
    assert served == {EvaluationPhase.BEFORE: {0}, EvaluationPhase.AFTER: {UPDATES}}

    version = load_checkpoint(paths.checkpoints / checkpoint_name(UPDATES)).folder
    assert {str(path.relative_to(version)) for path in files_of(version)} == {
        *(BASE_FILE, STATE_FILE, "optimizer.pt"),
        *(f"{ADAPTER_FOLDER}/{name}" for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS)),
    }
    base = base_of(version)
    assert base is not None
    assert base.name == str(policy)
    assert weight_bytes(version) < weight_bytes(policy) / 8
