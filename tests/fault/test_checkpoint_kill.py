"""A process killed while it writes checkpoints never leaves one that looks whole and is not."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from dart.store.checkpoints import CheckpointState, list_checkpoints, load_checkpoint, write_checkpoint

WRITER = """
import sys
from pathlib import Path
from dart.store.checkpoints import CheckpointState, prune, write_checkpoint

parent, first = Path(sys.argv[1]), int(sys.argv[2])

def files(folder):
    for name in ("model.safetensors", "optimizer.pt"):
        with (folder / name).open("wb") as file:
            for _ in range(64):
                file.write(b"x" * 4096)
                file.flush()

version = first
while True:
    write_checkpoint(parent, CheckpointState(version=version, learner={}), files)
    prune(parent, keep=3)
    version += 1
    print(version, flush=True)
"""
KILLS = 12


def kill_mid_write(parent: Path, first: int, delay_s: float) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(parent), str(first)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(delay_s)
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=10)
    process.stdout.close()


def test_every_visible_checkpoint_verifies_after_a_kill_at_any_moment(tmp_path: Path) -> None:
    moments = random.Random(0)
    next_version = 0
    for _ in range(KILLS):
        kill_mid_write(tmp_path, next_version, moments.uniform(0.0, 0.03))
        visible = list_checkpoints(tmp_path)
        assert visible, "the writer reported a checkpoint that is not there"
        for folder in visible:
            load_checkpoint(folder)
        newest = load_checkpoint(visible[-1]).state.version
        assert newest >= next_version
        next_version = newest + 1
    write_checkpoint(tmp_path, CheckpointState(version=next_version, learner={}), lambda folder: None)
    assert not list(tmp_path.glob(".*")), "the next write clears what the killed one left"
