"""`dartrl up` that is ended while `ray up` starts Ray by SSH leaves no process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from actors.process import is_alive
from tests.fault.actors_under_test import eventually

GONE_WITHIN_S = 5.0

FILE = """
run = "smoke"
record = "postgresql://me@db/runs"
blobs = "s3://bucket/prefix"
[place.environments]
needs = { vm_host = 0 }
[engine]
ssh = ["127.0.0.1"]
"""

PROGRAM = """
import sys
from pathlib import Path
from dart.cluster.engine_start import start_by_ssh
from dart.config.cluster import load_cluster
from dart.core.run_directory import RunPaths

folder = Path(sys.argv[1])
found = load_cluster(folder / "cluster.toml", [f"run.dir={str(folder / 'run')!r}"])
sys.executable = str(folder / "python")
start_by_ssh(found, RunPaths(folder / "run"))
"""


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_ray_up_ends_with_the_main_process(tmp_path: Path, signum: signal.Signals) -> None:
    (tmp_path / "cluster.toml").write_text(FILE)
    os.mkfifo(tmp_path / "machines")
    program = tmp_path / "ray"
    program.write_text(f"#!/bin/sh\nread answer < {tmp_path}/machines\n")
    program.chmod(0o700)
    parent = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)])
    with (tmp_path / "machines").open("w"):  # `ray up` has opened it and waits for an answer
        (starting,) = psutil.Process(parent.pid).children()
        parent.send_signal(signum)
        parent.wait()
        eventually(lambda: not is_alive(starting.pid), "`ray up` is gone", within_s=GONE_WITHIN_S)
