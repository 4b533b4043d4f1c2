"""Files that bring the steps of an episode to the store; the message has only their path and hash.

A message holds 64 KiB at most. Thirty steps of a 7 B policy with 14,000 prompt ids each are two megabytes.
"""

import hashlib
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from dart.core import messages as m
from dart.core.types import Step
from dart.store.blobs import write_whole
from dart.store.errors import StoreConflict
from dart.store.serialization import pack_steps, unpack_steps

GUIDED = "guided-"
"""How the names of the files of guided episodes begin."""

NAME = re.compile(r"(?P<rollout>\d+)-(?P<fence>\d+)\.steps")


def send(folder: Path, rollout_id: int, fence: int, steps: tuple[Step, ...]) -> m.StepFile:
    """Write the steps of a leased rollout to a file. Raises StoreUnavailable if the disk refuses."""
    return _written(folder / f"{rollout_id}-{fence}.steps", steps)


def send_guided(
    folder: Path, guide_id: int, attempt: int, environment: str, steps: tuple[Step, ...]
) -> m.StepFile:
    """Write the steps of a guided episode to a file. Raises StoreUnavailable if the disk refuses."""
    return _written(folder / f"{GUIDED}{guide_id}-{attempt}-{environment}.steps", steps)


def _written(path: Path, steps: tuple[Step, ...]) -> m.StepFile:
    content = pack_steps(steps)
    write_whole(path, content)
    return m.StepFile(path=str(path), sha256=hashlib.sha256(content).hexdigest())


def opened(step_file: m.StepFile) -> tuple[Step, ...]:
    """Read the steps of a file. Raises StoreConflict if the file is missing or has another hash."""
    try:
        content = Path(step_file.path).read_bytes()
    except FileNotFoundError as missing:
        raise StoreConflict(
            f"the step file {step_file.path} is missing: its sender was restarted, or the file was deleted"
        ) from missing
    found = hashlib.sha256(content).hexdigest()
    if found != step_file.sha256:
        raise StoreConflict(
            f"the step file {step_file.path} has sha256 {found}, the message says {step_file.sha256}"
        )
    return unpack_steps(content)


def sweep(folder: Path, is_held: Callable[[int, int], bool], older_than_unix_s: float) -> int:
    """Remove the files of senders that were killed; returns how many.

    is_held            whether the lease of this rollout and fence still holds, so that its file is needed
    older_than_unix_s  files without a lease are removed if they are older: files that were not written to
                       their end, and files of guided episodes
    """
    removed = 0
    for path in folder.glob("*"):
        named = NAME.fullmatch(path.name)
        with suppress(FileNotFoundError):  # its sender has removed it
            if named is not None:
                is_left = not is_held(int(named["rollout"]), int(named["fence"]))
            else:
                has_no_lease = path.name.endswith(".part") or path.name.startswith(GUIDED)
                is_left = has_no_lease and path.stat().st_mtime < older_than_unix_s
            if is_left:
                path.unlink()
                removed += 1
    return removed


def discard(step_file: m.StepFile) -> None:
    """Remove a step file, after the store has replied or refused."""
    Path(step_file.path).unlink(missing_ok=True)
