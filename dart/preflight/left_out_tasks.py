"""Which tasks of a run are left out of training, and which cannot be played here, each with the reason."""

from collections.abc import Iterator, Mapping
from pkgutil import resolve_name

from dart.config.config import Config, left_out_of_training
from dart.config.environment_kinds import KINDS


def left_out_lines(config: Config) -> Iterator[str]:
    """Yield lines for a person: each task that gives no result in this run, and why. None if all tasks do.

    raises    EvaluatorsMissing if the tasks are OSWorld's and the evaluators are not installed
    """
    many = len(config.tasks.train)
    if config.training.learner != "none":
        yield from _lines(
            left_out_of_training(config),
            f"of {many} tasks are left out of training, because their evaluation is wrong; "
            "evaluations play them",
        )
    yield from _lines(
        unplayable(config), f"of {many} tasks cannot be played here; their episodes end without a result"
    )


def unplayable(config: Config) -> Mapping[str, str]:
    """Return the tasks of `tasks.train` that cannot be played on this system, with what each needs."""
    name = KINDS[config.environments.kind].unplayable
    return resolve_name(name)(config) if name else {}


def _lines(reasons: Mapping[str, str], what: str) -> Iterator[str]:
    if reasons:
        yield f"{len(reasons)} {what}:"
        yield from (f"  {task}: {why}" for task, why in reasons.items())
