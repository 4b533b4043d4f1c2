"""Probes of the record's database and of the blobs' object storage before a run on a cluster."""

import secrets

from dart.cluster.probes import ProbeResult
from dart.config.config import Config
from dart.core.errors import DartError
from dart.core.run_directory import RunPaths
from dart.run.run_record import is_interrupted_start, refuse_without_record
from dart.store.run_blobs import object_storage

RECORD, BLOBS = "record", "blobs"
CONTENT = b"a probe of dartrl"


def probe_record(config: Config, paths: RunPaths) -> ProbeResult:
    """Check the database: a new run needs an empty one, and a resumed run needs its own record there."""
    try:
        if paths.config.exists():
            refuse_without_record(config, paths)
            return ProbeResult(RECORD, True, f"{config.run.record} holds this run's record")
        is_left = is_interrupted_start(paths.record_at(config.run.record), paths)
    except DartError as error:
        return ProbeResult(RECORD, False, str(error))
    found = "holds the rest of an interrupted start, which this run replaces" if is_left else "is empty"
    return ProbeResult(RECORD, True, f"{config.run.record} {found}")


def probe_blobs(config: Config) -> ProbeResult:
    """Check the object storage: create an object, try to create it again, read it and delete it.

    The probe fails unless the storage refuses the second creation.
    """
    module = object_storage()
    storage = module.ObjectStorage(config.run.blobs)
    key = f"probe-{secrets.token_hex(8)}"
    try:
        storage.put(key, CONTENT, only_create=True)
        try:
            storage.put(key, CONTENT, only_create=True)
        except module.Exists:
            is_refused = storage.get(key) == CONTENT
        else:
            is_refused = False
        storage.delete(key)
    except DartError as error:
        return ProbeResult(BLOBS, False, str(error))
    if not is_refused:
        return ProbeResult(
            BLOBS,
            False,
            f"{config.run.blobs} replaces an existing object although the request forbids that, so two "
            "trainers could publish the same version; use a server that honours If-None-Match: *",
        )
    return ProbeResult(
        BLOBS, True, f"{config.run.blobs} stores objects and refuses to replace them on request"
    )
