"""`dartrl tasks`: list the tasks that there are, and show what the curator knows about those of a run."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dart.cli.options import CONFIGURATION, Overrides, RunDir, offer_tasks, reads_run, recorded
from dart.cli.output import Format, Output, print_data, print_list, say
from dart.inspect.formatting import counts, percent
from dart.inspect.tables import Column

if TYPE_CHECKING:
    from dart.inspect.task_reports import TaskReport

tasks_app = typer.Typer(
    help="The tasks that there are; what the curator knows about those of a run, and its decisions.",
    no_args_is_help=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AvailableTask:
    """A task that a configuration can train on."""

    task_id: str
    is_chosen: bool
    """Whether `tasks.train` names it."""


AVAILABLE: tuple[Column[AvailableTask], ...] = (
    Column("task", lambda one: one.task_id),
    Column("in tasks.train", lambda one: "yes" if one.is_chosen else ""),
)


@tasks_app.command()
def available(
    config: Annotated[
        Path | None, typer.Argument(help=f"{CONFIGURATION} Default: the built-in values.")
    ] = None,
    overrides: Overrides = None,
    output: Output = Format.TABLE,
) -> None:
    """List the tasks that a configuration can train on: those of `environments.kind` that are installed, and
    which of them `tasks.train` names.

    **Examples**

    * `dartrl tasks available`
    * `dartrl tasks available sites`
    * `dartrl tasks available --set environments.miniwob.pages=my-pages -o json | jq -r '.[].task_id'`
    """
    from dart.config.config import known_tasks, resolve
    from dart.config.environment_kinds import KINDS

    found, _ = resolve(config, overrides or [], is_kept=True)
    chosen, kind = set(found.tasks.train), found.environments.kind
    tasks = [AvailableTask(task_id=one, is_chosen=one in chosen) for one in known_tasks(found)]
    key, words = KINDS[kind].tasks_key, [str(config)] if config else []
    remedy = f": look at {key} and at `{shlex.join(['dartrl', 'setup', *words])}`" if key else ""
    empty = f"no tasks of kind {kind!r} can be listed here{remedy}"
    print_list(tasks, AVAILABLE, output, empty=empty)


@tasks_app.command("list")
@reads_run
def list_tasks(run_dir: RunDir = None, output: Output = Format.TABLE) -> None:
    """Show every task: its success rate, N and the step cap of its next group, its demonstrations in the
    experience pool, its dropped groups by reason, and whether it is in quarantine.

    The run may be running or have ended.

    **Examples**

    * `dartrl tasks list`
    * `dartrl tasks list --run-dir runs/hard -o json | jq '.[] | select(.success_rate == 0)'`
    """
    from dart.config.config import kept_config
    from dart.inspect import task_reports
    from dart.store.reader import StoreReader

    paths = recorded(run_dir)
    with StoreReader(paths.record) as store:
        reports = task_reports.task_reports(store, kept_config(paths.config))
    print_list(reports, columns(reports), output)
    if not output.is_data:
        for line in task_reports.quarantines(reports):
            say(line)


@tasks_app.command()
@reads_run
def show(
    task: Annotated[
        str,
        typer.Argument(
            help="Id of a task, also as a table cut it; its last part is enough if no other task has it.",
            autocompletion=offer_tasks,
        ),
    ],
    run_dir: RunDir = None,
    output: Output = Format.TABLE,
) -> None:
    """Show one task, and the history of the curator's decisions about it, each with its reason.

    **Examples**

    * `dartrl tasks show miniwob/click-tab`
    * `dartrl tasks show click-tab --run-dir runs/hard`
    """
    from dataclasses import asdict

    from dart.config.config import kept_config
    from dart.inspect import task_reports
    from dart.store.reader import StoreReader

    paths = recorded(run_dir)
    config = kept_config(paths.config)
    task_id = task_reports.find_task(task, config.tasks.train)
    with StoreReader(paths.record) as store:
        (report,) = (one for one in task_reports.task_reports(store, config) if one.task_id == task_id)
        decisions = store.decisions(task_id, limit=task_reports.DECISIONS_MAX)
    if output.is_data:
        print_data({**asdict(report), "decisions": decisions}, output)
        return
    lines = task_reports.history(decisions) or ["no decision was made: the task is played as configured"]
    say("\n".join([*task_reports.about(report), "", *lines]))


def columns(reports: "Sequence[TaskReport]") -> "list[Column[TaskReport]]":
    """Return the columns of the table of tasks.

    If all ids begin with the same part before the slash, only the header shows that part.
    """
    from dart.inspect.report import family_of, short_id

    family = family_of(one.task_id for one in reports)
    return [
        Column(f"{family} task".strip(), lambda one: short_id(one.task_id, family)),
        Column("success", lambda one: percent(one.success_rate), is_number=True),
        Column("of", lambda one: one.recent, is_number=True, is_wide=True),
        Column("N", lambda one: one.rollouts, is_number=True),
        Column("cap", lambda one: one.step_cap, is_number=True),
        Column("longest", lambda one: one.longest_success_steps, is_number=True, is_wide=True),
        Column("pool", lambda one: one.demonstrations, is_number=True),
        Column("uses", lambda one: one.uses, is_number=True, is_wide=True),
        Column("groups", lambda one: one.groups, is_number=True),
        Column("finished", lambda one: one.finished, is_number=True, is_wide=True),
        Column("dropped groups", lambda one: counts(one.drops)),
        Column("state", lambda one: "active" if one.quarantined_until_unix_s is None else "quarantined"),
    ]
