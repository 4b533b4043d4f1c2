"""A run directory whose record holds batches that were really sampled and not trained yet.

    python -m tests.fault.recorded_batches FOLDER GROUPS

A process of its own makes it, so that the process of a test, which forks, has never loaded torch.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dart.config.config import Config, load_config
from dart.core.types import Outcome, RolloutLease, Step, Trajectory
from dart.store.blobs import BlobStore
from dart.store.run_blobs import local_blobs
from dart.store.store import Store

if TYPE_CHECKING:
    from dart.policy.small_policy import SmallPolicy

ROLLOUTS, STEPS = 4, 2
INSTRUCTIONS = ("Click the button.", 'Type "a" and submit.')
TASK = "miniwob/click-test"
POLICY = "policy"
"""Folder of the base policy, in the run directory."""

DEADLINE_S = 300.0


def record_batches(folder: Path, groups: int) -> None:
    """Make a run directory at `folder` with a tiny policy and so many complete groups of version 0."""
    command = [sys.executable, "-m", "tests.fault.recorded_batches", str(folder), str(groups)]
    subprocess.run(command, check=True, timeout=DEADLINE_S, cwd=Path(__file__).resolve().parents[2])


def config_of(folder: Path, more: Sequence[str] = ()) -> Config:
    """The configuration of a run in such a directory, with the settings of `more`."""
    own = [f"run.dir='{folder}'", f"tasks.train=['{TASK}']", f"training.policy='{folder / POLICY}'"]
    return load_config(None, [*own, *more])


def _make(folder: Path, groups: int) -> None:
    import torch

    torch.set_num_threads(1)
    from dart.policy.small_policy import SmallPolicy, save_policy
    from dart.policy.tokenizer import train_tokenizer
    from tests.tiny_small_policy import tiny_small_policy

    folder.mkdir(parents=True)
    tokenizer = train_tokenizer(INSTRUCTIONS)
    save_policy(tiny_small_policy(tokenizer), tokenizer, folder / POLICY)
    policy, blobs = SmallPolicy(folder / POLICY), local_blobs(folder)
    with Store(folder / "store.db", steps=blobs.steps) as store:
        store.add_version()
        for number in range(groups):
            _record_group(store, policy, blobs.screenshots, number)


def _record_group(store: Store, policy: "SmallPolicy", screenshots: BlobStore, number: int) -> None:
    """Play a group of one seed on screens of noise; its rewards differ."""
    group_id = store.open_group(TASK, number, ROLLOUTS, STEPS, 0)
    columns = [_answers(policy, screenshots, 100 * number + step) for step in range(STEPS)]
    for member in range(ROLLOUTS):
        lease = store.lease_rollout(group_id, f"env-{member:03d}", 1e12)
        steps = [column[member] for column in columns]
        store.finish_rollout(lease.rollout_id, lease.fence, _trajectory(lease, steps, float(member % 2)))


def _answers(policy: "SmallPolicy", screenshots: BlobStore, seed: int) -> list[Step]:
    """One step of each rollout of a group: answers to one screen, sampled by the policy."""
    import torch

    from dart.policy.codec import load_pixels
    from dart.policy.sampling import sample
    from tests.tiny_small_policy import noise_png

    sha256 = screenshots.put(noise_png(seed))
    prompt = policy.codec.encode_prompt(INSTRUCTIONS[seed % 2], [])
    pixels = torch.from_numpy(load_pixels(screenshots.read(sha256)))
    answers = sample(
        policy.module,
        [prompt] * ROLLOUTS,
        torch.stack([pixels] * ROLLOUTS),
        [1.0] * ROLLOUTS,
        torch.Generator().manual_seed(seed),
        max_new_tokens=5,
    )
    return [
        Step(
            screenshot_sha256=sha256,
            prompt_ids=tuple(prompt),
            token_ids=answer.token_ids,
            logprobs=answer.logprobs,
            entropies=answer.entropies,
            answer="finished()",
            policy_version=0,
            observe_ms=1.0,
            generate_ms=1.0,
            act_ms=1.0,
        )
        for answer in answers
    ]


def _trajectory(lease: RolloutLease, steps: Sequence[Step], reward: float) -> Trajectory:
    return Trajectory(
        rollout_id=lease.rollout_id,
        group_id=lease.group_id,
        task_id=lease.task_id,
        seed=lease.seed,
        environment="env-000",
        instruction=INSTRUCTIONS[0],
        outcome=Outcome.FINISHED,
        reward=reward,
        steps=tuple(steps),
        started_unix_s=1000.0,
        duration_s=1.0,
    )


if __name__ == "__main__":
    _make(Path(sys.argv[1]), int(sys.argv[2]))
