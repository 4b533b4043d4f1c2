"""A check, at the start of a command, that `import supervision` finds the package of this project.

Roboflow's computer-vision toolbox has the same import name. If both are in one environment, the one that was
installed last silently wins, and later errors are confusing. The check does not import the package.
Background: docs/decisions/0001-import-names.md.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

EXIT_CONFIGURATION = 78
"""EX_CONFIG of sysexits.h, after which a service manager must not try again (ExitCode.CONFIGURATION)."""

REINSTALL = "install dartrl again (pip install --force-reinstall --no-deps dartrl, in a clone: make setup)"

HOME = Path(__file__).resolve().parents[2]
"""The folder that holds the packages actors, supervision and dart."""


def imported_from(package: str) -> Path | None:
    """Return the file that `import package` would load.

    None when the package is missing, or is a folder without `__init__.py`.
    """
    spec = find_spec(package)
    return Path(spec.origin).resolve() if spec and spec.origin else None


def complaint(found: Path | None, home: Path) -> str | None:
    """Return the error message if `found` is not this project's `supervision`; None if it is.

    found   the file that `import supervision` would load; None: there is none
    home    the folder that holds this project's packages
    """
    if found == home / "supervision" / "__init__.py":
        return None
    if found is None:
        return (
            f"the package 'supervision' of this project is missing; {home / 'supervision'} should hold it. "
            f"Uninstalling another package of that name may have removed its files: {REINSTALL}."
        )
    return (
        f"'import supervision' finds {found}, not this project's {home / 'supervision'}. Most likely that is "
        "Roboflow's computer-vision package. Remove it from this environment (pip uninstall supervision), "
        f"{REINSTALL}, and keep programs that need the other package in an environment of their own, reached "
        "over HTTP."
    )


def require_own_supervision() -> None:
    """End the process with exit code 78 unless `supervision` is this project's package."""
    problem = complaint(imported_from("supervision"), HOME)
    if problem is not None:
        sys.stderr.write(f"error: {problem}\n")
        raise SystemExit(EXIT_CONFIGURATION)
