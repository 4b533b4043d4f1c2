"""Checkpoints on disk: each is complete or absent, and its files are verified by hashes.

A checkpoint is a folder such as `v000042`. One rename makes it appear, complete or not at all::

    v000042/
      config.json, processor files, model.safetensors     the policy, for the Auto classes of transformers
      master/*.safetensors                                the trainer's weights, if the above are less precise
      optimizer.pt, or optimizer/                         the optimizer's state; the folder: a part per rank
      adapter/                                            the adapter, if only an adapter is trained
      state.json                                          version, state of the learner, sha256 of each file

`state.json` is written last. It names the sha256 of every other file and of its own content. A process that
is killed at any moment leaves at most a folder whose name starts with a dot. Nothing reads such a folder, and
the next write or prune removes it.

Two kinds of checkpoints are renamed instead of deleted. `v000043.uncommitted` belongs to an update that was
not committed to the record. The trainer removes it when a version 43 is committed. `v000042.damaged` was the
newest version and could not be verified, so the run continued from an older one. You may remove it.
"""

import errno
import hashlib
import itertools
import json
import math
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dart.core.errors import DiskError
from dart.core.run_directory import make_private
from dart.store.blobs import sync_path
from dart.store.disk_wait import is_no_room

STATE_FILE = "state.json"
FORMAT = 2
OWN_HASH = "state_sha256"
MASTER = "master"
"""Folder of the trainer's weights in a checkpoint whose `model.safetensors` is less precise."""

TRAINERS_PARTS = ("optimizer.pt", "optimizer", MASTER)
"""Files and folders of a checkpoint that engines do not read. They are several times as large as the rest."""

HASHERS = 8
"""Number of threads that hash files at the same time, because hashing a file is slower than reading it."""

UNCOMMITTED, DAMAGED = "uncommitted", "damaged"
"""Endings of the names of files and folders that were kept aside instead of deleted."""

WriteCheckpoint = Callable[[Path], Path]
"""A function that writes a copied state of the learner as a checkpoint into a parent folder, and returns the
checkpoint's folder."""

_NAME = re.compile(r"^v(\d{6,})$")
_UNCOMMITTED_NAME = re.compile(rf"^v(\d{{6,}})\.{UNCOMMITTED}(-\d+)?$")


class CorruptCheckpoint(DiskError):
    """A checkpoint folder whose files are not those that were written."""

    def __init__(self, folder: Path, file: str, expected: str, got: str) -> None:
        self.folder, self.file, self.expected, self.got = folder, file, expected, got
        super().__init__(
            f"checkpoint {folder}: {self.damage}; if it is the newest of its run, start the run again with "
            "--resume (or `dartrl up`): it continues from the newest checkpoint that is whole"
        )

    @property
    def damage(self) -> str:
        """What is wrong with the checkpoint, without its folder and the remedy."""
        return f"{self.file} is corrupt: expected {self.expected}, got {self.got}"


class CheckpointNotWritten(DiskError):
    """The disk refused to write a checkpoint; no folder of that version exists, older ones are unchanged."""

    def __init__(self, folder: Path, reason: OSError) -> None:
        remedy = (
            "free space there; a run that waits for space then continues by itself, a run that has ended "
            "continues with --resume"
            if is_no_room(reason)
            else f"make {folder.parent} writable, then continue with --resume"
        )
        super().__init__(
            f"checkpoint {folder} could not be written: {reason}; older checkpoints are unchanged; {remedy}"
        )
        self.folder = folder


