"""Creation of the learner, which resumes from the newest committed version of the record."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from dart.config.config import Config
from dart.config.published import published_dtype, publishes_adapter
from dart.config.sections import CurationSettings, LoraSettings
from dart.core.run_directory import RunPaths, mail_dir
from dart.core.types import Group
from dart.policy.configuration import is_small_policy
from dart.policy.protocols import UnsupportedCheckpoint
from dart.store.blobs import BlobStore
from dart.store.checkpoints import (
    CheckpointState,
    WriteCheckpoint,
    checkpoint_name,
    load_checkpoint,
    remove_leftovers,
)
from dart.training.failure_penalty import FailurePenalty
from dart.training.step_credit import StepCredit
from dart.training.update_report import UpdateSummary

if TYPE_CHECKING:
    from dart.training.learner import LearnerConfig


class AnyLearner(Protocol):
    """The interface of learners. Only one thread may call its methods."""

    version: int

    def update(self, groups: Sequence[Group], screenshots: BlobStore) -> UpdateSummary:
        """Train on the groups, make the next version and return its figures. An error changes nothing."""

    def copy(self) -> WriteCheckpoint:
        """Copy the current version and return the function that writes the copy; any thread may call it."""


def learner_at(config: Config, newest: int, checkpoints: Path) -> AnyLearner:
    """Return the learner, with the newest committed version loaded.

    newest        the newest committed version; 0: the base policy
    checkpoints   folder of the run's checkpoints

    Raises CorruptCheckpoint when the committed checkpoint is damaged, UnsupportedCheckpoint when it was
    trained with another adapter.
    """
    remove_leftovers(checkpoints)
    resume = load_checkpoint(checkpoints / checkpoint_name(newest)) if newest > 0 else None
    if resume is not None:
        refuse_other_adapter(resume.folder, resume.state, config.training.lora)
    if config.training.ranks > 1:
        from dart.training.distributed_learner import DistributedLearner

        run_dir = checkpoints.parent
        log = RunPaths(run_dir).logs / "trainer.ranks.log"
        return DistributedLearner(config, None if resume is None else resume.folder, log, mail_dir(run_dir))
    if config.training.learner == "simulated":
        from dart.training.simulated_learner import SimulatedLearner

        return SimulatedLearner(config.simulation, resume=resume)
    from dart.training.learner import Learner

    return Learner(config.training.policy, learner_config(config), resume=resume)


def refuse_other_adapter(folder: Path, state: CheckpointState, configured: LoraSettings) -> None:
    """Raise UnsupportedCheckpoint if a version was trained with another adapter than the configured one.

    folder   folder of the version, for the message
    state    state of the learner of that version

    Weights and moments of another rank do not fit. With another alpha, the same weights are another policy.
    Every version of a simulated learner is accepted, as it records no adapter, and every one of a small
    policy, which never has one.
    """
    placement = state.learner.get("config", {}).get("placement")
    if placement is None or is_small_policy(folder):
        return
    trained = LoraSettings(rank=placement["lora_rank"], alpha=placement["lora_alpha"])
    was, given = _adapter_text(trained), _adapter_text(configured)
    if was != given:
        raise UnsupportedCheckpoint(
            f"{folder} was trained with {was}, but the configuration has {given}: set them back, or start a "
            "new run"
        )


def _adapter_text(lora: LoraSettings) -> str:
    """Name the settings that a saved adapter depends on; without an adapter, alpha is none of them."""
    alpha = f" and training.lora.alpha = {lora.alpha}" if lora.rank > 0 else ""
    return f"training.lora.rank = {lora.rank}{alpha}"


def learner_config(config: Config) -> "LearnerConfig":
    """Return the learner's settings from the configuration."""
    from dart.policy.placement import ModelPlacement
    from dart.training.learner import LearnerConfig

    training, curation = config.training, config.curation
    of_same_name = {field.name for field in fields(LearnerConfig)} & type(training).model_fields.keys()
    return LearnerConfig(
        **training.model_dump(include=of_same_name),
        published_dtype=published_dtype(config),
        tis_cap=curation.importance.cap if curation.importance.enabled else None,
        entropy_quantile=curation.high_entropy.quantile if curation.high_entropy.enabled else None,
        step_credit=_step_credit(curation),
        failure_penalty=_failure_penalty(curation),
        temperature=config.rollout.temperature,
        placement=ModelPlacement(
            device=training.device,
            precision=training.precision,
            weight_precision=training.weight_precision,
            is_trained=True,
            gradient_checkpointing=training.gradient_checkpointing,
            lora_rank=training.lora.rank,
            lora_alpha=training.lora.alpha,
            publishes_adapter=publishes_adapter(config),
            seed=config.run.seed,
        ),
        seed=config.run.seed,
    )


def _step_credit(curation: CurationSettings) -> StepCredit | None:
    settings = curation.step_credit
    if settings.method == "trajectory":
        return None
    return StepCredit(
        discount=settings.discount, weight=settings.weight, success_above=curation.success_above
    )


def _failure_penalty(curation: CurationSettings) -> FailurePenalty | None:
    if not curation.failure_penalty.enabled:
        return None
    return FailurePenalty(weight=curation.failure_penalty.weight, success_above=curation.success_above)
