"""Installing what environments need beside Python packages; `dartrl setup` and `make setup` both do it here.

The browser comes through apt, the MiniWoB++ pages through pip. `missing_installations` decides which commands
are needed, `install` announces and runs them. What cannot be installed here is left to
`dart.preflight.requirements`, which names it with its remedy.
"""

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dart.config.config import Config
from dart.core.errors import UnavailableError
from dart.environments.faults import PagesMissing
from dart.environments.miniwob.environment import CHROMIUM
from dart.environments.miniwob.pages import PAGES_PACKAGE, miniwob_html_dir

BROWSER_PACKAGE = "chromium-headless-shell"

Command = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Installation:
    """The commands that install one thing."""

    what: str
    commands: tuple[Command, ...]


def missing_installations(config: Config) -> list[Installation]:
    """What is missing for the configured environments and can be installed here."""
    if config.environments.kind != "miniwob":
        return []
    found = []
    lacks_browser = not config.environments.executable and not Path(CHROMIUM).exists()
    if lacks_browser and (root := as_root()) is not None:
        found.append(browser_installation(root))
    if not _has_pages() and importlib.util.find_spec("pip") is not None:
        found.append(pages_installation(sys.executable))
    return found


def browser_installation(root: Command) -> Installation:
    """The browser through apt.

    root   what stands before a command to run it as root; nothing for root itself
    """
    install = ("apt-get", "install", "-y", "-qq", "--no-install-recommends", BROWSER_PACKAGE)
    return Installation(
        "the browser",
        (
            (*root, "apt-get", "update", "-qq"),
            (*root, "env", "DEBIAN_FRONTEND=noninteractive", *install),
        ),
    )


def pages_installation(python: str) -> Installation:
    """The MiniWoB++ pages through the pip of this interpreter.

    Without the dependencies of the package (selenium, gymnasium): only its pages are used.
    """
    pip = (python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    return Installation("the MiniWoB++ pages", ((*pip, "--no-deps", PAGES_PACKAGE),))


def _run(command: Sequence[str]) -> int:
    """The exit code. What the command prints on standard output is progress and is dropped."""
    nowhere = subprocess.DEVNULL
    return subprocess.run(command, stdin=nowhere, stdout=nowhere, check=False).returncode


def install(
    installation: Installation,
    *,
    announce: Callable[[str], None],
    run: Callable[[Sequence[str]], int] = _run,
) -> None:
    """Announce and run each command of an installation.

    run       runs one command and gives its exit code
    raises    UnavailableError when a command fails; the commands after it are not run
    """
    for command in installation.commands:
        announce(f"installing {installation.what}: {shlex.join(command)}")
        code = run(command)
        if code:
            raise UnavailableError(
                f"installing {installation.what} failed: '{shlex.join(command)}' ended with exit code {code} "
                "and said why above; repair that, or install it in another way, and repeat 'dartrl setup'"
            )
    importlib.invalidate_caches()


def as_root() -> Command | None:
    """What stands before apt-get to run it as root; None where there is no apt-get, or this user may not."""
    if shutil.which("apt-get") is None:
        return None
    if os.geteuid() == 0:
        return ()
    sudo = ("sudo", "-n")
    if shutil.which("sudo") is None:
        return None
    asked = subprocess.run([*sudo, "true"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return sudo if asked.returncode == 0 else None


def _has_pages() -> bool:
    try:
        miniwob_html_dir()
    except PagesMissing:
        return False
    return True
