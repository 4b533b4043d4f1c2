"""A learner that goes on exactly where the record says the run is. Only the chosen one is imported."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dart.config import Config
from dart.store.records import Version
from dart.training.checkpoint import checkpoint_name, list_checkpoints, load_checkpoint, remove_leftovers

if TYPE_CHECKING:
    from dart.training.learner import LearnerConfig


def learner_at(config: Config, newest: Version, checkpoints: Path) -> Any:
    """The learner of the newest committed version.

    A checkpoint newer than that was written by an update that was never committed:
    it is removed, and its batch, which is still leased, is trained again.
    Raises CorruptCheckpoint when the committed one is not what was written.
    """
    remove_uncommitted(checkpoints, newest.version)
    resume = load_checkpoint(Path(newest.checkpoint)) if newest.version > 0 else None
    if config.training.learner == "modelled":
        from dart.modelled.learner import ModelledLearner

        return ModelledLearner(config.modelled, resume=resume)
    from dart.training.learner import Learner

    return Learner(config.training.policy, learner_config(config), resume=resume)


def remove_uncommitted(checkpoints: Path, committed_version: int) -> None:
    """Remove checkpoint folders newer than the newest commit, and half-written ones."""
    remove_leftovers(checkpoints)
    for folder in list_checkpoints(checkpoints):
        if folder.name > checkpoint_name(committed_version):
            shutil.rmtree(folder)


def learner_config(config: Config) -> "LearnerConfig":
    """The learner's settings from the configuration."""
    from dart.training.learner import LearnerConfig

    training = config.training
    return LearnerConfig(
        lr=training.lr,
        weight_decay=training.weight_decay,
        clip_low=training.clip_low,
        clip_high=training.clip_high,
        tis_cap=config.curation.importance.cap,
        kl_beta=training.kl_beta,
        max_grad_norm=training.max_grad_norm,
        temperature=config.rollout.temperature,
        minibatches=training.minibatches,
        warmup_updates=training.warmup_updates,
        micro_batch=training.micro_batch,
        threads=training.threads,
        seed=config.run.seed,
    )