class CheckpointExists(RuntimeError):
    """A checkpoint of this version exists; it is never written twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointState:
    """The content of `state.json` without the hashes."""

    version: int
    learner: Mapping[str, Any]
    """Plain JSON: counters and other state that the learner needs to continue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A verified checkpoint on disk."""

    folder: Path
    state: CheckpointState


def checkpoint_name(version: int) -> str:
    """The folder name of a version: `v000042` for 42."""
    return f"v{version:06d}"


def write_checkpoint(parent: Path, state: CheckpointState, write_files: Callable[[Path], None]) -> Path:
    """Write the checkpoint of `state.version` below `parent` and return its folder.

    `write_files` gets a temporary folder and writes all files but `state.json` into it. Files and folders are
    synced to the disk before the folder is renamed to its final name; the new name is synced, too. Raises
    CheckpointExists if the version exists, and CheckpointNotWritten if the disk refuses. Only one process may
    write below `parent` at a time.
    """
    target = parent / checkpoint_name(state.version)
    if target.exists():
        raise CheckpointExists(f"{target} exists: a checkpoint is never written twice")
    try:
        make_private(parent)
        _publish(target, state, write_files)
    except OSError as refused:
        raise CheckpointNotWritten(target, refused) from refused
    finally:
        remove_leftovers(parent)
    return target


def remove_leftovers(parent: Path) -> None:
    """Remove the temporary folders of interrupted writes and removals."""
    for leftover in parent.glob(".v*.tmp"):
        shutil.rmtree(leftover)


def load_checkpoint(folder: Path, *, but: Sequence[str] = ()) -> Checkpoint:
    """Verify every file of `folder` against its hash, except files and subfolders named in `but`.

    Raises CorruptCheckpoint if a file is missing, has another hash, or cannot be read from the disk.
    """
    document = _read_state(folder)
    expected = {name: sha256 for name, sha256 in document["sha256"].items() if Path(name).parts[0] not in but}
    for name, got in hashes_of(folder, expected, _hash_or_damage).items():
        if got != expected[name]:
            raise CorruptCheckpoint(folder, name, f"sha256 {expected[name]}", got)
    return Checkpoint(folder=folder, state=_state_in(document))


def read_state(folder: Path) -> CheckpointState:
    """Read the state of a checkpoint, and no other file. Raises CorruptCheckpoint if it is damaged."""
    return _state_in(_read_state(folder))


def published_hashes(folder: Path) -> Mapping[str, str]:
    """The sha256 of every file as the trainer wrote it, by path in the folder.

    Empty for a folder without `state.json`. Raises CorruptCheckpoint if `state.json` is damaged; no other
    file is read.
    """
    if not (folder / STATE_FILE).exists():
        return {}
    hashes: Mapping[str, str] = _read_state(folder)["sha256"]
    return hashes


def latest_good(parent: Path, up_to: float = math.inf) -> tuple[Checkpoint | None, list[CorruptCheckpoint]]:
    """The newest good checkpoint up to version `up_to`, or None, and the errors of damaged newer ones."""
    refused: list[CorruptCheckpoint] = []
    for folder in reversed(list_checkpoints(parent)):
        if version_of(folder) > up_to:
            continue
        try:
            return load_checkpoint(folder), refused
        except CorruptCheckpoint as corrupt:
            refused.append(corrupt)
    return None, refused


def list_checkpoints(parent: Path) -> list[Path]:
    """Folders named like a checkpoint, oldest version first; empty if `parent` does not exist."""
    if not parent.is_dir():
        return []
    named = [(int(match[1]), path) for path in parent.iterdir() if (match := _NAME.match(path.name))]
    return [path for _, path in sorted(named)]


def version_of(folder: Path) -> int:
    """The version in the name of a checkpoint folder."""
    return version_named(folder.name)


def version_named(name: str) -> int:
    """The version with this `checkpoint_name`."""
    return int(name[1:])


def set_aside(folder: Path, why: str) -> Path:
    """Rename a checkpoint so that it is neither read nor pruned; returns its new path.

    why   the ending of the new name: `UNCOMMITTED` or `DAMAGED`
    """
    return folder.rename(path_aside(folder, why))


def path_aside(path: Path, why: str) -> Path:
    """The first path beside `path` that is free, with the ending `why` such as `DAMAGED`."""
    names = itertools.chain([f"{path.name}.{why}"], (f"{path.name}.{why}-{n}" for n in itertools.count(2)))
    return next(aside for name in names if not (aside := path.with_name(name)).exists())


def set_aside_uncommitted(parent: Path, committed: int) -> list[Path]:
    """Rename checkpoints that are newer than `committed`, the newest version in the record.

    Returns their new paths.
    """
    return [
        set_aside(folder, UNCOMMITTED)
        for folder in list_checkpoints(parent)
        if version_of(folder) > committed
    ]


def remove_uncommitted(parent: Path, committed: int) -> None:
    """Remove checkpoints that were renamed as uncommitted and whose versions are now at most `committed`."""
    for path in parent.iterdir():
        if (match := _UNCOMMITTED_NAME.match(path.name)) and int(match[1]) <= committed:
            shutil.rmtree(path)


def prune(parent: Path, keep: int, protect: frozenset[int] = frozenset()) -> list[Path]:
    """Remove all checkpoints except the `keep` newest and the versions in `protect`.

    Returns the former paths of the removed checkpoints.
    """
    folders = list_checkpoints(parent)
    kept = kept_versions([version_of(folder) for folder in folders], keep, protect)
    doomed = [folder for folder in folders if version_of(folder) not in kept]
    for folder in doomed:
        folder.rename(_hidden(folder))
    remove_leftovers(parent)
    return doomed


def kept_versions(versions: Sequence[int], keep: int, protect: frozenset[int]) -> frozenset[int]:
    """The versions that a prune keeps: the last `keep` of `versions`, oldest first, and all in `protect`.

    Raises ValueError if `keep` is less than 1.
    """
    if keep < 1:
        raise ValueError(f"keep must be at least 1, got {keep}: a run without a checkpoint cannot continue")
    return frozenset(versions[-keep:]) | protect


def _publish(target: Path, state: CheckpointState, write_files: Callable[[Path], None]) -> None:
    temporary = _hidden(target)
    if temporary.exists():
        shutil.rmtree(temporary)
    temporary.mkdir(mode=0o700)
    write_files(temporary)
    _write_state(temporary, state)
    _sync_tree(temporary)
    temporary.rename(target)
    try:
        sync_path(target.parent)
    except OSError:
        target.rename(temporary)  # an error of this function means that there is no such checkpoint
        raise


def _hidden(target: Path) -> Path:
    return target.with_name(f".{target.name}.tmp")


def _write_state(folder: Path, state: CheckpointState) -> None:
    hashes = hashes_of(folder, [str(path.relative_to(folder)) for path in files_of(folder)])
    document = {
        "format": FORMAT,
        "version": state.version,
        "learner": dict(state.learner),
        "sha256": hashes,
    }
    document = json.loads(json.dumps(document))  # as it is read back
    document[OWN_HASH] = _hash_of(document)
    (folder / STATE_FILE).write_text(json.dumps(document, indent=1, sort_keys=True))


def _hash_of(document: Mapping[str, Any]) -> str:
    """The sha256 of the content of `state.json`, whatever its white space is."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _read_state(folder: Path) -> dict[str, Any]:
    path = folder / STATE_FILE
    try:
        document = json.loads(path.read_text())
    except FileNotFoundError as missing:
        raise CorruptCheckpoint(folder, STATE_FILE, "a file", "nothing") from missing
    except ValueError as broken:
        raise CorruptCheckpoint(folder, STATE_FILE, "JSON", str(broken)) from broken
    except OSError as failed:
        raise CorruptCheckpoint(folder, STATE_FILE, "a file", _unreadable(failed)) from failed
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        got = document.get("format") if isinstance(document, dict) else type(document).__name__
        raise CorruptCheckpoint(folder, STATE_FILE, f"format {FORMAT}", str(got))
    expected = document.pop(OWN_HASH, None)
    if expected != (found := _hash_of(document)):
        raise CorruptCheckpoint(folder, STATE_FILE, f"sha256 {expected} of its content", found)
    return document


