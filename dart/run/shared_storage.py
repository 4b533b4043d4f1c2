"""What a start does in object storage, in a process of its own (`dart.run.child_task`)."""

import json
import secrets
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from dart.config.config import Config
from dart.core.errors import DiskError, RunDirectoryError
from dart.core.run_directory import RunPaths
from dart.store.checkpoints import CheckpointExists, CorruptCheckpoint, checkpoint_name
from dart.store.integrity import RecordDamaged
from dart.store.reader import StoreReader
from dart.store.run_blobs import object_storage
from dart.store.run_checkpoints import run_checkpoints
from dart.telemetry.events import BLOBS_OWNED

OWNER = "owner"
"""The object that says which run has a prefix. It is only created, so that two runs never share one."""

TOKEN_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixOwner:
    """The run that has a prefix."""

    run: str
    """Machine and run directory, for people."""
    token: str
    """Random, and also in the record of the run; empty for a prefix of an earlier version of dartrl."""
    folder: int
    """Number of the run directory's inode, which a copy of the directory does not have; 0 if not known."""

    @classmethod
    def of(cls, paths: RunPaths, token: str) -> Self:
        """The run in a directory of this machine."""
        return cls(run=f"{socket.gethostname()}:{paths.root}", token=token, folder=paths.root.stat().st_ino)

    @classmethod
    def of_bytes(cls, content: bytes) -> Self:
        """The owner that an object says."""
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

    Returns the token of the owner, which the record keeps. A start that was interrupted takes its own prefix
    again. Raises RunDirectoryError for that of another run, StoreUnavailable for storage that cannot be used.
    """
    module = object_storage()
    storage = module.ObjectStorage(config.run.blobs)
    own = PrefixOwner.of(paths, secrets.token_hex(TOKEN_BYTES))
    try:
        storage.put(OWNER, own.to_bytes(), only_create=True)
    except module.Exists as exists:
        owner = PrefixOwner.of_bytes(storage.get(OWNER))
        if owner.run != own.run or run_checkpoints(config, paths.root).versions() not in ([], [0]):
            raise RunDirectoryError(
                f"{config.run.blobs} holds the blobs of the run {owner.run}: name an empty prefix in "
                "run.blobs, one for each run, or continue that run with --resume and its directory"
            ) from exists
        storage.put(OWNER, own.to_bytes())
    checkpoints = run_checkpoints(config, paths.root)
    try:
        checkpoints.publish(0, config.training.policy)
    except CheckpointExists:
        checkpoints.set_aside_uncommitted(-1)  # an interrupted start published another base policy
        checkpoints.publish(0, config.training.policy)
    return own.token


def continue_storage(config: Config, paths: RunPaths) -> None:
    """Check that the prefix is this run's, and make the newest checkpoint a whole one of this machine.

    Raises RunDirectoryError for the prefix of another run and for a copy of a run directory, RecordDamaged if
    the storage is ahead of the record, DiskError if the newest checkpoint is damaged in the storage too.
    """
    with StoreReader(paths.record) as record:
        newest, owned = record.latest_version(), record.newest_event(BLOBS_OWNED)
    if owned is not None:
        _keep_owner(config, paths, str(owned.data["token"]))
    if newest is None:
        return
    _refuse_ahead(config, paths, newest.version)
    if newest.version > 0:
        _fetch_newest(config, paths, newest.version)


def _keep_owner(config: Config, paths: RunPaths, token: str) -> None:
    """Refuse the prefix of another run; else note the directory from which the run goes on."""
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
            "run.blobs; nothing was started or changed"
        )
    if isinstance(paths.record, Path) and owner.folder != own.folder:
        raise RunDirectoryError(
            f"{config.run.blobs} holds the blobs of the run in {owner.run}, and {paths.root} is a copy: "
            "continue only one of the two, because each would delete blobs that the other needs. If the "
            f"original is gone, delete the object {storage.place(OWNER)} and start again"
        )
    storage.put(OWNER, own.to_bytes())


def _refuse_ahead(config: Config, paths: RunPaths, newest: int) -> None:
    """Raise RecordDamaged if versions are more than one ahead of the record: that is an older copy.

    One version may be: that of an update which was not committed when the trainer ended.
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
