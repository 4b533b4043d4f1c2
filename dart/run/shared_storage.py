"""What a start does in object storage, in a process of its own (`dart.run.child_task`)."""

import socket

from dart.config.config import Config
from dart.core.errors import DiskError, RunDirectoryError
from dart.core.run_directory import RunPaths
from dart.store.checkpoints import CheckpointExists, CorruptCheckpoint
from dart.store.reader import StoreReader
from dart.store.run_blobs import object_storage
from dart.store.run_checkpoints import run_checkpoints

OWNER = "owner"
"""The object that says which run has a prefix. It is only created, so that two runs never share one."""


def begin_storage(config: Config, paths: RunPaths) -> None:
    """Take an empty prefix for a new run, and publish its base policy as version 0.

    A start that was interrupted takes its own prefix again. Raises RunDirectoryError for that of another run,
    StoreUnavailable for storage that cannot be used.
    """
    module = object_storage()
    storage = module.ObjectStorage(config.run.blobs)
    own = f"{socket.gethostname()}:{paths.root}".encode()
    try:
        storage.put(OWNER, own, only_create=True)
    except module.Exists as exists:
        owner = storage.get(OWNER)
        if owner != own or run_checkpoints(config, paths.root).versions() not in ([], [0]):
            raise RunDirectoryError(
                f"{config.run.blobs} holds the blobs of the run {owner.decode(errors='replace')}: name an "
                "empty prefix in run.blobs, one for each run, or continue that run with --resume and its "
                "directory"
            ) from exists
    checkpoints = run_checkpoints(config, paths.root)
    try:
        checkpoints.publish(0, config.training.policy)
    except CheckpointExists:
        checkpoints.discard_uncommitted(-1)  # an interrupted start published another base policy
        checkpoints.publish(0, config.training.policy)


def fetch_newest(config: Config, paths: RunPaths) -> None:
    """Make the newest checkpoint a whole one of this machine, where the run may not have been before.

    Raises DiskError, with the remedy, if it is damaged in the storage too.
    """
    with StoreReader(paths.record) as record:
        newest = record.latest_version()
    if newest is not None and newest.version > 0:
        try:
            run_checkpoints(config, paths.root).fetch(newest.version)
        except CorruptCheckpoint as corrupt:
            raise DiskError(
                f"version {newest.version}, the newest of the run, is whole neither here nor in "
                f"{config.run.blobs}: {corrupt.folder}: {corrupt.damage}; restore its objects from a copy of "
                "the storage; nothing was started"
            ) from corrupt
