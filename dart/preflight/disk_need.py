"""An estimate of the disk space that a run takes, before anything starts.

Checkpoints take room from the beginning, and their number is bounded. Screenshots and steps grow with every
step that is played. The record itself and the logs are small beside both.
"""

import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from dart.config.config import Config
from dart.config.published import published_dtype, publishes_adapter, reads_policy
from dart.core.errors import DartError
from dart.inspect.formatting import size
from dart.preflight.memory import ADAM_MOMENTS, BYTES_OF_DTYPE, PolicySize, could_adapt, size_from_files

SMALL_PAGE_BYTES = 1100
"""Bytes that a step of the laptop job adds, with its screenshot of 160x210 pixels (docs/measurements.md)."""

BYTES_PER_PIXEL = {"sites": 0.17, "desktop": 0.06, "osworld": 0.5}
"""Bytes of a PNG for each pixel of the screen, by kind of environment. Those of `sites` and `desktop` were
measured, that of `osworld` is an assumption (docs/daemon.md)."""

SWEPT_DAYS = 2
"""Days within which the store looks once at all screenshots for old ones, rounded up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskNeed:
    """The checkpoints of a run, and the room for them."""

    count: int
    """Number of checkpoints at a time: those that are kept, and the one being written."""
    checkpoint_bytes: int
    present_bytes: int
    """Bytes of the checkpoints that the run directory has already."""
    free_bytes: int
    folder: Path
    """The run directory or its nearest parent that exists."""
    could_adapt: bool
    """Whether all weights of a policy are trained that could have an adapter."""

    @property
    def lacking_bytes(self) -> int:
        """Bytes that are needed and neither free nor taken by checkpoints of the run; 0 if there is room."""
        return max(0, self.count * self.checkpoint_bytes - self.present_bytes - self.free_bytes)

    def __str__(self) -> str:
        return (
            f"{self.count} checkpoints of {size(self.checkpoint_bytes)} (training.checkpoints_kept + 1) "
            f"take {size(self.count * self.checkpoint_bytes)}, "
            f"and {size(self.free_bytes)} are free at {self.folder}"
        )

    @property
    def remedy(self) -> str:
        """What gives the run the room that it lacks."""
        adapter = " train an adapter (training.lora.rank > 0)," if self.could_adapt else ""
        fewer = " lower training.checkpoints_kept," if self.count > 2 else ""
        return f"free {size(self.lacking_bytes)},{fewer}{adapter} or choose a larger disk with --run-dir"


def checkpoint_bytes(config: Config, policy: PolicySize) -> int:
    """Return the size of one checkpoint: published weights, the trainer's own weights, the optimizer's state.

    The trainer's own weights are written beside the published ones if engines read a lower precision
    (`dart.training.checkpoint_copy`), and always if they are an adapter.
    """
    training = config.training
    if training.learner != "grpo":
        return 0
    published = 0 if publishes_adapter(config) else _published_bytes(config, policy)
    if training.lora.rank > 0:
        return published + (1 + ADAM_MOMENTS) * _adapter_bytes(config, policy)
    engines, own = BYTES_OF_DTYPE[published_dtype(config)], BYTES_OF_DTYPE[training.weight_precision]
    master = own * policy.parameters if engines < own else 0
    return published + master + ADAM_MOMENTS * own * policy.parameters


def disk_need(config: Config, root: Path) -> DiskNeed | None:
    """Return the room that a run in the directory `root` needs; None if the size of its policy is unknown.

    The requirements say what is wrong with a policy that cannot be read.
    """
    policy = _policy_of(config)
    if config.training.learner != "grpo" or policy is None:
        return None
    folder = existing_part(root)
    return DiskNeed(
        count=config.training.checkpoints_kept + 1,
        checkpoint_bytes=checkpoint_bytes(config, policy),
        present_bytes=bytes_below(root / "checkpoints"),
        free_bytes=shutil.disk_usage(folder).free,
        folder=folder,
        could_adapt=could_adapt(config, policy),
    )


def node_bytes(config: Config, *, has_trainer: bool, has_engines: bool) -> int:
    """Return the room that one node of a cluster needs for its part of a run, logs left out.

    That is the cache of blobs; with engines, also the version that they serve, the next one and, if versions
    are adapters, the base policy; with the trainer, its checkpoints. A policy whose size is unknown counts
    nothing.
    """
    policy = _policy_of(config) or PolicySize()
    versions = 2 * _published_bytes(config, policy) if has_engines else 0
    base = bytes_below(config.training.policy) if has_engines and publishes_adapter(config) else 0
    count = config.training.checkpoints_kept + 1 if has_trainer else 0
    return config.run.cache_bytes + versions + base + count * checkpoint_bytes(config, policy)


def _policy_of(config: Config) -> PolicySize | None:
    """Return the size of the policy that a run begins with; None if it reads none, or none can be read."""
    try:
        return size_from_files(config.training.policy) if reads_policy(config) else None
    except (OSError, ValueError, DartError):
        return None


def _published_bytes(config: Config, policy: PolicySize) -> int:
    """Return the size of what engines load of one version."""
    if publishes_adapter(config):
        return _adapter_bytes(config, policy)
    return BYTES_OF_DTYPE[published_dtype(config)] * policy.parameters


def _adapter_bytes(config: Config, policy: PolicySize) -> int:
    return BYTES_OF_DTYPE["float32"] * config.training.lora.rank * policy.adapter_parameters_per_rank


def existing_part(root: Path) -> Path:
    """Return a folder or its nearest parent that exists. What this user may not look at does not exist."""
    absolute = root.absolute()
    return next(place for place in (absolute, *absolute.parents) if os.path.exists(place))  # noqa: PTH110


def bytes_below(folder: Path) -> int:
    """Return the size of all files below a folder. Files that a running trainer deletes meanwhile count 0."""
    total = 0
    for file in folder.rglob("*"):
        try:
            found = file.stat()
        except OSError:
            continue
        total += found.st_size if stat.S_ISREG(found.st_mode) else 0
    return total


def step_bytes(config: Config) -> int:
    """Return about how many bytes each environment step adds to the blobs; 0 where pictures recur."""
    environments = config.environments
    match environments.kind:
        case "miniwob":
            return SMALL_PAGE_BYTES
        case "sites":
            screen = environments.sites.width * environments.sites.height
        case "desktop":
            screen = environments.desktop.width * environments.desktop.height
        case "osworld":
            screen = environments.osworld.width * environments.osworld.height
        case _:
            return 0
    return int(screen * BYTES_PER_PIXEL[environments.kind])


def growth_line(config: Config) -> str:
    """Return a line of text: how much room the screenshots of updates take; empty where they take none."""
    each, curation = step_bytes(config), config.curation
    if not each:
        return ""
    steps = config.training.groups_per_update * curation.rollouts_per_group * curation.step_cap
    line = (
        f"screenshots: about {size(each)} for each step, so up to {size(steps * each)} for each update "
        f"({steps:,} steps)"
    )
    if updates := config.training.updates:
        line += f" and {size(updates * steps * each)} for {updates} updates"
    days = config.run.screenshots_kept_days
    kept = "none is deleted (run.screenshots_kept_days = 0)"
    if days:
        kept = f"screenshots that nothing needs are deleted after {days} to {days + SWEPT_DAYS} days"
    return f"{line}; dropped groups add to it, and {kept}"


def disk_lines(config: Config) -> list[str]:
    """Return lines of text: the room that checkpoints and screenshots take, and whether there is too little.

    There are none if nothing is trained or the size of the policy is unknown.
    """
    need = disk_need(config, config.run.dir)
    if need is None:
        return []
    lines = [f"disk, at least: {need}"]
    if need.lacking_bytes:
        lines.append(f"that is {size(need.lacking_bytes)} more than there is; {need.remedy}")
    return [*lines, *filter(None, [growth_line(config)])]
