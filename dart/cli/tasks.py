"""`dartrl tasks`: what the curator knows of each task, what it decided and why."""

import json
from pathlib import Path
from typing import Annotated

import typer

from dart.cli.boundary import errors_as_exit_codes
from dart.cli.options import AsJson, RunDir
from dart.cli.record import recorded

tasks_app = typer.Typer(
    help="What is known of each task, what was decided about it and why.", no_args_is_help=True
)


@tasks_app.command("list")
def list_tasks(run_dir: RunDir = None, as_json: AsJson = False) -> None:
    """Show every task: success, N and step cap of its next group, pool, quarantine, drops by reason.

    Works on a running run and on one that has ended.

    **Examples**

    * `dartrl tasks list`
    * `dartrl tasks list --run-dir runs/hard --json | jq '.[] | select(.success_rate == 0)'`
    """
    with errors_as_exit_codes():
        _list(run_dir, as_json=as_json)


@tasks_app.command()
def show(
    task: Annotated[str, typer.Argument(help="Id of a task; the last part will do where it is unique.")],
    run_dir: RunDir = None,
    as_json: AsJson = False,
) -> None:
    """Show one task and the history of what was decided about it, each with its reason.

    **Examples**

    * `dartrl tasks show miniwob/click-tab`
    * `dartrl tasks show click-tab --run-dir runs/hard`
    """
    with errors_as_exit_codes():
        _show(task, run_dir, as_json=as_json)


def _list(run_dir: Path | None, *, as_json: bool) -> None:
    from dataclasses import asdict

    from rich.console import Console

    from dart.config import load_config
    from dart.observe import tasks
    from dart.store.reader import StoreReader

    paths = recorded(run_dir)
    with StoreReader(paths.store) as store:
        reports = tasks.task_reports(store, load_config(paths.config))
    if as_json:
        typer.echo(json.dumps([asdict(report) for report in reports]))
    else:
        Console().print(tasks.task_list(reports))
        for line in tasks.rests(reports):
            typer.echo(line)


def _show(name: str, run_dir: Path | None, *, as_json: bool) -> None:
    from dataclasses import asdict

    from dart.config import load_config
    from dart.observe import tasks
    from dart.store.reader import StoreReader

    paths = recorded(run_dir)
    config = load_config(paths.config)
    task_id = tasks.find_task(name, config.tasks.train)
    with StoreReader(paths.store) as store:
        (report,) = (one for one in tasks.task_reports(store, config) if one.task_id == task_id)
        decisions = store.decisions(task_id, limit=tasks.DECISIONS_MAX)
    if as_json:
        typer.echo(json.dumps({**asdict(report), "decisions": [asdict(one) for one in decisions]}))
        return
    lines = tasks.history(decisions) or ["nothing was decided: it runs as configured"]
    typer.echo("\n".join([*tasks.about(report), "", *lines]))
