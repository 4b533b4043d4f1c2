"""A start of a run that is killed while it imports demonstrations leaves no process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from actors.process import is_alive
from dart.store.store import Store
from tests.fault.actors_under_test import eventually

GONE_WITHIN_S = 5.0

PROGRAM = """
import sys
from pathlib import Path
from dart.config.sections import ContextSettings
from dart.core.run_directory import RunPaths
from dart.run.folder_import import fill_pool

run_dir = Path(sys.argv[1])
fill_pool((run_dir,), run_dir / "policy", RunPaths(run_dir), ContextSettings())
"""


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_an_import_ends_with_the_main_process(tmp_path: Path, signum: signal.Signals) -> None:
    Store(tmp_path / "store.db").close()
    (tmp_path / "policy").mkdir()
    os.mkfifo(tmp_path / "policy" / "config.json")
    parent = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)])
    with (tmp_path / "policy" / "config.json").open("w"):  # the import has opened it and waits for its text
        (importing,) = psutil.Process(parent.pid).children()
        parent.send_signal(signum)
        parent.wait()
        eventually(lambda: not is_alive(importing.pid), "the import is gone", within_s=GONE_WITHIN_S)
