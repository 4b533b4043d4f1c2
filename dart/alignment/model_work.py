"""The work of an alignment that needs models: measuring and training the grounding policy.

Call each function in a process of its own: the functions import torch, which starts threads, and the process
of the alignment loop forks actors later.
"""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from dart.alignment.mixing import mixed
from dart.config.sections import EvaluationSettings, GroundingSettings
from dart.core.screenspot import GroundingSample, read_screenspot


def measure(checkpoint: Path, site: Path, held_out: str) -> dict[str, Any]:
    """Measure the accuracy of a checkpoint, and return the reports as plain data.

    The key `site` has the report on the data of the site, `generic` that on held-out generic data or None.

    site       folder with data of the site
    held_out   folder or annotation file with generic data; empty: none
    raises     GroundingDataError, CheckpointError, UnsupportedCheckpoint
    """
    from dart.grounding.jobs import evaluate_job

    without_verifier, show = EvaluationSettings(), partial(print, flush=True)
    found = {"site": asdict(evaluate_job(checkpoint, site, without_verifier, report=show)), "generic": None}
    if held_out:
        generic = evaluate_job(checkpoint, Path(held_out), without_verifier, report=show)
        found["generic"] = asdict(generic)
    return found


def train_aligned(settings: GroundingSettings, site: Path, out: Path) -> dict[str, Any]:
    """Train the base policy on data of a site mixed with generic data (`grounding.data`).

    Returns the numbers of samples, the share of generic samples and the number of updates.

    site     folder with data of the site
    out      new folder for the aligned policy
    raises   GroundingDataError, CheckpointError, UnsupportedCheckpoint, and ConfigurationError if training
             diverges
    """
    from dart.grounding.jobs import train_on

    mixture = mixed(read_screenspot(site), read_all(settings.data))
    train_on(settings, mixture.samples, out, partial(print, flush=True))
    return {
        "site_samples": len(mixture.site),
        "generic_samples": len(mixture.generic),
        "generic_share": mixture.generic_share,
        "updates": settings.updates,
    }


def read_all(folders: Sequence[Path]) -> list[GroundingSample]:
    """Return the grounding samples of several folders. Raises GroundingDataError."""
    return [sample for folder in folders for sample in read_screenspot(folder)]
