"""`dartrl setup`: what a run needs beside Python packages."""

from pathlib import Path
from typing import Annotated

import typer

from dart.cli.boundary import errors_as_exit_codes
from dart.cli.options import CONFIGURATION, Overrides
from dart.cli.output import say


def setup(
    config: Annotated[
        Path | None, typer.Argument(help=f"{CONFIGURATION} Default: the built-in values.")
    ] = None,
    overrides: Overrides = None,
    check: Annotated[
        bool, typer.Option("--check", help="Install nothing; only say what is missing.")
    ] = False,
) -> None:
    """Install what a configuration needs beside Python packages: the browser and the MiniWoB++ pages.

    The browser comes through apt where this user may do that, the pages through the pip of this Python. Every
    command is printed before it runs. Exit code 69 if something is missing in the end; each line says what to
    do.

    **Examples**

    * `dartrl setup`
    * `dartrl setup --check`
    * `dartrl setup --set environments.executable=/opt/chromium/headless_shell`
    """
    from dart.config.config import load_config
    from dart.preflight.installer import install, missing_installations
    from dart.preflight.requirements import missing_browser, missing_packages, require_installation

    with errors_as_exit_codes():
        settings = load_config(config, overrides or [])
        for command in [] if check else missing_installations(settings):
            install(command, announce=lambda text: say(f"setup: {text}", err=True))
        require_installation(settings, checks=(missing_packages, missing_browser))
        say("nothing is missing")
