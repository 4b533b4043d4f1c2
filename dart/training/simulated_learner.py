"""A simulated learner: waits as long as an update takes and writes checkpoints of a few bytes.

An update on s step samples takes `update_base_s + s * update_each_s`. The checkpoints are written, hashed and
resumed like real ones, so commits, weight sync, pruning and restarts run the real code.
"""

import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from dart.config.sections import SimulationSettings
from dart.core.types import Group
from dart.store.blobs import BlobStore
from dart.store.checkpoints import Checkpoint, CheckpointState, WriteCheckpoint, write_checkpoint
from dart.training.advantage import step_advantages
from dart.training.update_report import UpdateSummary

WEIGHTS_FILE = "weights.json"


class SimulatedLearner:
    """A learner without a model: it counts versions and waits. Only one thread may call it."""

    def __init__(
        self,
        simulation: SimulationSettings,
        *,
        resume: Checkpoint | None = None,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._simulation = simulation
        self._wait = wait
        self.version = 0 if resume is None else resume.state.version

    def update(self, groups: Sequence[Group], screenshots: BlobStore) -> UpdateSummary:
        """Wait as long as an update on the groups takes, and make the next version. Reads no screenshots."""
        started = time.perf_counter()
        with_spread = [group for group in groups if step_advantages(group) is not None]
        steps = [step for group in with_spread for played in group.trajectories for step in played.steps]
        self._wait(self._simulation.update_base_s + len(steps) * self._simulation.update_each_s)
        self.version += 1
        rewards = [trajectory.reward for group in groups for trajectory in group.trajectories]
        return UpdateSummary(
            version=self.version,
            samples=len(steps),
            tokens=sum(len(step.token_ids) for step in steps),
            groups=len(groups),
            groups_without_spread=len(groups) - len(with_spread),
            mean_reward=math.fsum(rewards) / len(rewards),
            optimizer_steps=1,
            seconds=time.perf_counter() - started,
        )

    def copy(self) -> WriteCheckpoint:
        """Return the function that waits `simulation.checkpoint_s` seconds and writes the current version."""
        version = self.version
        learner = {"config": self._simulation.model_dump(mode="json")}
        state = CheckpointState(version=version, learner=learner)
        return lambda parent: write_checkpoint(
            parent, state, lambda folder: self._write_files(folder, version)
        )

    def _write_files(self, folder: Path, version: int) -> None:
        self._wait(self._simulation.checkpoint_s)
        (folder / WEIGHTS_FILE).write_text(json.dumps({"version": version}))
