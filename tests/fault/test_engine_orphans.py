"""Processes that an engine spawns die with the process that started it, however that ends."""

import multiprocessing
import multiprocessing.shared_memory
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from actors.process import is_alive
from tests.fault.actors_under_test import eventually

GONE_WITHIN_S = 5.0

PROGRAM = """
    import multiprocessing, sys, threading, time
    from pathlib import Path
    from dart.inference.engine_processes import tie_spawned_processes
    from tests.fault.test_engine_orphans import core

    if __name__ == "__main__":
        folder = Path(sys.argv[1])
        tie_spawned_processes(folder / "engine.log")
        started = threading.Event()

        def hold() -> None:
            multiprocessing.get_context("spawn").Process(target=core, args=(str(folder),)).start()
            started.set()
            threading.Event().wait()

        threading.Thread(target=hold, daemon=True).start()
        time.sleep(600)
"""


def core(folder: str) -> None:
    """What stands for an engine core: says who it is, and something else, and stays."""
    print("RuntimeError: these are its last words", flush=True)
    shared = multiprocessing.shared_memory.SharedMemory(create=True, size=64)
    (Path(folder) / "core").write_text(f"{os.getpid()} {shared.name}")
    signal.pause()


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv of util-linux")
@pytest.mark.parametrize("is_stopped", [False, True])
def test_what_an_engine_spawned_dies_with_a_killed_parent_also_when_it_is_stopped(
    tmp_path: Path, is_stopped: bool
) -> None:
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    parent = subprocess.Popen(
        [sys.executable, str(tmp_path / "program.py"), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    told = tmp_path / "core"
    eventually(lambda: told.exists() and len(told.read_text().split()) == 2, "the core runs")
    pid, shared = told.read_text().split()
    assert "last words" in (tmp_path / "engine.log").read_text()
    if is_stopped:
        os.kill(int(pid), signal.SIGSTOP)
    parent.kill()
    parent.wait()
    eventually(lambda: not is_alive(int(pid)), "the core is gone", lambda: pid, GONE_WITHIN_S)
    eventually(
        lambda: not Path("/dev/shm", shared).exists(), "so is its memory", lambda: shared, GONE_WITHIN_S
    )
