"""What a rank reads when it starts, without other ranks and without a policy."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dart.config.config import Config
from dart.store import checkpoints
from dart.store.checkpoints import Checkpoint, CheckpointState, write_checkpoint
from dart.training import rank_main
from dart.training.distributed_learner import PARENT_VARIABLE
from dart.training.rank_main import Rank

ALONE = SimpleNamespace(new_group=lambda **_: None, get_rank=lambda: 0, get_world_size=lambda: 1)


def test_a_rank_resumes_from_the_checkpoint_that_the_trainer_has_verified_and_does_not_hash_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = CheckpointState(version=3, learner={"config": {}})
    folder = write_checkpoint(tmp_path, state, lambda parent: (parent / "weights").touch())
    resumed: list[Checkpoint | None] = []

    def learner(*_: Any, resume: Checkpoint | None, **__: Any) -> None:
        resumed.append(resume)

    def hashed(path: Path) -> str:
        raise AssertionError(f"a rank hashed {path}")

    monkeypatch.setattr(rank_main, "dist", ALONE)
    monkeypatch.setattr(rank_main, "join_ranks", lambda *_: torch.device("cpu"))
    monkeypatch.setattr(rank_main, "ProcessGroup", lambda *_, **__: None)
    monkeypatch.setattr(rank_main, "model_type", lambda _: "qwen2_5_vl")
    monkeypatch.setattr(rank_main, "Learner", learner)
    monkeypatch.setattr(checkpoints, "sha256_of", hashed)
    Rank(Config(), folder, tmp_path / "meeting")
    assert resumed == [Checkpoint(folder=folder, state=state)]


@pytest.mark.slow
def test_a_rank_whose_torchrun_ended_before_it_began_ends_at_once(tmp_path: Path) -> None:
    ended_parent = {**os.environ, PARENT_VARIABLE: str(os.getppid())}
    command = [sys.executable, "-m", "dart.training.rank_main", str(tmp_path / "config"), str(tmp_path / "s")]
    ended = subprocess.run(command, env=ended_parent, stderr=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stderr) == (1, b""), "it has not read its configuration"
