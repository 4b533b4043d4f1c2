"""Stacks of a process, read from its memory by py-spy, so the process may hang or be suspended."""

import shutil
import subprocess
import sys
from pathlib import Path

from dart.core.errors import TemporaryError, UnavailableError

DEADLINE_S = 10.0
"""How long py-spy may take. It needs less than a second, unless the process hangs in the kernel."""


def read_stack(name: str, pid: int, *, stands_still: bool = False, native: bool = False) -> str:
    """Read the stacks of all threads of an actor's process.

    stands_still  whether the process is suspended, so that py-spy does not have to pause it
    native        whether to show the frames of compiled code, too
    raises        UnavailableError if py-spy is missing or may not read the process,
                      TemporaryError if py-spy takes too long
    """
    command = [_py_spy(), "dump", "--pid", str(pid)]
    if native:
        command.append("--native")
    elif stands_still:
        command.append("--nonblocking")
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    except subprocess.TimeoutExpired:
        raise TemporaryError(
            f"py-spy read no stack of {name!r} (process {pid}) within {DEADLINE_S:g} s; try again, or read "
            f"/proc/{pid}/stack to see where the process waits in the kernel"
        ) from None
    if ran.returncode != 0:
        raise UnavailableError(_complaint(name, pid, ran.stderr))
    return ran.stdout.rstrip()


def _py_spy() -> str:
    """Find the program py-spy: in the folder of this Python interpreter, or on the PATH."""
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if beside.exists() else shutil.which("py-spy")
    if found is None:
        raise UnavailableError(
            "py-spy is not installed, and only it can read the stack of a process that hangs: "
            "pip install py-spy"
        )
    return found


def _complaint(name: str, pid: int, said: str) -> str:
    why = said.strip().splitlines()[-1] if said.strip() else "it gave no reason"
    remedy = "run this command as root, or allow tracing with 'sysctl kernel.yama.ptrace_scope=0'"
    rights = f"; {remedy}" if "ermission" in said else ""
    return f"py-spy could not read the stack of {name!r} (process {pid}): {why}{rights}"
