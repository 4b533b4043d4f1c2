"""The programs and packages that a local desktop needs. The check imports nothing heavy."""

import shutil
from collections.abc import Iterator
from importlib.util import find_spec

PROGRAMS = {"bwrap": "bubblewrap", "Xvfb": "xvfb", "openbox": "openbox"}
"""Program to Debian package: what every desktop needs."""

APPLICATIONS = {"mousepad": "mousepad", "galculator": "galculator", "pcmanfm": "pcmanfm"}
"""Program to Debian package: the applications of the tasks."""

MODULES = {"Xlib": "python-xlib", "mss": "mss"}
"""Python module to the distribution that provides it."""


def missing_for_desktops(applications: bool = True) -> list[str]:
    """Describe what is not installed; empty when desktops can be played."""
    return list(_missing(PROGRAMS | APPLICATIONS if applications else PROGRAMS))


def _missing(programs: dict[str, str]) -> Iterator[str]:
    for program, package in programs.items():
        if shutil.which(program) is None:
            yield f"{program} (Debian package {package})"
    for module, distribution in MODULES.items():
        if find_spec(module) is None:
            yield f"the Python package {distribution}"
