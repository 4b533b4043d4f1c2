"""Whether a policy folder is what was written for a version, before an engine takes it over."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from dart.store.checkpoints import STATE_FILE, CorruptCheckpoint, load_checkpoint

TRAINERS = ("optimizer.pt", "optimizer", "adapter")
"""What of a checkpoint only the trainer reads: the state of its optimizer, several times the weights, and an
adapter, which is added to the weights already."""


def verify_policy(folder: Path, version: int) -> None:
    """Every file an engine reads against its sha256, and the version against the one that was asked for.

    Version 0 is the policy training starts from: a plain folder without hashes, or the checkpoint of another
    run, whatever its version there. Raises CorruptCheckpoint.
    """
    if version == 0 and not (folder / STATE_FILE).exists():
        return
    found = load_checkpoint(folder, but=TRAINERS).state.version
    if version not in (0, found):
        raise CorruptCheckpoint(folder, STATE_FILE, f"version {version}", f"version {found}")


def refuse_other_bytes(folder: Path, published: Mapping[str, str], read: Iterable[Mapping[str, str]]) -> None:
    """What each worker of an engine read against what the trainer published, all by file name.

    Raises CorruptCheckpoint. A worker may be on a machine where the same path is another file.
    """
    for hashes in read:
        for name, found in hashes.items():
            if found != published.get(name, found):
                raise CorruptCheckpoint(folder, name, f"sha256 {published[name]}", found)
