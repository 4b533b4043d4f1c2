"""Import of demonstrations into the experience pool before the supervision tree starts.

The import needs the policy's processor, whose libraries start threads. The launcher must not have threads,
because it forks later; so another process does the import.
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
    folders: Sequence[Path], policy: Path, paths: RunPaths, context: ContextSettings
) -> tuple[int, int]:
    """Import folders of demonstrations into a run that is not running.

    context   settings of a vision-language policy's prompts

    Returns how many demonstrations were new and how many the pool had already. Raises UnavailableError or
    DiskError, which say what is wrong and what to do.
    """
    if not folders:
        return 0, 0
    command = [sys.executable, "-m", "dart.training.demonstration_import", paths.record, paths.root, policy]
    try:
        ended = subprocess.run(
            [str(part) for part in (*command, *folders, "--context", context.model_dump_json())],
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
    result = json.loads(ended.stdout.splitlines()[-1])
    if "failed" in result:
        raise (DiskError if result["disk"] else UnavailableError)(result["failed"])
    return result["added"], result["known"]


def _names(folders: Sequence[Path]) -> str:
    return ", ".join(str(folder) for folder in folders)
