"""The programs and packages that a local desktop needs. The check imports nothing heavy."""

import shutil
from importlib.util import find_spec

PROGRAMS = {"bwrap": "bubblewrap", "Xvfb": "xvfb", "openbox": "openbox"}
"""Program to Debian package: what every desktop needs."""

APPLICATIONS = {"mousepad": "mousepad", "galculator": "galculator", "pcmanfm": "pcmanfm"}
"""Program to Debian package: the applications of the tasks."""

MODULES = {"Xlib": "python-xlib", "mss": "mss"}
"""Python module to the distribution that provides it."""


def missing_for_desktops(applications: bool = True) -> list[str]:
    """Describe each program or package that is missing; empty when local desktops can be played."""
    programs = PROGRAMS | APPLICATIONS if applications else PROGRAMS
    lacking = [name for name in programs if shutil.which(name) is None]
    modules = [name for name in MODULES if find_spec(name) is None]
    return [f"{name} (Debian package {programs[name]})" for name in lacking] + [
        f"the Python package {MODULES[name]}" for name in modules
    ]
