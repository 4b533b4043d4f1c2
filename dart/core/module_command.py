"""The command line by which a process of this project starts another one."""

import sys
from pathlib import Path


def module_command(module: str) -> list[str]:
    """Return the command that runs a module in a new process, without arguments.

    The new process imports from the working directory only if this one does. By itself, `python -m` looks for
    every module there first: a `random.py` or a folder `dart`, also one that another user left in /tmp, would
    take the place of the installed one.
    """
    here = str(Path("/proc/self/cwd").readlink())  # `Path.cwd` raises an error once the folder was deleted
    imports_from_here = {"", here} & set(sys.path)
    return [sys.executable, *(() if imports_from_here else ("-P",)), "-m", module]
