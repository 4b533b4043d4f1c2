"""Filling the experience pool before the tree starts.

The work needs the policy's processor, and with it libraries that start threads. The launcher forks later and
must stay free of them, so another process does it.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from dart.config.sections import ContextSettings
from dart.core.errors import DiskError, UnavailableError
from dart.core.run_directory import RunPaths

DEADLINE_S = 600.0


def fill_pool(
    folders: Sequence[Path], policy: Path, paths: RunPaths, context: ContextSettings | None = None
) -> tuple[int, int]:
    """Import folders of demonstrations into a run at rest: how many were new, how many were known.

    context   what a vision-language policy is shown, where that is not the default

    Raises UnavailableError or DiskError with what is wrong and what to do.
    """
    if not folders:
        return 0, 0
    command = [sys.executable, "-m", "dart.training.demonstrations", paths.store, paths.blobs, policy]
    how = ["--context", context.model_dump_json()] if context not in (None, ContextSettings()) else []
    try:
        ended = subprocess.run(
            [str(part) for part in (*command, *folders, *how)],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(
            f"importing the demonstrations in {_names(folders)} took more than {DEADLINE_S:g} s; "
            "name fewer folders in curation.experience_pool.folders"
        ) from error
    if ended.returncode:
        raise RuntimeError(f"importing {_names(folders)} ended with code {ended.returncode}:\n{ended.stderr}")
    told = json.loads(ended.stdout.splitlines()[-1])
    if "failed" in told:
        raise (DiskError if told["disk"] else UnavailableError)(told["failed"])
    return told["added"], told["known"]


def _names(folders: Sequence[Path]) -> str:
    return ", ".join(str(folder) for folder in folders)
