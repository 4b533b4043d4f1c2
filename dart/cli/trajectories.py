"""`dartrl trajectories`: list the finished episodes of a run, show one step by step, or export them: one as
HTML, many as JSON lines."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dart.cli.exit_codes import ExitCode, end, errors_as_exit_codes
from dart.cli.options import ID_MOST, OfTask, RunDir, reads_run, recorded, with_blobs
from dart.cli.output import Format, Output, as_json, print_data, print_list, say
from dart.inspect.formatting import clock, number
from dart.inspect.tables import Column

if TYPE_CHECKING:
    from dart.core.types import Trajectory
    from dart.store.browse_queries import Fate, TrajectorySummary

trajectories_app = typer.Typer(
    help="The finished episodes of a run: list them, show one step by step, export one or many.",
    no_args_is_help=True,
)

RolloutId = Annotated[
    int,
    typer.Argument(metavar="ID", help="Number of a rollout, from `trajectories list`.", min=0, max=ID_MOST),
]

OfOutcome = Annotated[
    str | None, typer.Option("--outcome", help="Only episodes with this outcome, such as parse_error.")
]
OfResult = Annotated[str | None, typer.Option("--result", help="Only `success` or only `failure`.")]


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
    outcome: OfOutcome = None,
    result: OfResult = None,
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

    given = _given(task=task, outcome=outcome, result=result, before=before)
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
        print_data(_for_programs(episode.fate, episode.trajectory), output)
    else:
        say("\n".join(episode.lines()))


@trajectories_app.command()
def export(
    rollout_id: Annotated[
        int | None,
        typer.Argument(
            metavar="ID",
            help="Number of a rollout, from `trajectories list`; for --html.",
            min=0,
            max=ID_MOST,
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="File to write one episode to; it contains the screenshots.")
    ] = None,
    jsonl: Annotated[
        Path | None,
        typer.Option("--jsonl", help="File to write all episodes to, or those that the options select."),
    ] = None,
    task: OfTask = None,
    outcome: OfOutcome = None,
    result: OfResult = None,
    run_dir: RunDir = None,
) -> None:
    """Write one episode to an HTML file that needs no other file, or many to a file of JSON lines.

    The HTML file shows screenshots with actions, answers and the reward. A JSON line is what `dartrl
    trajectories show -o json` prints, newest episode first; it names screenshots by their sha256.

    **Examples**

    * `dartrl trajectories export 12 --html rollout-12.html`
    * `dartrl trajectories export --jsonl episodes.jsonl`
    * `dartrl trajectories export --task click-tab --result success --jsonl solved.jsonl`
    """
    from dart.web.trajectory_pages import write_trajectories, write_trajectory

    given = _given(task=task, outcome=outcome, result=result)
    with errors_as_exit_codes(html or jsonl):
        if rollout_id is not None and html is not None and jsonl is None and not given:
            write_trajectory(recorded(with_blobs(run_dir)), rollout_id, html)
            say(f"{html}: {html.stat().st_size} bytes")
        elif rollout_id is None and html is None and jsonl is not None:
            count, left_out = write_trajectories(recorded(with_blobs(run_dir)), given, _line, jsonl)
            say(f"{jsonl}: {count} episodes")
            if left_out:
                say(f"left out, because their steps are damaged: {', '.join(map(str, left_out))}", err=True)
        else:
            end(
                "name either a rollout and the file of its page (ID --html FILE), or the file of many "
                "episodes (--jsonl FILE, with --task, --outcome and --result to select some)",
                ExitCode.USAGE,
            )


def _given(**options: str | int | None) -> dict[str, str]:
    """Return the options that have a value, as an address of the page would have them."""
    return {name: str(value) for name, value in options.items() if value is not None}


def _for_programs(fate: "Fate", trajectory: "Trajectory | None") -> dict[str, Any]:
    return {"fate": fate, "trajectory": trajectory}


def _line(fate: "Fate", trajectory: "Trajectory") -> str:
    return as_json(_for_programs(fate, trajectory))
