"""`dartrl train`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dart.cli.boundary import code_of_signal, end, errors_as_exit_codes
from dart.cli.exit_codes import ExitCode
from dart.cli.options import CONFIGURATION, RUNS, Overrides

if TYPE_CHECKING:
    from dart.config.config import Config


def train(
    config: Annotated[
        Path | None,
        typer.Argument(help=f"{CONFIGURATION} Default: the built-in values; with --resume, the run's own."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in the run directory.")
    ] = False,
    overrides: Overrides = None,
    run_dir: Annotated[
        Path | None, typer.Option("--run-dir", "-r", help="Directory of the run (run.dir).")
    ] = None,
) -> None:
    """Train a policy until its time or its updates are used up, and show its success before and after.

    **Examples**

    * `dartrl train laptop`
    * `dartrl train --set run.minutes=5 --run-dir runs/short`
    * `dartrl train --resume --run-dir runs/short`
    """
    with errors_as_exit_codes():
        settings = training_config(config, overrides or [], run_dir, resume=resume)
    with errors_as_exit_codes(settings.run.dir):
        _train(settings, resume=resume)


def training_config(
    path: Path | None, overrides: Sequence[str], run_dir: Path | None, *, resume: bool
) -> "Config":
    """The configuration of a new run, or of the run to resume.

    raises    ConfigError, NotRunningError
    """
    from dart.config.config import load_config
    from dart.config.layers import literal
    from dart.core.run_directory import RunPaths, latest_run

    if resume and path is None:
        run_dir = run_dir or latest_run(RUNS)
        path = RunPaths(run_dir).config
    chosen = [f"run.dir={literal(str(run_dir))}"] if run_dir else []
    return load_config(path, [*overrides, *chosen])


def _train(config: "Config", *, resume: bool) -> None:
    from dart.core.run_directory import RunPaths, refuse_at_once
    from dart.preflight.requirements import require_installation

    paths = RunPaths(config.run.dir)
    refuse_at_once(paths, resume=resume)
    require_installation(config)
    from dart.run import app
    from dart.run.console import ConsoleListener

    with ConsoleListener(paths) as screen:
        result = app.train(config, resume=resume, listener=screen)
    if result.failure:
        end(result.failure, ExitCode.FAILED)
    if result.stopped_by is not None:
        end(f"ended by signal {result.stopped_by}; go on with --resume", code_of_signal(result.stopped_by))
