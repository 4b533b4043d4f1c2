"""Work in a process of its own, as the import of demonstrations at a start, ends with the main process."""

import signal
import subprocess
import sys

import psutil
import pytest

from actors.process import is_alive
from tests.fault.actors_under_test import eventually

GONE_WITHIN_S = 5.0

PROGRAM = """
import time
from functools import partial
from dart.run.child_task import in_fresh_process

in_fresh_process(partial(time.sleep, 60.0), deadline_s=60.0, remedy="wait")
"""


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_work_in_a_process_of_its_own_ends_with_the_main_process(signum: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM]) as parent:
        try:
            children = psutil.Process(parent.pid).children
            eventually(lambda: bool(children()), "the work has a process")
            (working,) = children()
            parent.send_signal(signum)
            parent.wait()
            eventually(lambda: not is_alive(working.pid), "the work is gone", within_s=GONE_WITHIN_S)
        finally:
            parent.kill()
