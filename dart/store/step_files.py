"""The steps of an episode on their way to the store: in a file, named in the message by path and hash.

Mail carries 64 KiB. Thirty steps of a 7 B policy with 14,000 prompt ids each take two megabytes.
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
"""Begins the names of steps that were played under a demonstration's actions."""

NAME = re.compile(r"(?P<rollout>\d+)-(?P<fence>\d+)\.steps")


def send(folder: Path, rollout_id: int, fence: int, steps: tuple[Step, ...]) -> m.StepFile:
    """Write the steps of what is played under a lease. Raises StoreUnavailable when there is no room."""
    return _written(folder / f"{rollout_id}-{fence}.steps", steps)


def send_guided(
    folder: Path, guide_id: int, attempt: int, environment: str, steps: tuple[Step, ...]
) -> m.StepFile:
    """Write the steps of what is played under a demonstration's actions. Raises StoreUnavailable."""
    return _written(folder / f"{GUIDED}{guide_id}-{attempt}-{environment}.steps", steps)


def _written(path: Path, steps: tuple[Step, ...]) -> m.StepFile:
    content = pack_steps(steps)
    write_whole(path, content)
    return m.StepFile(path=str(path), sha256=hashlib.sha256(content).hexdigest())


def opened(step_file: m.StepFile) -> tuple[Step, ...]:
    """The steps, exactly as they were sent. Raises StoreConflict when the file is not what was sent."""
    try:
        content = Path(step_file.path).read_bytes()
    except FileNotFoundError as missing:
        raise StoreConflict(
            f"the steps in {step_file.path} are gone: their sender was started again"
        ) from missing
    found = hashlib.sha256(content).hexdigest()
    if found != step_file.sha256:
        raise StoreConflict(
            f"the steps in {step_file.path} have sha256 {found}, sent were {step_file.sha256}"
        )
    return unpack_steps(content)


def sweep(folder: Path, is_held: Callable[[int, int], bool], older_than_unix_s: float) -> int:
    """Remove the files of senders that were killed; returns how many.

    is_held            whether the rollout is still played under this fence: its file may yet be asked for
    older_than_unix_s  files without a lease are removed when they are older than this: those that were never
                       written to their end, and episodes under a demonstration's actions
    """
    removed = 0
    for path in folder.glob("*"):
        named = NAME.fullmatch(path.name)
        with suppress(FileNotFoundError):  # its sender is done with it
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
    """It arrived, or is not wanted any more."""
    Path(step_file.path).unlink(missing_ok=True)
