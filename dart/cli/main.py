"""The program `dartrl`: registers all commands and turns their errors into messages and exit codes.

Every command is thin: it reads the options, calls one function of the training system and shows the result.
Commands import heavy modules in their functions, so that help and checks are quick.
"""

import sys
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from actors.process import fill_standard_streams
from dart import __version__
from dart.cli import control
from dart.cli.actors import actors_app
from dart.cli.align import align
from dart.cli.config import config_app
from dart.cli.demo import demo
from dart.cli.doctor import doctor, setup
from dart.cli.down import down
from dart.cli.evaluate import evaluate
from dart.cli.events import events, why
from dart.cli.exit_codes import errors_as_exit_codes
from dart.cli.explore import explore
from dart.cli.ground import ground_app
from dart.cli.init import init
from dart.cli.inspect import status, top, tree
from dart.cli.osworld import osworld_app
from dart.cli.pool import pool_app
from dart.cli.rescore import rescore
from dart.cli.tasks import tasks_app
from dart.cli.train import pretrain, train
from dart.cli.trajectories import trajectories_app
from dart.cli.up import up
from dart.cli.versions import checkpoints_app, policy_app
from dart.cli.web import metrics, web
from dart.core.import_guard import require_own_supervision


class AllCommands(TyperGroup):
    """The group of all commands. An error that a user can fix becomes a message and an exit code."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Parse the command line, after joining command names of two words and replacing `--json`.

        `--json` becomes `--output=json` for every command that has the option `--output`.
        """
        with errors_as_exit_codes():  # `--help` and `--version` write their output here
            return super().parse_args(ctx, _with_output(self, with_name(self, args)))

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        with errors_as_exit_codes():
            return super().invoke(ctx)


def with_name(commands: TyperGroup, words: list[str]) -> list[str]:
    """Join the first two words if they are the name of a command, such as `eval rescore`.

    Otherwise click would take `rescore` for an argument of the command `eval`.
    """
    name = " ".join(words[:2])
    return [name, *words[2:]] if len(words) > 1 and name in commands.commands else words


def _with_output(commands: TyperGroup, words: list[str]) -> list[str]:
    """Replace `--json` by `--output=json` if the command that the words name has the option `--output`.

    Words after `--` are not options and stay.
    """
    command: Any = commands
    for word in words:
        command = getattr(command, "commands", {}).get(word, command)
    if not any("--output" in option.opts for option in command.params):
        return words
    options = words.index("--") if "--" in words else len(words)
    return ["--output=json" if word == "--json" else word for word in words[:options]] + words[options:]


app = typer.Typer(
    cls=AllCommands,
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
    """Options of `dartrl` itself, before the name of a command."""


app.command()(init)
app.command()(setup)
app.command()(demo)
app.command()(train)
app.command()(up)
app.command()(down)
app.command("eval")(evaluate)
app.command("eval rescore")(rescore)
app.command()(pretrain)
app.command()(explore)
app.command()(align)
app.command()(status)
app.command()(tree)
app.command()(top)
actors_app.command()(control.restart)
actors_app.command()(control.stop)
app.add_typer(actors_app, name="actors")
app.add_typer(ground_app, name="ground")
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
app.add_typer(osworld_app, name="osworld")
app.add_typer(policy_app, name="policy")
app.add_typer(checkpoints_app, name="checkpoints")
app.add_typer(config_app, name="config")


def main() -> None:
    """Run `dartrl`. Ends with a message if another package named `supervision` hides that of this project."""
    require_own_supervision()
    fill_standard_streams()  # before anything is opened, such as the lock of a run
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # as its encoding may lack a character that is printed
            stream.reconfigure(errors="replace")
    app()
