"""The configurations of the stages that are runs, and the checks of an alignment's settings and files."""

from collections.abc import Iterator
from pathlib import Path

from dart.alignment.folder import AlignmentFolder
from dart.alignment.model_work import read_all
from dart.alignment.stages import AlignmentStage
from dart.config.bundled import bundled_folder
from dart.config.config import Config
from dart.core.errors import ConfigurationError, UnavailableError
from dart.core.screenspot import read_screenspot
from dart.preflight.requirements import damage_of, has_pointer
from dart.run.exploration import refuse_without_pages

DEFAULT_BASE = "base-policy-pointer"
"""Name of the bundled checkpoint that is aligned if `grounding.base` is empty."""


def with_places(config: Config) -> Config:
    """Return the configuration with a base policy and with absolute paths.

    The base policy is also set as `training.policy`; the last stage replaces it by the aligned policy.
    """
    grounding = config.grounding
    base = Path(grounding.base or bundled_folder() / DEFAULT_BASE).absolute()
    named = {
        "base": str(base),
        "data": tuple(folder.absolute() for folder in grounding.data),
        "held_out": str(Path(grounding.held_out).absolute()) if grounding.held_out else "",
    }
    started = config.training.model_copy(update={"policy": base})
    return config.model_copy(update={"grounding": grounding.model_copy(update=named), "training": started})


def exploring(config: Config, folder: AlignmentFolder) -> Config:
    """Return the configuration of the exploration. It has no time limit: `run.minutes` is for training."""
    run = config.run.model_copy(update={"dir": folder.of(AlignmentStage.EXPLORE), "minutes": 0.0})
    return config.model_copy(update={"run": run})


def training(config: Config, folder: AlignmentFolder) -> Config:
    """Return the configuration of the training run, which starts from the aligned policy."""
    run = config.run.model_copy(update={"dir": folder.of(AlignmentStage.TRAIN)})
    started = config.training.model_copy(update={"policy": folder.of(AlignmentStage.ALIGN)})
    return config.model_copy(update={"run": run, "training": started})


def refuse_unfit_settings(config: Config) -> None:
    """Raise an error for settings that an alignment cannot use.

    raises   UsageError if the screens of the task are not pages, ConfigurationError for other settings
    """
    refuse_without_pages(config)
    if problems := [*_problems(config)]:
        raise ConfigurationError("\n".join(problems))


def _problems(config: Config) -> Iterator[str]:
    if len(config.exploration.tasks) != 1:
        found = len(config.exploration.tasks)
        yield f"exploration.tasks must name one site, got {found}: align to one site after the other"
    for key, given in (("record", config.run.record), ("blobs", config.run.blobs)):
        if given:
            yield f"run.{key} must be empty, got {given!r}: an alignment keeps its two runs in its folder"
    if config.grounding.head != "pointer":
        yield (
            f"grounding.head must be 'pointer', got {config.grounding.head!r}: reinforcement "
            "learning continues with the same head, and only the pointer head can be trained so"
        )


def refuse_unfit_files(config: Config) -> None:
    """Raise UnavailableError if the base policy cannot be aligned, GroundingDataError if data are invalid."""
    base = Path(config.grounding.base)
    remedy = "name another one with --set grounding.base=FOLDER"
    if not (base / "config.json").is_file():
        raise UnavailableError(f"no policy checkpoint in {base} (grounding.base): {remedy}")
    if damage := damage_of(base):
        raise UnavailableError(
            f"the policy checkpoint in {base} (grounding.base) is damaged: {damage}; {remedy}"
        )
    if not has_pointer(base):
        raise UnavailableError(
            f"{base} (grounding.base) has no pointer head: {remedy}; `dartrl pretrain --coordinates pointer` "
            "makes a small policy with one, `python -m dart.policy.pointer_checkpoint` adds one to a "
            "vision-language checkpoint"
        )
    read_all(config.grounding.data)
    if config.grounding.held_out:
        read_screenspot(Path(config.grounding.held_out))
