"""`dartrl trajectories`: list the finished episodes of a run, show one step by step, or export them: one as
HTML, many as JSON lines. Rollouts have numbers as ids, evaluation episodes an e before it."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dart.cli.exit_codes import ExitCode, end, errors_as_exit_codes
from dart.cli.options import OfTask, RunDir, reads_run, recorded, with_blobs
from dart.cli.output import Format, Output, as_json, print_data, print_list, say
from dart.inspect.formatting import clock, counted, number
from dart.inspect.tables import Column

if TYPE_CHECKING:
    from dart.core.types import Step, Trajectory
    from dart.store.browse_queries import Fate, PlayedEvaluation, TrajectorySummary

trajectories_app = typer.Typer(
    help="The finished episodes of a run: list them, show one step by step, export one or many.",
    no_args_is_help=True,
)

ID_ABOUT = "Id from `trajectories list`: the number of a rollout, or e12 for an evaluation episode."

EpisodeId = Annotated[str, typer.Argument(metavar="ID", help=ID_ABOUT)]

OfEvaluation = Annotated[
    bool, typer.Option("--evaluation", help="The episodes of evaluations instead of those of training.")
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
    Column(
        "fate", lambda row: f"{row.state}, {row.drop_reason}" if row.drop_reason else row.state, folds=True
    ),
    Column("environment", lambda row: row.environment, is_wide=True),
    Column("group", lambda row: row.group_id, is_number=True, is_wide=True),
    Column("seed", lambda row: row.seed, is_number=True, is_wide=True),
    Column("s", lambda row: number(row.duration_s), is_number=True, is_wide=True),
)


TRAINING: "Column[PlayedEvaluation]" = Column("training", lambda row: row.phase)
"""Whether an episode was played before or after training. An evaluation of its own trains nothing."""

EVALUATION_COLUMNS: "tuple[Column[PlayedEvaluation], ...]" = (
    Column("id", lambda row: f"e{row.evaluation_id}"),
    Column("task", lambda row: row.task_id),
    Column("outcome", lambda row: row.play.outcome),
    Column("reward", lambda row: number(row.reward, 2), is_number=True),
    Column("steps", lambda row: row.play.num_steps, is_number=True),
    TRAINING,
    Column("answers", lambda row: "greedy" if row.is_greedy else "sampled"),
    Column("seed", lambda row: row.seed, is_number=True),
    Column("version", lambda row: row.policy_version, is_number=True, is_wide=True),
    Column("stored", lambda row: clock(row.created_unix_s), is_wide=True),
    Column("environment", lambda row: row.play.environment, is_wide=True),
    Column("s", lambda row: number(row.play.duration_s), is_number=True, is_wide=True),
)


@trajectories_app.command("list")
@reads_run
def list_trajectories(
    run_dir: RunDir = None,
    task: OfTask = None,
    outcome: OfOutcome = None,
    result: OfResult = None,
    evaluation: OfEvaluation = False,
    before: Annotated[
        str | None,
        typer.Option(
            help="Only episodes with an id below this one; the last id of a list gives the next page."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(help="Largest number of episodes.", min=1, max=10_000)] = 20,
    output: Output = Format.TABLE,
) -> None:
    """Show finished episodes, newest first: outcome, reward, steps, oldest policy version, time and fate.

    With `--evaluation`, show those of the evaluations before and after training, or of `dartrl eval`.

    **Examples**

    * `dartrl trajectories list --task click-tab --result failure`
    * `dartrl trajectories list --evaluation --result failure`
    * `dartrl trajectories list --limit 1000 -o jsonl | jq .reward`
    """
    from dart.web.run_view import RunView
    from dart.web.trajectory_pages import episode_key, wanted

    if before and not evaluation and episode_key(before)[0]:
        end(
            f"{before} is the id of an evaluation episode: add --evaluation, or name a rollout",
            ExitCode.USAGE,
        )
    given = _given(task=task, outcome=outcome, result=result, before=before)
    with RunView(recorded(run_dir)) as run:
        selected = wanted(given, run.config)
        if evaluation:
            played = run.store.evaluation_page(selected, limit)
        else:
            rows = run.store.trajectory_page(selected, limit)
        trains, family = run.config.training.learner != "none", run.family
    if evaluation:
        columns = [one for one in EVALUATION_COLUMNS if trains or one is not TRAINING]
        empty = "no evaluation episode with steps matches"
        print_list(played, _without_family(columns, family), output, empty=empty)
    else:
        hint = "" if trains else "; --evaluation lists the episodes of an evaluation"
        empty = f"no finished episode matches{hint}"
        print_list(rows, _without_family(COLUMNS, family), output, empty=empty)


def _without_family(columns: "Iterable[Column[Any]]", family: str) -> "Iterator[Column[Any]]":
    """Yield columns in which only the header shows the part that all task ids of the run begin with."""
    from dart.inspect.report import short_id

    task: Column[Any] = Column(f"{family} task".strip(), lambda row: short_id(row.task_id, family))
    for one in columns:
        yield task if one.name == "task" else one


@trajectories_app.command()
@reads_run
def show(
    episode_id: EpisodeId,
    run_dir: RunDir = None,
    output: Output = Format.TABLE,
) -> None:
    """Show one episode: the answer of each step with its policy version and probability, and how it ended.

    Of a rollout that was not finished, show why, and the steps that are in the record.

    **Examples**

    * `dartrl trajectories show 12`
    * `dartrl trajectories show e12`
    * `dartrl trajectories show 12 -o json | jq '.trajectory.steps[].answer'`
    """
    from dart.web.run_view import RunView
    from dart.web.trajectory_pages import EpisodePage, episode_page

    with RunView(recorded(with_blobs(run_dir))) as run:
        episode = episode_page(run, episode_id)
    if output.is_data and isinstance(episode, EpisodePage):
        print_data(_for_programs(episode.fate, episode.trajectory), output)
    elif output.is_data:
        print_data({"evaluation": episode.evaluation, "steps": episode.steps}, output)
    else:
        say("\n".join(episode.lines()))


@trajectories_app.command()
def export(
    episode_id: Annotated[str | None, typer.Argument(metavar="ID", help=f"{ID_ABOUT} For --html.")] = None,
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
    evaluation: OfEvaluation = False,
    run_dir: RunDir = None,
) -> None:
    """Write one episode to an HTML file that needs no other file, or many to a file of JSON lines.

    The HTML file shows screenshots with actions, answers and the reward. A JSON line is what `dartrl
    trajectories show -o json` prints, newest episode first; it names screenshots by their sha256.

    **Examples**

    * `dartrl trajectories export 12 --html rollout-12.html`
    * `dartrl trajectories export --jsonl episodes.jsonl`
    * `dartrl trajectories export --evaluation --jsonl evaluated.jsonl`
    * `dartrl trajectories export --task click-tab --result success --jsonl solved.jsonl`
    """
    from dart.web.trajectory_pages import write_evaluations, write_trajectories, write_trajectory

    given = _given(task=task, outcome=outcome, result=result)
    with errors_as_exit_codes(html or jsonl):
        if episode_id is not None and html is not None and jsonl is None and not given and not evaluation:
            write_trajectory(recorded(with_blobs(run_dir)), episode_id, html)
            say(f"{html}: {html.stat().st_size} bytes")
        elif episode_id is None and html is None and jsonl is not None:
            paths = recorded(with_blobs(run_dir))
            count, left_out = (
                write_evaluations(paths, given, _evaluation_line, jsonl)
                if evaluation
                else write_trajectories(paths, given, _line, jsonl)
            )
            say(f"{jsonl}: {counted(count, 'episode')}")
            if left_out:
                say(f"left out, because their steps are damaged: {', '.join(left_out)}", err=True)
        else:
            end(
                "name either an episode and the file of its page (ID --html FILE), or the file of many "
                "episodes (--jsonl FILE, with --task, --outcome, --result and --evaluation to select some)",
                ExitCode.USAGE,
            )


def _given(**options: str | int | None) -> dict[str, str]:
    """Return the options that have a value, as an address of the page would have them."""
    return {name: str(value) for name, value in options.items() if value is not None}


def _for_programs(fate: "Fate", trajectory: "Trajectory | None") -> dict[str, Any]:
    return {"fate": fate, "trajectory": trajectory}


def _line(fate: "Fate", trajectory: "Trajectory") -> str:
    return as_json(_for_programs(fate, trajectory))


def _evaluation_line(evaluation: "PlayedEvaluation", steps: "tuple[Step, ...]") -> str:
    return as_json({"evaluation": evaluation, "steps": steps})
