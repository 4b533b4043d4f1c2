"""`dartrl actors`: vitals, log and stack of each actor of a run, read without sending it a message."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from actors.board import LIVING
from dart.cli.exit_codes import ExitCode, end
from dart.cli.options import (
    ActorName,
    Lines,
    RunDir,
    chosen_here,
    followed,
    offer_actors,
    reads_run,
    with_actors,
    with_log,
)
from dart.cli.output import (
    Format,
    Output,
    follow_up,
    line_by_line,
    print_data,
    print_list,
    say,
    until_interrupted,
)
from dart.inspect.formatting import activity, age
from dart.inspect.tables import ACTOR, AGE, MEMORY, RESTARTS, STATE, Column

if TYPE_CHECKING:
    from dart.inspect.logs import LogLine
    from dart.inspect.snapshot import ActorRow

actors_app = typer.Typer(
    help="Each actor of a run: its vitals, its log, its stack; also while it hangs.", no_args_is_help=True
)

SHOWN_EVENTS = 10
SHOWN_ENDS = 3

COLUMNS: "tuple[Column[ActorRow], ...]" = (
    ACTOR,
    STATE,
    RESTARTS,
    AGE,
    Column("pid", lambda row: row.pid if row.state in LIVING else None, is_number=True, is_wide=True),
    Column("incarnation", lambda row: row.incarnation, is_number=True, is_wide=True),
    MEMORY,
    Column("cpu s", lambda row: f"{row.cpu_s:.1f}", is_number=True, is_wide=True),
    Column("messages", lambda row: row.messages, is_number=True, is_wide=True),
    Column("unsent", lambda row: row.unsent, is_number=True, is_wide=True),
    Column("refused", lambda row: row.refused, is_number=True, is_wide=True),
    Column("last beat", lambda row: age(row.beat_age_s), is_number=True, is_wide=True),
    Column("supervisor", lambda row: row.parent or None, is_wide=True),
    Column("doing", lambda row: activity(row) if row.state == "running" else ""),
    Column("last reason", lambda row: row.last_reason),
)
"""The last column is left out if it is empty, so that the others are whole at 80 columns."""


@actors_app.command("list")
@reads_run
def list_actors(
    run_dir: RunDir = None,
    state: Annotated[
        str | None,
        typer.Option(
            help="Show only actors in this state: starting, running, backoff, quarantined, stopping, "
            "stopped, failed; or unwell: every actor that cannot work now, including suspended processes."
        ),
    ] = None,
    under: Annotated[
        str | None,
        typer.Option(
            metavar="SUPERVISOR",
            help="Show only this supervisor and the actors below it.",
            autocompletion=offer_actors,
        ),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Show every actor: state, restarts (within the window of the restart budget / in total), age, memory,
    current activity, and the reason of its last end.

    **Examples**

    * `dartrl actors list --state unwell`
    * `dartrl actors list --under environment_pool -o wide`
    * `dartrl actors list -o jsonl | jq -r 'select(.restarts > 3) | .name'`
    """
    from dart.inspect import actor_table

    rows = list(actor_table.read_actors(with_actors(run_dir)))
    if under is not None:
        rows = actor_table.under(rows, actor_table.find_actor(under, rows).name)
    if state is not None:
        rows = actor_table.in_state(rows, state)
    columns = COLUMNS if any(row.last_reason for row in rows) else COLUMNS[:-1]
    print_list(rows, columns, output, empty="no actor matches")


@actors_app.command()
@reads_run
def show(name: ActorName, run_dir: RunDir = None, output: Output = Format.TABLE) -> None:
    """Show one actor: its vitals, its last 10 events, and the reasons of its last 3 ends.

    **Examples**

    * `dartrl actors show env-003`
    * `dartrl actors show trainer -o json | jq .vitals.rss_bytes`
    """
    from dart.core.run_directory import RunPaths
    from dart.inspect import event_history, live, why

    paths = RunPaths(with_log(run_dir, name))
    row, ends = why.read_why(paths.root, name)
    events = event_history.read_events(paths, subject=name, limit=SHOWN_EVENTS)
    if output.is_data:
        print_data({"vitals": row, "ends": ends, "events": events}, output)
        return
    lines = [*live.vitals(row), "", "last events" if events else "no events"]
    lines += [f"  {event_history.event_line(event)}" for event in events]
    if ends:
        lines += ["", "why it ended (`dartrl why` shows more)"]
        lines += [f"  {why.end_line(one)}" for one in ends[-SHOWN_ENDS:]]
    say("\n".join(lines))


