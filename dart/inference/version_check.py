"""Checks that a policy folder holds what was written for a version, before an engine loads it."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from dart.store.checkpoints import STATE_FILE, TRAINERS_PARTS, CorruptCheckpoint, load_checkpoint


def verify_policy(folder: Path, version: int) -> None:
    """Raise CorruptCheckpoint unless the folder holds this version, and its files have their sha256.

    The base policy, version 0, is a plain folder without hashes, which is not checked, or a checkpoint of
    another run, which may have any version number.
    """
    if version == 0 and not (folder / STATE_FILE).exists():
        return
    found = load_checkpoint(folder, but=TRAINERS_PARTS).state.version
    if version not in (0, found):
        raise CorruptCheckpoint(folder, STATE_FILE, f"version {version}", f"version {found}")


def refuse_other_bytes(folder: Path, published: Mapping[str, str], read: Iterable[Mapping[str, str]]) -> None:
    """Raise CorruptCheckpoint if a worker of an engine read other bytes than the trainer wrote.

    A worker may be on a machine where the same path is another file.

    published   sha256 of each file as the trainer wrote it, by file name
    read        sha256 of each file as each worker read it, by file name
    """
    for hashes in read:
        for name, found in hashes.items():
            if found != published.get(name, found):
                raise CorruptCheckpoint(folder, name, f"sha256 {published[name]}", found)
