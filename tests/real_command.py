"""Commands of this checkout in processes of their own, run to their end."""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def train(
    config: str | Path, run_dir: Path, settings: Iterable[str], *, deadline_s: float
) -> "subprocess.CompletedProcess[str]":
    """Run `dartrl train` with a configuration file, and `--set` for each of the settings.

    Raises TimeoutExpired after the deadline."""
    options = [word for setting in settings for word in ("--set", setting)]
    return subprocess.run(
        [sys.executable, "-m", "dart", "train", config, "--run-dir", run_dir, *options],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY), "COLUMNS": "120", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=deadline_s,
        check=False,
    )
