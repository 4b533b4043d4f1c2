"""`dartrl eval rescore`: score stored episodes of OSWorld again, with other evaluators."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dart.cli.exit_codes import ExitCode, end, errors_as_exit_codes
from dart.cli.output import Format, Output, print_list, say
from dart.inspect.formatting import counted
from dart.inspect.tables import Column

if TYPE_CHECKING:
    from dart.environments.osworld.rescore import Rescored


def rescore(
    run: Annotated[
        Path, typer.Argument(help="Directory of a run of OSWorld that has judgements (folder judgements/).")
    ],
    tasks: Annotated[
        Path | None,
        typer.Option(
            help="Folder with the task files, or a file with a set of tasks. Default: "
            "environments.osworld.tasks of the run."
        ),
    ] = None,
    evaluators: Annotated[
        Path | None,
        typer.Option(
            help="Virtual environment of the evaluators that give the new scores. Default: "
            "environments.osworld.evaluators of the run."
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of episodes that are judged at the same time; each takes up to one CPU and 5 GiB of "
            "memory. Default: the number of CPUs, at most 4.",
        ),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Score the stored episodes of a run again, with the OSWorld evaluators that are installed now.

    No machine is needed, because a run keeps what each evaluation read of its machine. Nothing in the run
    changes. For each episode, the table has the score that counted and the new score, each with the version
    of its evaluators. If there is no new score, the table has the reason: the new evaluators read something
    that was not kept; a rule of the task depends on today's date; the file of the task has changed; kept data
    are lost; or its evaluation could not be made. The other episodes are judged anyway.

    Pages of a browser are gone after an episode. Getters that read pages are therefore not called again:
    the metrics judge the values that the getters returned while the episode ran. The wide table names these
    getters, and so does `by_values` of `-o json`.

    Exit code 0: at least one episode has a new score, equal or not; 1: none has.

    **Examples**

    * `dartrl eval rescore runs/base`
    * `dartrl eval rescore runs/base --evaluators /opt/newer-evaluators -o json`
    * `dartrl eval rescore runs/base --tasks evaluation_examples/examples`
    * `dartrl eval rescore runs/base --workers 16`
    """
    import asyncio

    with errors_as_exit_codes(run):
        found = asyncio.run(_rescored(run, tasks, evaluators, workers))
    print_list(found, columns(), output)
    if not output.is_data:
        say(summary(found))
    if all(one.new_score is None for one in found):
        raise typer.Exit(ExitCode.FAILED)


async def _rescored(
    run: Path, tasks: Path | None, evaluators: Path | None, workers: int | None
) -> "list[Rescored]":
    from dart.core.run_directory import RunPaths, is_own

    config = RunPaths(run).config
    if not config.is_file():
        end(
            f"{run} is not a run directory, because it has no {config.name}: name the directory of a run",
            ExitCode.USAGE,
        )
    if evaluators is None and not is_own(run):
        end(
            f"{run} belongs to another user, and the evaluators that its configuration names are programs: "
            "name your own with --evaluators",
            ExitCode.USAGE,
        )
    from dart.environments.osworld.rescore import default_workers, judgements_of, require_tasks, rescore
    from dart.environments.osworld.scoring_environment import find_evaluators
    from dart.inspect.actor_table import written_config

    settings = written_config(run)["environments"]
    judgements = judgements_of(run, settings["kind"])
    scoring = find_evaluators(evaluators or Path(settings["osworld"]["evaluators"]))
    folder = tasks or Path(settings["osworld"]["tasks"])
    require_tasks(folder)
    numbers = itertools.count(1)

    def progress(one: "Rescored") -> None:
        say(f"{next(numbers)}/{len(judgements)} {one.task_id}: {_change(one)}", err=True)

    many = workers or default_workers()
    return await rescore(run, judgements, folder, scoring, workers=many, progress=progress)


def _change(one: "Rescored") -> str:
    by_values = f" (by the kept value of {', '.join(one.by_values)})" if one.by_values else ""
    return one.reason if one.new_score is None else f"{one.score:g} -> {one.new_score:g}{by_values}"


def columns() -> "list[Column[Rescored]]":
    """Return the columns of the table: the task, the score that counted, and the new score or the reason."""
    return [
        Column("task", lambda one: one.task_id),
        Column("seed", lambda one: one.seed, is_number=True, is_wide=True),
        Column("rollout", lambda one: one.rollout_id or None, is_number=True),
        Column("environment", lambda one: one.environment, is_wide=True),
        Column("evaluators", lambda one: one.evaluator),
        Column("score", lambda one: f"{one.score:g}", is_number=True),
        Column("new evaluators", lambda one: one.new_evaluator),
        Column("new score", lambda one: _or_none(one.new_score), is_number=True),
        Column("by kept values of", lambda one: ", ".join(one.by_values) or None, is_wide=True),
        Column("not judged again because", lambda one: one.reason, folds=True),
    ]


def _or_none(score: float | None) -> str | None:
    return None if score is None else f"{score:g}"


def summary(found: "Sequence[Rescored]") -> str:
    """Return one line: how many episodes have a new score, how many scores differ, and both mean scores.

    The means are of the episodes with a new score.
    """
    again = [(one.score, one.new_score) for one in found if one.new_score is not None]
    text = (
        f"{counted(len(again), 'episode')} judged again, {sum(old != new for old, new in again)} differently"
    )
    if again:
        means = [sum(column) / len(again) for column in zip(*again, strict=True)]
        text += f"; mean score {means[0]:.4f}, now {means[1]:.4f}"
    if by_values := sum(bool(one.by_values) for one in found):
        text += f"; {by_values} by kept values of getters that read pages"
    return text + (f"; {len(found) - len(again)} not judged again" if len(again) < len(found) else "")
