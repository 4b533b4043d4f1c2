"""What an alignment does with models. Imports torch when it is called.

Each call has a process of its own, because the loop's process forks actors later, and torch owns threads.
"""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from dart.alignment.mixing import mixed
from dart.config.sections import EvaluationSettings, GroundingSettings
from dart.core.errors import ConfigurationError
from dart.core.screenspot import GroundingSample, read_screenspot


def measure(checkpoint: Path, site: Path, held_out: str) -> dict[str, Any]:
    """The accuracy of a checkpoint on the data of a site, and on held-out generic data if that is named.

    Raises GroundingDataError, CheckpointError, UnsupportedCheckpoint.
    """
    from dart.grounding.jobs import evaluate_job

    without_verifier, show = EvaluationSettings(), partial(print, flush=True)
    found = {"site": asdict(evaluate_job(checkpoint, site, without_verifier, report=show)), "generic": None}
    if held_out:
        generic = evaluate_job(checkpoint, Path(held_out), without_verifier, report=show)
        found["generic"] = asdict(generic)
    return found


def train_aligned(settings: GroundingSettings, site: Path, out: Path) -> dict[str, Any]:
    """Train the base policy on data of a site mixed with that of `grounding.data`, into the new folder `out`.

    Raises GroundingDataError, CheckpointError, UnsupportedCheckpoint, and ConfigurationError when training
    diverges.
    """
    from dart.grounding.jobs import train_on

    mixture = mixed(read_screenspot(site), read_all(settings.data))
    try:
        train_on(settings, mixture.samples, out, partial(print, flush=True))
    except FloatingPointError as error:
        raise ConfigurationError(f"{error}: change grounding.lr or grounding.seed") from error
    return {
        "site_samples": len(mixture.site),
        "generic_samples": len(mixture.generic),
        "generic_share": mixture.generic_share,
        "updates": settings.updates,
    }


def read_all(folders: Sequence[Path]) -> list[GroundingSample]:
    """The samples of several folders. Raises GroundingDataError."""
    return [sample for folder in folders for sample in read_screenspot(folder)]
