"""Evaluation apart from training: a run that plays the evaluation episodes of one checkpoint and ends.

It is a run like any other, so that a killed environment or engine is started again, and an evaluation that
was ended goes on where it was. It has no trainer, and so needs no memory or GPU for one.
"""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dart.config.config import Config
from dart.config.sections import (
    ExperiencePoolSettings,
    ExplorationSettings,
    LoraSettings,
    TrackingSettings,
)
from dart.core.errors import DartError
from dart.core.pass_at_k import PassAtK, ks_of, mean_pass_at_k
from dart.core.run_directory import RunPaths, write_atomically
from dart.inspect.evaluation_scores import GREEDY
from dart.inspect.report import EvaluationResult, RunReport, SuccessReport, to_json
from dart.run.app import train
from dart.run.listener import RunListener

NO_TRAINING_MINUTES = 1e-3
"""Time budget of a run that measures, so short that it is spent before training begins."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What an evaluation measured."""

    report: RunReport
    stopped_by: int | None = None
    """Number of the signal that ended the evaluation before its last episode; None if it is complete."""

    @property
    def tables(self) -> list[tuple[SuccessReport, list[PassAtK]]]:
        """Success by task, and pass@k over all tasks, for each way in which answers were chosen.

        Greedy answers have no pass@k: another play of them is no other attempt.
        """
        return [
            (one, [] if one.answers == GREEDY else pass_rates(one.before)) for one in self.report.measured
        ]


def pass_rates(result: EvaluationResult) -> list[PassAtK]:
    """Return pass@k for each k of `ks_of`, so that every task has enough episodes for it."""
    scores = list(result.scores.values())
    return [mean_pass_at_k(scores, k) for k in ks_of(scores)]


def measuring(config: Config, checkpoint: Path, run_dir: Path) -> Config:
    """Return the configuration of the run that evaluates a checkpoint with these settings."""
    training = {"policy": checkpoint, "learner": "none", "ranks": 1, "gpus": (), "lora": LoraSettings()}
    return config.model_copy(
        update={
            "run": config.run.model_copy(
                update={"dir": run_dir, "minutes": NO_TRAINING_MINUTES, "record": "", "blobs": ""}
            ),
            "training": config.training.model_copy(update=training),
            "curation": config.curation.model_copy(update={"experience_pool": ExperiencePoolSettings()}),
            "exploration": ExplorationSettings(),
            "tracking": TrackingSettings(),
            "evaluation": config.evaluation.model_copy(update={"before": True, "after": False}),
        }
    )


def evaluate(config: Config, checkpoint: Path, *, listener: RunListener | None = None) -> Measurement:
    """Evaluate a checkpoint and keep nothing. Raises as `measure` does."""
    with tempfile.TemporaryDirectory(prefix="dartrl-eval-") as folder:
        return measure(measuring(config, checkpoint, Path(folder) / "run"), listener=listener)


def measure(config: Config, *, resume: bool = False, listener: RunListener | None = None) -> Measurement:
    """Run the evaluation of a configuration that `measuring` made, and write report.json into its directory.

    resume   go on with the evaluation in the run directory; episodes that have a result are not played again

    Raises as `dart.run.app.train` does, and DartError when no episode could be played or data are damaged.
    """
    result = train(config, resume=resume, listener=listener)
    if result.failure:
        raise DartError(result.failure)
    found = Measurement(result.report, result.stopped_by)
    text = json.dumps(as_json(found, config), indent=2)
    write_atomically(RunPaths(config.run.dir).report, f"{text}\n".encode(), 0o644)
    return found


def as_json(found: Measurement, config: Config) -> dict[str, Any]:
    """Return an evaluation as plain data: rates and intervals in [0, 1], by way of answering."""
    return {
        "checkpoint": str(config.training.policy),
        "is_complete": found.stopped_by is None,
        "answers": [
            {
                **to_json(report),
                "pass_at_k": [
                    {"k": one.k, "rate": one.rate, "interval": [one.interval.low, one.interval.high]}
                    for one in rates
                ],
            }
            for report, rates in found.tables
        ],
    }
