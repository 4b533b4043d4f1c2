"""`dartrl`: the guard, the commands, nothing else.

Every command is thin: read the options, call one function of the training system, show what it returns. What
is heavy is imported inside the functions, so that help and checks answer at once.
"""

from typing import Annotated

import typer

from dart import __version__
from dart.cli import control
from dart.cli.actors import actors_app
from dart.cli.config import config_app
from dart.cli.doctor import doctor
from dart.cli.evaluate import evaluate
from dart.cli.events import events, why
from dart.cli.init import init
from dart.cli.inspect import status, top, tree
from dart.cli.metrics import metrics
from dart.cli.pool import pool_app
from dart.cli.pretrain import pretrain
from dart.cli.setup import setup
from dart.cli.tasks import tasks_app
from dart.cli.train import train
from dart.cli.trajectories import trajectories_app
from dart.cli.up import down, up
from dart.cli.versions import checkpoints_app, policy_app
from dart.cli.web import web
from dart.core.import_guard import require_own_supervision

app = typer.Typer(
    name="dartrl",
    help="Train agents that look at a screen and act with mouse and keyboard, on supervised actors.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # a defect shows Python's own traceback, without local variables
    rich_markup_mode="markdown",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dartrl {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of every command."""


app.command()(init)
app.command()(setup)
app.command()(train)
app.command()(up)
app.command()(down)
app.command("eval")(evaluate)
app.command()(pretrain)
app.command()(status)
app.command()(tree)
app.command()(top)
actors_app.command()(control.restart)
actors_app.command()(control.stop)
app.add_typer(actors_app, name="actors")
app.command()(events)
app.command()(why)
app.command()(metrics)
app.command()(doctor)
app.command()(web)
app.command()(control.pause)
app.command()(control.resume)
app.command()(control.drain)
app.command()(control.scale)
app.add_typer(control.quarantine_app, name="quarantine")
app.add_typer(tasks_app, name="tasks")
app.add_typer(trajectories_app, name="trajectories")
app.add_typer(pool_app, name="pool")
app.add_typer(policy_app, name="policy")
app.add_typer(checkpoints_app, name="checkpoints")
app.add_typer(config_app, name="config")


def main() -> None:
    """The `dartrl` command."""
    require_own_supervision()
    app()