@actors_app.command()
@reads_run
def logs(
    name: ActorName,
    run_dir: RunDir = None,
    previous: Annotated[
        bool,
        typer.Option(
            "--previous",
            "-p",
            help="Show the log of the previous incarnation, and its last words if it crashed.",
        ),
    ] = False,
    lines: Lines = 50,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with new lines until Ctrl-C.")
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Show the log of an actor. All incarnations share the log; each line shows which of them wrote it.

    **Examples**

    * `dartrl actors logs env-003 --previous`
    * `dartrl actors logs trainer --follow`
    * `dartrl actors logs env-003 -n 0 -o jsonl | jq 'select(.level == "error")'`
    """
    if previous and follow:
        raise typer.BadParameter(
            "--previous and --follow exclude each other: a previous incarnation writes nothing more"
        )
    if previous:
        _previous_log(name, with_log(run_dir, name), lines, output)
    else:
        _log(name, with_log(run_dir, name), lines, output, follow=follow)


@actors_app.command()
@reads_run
def stack(
    name: ActorName,
    run_dir: RunDir = None,
    native: Annotated[
        bool, typer.Option("--native", help="Also show compiled functions, if py-spy can read them.")
    ] = False,
) -> None:
    """Show the Python stack of an actor: what its code executes now. This works while the actor hangs,
    because py-spy reads the stack from the memory of the process.

    Needs py-spy (`pip install py-spy`) and the right to trace the process. If `kernel.yama.ptrace_scope` is
    0, the user of the run has this right; otherwise run the command as root.

    **Examples**

    * `dartrl actors stack env-003`
    """
    from dart.inspect import actor_table
    from dart.inspect.stacks import read_stack

    row = actor_table.find_actor(name, actor_table.read_actors(with_actors(chosen_here(run_dir))))
    if row.process == "gone":
        end(f"{name!r} is {row.state}: it has no process now ({row.last_reason})", ExitCode.NOT_RUNNING)
    say(read_stack(row.name, row.pid, stands_still=row.process == "suspended", native=native))


def _log(name: str, run_dir: Path, lines: int, output: Format, *, follow: bool) -> None:
    from dart.core.run_directory import RunPaths
    from dart.inspect import actor_table, logs

    actor_table.find_actor(name, actor_table.read_actors(run_dir))
    if not follow:
        _print_lines(logs.read_log(RunPaths(run_dir), name)[-lines:], output)
        return
    show = partial(_print_lines, output=line_by_line(output))
    with until_interrupted() as ended, logs.Tail(RunPaths(run_dir), name) as tail, followed(run_dir):
        show(tail.new()[-lines:])
        follow_up(ended, tail.new, show)


def _previous_log(name: str, run_dir: Path, lines: int, output: Format) -> None:
    from dart.core.run_directory import RunPaths
    from dart.inspect import actor_table, logs

    paths = RunPaths(run_dir)
    row = actor_table.find_actor(name, actor_table.read_actors(run_dir))
    kept = logs.previous_lines(logs.read_log(paths, name), row.incarnation)
    if not kept:
        end(
            f"the log of {name!r} has no line of an incarnation before the present one ({row.incarnation}); "
            "leave out --previous",
            ExitCode.USAGE,
        )
    _print_lines(kept[-lines:], output)
    number = kept[0].incarnation
    # Incarnations count from 1 at each start of the run: last words under the present number are not those of
    # the previous incarnation.
    words = logs.last_words(paths, name, number) if number != row.incarnation else ""
    if words and not output.is_data:
        say(words)


def _print_lines(lines: "Iterable[LogLine]", output: Format) -> None:
    from dart.inspect.formatting import clock
    from dart.inspect.logs import message

    if output.is_data:
        print_data(list(lines), output)
        return
    for line in lines:
        say(f"{clock(line.unix_s)}  #{line.incarnation}  {line.level:7}  {message(line)}")