def _state_in(document: Mapping[str, Any]) -> CheckpointState:
    return CheckpointState(version=document["version"], learner=document["learner"])


def files_of(folder: Path) -> list[Path]:
    """Every file below a folder, sorted by path."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def sha256_of(path: Path) -> str:
    """The sha256 of a file in hex; for a missing file, a text that says so."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return "nothing (the file is missing)"


def hashes_of(
    folder: Path, names: Iterable[str], hash_of: Callable[[Path], str] = sha256_of
) -> dict[str, str]:
    """What `sha256_of`, or another `hash_of`, returns for files below a folder, by name.

    Several files are hashed at a time.
    """
    ordered = list(names)
    with ThreadPoolExecutor(max_workers=HASHERS) as hashers:
        found = hashers.map(hash_of, [folder / name for name in ordered])
        return dict(zip(ordered, found, strict=True))


def _hash_or_damage(path: Path) -> str:
    """What `sha256_of` returns; for a file that the disk fails to read, a text that says so."""
    try:
        return sha256_of(path)
    except OSError as failed:
        return _unreadable(failed)


def _unreadable(failed: OSError) -> str:
    """Say that the disk fails to read a file (EIO). Raises other errors again: the file may be whole."""
    if failed.errno != errno.EIO:
        raise failed
    return f"nothing (unreadable: {failed.strerror})"


def _sync_tree(folder: Path) -> None:
    for path in [*files_of(folder), *(p for p in folder.rglob("*") if p.is_dir()), folder]:
        sync_path(path)
