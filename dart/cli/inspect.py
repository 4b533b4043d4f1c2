"""`dartrl status` and `dartrl tree`: a run seen from outside, even while everything in it hangs."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from dart.cli.boundary import end, errors_as_exit_codes
from dart.cli.exit_codes import ExitCode
from dart.cli.options import AsJson, RunDir
from dart.cli.record import chosen

if TYPE_CHECKING:
    from dart.observe.snapshot import RunSnapshot


def status(
    run_dir: RunDir = None,
    as_json: AsJson = False,
) -> None:
    """Show how a run is doing. Exit code 0: healthy, 1: degraded, 3: not running, 4: cannot tell.

    **Examples**

    * `dartrl status`
    * `dartrl status --run-dir runs/laptop --json | jq .success_rate`
    """
    with errors_as_exit_codes():
        _status(chosen(run_dir), as_json=as_json)


def tree(run_dir: RunDir = None) -> None:
    """Show who supervises whom, who was restarted and why.

    **Examples**

    * `dartrl tree`
    * `watch -n 1 dartrl tree --run-dir runs/laptop`
    """
    with errors_as_exit_codes():
        _tree(chosen(run_dir))


def _status(run_dir: Path, *, as_json: bool) -> None:
    from dataclasses import asdict

    from rich.console import Console

    from dart.observe import live
    from dart.rundir import holder

    pid = holder(run_dir)
    snapshot = _snapshot(run_dir, pid)
    if as_json:
        typer.echo(json.dumps({**asdict(snapshot), "pid": pid, "healthy": snapshot.is_healthy}))
    else:
        Console().print(live.status(snapshot, pid=pid))
    raise typer.Exit(verdict(snapshot, pid))


def verdict(snapshot: "RunSnapshot", pid: int | None) -> ExitCode:
    """The exit code of `status`."""
    if pid is None:
        return ExitCode.NOT_RUNNING
    return ExitCode.OK if snapshot.is_healthy else ExitCode.FAILED


def _tree(run_dir: Path) -> None:
    from rich.console import Console

    from dart.observe import live
    from dart.rundir import holder

    pid = holder(run_dir)
    if pid is None:
        end(f"the run in {run_dir} is not running; nobody is alive", ExitCode.NOT_RUNNING)
    Console().print(live.tree(_snapshot(run_dir, pid).actors))


def _snapshot(run_dir: Path, pid: int | None) -> "RunSnapshot":
    from dart.observe.reading import read_snapshot
    from dart.rundir import RunPaths

    paths = RunPaths(run_dir)
    missing = next((path for path in (paths.config, paths.store, paths.board) if not path.exists()), None)
    if missing and pid is None:
        end(f"the run in {run_dir} is not running and left nothing to show", ExitCode.NOT_RUNNING)
    if missing:
        end(
            f"the run in {run_dir} is running as process {pid} and does not show its state yet "
            f"({missing.name} is missing); ask again in a moment",
            ExitCode.UNKNOWN,
        )
    return read_snapshot(run_dir)
