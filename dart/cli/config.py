"""`dartrl config`: check and show configurations."""

from pathlib import Path
from typing import Annotated

import typer

from dart.cli.boundary import errors_as_exit_codes
from dart.cli.options import Overrides

config_app = typer.Typer(help="Check and show configurations.", no_args_is_help=True)


@config_app.command()
def check(
    files: Annotated[list[Path], typer.Argument(help="TOML files, each checked by itself.")],
    overrides: Overrides = None,
) -> None:
    """Report every problem of every file at once; exit code 78 if there is one.

    **Examples**

    * `dartrl config check configs/*.toml`
    * `dartrl config check run.toml --set training.lr=1e-4`
    """
    from dart.config import ConfigError, load_config
    from dart.config_layers import Problem

    problems: list[Problem] = []
    with errors_as_exit_codes():
        for path in files:
            try:
                load_config(path, overrides or [])
            except ConfigError as error:
                problems += [problem for problem in error.problems if problem not in problems]
        if problems:
            raise ConfigError(problems)
    typer.echo(f"{', '.join(map(str, files))}: good")


@config_app.command()
def show(
    file: Annotated[Path | None, typer.Argument(help="TOML file. Default: the built-in values.")] = None,
    overrides: Overrides = None,
) -> None:
    """Print the resolved configuration as TOML, each value with its origin.

    **Examples**

    * `dartrl config show configs/laptop.toml`
    * `dartrl config show --set environments.count=2 > mine.toml`
    """
    from dart.config import resolve

    with errors_as_exit_codes():
        typer.echo(resolve(file, overrides or []).to_toml(), nl=False)
