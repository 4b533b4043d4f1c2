"""`dartrl events` and `dartrl why`: what happened in a run, and why actors ended."""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from dart.cli.exit_codes import end
from dart.cli.options import (
    ActorName,
    RunDir,
    chosen,
    followed,
    offer_actors,
    reads_run,
    recorded,
    trouble_in,
    with_log,
)
from dart.cli.output import (
    Format,
    Output,
    follow_up,
    line_by_line,
    print_data,
    say,
    until_interrupted,
)

if TYPE_CHECKING:
    from dart.core.records import Event


@reads_run
def events(
    about: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="NAME",
            help="Only events about this actor, task or other subject.",
            autocompletion=offer_actors,
        ),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            help="Only events of this kind; may be repeated. Default: all but routine events.",
            show_default=False,
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only events at most this old: 90s, 10m, 1h30m, 2d.")
    ] = None,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=1, max=1000, metavar="N", help="Show the newest N events.")
    ] = 50,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with new events until Ctrl-C.")
    ] = False,
    run_dir: RunDir = None,
    output: Output = Format.TABLE,
) -> None:
    """Show what happened in a run, oldest first: events in its record, and failures that supervisors report.

    Without `--kind`, routine events are left out: those of the load of actors, and of engines that load a
    version and become healthy again. docs/reference/events.md describes the kinds and their fields.

    **Examples**

    * `dartrl events --since 10m`
    * `dartrl events --for env-003 --follow`
    * `dartrl events --kind child_terminated --kind child_quarantined -o jsonl | jq -r .data.reason`
    """
    from dart.inspect import event_history
    from dart.inspect.formatting import parse_span

    paths = recorded(run_dir)
    event_history.refuse_unknown(kind or ())
    since_s = time.time() - parse_span(since) if since else 0.0

    def read(since_unix_s: float, limit: int = event_history.LIMIT) -> "list[Event]":
        return event_history.read_events(
            paths, subject=about, kinds=kind or None, since_unix_s=since_unix_s, limit=limit
        )

    if not follow:
        found = read(since_s, lines)
        _print(found, output)
        if not found and not output.is_data:
            say("no event matches" + ("" if kind else "; --kind also shows routine events"), err=True)
        return
    show = partial(_print, output=line_by_line(output))
    with until_interrupted() as ended:
        follower = event_history.EventFollower(read)  # reads all events up to now
        found = read(since_s, lines)
        show(found)
        follower.has_shown(found)
        with followed(paths.root):
            follow_up(ended, follower.new, show)


@reads_run
def why(
    actor: ActorName,
    run_dir: RunDir = None,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=1, metavar="N", help="Show the last N ends of the actor.")
    ] = 5,
    output: Output = Format.TABLE,
) -> None:
    """Show why an actor ended, for its last ends: how the process ended, what it printed last, and, if the
    actor was ended because another one failed, which actor that was.

    The command reads the supervisors' reports and the actor's log, so it works while the actor hangs, after
    it was removed from the tree, and after the run has ended. If you name the run by the address of its
    record and its control node does not answer, the command shows the events about the actor in the record
    instead.

    **Examples**

    * `dartrl why env-003`
    * `dartrl why trainer --run-dir runs/laptop -o json | jq '.ends[-1].report.last_words'`
    """
    from dart.inspect import why

    place = chosen(run_dir)
    if trouble_in(place)[0]:
        _why_by_record(place, actor, lines, output)
    row, ends = why.read_ends(with_log(place, actor), actor)
    if output.is_data:
        print_data({"vitals": row, "ends": ends[-lines:]}, Format.JSON)
        return
    say(why.summary(actor, row, ends))
    for one in ends[-lines:]:
        say("\n".join(why.end_lines(one)))


def _why_by_record(place: Path, actor: str, lines: int, output: Format) -> NoReturn:
    """Show the events of the record about an actor, then end the command and say why reports are missing."""
    from dart.core.run_directory import RunPaths
    from dart.inspect.event_history import read_events

    _print(read_events(RunPaths(place), subject=actor, limit=lines)[-lines:], output)
    end(*trouble_in(place))


def _print(found: "Sequence[Event]", output: Format) -> None:
    from dart.inspect.event_history import event_line

    if output.is_data:
        print_data(found, output)
        return
    for one in found:
        say(event_line(one))
