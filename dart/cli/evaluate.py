"""`dartrl eval`."""

from pathlib import Path
from typing import Annotated

import typer

from dart.cli.boundary import errors_as_exit_codes
from dart.cli.options import CONFIGURATION, Overrides


@errors_as_exit_codes()
def evaluate(
    checkpoint: Annotated[Path, typer.Argument(help="Folder of a checkpoint.")],
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help=f"{CONFIGURATION} Default: that of the checkpoint's run."),
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Measure a checkpoint on held-out seeds, with sampled and with greedy answers.

    **Examples**

    * `dartrl eval configs/base-policy`
    * `dartrl eval runs/laptop/checkpoints/v000042 --set evaluation.seeds_per_task=100`
    """
    from rich.console import Console

    from dart.config.config import load_config
    from dart.config.layers import literal
    from dart.core.run_directory import RunPaths
    from dart.inspect.live import open_view
    from dart.inspect.report import SuccessReport, render
    from dart.inspect.terminal_safe import Printable
    from dart.preflight.requirements import require_installation

    of_its_run = RunPaths(checkpoint.resolve().parent.parent).config
    path = config or (of_its_run if of_its_run.is_file() else None)
    policy = f"training.policy={literal(str(checkpoint.resolve()))}"
    settings = load_config(path, [*(overrides or []), policy])
    require_installation(settings)
    from dart.run import app
    from dart.run.listener import RunListener

    with open_view(Console(stderr=True)) as show:
        found = app.evaluate(settings, checkpoint.resolve(), listener=RunListener(show))
    for one in found.measured:
        Console().print(Printable(render(SuccessReport(after=one.before, answers=one.answers))))
