"""Installs what environments need besides Python packages, for `dartrl setup` and `make setup`.

The browser is installed through apt, the MiniWoB++ pages through pip. `dart.preflight.requirements` reports
what is missing otherwise, with a remedy.
"""

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from dart.config.config import Config
from dart.config.environment_kinds import KINDS
from dart.core.errors import UnavailableError
from dart.environments.browser.environment import CHROMIUM
from dart.environments.faults import PagesMissing
from dart.environments.miniwob.pages import PAGES_PACKAGE, miniwob_html_dir

Command = tuple[str, ...]

INSTALL_BROWSER: tuple[Command, ...] = (
    ("apt-get", "update", "-qq"),
    (
        *("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-qq"),
        *("--no-install-recommends", "chromium-headless-shell"),
    ),
)

INSTALL_PAGES: Command = (
    *(sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "install", "--quiet"),
    *("--no-deps", PAGES_PACKAGE),
)
"""The command that installs the MiniWoB++ package without its dependencies: only its pages are used.
With -P, a folder `pip` in the working directory takes no place of the installed one."""


def missing_installations(config: Config) -> list[Command]:
    """Return the commands that install what the configured environments lack.

    Commands that this user cannot run are left out: those that need root or sudo, or pip if it is missing.
    """
    if not KINDS[config.environments.kind].is_page:
        return []
    commands: list[Command] = []
    lacks_browser = not config.environments.executable and not Path(CHROMIUM).exists()
    if lacks_browser and (root := as_root()) is not None:
        commands += [(*root, *command) for command in INSTALL_BROWSER]
    if config.environments.kind != "miniwob":
        return commands
    try:
        miniwob_html_dir()
    except PagesMissing:
        if importlib.util.find_spec("pip") is not None:
            commands.append(INSTALL_PAGES)
    return commands


def install(command: Command, announce: Callable[[str], None]) -> None:
    """Announce and run a command. Its standard output, which only shows progress, is not shown.

    announce   prints a line with the command
    raises     UnavailableError if the command fails
    """
    announce(f"running {shlex.join(command)}")
    code = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False
    ).returncode
    if code:
        raise UnavailableError(
            f"the command '{shlex.join(command)}' ended with exit code {code}; its error is above; remove "
            "the cause, or install the package in another way, and repeat 'dartrl setup'"
        )
    importlib.invalidate_caches()


def as_root() -> Command | None:
    """Return the words to put before `apt-get` so that it runs as root; an empty tuple if this user is root.

    None if there is no apt-get, or if this user cannot become root by sudo without a password."""
    if shutil.which("apt-get") is None:
        return None
    if os.geteuid() == 0:
        return ()
    sudo = ("sudo", "-n")
    try:
        asked = subprocess.run([*sudo, "true"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return sudo if asked.returncode == 0 else None
