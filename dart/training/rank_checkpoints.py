"""Checkpoints that several ranks write together: rank 0 makes and commits the folder, each writes its part.

One thread of each rank calls `write_together`. These threads communicate among `ProcessGroup.writers`.
"""

from pathlib import Path

from dart.policy.written_weights import join_shares
from dart.store.checkpoints import CheckpointState, write_checkpoint
from dart.training.batch_errors import SHARED_BY_RANKS
from dart.training.checkpoint_copy import CheckpointCopy
from dart.training.distributed import ProcessGroup


def write_together(
    ranks: ProcessGroup, parent: Path, state: CheckpointState, files: CheckpointCopy
) -> Path | None:
    """Write the checkpoint of a version below `parent`; every rank has to call this function.

    Rank 0 commits the checkpoint when every rank has written its files. A rank that dies or fails before
    leaves no checkpoint of this version. Returns the folder of the checkpoint on rank 0, and None on the
    others. The ranks that have the folder raise an error of any of them.
    """
    if ranks.index > 0:
        folder = ranks.announced()
        if folder is not None:
            _write_part(ranks, files, folder)
        return None
    has_announced = False

    def write(folder: Path) -> None:
        nonlocal has_announced
        has_announced = True
        _write_part(ranks, files, ranks.announced(folder))
        join_shares(folder)

    try:
        return write_checkpoint(parent, state, write)
    finally:
        if not has_announced:
            ranks.announced()


def _write_part(ranks: ProcessGroup, files: CheckpointCopy, folder: Path) -> None:
    """Write this rank's files, and wait until all ranks have written theirs."""
    failed: Exception | None = None
    try:
        files.write(folder)
    except SHARED_BY_RANKS as error:
        failed = error
    ranks.fail_together(failed, ranks.writers)
