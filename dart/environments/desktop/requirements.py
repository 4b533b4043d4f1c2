"""The programs and packages that a local desktop needs. The check imports nothing heavy."""

import shutil
from importlib.util import find_spec

PROGRAMS = {"bwrap": "bubblewrap", "Xvfb": "xvfb", "openbox": "openbox"}
"""The programs that every desktop needs, each with its Debian package."""

APPLICATIONS = {"mousepad": "mousepad", "galculator": "galculator", "pcmanfm": "pcmanfm"}
"""The applications of the tasks, each with its Debian package."""

MODULES = {"Xlib": "python-xlib", "mss": "mss"}
"""The Python modules that a desktop needs, each with the distribution that provides it."""


def missing_for_desktops(applications: bool = True) -> list[str]:
    """Describe each program or package that is missing; empty when nothing is.

    applications   whether to check the applications of the tasks, too
    """
    programs = PROGRAMS | APPLICATIONS if applications else PROGRAMS
    lacking = [name for name in programs if shutil.which(name) is None]
    modules = [name for name in MODULES if find_spec(name) is None]
    return [f"{name} (Debian package {programs[name]})" for name in lacking] + [
        f"the Python package {MODULES[name]}" for name in modules
    ]
