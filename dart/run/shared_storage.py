"""What a start does in object storage, in a process of its own (`dart.run.child_task`)."""

import socket

from dart.config.config import Config
from dart.core.errors import RunDirectoryError
from dart.core.run_directory import RunPaths
from dart.store.checkpoints import CheckpointExists, list_checkpoints, version_of
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
    """Make the newest checkpoint one of this machine, where the run may not have been before.

    A version that cannot be fetched is damage that the check of the data names.
    """
    with StoreReader(paths.record) as record:
        newest = record.latest_version()
    here = {version_of(folder) for folder in list_checkpoints(paths.checkpoints)}
    if newest is not None and newest.version > 0 and newest.version not in here:
        run_checkpoints(config, paths.root).fetch(newest.version)
