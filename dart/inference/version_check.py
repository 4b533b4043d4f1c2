"""Checks, before an engine loads a version, that the files of its folder are those that were written."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from dart.store.checkpoints import STATE_FILE, TRAINERS_PARTS, CorruptCheckpoint, load_checkpoint


def verify_policy(folder: Path, version: int) -> None:
    """Raise CorruptCheckpoint unless a folder has this version, and its files have their sha256.

    The base policy, version 0, can be a plain folder without hashes, which is not checked. It can also be a
    checkpoint of another run, which may have any version number.
    """
    if version == 0 and not (folder / STATE_FILE).exists():
        return
    found = load_checkpoint(folder, but=TRAINERS_PARTS).state.version
    if version not in (0, found):
        raise CorruptCheckpoint(folder, STATE_FILE, f"version {version}", f"version {found}")


def refuse_other_bytes(folder: Path, published: Mapping[str, str], read: Iterable[Mapping[str, str]]) -> None:
    """Raise CorruptCheckpoint if a worker of an engine read other bytes than the trainer wrote.

    This can happen if a worker is on another machine, where the same path is another file.

    published   sha256 of each file as the trainer wrote it, by file name
    read        sha256 of each file as each worker read it, by file name
    """
    for hashes in read:
        for name, found in hashes.items():
            if found != published.get(name, found):
                raise CorruptCheckpoint(folder, name, f"sha256 {published[name]}", found)
