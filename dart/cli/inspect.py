"""`dartrl status`, `tree` and `top`: show a run without asking its actors, even while all of them hang."""

import contextlib
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from dart.cli.exit_codes import ExitCode, end
from dart.cli.options import RunDir, chosen, followed, reads_run, shown, with_actors
from dart.cli.output import Format, Output, print_data, print_fitted

if TYPE_CHECKING:
    from dart.core.run_directory import RunPaths
    from dart.store.errors import StoreBusy

TOP_EVERY_S = 1.0


@reads_run
def status(
    run_dir: RunDir = None,
    output: Output = Format.TABLE,
) -> None:
    """Show the state of a run: its health, its progress and its notices.

    Exit code 0: healthy; 1: degraded; 3: not running; 4: the state cannot be read, for instance because the
    run is just starting, or its machine or the server of its record does not answer.

    **Examples**

    * `dartrl status`
    * `dartrl status --run-dir runs/laptop -o json | jq .success_rate`
    """
    from dataclasses import asdict

    from rich.console import Console

    from dart.core.run_directory import holder
    from dart.inspect import live
    from dart.inspect.processes import UNREACHABLE
    from dart.inspect.snapshot_reader import read_snapshot
    from dart.store.errors import StoreBusy

    place = chosen(run_dir)
    pid, paths = holder(place), shown(place)
    try:
        snapshot = read_snapshot(paths.root)
    except StoreBusy as busy:
        if pid is None:
            raise
        _end_without_record(paths, busy, output)
    if output.is_data:
        print_data({**asdict(snapshot), "pid": pid, "healthy": snapshot.is_healthy}, output)
    else:
        is_wide = output is Format.WIDE or not Console().is_terminal
        print_fitted(live.status(snapshot, pid=pid, is_wide=is_wide), output)
    if pid is None:
        raise typer.Exit(ExitCode.NOT_RUNNING)
    if snapshot.main_is == UNREACHABLE:
        raise typer.Exit(ExitCode.UNKNOWN)
    raise typer.Exit(ExitCode.OK if snapshot.is_healthy else ExitCode.FAILED)


def _end_without_record(paths: "RunPaths", busy: "StoreBusy", output: Format) -> NoReturn:
    """Show the actors of a running run, whose record cannot be read now, and end the command."""
    from dart.inspect import live
    from dart.inspect.actor_table import read_actors

    if not output.is_data:
        actors = read_actors(paths.root)
        is_wide = output is Format.WIDE
        print_fitted(live.actor_table(actors, rows_max=len(actors), is_wide=is_wide), output)
    end(
        f"cannot tell how the run in {paths.title} stands: {busy}. The run waits for its record, and goes on "
        "by itself when it is back",
        ExitCode.UNKNOWN,
    )


@reads_run
def tree(
    run_dir: RunDir = None,
    output: Output = Format.TABLE,
) -> None:
    """Show the supervision tree: for each actor its state, its restarts (within the window of the restart
    budget / in total), the reason of its last end, what it does now, and for how long.

    **Examples**

    * `dartrl tree`
    * `watch -n 1 dartrl tree --run-dir runs/laptop`
    * `dartrl tree -o json | jq -r '.[] | select(.process == "suspended") | .name'`
    """
    from dart.core.run_directory import holder
    from dart.inspect import live
    from dart.inspect.actor_table import read_actors
    from dart.inspect.sidecar_status import read_sidecars

    place = with_actors(run_dir)
    if holder(place) is None:
        end(f"the run in {place} is not running, so none of its actors is up", ExitCode.NOT_RUNNING)
    paths = shown(place)
    actors = read_actors(paths.root)
    if output.is_data:
        print_data(actors, output)
    else:
        print_fitted(live.tree(actors, read_sidecars(paths)), output)


@reads_run
def top(
    run_dir: RunDir = None,
    every_s: Annotated[
        float, typer.Option("--every", min=0.1, metavar="SECONDS", help="Time between two readings.")
    ] = TOP_EVERY_S,
) -> None:
    """Watch a run in a view that is redrawn continuously. Actors that cannot work now come first, then those
    that use the processors most.

    q or Ctrl-C ends the view, not the run. Without a terminal, the view is printed once.

    **Examples**

    * `dartrl top`
    * `dartrl top --run-dir runs/laptop --every 5`
    """
    from dataclasses import replace

    from rich.console import Console

    from dart.config.config import kept_config
    from dart.core.run_directory import holder
    from dart.inspect import top as view
    from dart.inspect.snapshot_reader import SnapshotReader

    paths, console = shown(run_dir), Console()
    pid = holder(paths.root)
    with followed(paths.root), SnapshotReader(paths, kept_config(paths.config)) as reader:
        if pid is None or not console.is_terminal:
            snapshot = reader.read()
            # The view would warn of engines that are down, which is normal after the end of a run.
            snapshot = snapshot if pid else replace(snapshot, engines=())
            print_fitted(view.screen(snapshot, {}, rows_max=len(snapshot.actors)))
        else:
            with view.keys() as wait, contextlib.suppress(KeyboardInterrupt):
                view.watch(reader.read, console, wait, every_s)
    if pid is None:
        end(
            f"the run in {paths.title} is not running; the view shows its state at its end",
            ExitCode.NOT_RUNNING,
        )
