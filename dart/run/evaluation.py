"""Evaluation apart from training: a run that plays the evaluation episodes of one checkpoint and ends.

The evaluation is a run like any other: killed environments and engines are restarted, and an evaluation that
was ended can continue where it was. It does not train, so it needs no memory or GPU for a learner.
"""

import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
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
from dart.environments.leftovers import left_behind
from dart.environments.osworld.judgements import read_judgements
from dart.inspect.evaluation_scores import GREEDY
from dart.inspect.report import EvaluationResult, RunReport, SuccessReport, to_json
from dart.run.app import CONTINUE, train
from dart.run.listener import RunListener

NOT_KEPT = (
    "what was played is lost, because the evaluation has no run directory: begin it again, with --run-dir "
    "DIR if you want to be able to continue it after a failure"
)
"""What to do after a failure of an evaluation in a temporary directory."""


@dataclass(frozen=True, slots=True)
class Judges:
    """The evaluators that judged the episodes of an evaluation, and the tasks that they read.

    Only OSWorld's evaluators have versions; for other environments this is empty.
    """

    evaluators: tuple[str, ...] = ()
    """Name and version, such as ``desktop-env 1.0.2``; several if the version changed before a resume."""
    task_sha256: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Hashes of the task's file, by task id; several if the file changed before a resume."""


def judges_of(run_dir: Path) -> Judges:
    """Return what judged the episodes of a run."""
    evaluators: dict[str, None] = {}
    hashes: dict[str, dict[str, None]] = {}
    for kept in read_judgements(run_dir):
        evaluators[kept.evaluator] = None
        hashes.setdefault(kept.task_id, {})[kept.task_sha256] = None
    return Judges(tuple(evaluators), {task: tuple(one) for task, one in sorted(hashes.items())})


@dataclass(frozen=True, slots=True)
class Measurement:
    """What an evaluation measured."""

    report: RunReport
    stopped_by: int | None = None
    """Number of the signal that ended the evaluation before its last episode; None if it is complete."""
    judges: Judges = Judges()
    """What judged the episodes."""

    @property
    def tables(self) -> list[tuple[SuccessReport, list[PassAtK]]]:
        """A pair of the success by task and pass@k over all tasks, for sampled and for greedy answers.

        A way of answering that was not measured is left out. For greedy answers the list of pass@k is empty,
        because playing an episode greedily again gives no independent attempt.
        """
        return [
            (one, [] if one.answers == GREEDY else pass_rates(one.before)) for one in self.report.measured
        ]


def pass_rates(result: EvaluationResult) -> list[PassAtK]:
    """Return the mean pass@k over tasks for each k for which every task has enough episodes (`ks_of`)."""
    scores = list(result.scores.values())
    return [mean_pass_at_k(scores, k) for k in ks_of(scores)]


def measuring(config: Config, checkpoint: Path, run_dir: Path) -> Config:
    """Return the configuration of a run in `run_dir` that only evaluates a checkpoint, else like `config`."""
    training = {"policy": checkpoint, "learner": "none", "ranks": 1, "gpus": (), "lora": LoraSettings()}
    return config.model_copy(
        update={
            "run": config.run.model_copy(update={"dir": run_dir, "minutes": 0.0, "record": "", "blobs": ""}),
            "training": config.training.model_copy(update=training),
            "curation": config.curation.model_copy(update={"experience_pool": ExperiencePoolSettings()}),
            "exploration": ExplorationSettings(),
            "tracking": TrackingSettings(),
            "evaluation": config.evaluation.model_copy(update={"before": True, "after": False}),
        }
    )


def evaluate(config: Config, checkpoint: Path, *, listener: RunListener | None = None) -> Measurement:
    """Evaluate a checkpoint in a temporary run directory. Raises the errors of `measure`.

    The directory is kept if machines could not be given back, because only its files name them."""
    folder = Path(tempfile.mkdtemp(prefix="dartrl-eval-"))
    run_dir = folder / "run"
    try:
        return measure(measuring(config, checkpoint, run_dir), listener=listener, remedy=NOT_KEPT)
    finally:
        if not left_behind(config, RunPaths(run_dir)):
            shutil.rmtree(folder, ignore_errors=True)


def measure(
    config: Config, *, resume: bool = False, listener: RunListener | None = None, remedy: str = CONTINUE
) -> Measurement:
    """Run the evaluation of a configuration that `measuring` made, and write report.json into its directory.

    resume     continue the evaluation in the run directory; episodes that have a result are not played again
    listener   gets callbacks as the run progresses
    remedy     what to do after a failure; error messages end with it

    Raises the errors of `dart.run.app.train`, and DartError if no episode was played or the data are damaged.
    """
    result = train(config, resume=resume, listener=listener, remedy=remedy)
    if result.failure:
        raise DartError(result.failure)
    found = Measurement(result.report, result.stopped_by, judges_of(config.run.dir))
    text = json.dumps(as_json(found, config), indent=2)
    write_atomically(RunPaths(config.run.dir).report, f"{text}\n".encode(), 0o644)
    return found


def as_json(found: Measurement, config: Config) -> dict[str, Any]:
    """Return an evaluation as plain data. Rates and intervals are in [0, 1].

    `answers` has an entry for sampled and for greedy answers, if they were measured.
    """
    return {
        "checkpoint": str(config.training.policy),
        "is_complete": found.stopped_by is None,
        "evaluators": list(found.judges.evaluators),
        "task_sha256": {task: list(hashes) for task, hashes in found.judges.task_sha256.items()},
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
