"""`dartrl trajectories`: list the finished episodes of a run, show one step by step, or export it as HTML."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dart.cli.exit_codes import errors_as_exit_codes
from dart.cli.options import ID_MOST, OfTask, RunDir, reads_run, recorded, with_blobs
from dart.cli.output import Format, Output, print_data, print_list, say
from dart.inspect.formatting import clock, number
from dart.inspect.tables import Column

if TYPE_CHECKING:
    from dart.store.browse_queries import TrajectorySummary

trajectories_app = typer.Typer(
    help="The finished episodes of a run: list them, show one step by step, export one.",
    no_args_is_help=True,
)

RolloutId = Annotated[
    int,
    typer.Argument(metavar="ID", help="Number of a rollout, from `trajectories list`.", min=0, max=ID_MOST),
]


COLUMNS: "tuple[Column[TrajectorySummary], ...]" = (
    Column("id", lambda row: row.rollout_id, is_number=True),
    Column("task", lambda row: row.task_id),
    Column("outcome", lambda row: row.outcome),
    Column("reward", lambda row: number(row.reward, 2), is_number=True),
    Column("steps", lambda row: row.num_steps, is_number=True),
    Column("version", lambda row: row.oldest_version, is_number=True),
    Column("stored", lambda row: clock(row.stored_unix_s)),
    Column("fate", lambda row: f"{row.state}, {row.drop_reason}" if row.drop_reason else row.state),
    Column("environment", lambda row: row.environment, is_wide=True),
    Column("group", lambda row: row.group_id, is_number=True, is_wide=True),
    Column("seed", lambda row: row.seed, is_number=True, is_wide=True),
    Column("s", lambda row: number(row.duration_s), is_number=True, is_wide=True),
)


@trajectories_app.command("list")
@reads_run
def list_trajectories(
    run_dir: RunDir = None,
    task: OfTask = None,
    outcome: Annotated[
        str | None, typer.Option(help="Only episodes with this outcome, such as parse_error.")
    ] = None,
    result: Annotated[str | None, typer.Option(help="Only `success` or only `failure`.")] = None,
    before: Annotated[
        int | None,
        typer.Option(
            help="Only rollouts with an id below this one; the last id of a list gives the next page.",
            min=0,
            max=ID_MOST,
        ),
    ] = None,
    limit: Annotated[int, typer.Option(help="Largest number of episodes.", min=1, max=10_000)] = 20,
    output: Output = Format.TABLE,
) -> None:
    """Show finished episodes, newest first: outcome, reward, steps, oldest policy version, time and fate.

    **Examples**

    * `dartrl trajectories list --task click-tab --result failure`
    * `dartrl trajectories list --limit 1000 -o jsonl | jq .reward`
    """
    from dart.web.run_view import RunView
    from dart.web.trajectory_pages import wanted

    asked = {"task": task, "outcome": outcome, "result": result, "before": before}
    given = {name: str(value) for name, value in asked.items() if value is not None}
    with RunView(recorded(run_dir)) as run:
        rows = run.store.trajectory_page(wanted(given, run.config), limit)
    print_list(rows, COLUMNS, output, empty="no finished episode matches")


@trajectories_app.command()
@reads_run
def show(
    rollout_id: RolloutId,
    run_dir: RunDir = None,
    output: Output = Format.TABLE,
) -> None:
    """Show one episode: the answer of each step with its policy version and probability, and how it ended.

    Of a rollout that was not finished, show why, and the steps that are in the record.

    **Examples**

    * `dartrl trajectories show 12`
    * `dartrl trajectories show 12 -o json | jq '.trajectory.steps[].answer'`
    """
    from dart.web.run_view import RunView
    from dart.web.trajectory_pages import EpisodePage

    with RunView(recorded(with_blobs(run_dir))) as run:
        episode = EpisodePage(run, rollout_id)
    if output.is_data:
        print_data({"fate": episode.fate, "trajectory": episode.trajectory}, output)
    else:
        say("\n".join(episode.lines()))


@trajectories_app.command()
def export(
    rollout_id: RolloutId,
    html: Annotated[Path, typer.Option("--html", help="File to write; it contains the screenshots.")],
    run_dir: RunDir = None,
) -> None:
    """Write one episode to an HTML file that needs no other file: screenshots with actions, answers, reward.

    **Examples**

    * `dartrl trajectories export 12 --html rollout-12.html`
    """
    from dart.web.trajectory_pages import write_trajectory

    with errors_as_exit_codes(html):
        write_trajectory(recorded(with_blobs(run_dir)), rollout_id, html)
        say(f"{html}: {html.stat().st_size} bytes")
