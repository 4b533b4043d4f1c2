"""Writers of screenshots are killed at any moment: what bears a name is whole, and nothing else is read."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from dart.store.blobs import FolderBlobs

KILLS = 8
WRITER = """
import hashlib, sys
from pathlib import Path
from dart.store.blobs import FolderBlobs

blobs = FolderBlobs(Path(sys.argv[1]))
number = int(sys.argv[2])
while True:
    sha256 = blobs.put(hashlib.sha256(str(number).encode()).digest() * 40_000)
    print(sha256, flush=True)
    number += 1
"""


def write_until_killed(folder: Path, first: int, after_s: float) -> list[str]:
    """Names that the writer said were kept."""
    command = [sys.executable, "-c", WRITER, str(folder), str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        told = [writer.stdout.readline()]
        time.sleep(after_s)
        writer.send_signal(signal.SIGKILL)
        told += writer.stdout.readlines()
    assert writer.returncode == -signal.SIGKILL
    return [line.strip() for line in told if line.endswith("\n")]


def test_a_killed_writer_leaves_whole_screenshots_and_what_nobody_reads(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path)
    moments = random.Random(0)
    for number in range(KILLS):
        told = write_until_killed(tmp_path, 1_000_000 * number, moments.uniform(0.0, 0.03))
        for sha256 in {*told, *(path.stem for path in tmp_path.glob("*/*.png"))}:
            blobs.read(sha256)
    (tmp_path / "ab" / ".cut-off.part").write_bytes(b"half of a picture")
    blobs.remove_leftovers()
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".png"] == []
    assert len(list(tmp_path.glob("*/*.png"))) >= KILLS
