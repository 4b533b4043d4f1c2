"""Probes of the record's database and of the blobs' storage: what a start would find there."""

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
    """Look into the database: a new run needs an empty one, a run that goes on its own record."""
    try:
        if paths.config.exists():
            refuse_without_record(config, paths)
            return ProbeResult(RECORD, True, f"{config.run.record} holds this run's record")
        is_left = is_interrupted_start(paths.record_at(config.run.record), paths)
    except DartError as error:
        return ProbeResult(RECORD, False, str(error))
    found = "holds a start that was interrupted, which is replaced" if is_left else "is empty"
    return ProbeResult(RECORD, True, f"{config.run.record} {found}")


def probe_blobs(config: Config) -> ProbeResult:
    """Put an object, try to create it again, read it and delete it."""
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
            f"{config.run.blobs} replaces an object that may only be created: two trainers could publish the "
            "same version; use a server that honours If-None-Match: *",
        )
    return ProbeResult(BLOBS, True, f"{config.run.blobs} keeps what is put and honours create-only")
