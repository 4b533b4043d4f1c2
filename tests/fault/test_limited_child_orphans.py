"""A process that reads what is not trusted ends with the one that asked it, also by SIGKILL."""

import subprocess
import sys

import psutil

from dart.environments import limited_child

ASKS = """
import asyncio
from dart.environments.limited_child import in_child
asyncio.run(in_child("tests.unit.environments.called_in_children:takes_time", [], {}, deadline_s=60.0))
"""
WITHIN_S = 30.0


def test_a_limited_child_dies_with_the_process_that_asked_it() -> None:
    with subprocess.Popen([sys.executable, "-c", ASKS]) as asker:
        child = _child_of(psutil.Process(asker.pid))
        asker.kill()
    _, alive = psutil.wait_procs([child], timeout=WITHIN_S)
    assert not alive


def _child_of(process: psutil.Process) -> psutil.Process:
    while process.is_running():
        for child in process.children():
            if limited_child.__name__ in child.cmdline():
                return child
    raise AssertionError("it asked nobody")
