"""Prepare the object storage of a run at its start, in a separate process (`dart.run.child_task`).

The *prefix* is the part of object storage that `run.blobs` names. Each run has a prefix of its own; the
object `owner` below it says which run this is.
"""

import json
import secrets
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from dart.config.config import Config
from dart.config.published import reads_policy
from dart.core.errors import DiskError, RunDirectoryError, UnavailableError
from dart.core.run_directory import RunPaths
from dart.store.checkpoints import CheckpointExists, CorruptCheckpoint, checkpoint_name
from dart.store.integrity import RecordDamaged
from dart.store.run_blobs import blobs_of, object_storage
from dart.store.run_checkpoints import run_checkpoints
from dart.store.store import Store
from dart.telemetry.events import BLOBS_OWNED

OWNER = "owner"
"""Name of the object that says which run owns the prefix. A new run can only create it, never replace another
run's, so two runs never share a prefix."""

TOKEN_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixOwner:
    """The run that owns a prefix: the content of the object `owner`."""

    run: str
    """Machine and run directory, for messages."""
    token: str
    """Random text that is also in the record of the run; empty if an earlier version of dartrl wrote the
    object."""
    folder: int
    """Inode number of the run directory, by which a copy of the directory is recognised; 0 if not known."""

    @classmethod
    def of(cls, paths: RunPaths, token: str) -> Self:
        """Return the owner for a run in a directory of this machine."""
        return cls(run=f"{socket.gethostname()}:{paths.root}", token=token, folder=paths.root.stat().st_ino)

    @classmethod
    def of_bytes(cls, content: bytes) -> Self:
        """Return the owner that the content of an object `owner` names."""
        text = content.decode(errors="replace")
        try:
            found = json.loads(text)
            return cls(run=str(found["run"]), token=str(found["token"]), folder=int(found["folder"]))
        except (ValueError, TypeError, KeyError):
            return cls(run=text, token="", folder=0)

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def begin_storage(config: Config, paths: RunPaths) -> str:
    """Take an empty prefix for a new run, and publish its base policy as version 0.

    Returns the owner's token, which the caller writes into the record. A prefix that an interrupted start of
    the same run has taken is taken again. Raises UnavailableError if there is no base policy,
    RunDirectoryError if the prefix belongs to another run, and StoreUnavailable if the storage cannot be
    used.
    """
    _refuse_without_policy(config)
    module = object_storage()
    storage = module.ObjectStorage(config.run.blobs)
    own = PrefixOwner.of(paths, secrets.token_hex(TOKEN_BYTES))
    try:
        storage.put(OWNER, own.to_bytes(), only_create=True)
    except module.Exists as exists:
        owner = PrefixOwner.of_bytes(storage.get(OWNER))
        has_trained = bool(set(run_checkpoints(config, paths.root).versions()) - {0})
        if owner.run != own.run or has_trained:
            place = "" if has_trained else storage.place(OWNER)
            raise RunDirectoryError(_another_owner(config, owner, place)) from exists
        storage.put(OWNER, own.to_bytes())
    checkpoints = run_checkpoints(config, paths.root)
    try:
        checkpoints.publish(0, config.training.policy)
    except CheckpointExists:
        checkpoints.set_aside_uncommitted(-1)  # an interrupted start published another base policy
        checkpoints.publish(0, config.training.policy)
    return own.token


def _another_owner(config: Config, owner: PrefixOwner, place: str) -> str:
    """Return the message that a prefix belongs to another run, or to a start elsewhere that was interrupted.

    place   address of the object `owner` if the prefix has no version but 0; else empty
    """
    repeat = f"; if its start was interrupted before it ran, delete the object {place} and start again"
    return (
        f"{config.run.blobs} holds the blobs of the run {owner.run}: name an empty prefix in run.blobs, one "
        "for each run, or continue that run with --resume and its directory" + (repeat if place else "")
    )


def _refuse_without_policy(config: Config) -> None:
    """Raise UnavailableError if version 0 would be empty, because nothing replaces a published version."""
    folder = config.training.policy
    if reads_policy(config) and not (folder / "config.json").is_file():
        raise UnavailableError(
            f"there is no policy checkpoint in {folder}, which is version 0 of the run: name another one "
            "with --set training.policy=FOLDER; nothing was started or changed"
        )


def continue_storage(config: Config, paths: RunPaths) -> None:
    """Check that this run owns the prefix, and fetch the newest checkpoint if it is missing or damaged here.

    Migrates the record first, because only a record at the newest migration says what the run owns.

    Raises RunDirectoryError if the prefix belongs to another run or this is a copy of the run directory,
    RecordDamaged if the storage has versions that the record lacks, and DiskError if the newest checkpoint is
    damaged here and in the storage.
    """
    with Store(paths.record, create=False, steps=blobs_of(paths).steps) as record:
        newest, owned = record.latest_version(), record.newest_event(BLOBS_OWNED)
    if owned is not None:
        _keep_owner(config, paths, str(owned.data["token"]))
    if newest is None:
        return
    _refuse_ahead(config, paths, newest.version)
    if newest.version > 0:
        _fetch_newest(config, paths, newest.version)


def _keep_owner(config: Config, paths: RunPaths, token: str) -> None:
    """Write this machine and run directory into the object `owner`.

    token    the token in the record of the run
    raises   RunDirectoryError if another run owns the prefix, or the record is a file and this is a copy of
             the run directory
    """
    module = object_storage()
    storage = module.ObjectStorage(config.run.blobs)
    own = PrefixOwner.of(paths, token)
    try:
        owner = PrefixOwner.of_bytes(storage.get(OWNER))
    except module.Missing:
        owner = own
    if owner.token != own.token:
        raise RunDirectoryError(
            f"{config.run.blobs} holds the blobs of another run, {owner.run}: name the prefix of this run in "
            "run.blobs; nothing was started"
        )
    if isinstance(paths.record, Path) and owner.folder != own.folder:
        raise RunDirectoryError(
            f"{config.run.blobs} holds the blobs of the run in {owner.run}, and {paths.root} is a copy: "
            "continue only one of the two, because each would delete blobs that the other needs. If the "
            f"original is gone, delete the object {storage.place(OWNER)} and start again"
        )
    storage.put(OWNER, own.to_bytes())


def _refuse_ahead(config: Config, paths: RunPaths, newest: int) -> None:
    """Raise RecordDamaged if the storage has versions that are more than one ahead of the record.

    The record is then an older copy. Being one version ahead is allowed: the trainer ended after it wrote the
    checkpoint and before it committed the update.
    """
    published = run_checkpoints(config, paths.root).versions()
    ahead = ", ".join(checkpoint_name(version) for version in published if version > newest + 1)
    if ahead:
        raise RecordDamaged(
            f"the record {paths.record} ends at version {newest}, and {config.run.blobs} has {ahead}: put "
            f"the newer record back; or, to continue from version {newest}, move {ahead} out of "
            f"{config.run.blobs}/checkpoints; nothing was started"
        )


def _fetch_newest(config: Config, paths: RunPaths, version: int) -> None:
    try:
        run_checkpoints(config, paths.root).fetch(version)
    except CorruptCheckpoint as corrupt:
        raise DiskError(
            f"version {version}, the newest of the run, is whole neither here nor in {config.run.blobs}: "
            f"{corrupt.folder}: {corrupt.damage}; restore its objects from a copy of the storage; nothing "
            "was started"
        ) from corrupt
