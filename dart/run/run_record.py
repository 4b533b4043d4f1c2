"""Prepare the record of a run at its start: create it for a new run, check and migrate it for a resumed run.

A resumed run never gets a new record. If its record is missing, or older than its checkpoints, the start
fails before anything in the run directory changes. A resumed run also reports in which state its last start
left it.
"""

import math
import os
import shutil
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from actors.board import LIVING, rows_of
from actors.orphans import Orphan
from dart.config.config import Config, ConfigError, kept_config
from dart.core.errors import RunDirectoryError
from dart.core.messages import EventDraft
from dart.core.record_address import RecordAddress, ServerAddress
from dart.core.records import Version
from dart.core.run_directory import RunPaths, is_exploration
from dart.curation.actor import is_work_paused
from dart.inspect.formatting import counted
from dart.policy.adapter_files import fingerprint
from dart.run.child_task import in_fresh_process
from dart.run.shared_storage import begin_storage, continue_storage
from dart.store.checkpoints import (
    DAMAGED,
    STATE_FILE,
    Checkpoint,
    CheckpointState,
    CorruptCheckpoint,
    checkpoint_name,
    latest_good,
    list_checkpoints,
    path_aside,
    read_state,
    set_aside,
    write_checkpoint,
)
from dart.store.control_node import note_end
from dart.store.database import database_at
from dart.store.errors import StoreBusy, StoreUnavailable
from dart.store.integrity import (
    by_gravity,
    check,
    checkpoints_ahead,
    damage_of,
    damaged_checkpoints,
    listed,
    refuse_damage,
)
from dart.store.migrations import require_record
from dart.store.reader import StoreReader
from dart.store.record_rules import Finding
from dart.store.run_blobs import blobs_address, remove_leftovers
from dart.store.sqlite import undo_interrupted
from dart.store.store import Store
from dart.store.write_ahead_log import copies_of_damaged_logs, damage_of_log, keep_damaged_log
from dart.telemetry.emit import log_event
from dart.telemetry.events import BLOBS_OWNED, CHECKPOINT_RESTORED, LOG_CUT, POOLS_SIZED, SCREENSHOTS_LOST
from dart.training.learner_factory import refuse_other_adapter
from dart.training.reference_policy import base_sha256, refuse_other_reference


def begin_record(config: Config, paths: RunPaths) -> None:
    """Create the record of a new run, with the base policy as version 0.

    The record of a start that was interrupted is replaced. Raises RunDirectoryError if the place has the
    record of another run or the database of another program, StoreUnavailable if it cannot be read or
    written.
    """
    address = paths.record_at(config.run.record)
    if is_interrupted_start(address, paths):
        database_at(address).clear()
    token = in_fresh_process(partial(begin_storage, config, paths)) if config.run.blobs else ""
    with Store(address) as store:
        store.add_version()
        if token:
            store.record_event(BLOBS_OWNED, "store", {"token": token, "blobs": config.run.blobs})


def is_interrupted_start(address: RecordAddress, paths: RunPaths) -> bool:
    """Whether the place for a new record has the record of a start that was killed before it did any work.

    False if the place is empty. Raises RunDirectoryError for a record with work, and for the database of
    another program; StoreUnavailable if the database cannot be read.
    """
    if isinstance(address, Path):
        if not address.exists():
            return False
        undo_interrupted(address)
    database = database_at(address)
    with database.errors(), closing(database.connect(read_only=True)) as connection:
        version, tables = database.found_version(connection), database.schema_of(connection)
    if version is None and tables:
        raise RunDirectoryError(_another_program(address, paths))
    if version is None and not isinstance(address, Path):
        return False
    with _looked_into(address) as record:
        made, issued = len(record.versions()), record.conservation().issued
        is_running = not isinstance(address, Path) and record.newest_event(POOLS_SIZED) is not None
    if made > 1 or issued or is_running:
        raise RunDirectoryError(_work_of_another_run(address, paths, made))
    return True


def _looked_into(address: RecordAddress) -> StoreReader:
    """Open a record to read it. A file is migrated first; a server is not, because a run may use it now."""
    keep_damaged_log(address)
    return Store(address) if isinstance(address, Path) else StoreReader(address)


def _another_program(address: RecordAddress, paths: RunPaths) -> str:
    if isinstance(address, Path):
        return (
            f"run directory {paths.root} holds a {address.name} that is the database of another program: "
            "choose another directory with --run-dir"
        )
    return f"the database {address} holds tables of another program: name an empty database in run.record"


def _work_of_another_run(address: RecordAddress, paths: RunPaths, made: int) -> str:
    if isinstance(address, Path):
        return (
            f"run directory {paths.root} holds a record of {made} versions and no {paths.config.name}: "
            "restore that file and continue with --resume, or choose another directory with --run-dir"
        )
    return (
        f"the database {address} holds the record of a run, with {made} versions: continue that run with "
        "--resume and its directory, or name an empty database in run.record"
    )


def refuse_without_record(config: Config, paths: RunPaths) -> None:
    """Check that a run to resume has a record, and that its configuration fits what the run has stored.

    `run.blobs` must be where its blobs are, the base policy must be the one with which it began, and the
    adapter must be the one that it trained. The messages of the errors have the remedy.

    raises   StoreUnavailable if the record is missing or empty, RunDirectoryError for another `run.blobs` or
             base policy, UnsupportedCheckpoint for another adapter or another policy of the KL term
    """
    _refuse_other_blobs(config, paths)
    _refuse_other_base(config, paths)
    _refuse_other_training(config, paths)
    address, earlier = paths.record_at(config.run.record), paths.record
    try:
        require_record(address)
    except StoreBusy:
        raise  # the record may be there: its server does not answer, or another process has locked it
    except StoreUnavailable as refused:
        if address != earlier:
            on_server = isinstance(earlier, ServerAddress)
            remedy = "name that address in run.record" if on_server else "leave run.record empty"
            raise StoreUnavailable(
                f"{refused}; nothing was started or changed. The record of this run was {earlier}: {remedy}"
            ) from refused
        good, _ = latest_good(paths.checkpoints)
        policy = f" --set training.policy={good.folder}" if good is not None else ""
        raise StoreUnavailable(
            f"{refused}; nothing was started or changed. A new run is started with: "
            f"dartrl train CONFIG --run-dir FOLDER{policy}"
        ) from refused


def _refuse_other_blobs(config: Config, paths: RunPaths) -> None:
    earlier = blobs_address(paths)
    if config.run.blobs != earlier:
        raise RunDirectoryError(
            f"the screenshots, steps and checkpoints of this run are in {earlier or paths.blobs}, but "
            f"run.blobs is {config.run.blobs!r}: continue it with run.blobs = {earlier!r}; nothing was "
            "started or changed"
        )


def _refuse_other_base(config: Config, paths: RunPaths) -> None:
    """Check that version 0 is still the same policy: its episodes and its evaluation are in the record.

    The same policy in another folder passes. If the earlier folder or configuration cannot be read, there is
    nothing to compare with. The files in the earlier folder may have been replaced, so the hash in the newest
    checkpoint counts; a run that began with an earlier version of dartrl may have none. An exploration trains
    no policy, so it may change the one that it asks.
    """
    if is_exploration(paths):
        return
    given = config.training.policy
    try:
        earlier = kept_config(paths.config).training.policy
        is_other = not earlier.samefile(given) and fingerprint(given) != (
            _recorded_base(paths) or fingerprint(earlier)
        )
    except (ConfigError, CorruptCheckpoint, OSError):
        return
    if is_other:
        raise RunDirectoryError(
            f"this run began with the policy {earlier}, and training.policy is now another one, {given}: set "
            "training.policy back, or start a new run; nothing was started or changed"
        )


def _recorded_base(paths: RunPaths) -> str | None:
    """Return the hash of the base policy that the newest checkpoint names; None if there is none."""
    for newest in list_checkpoints(paths.checkpoints)[-1:]:
        with suppress(CorruptCheckpoint):
            return base_sha256(read_state(newest))
    return None


def _refuse_other_training(config: Config, paths: RunPaths) -> None:
    """Check the adapter and the policy of the KL term before config.toml changes.

    The trainer refuses another adapter too, but then it is restarted. It does not compare the base policy,
    because the hash of a large one takes many seconds of each restart.
    """
    for newest in list_checkpoints(paths.checkpoints)[-1:]:
        with suppress(CorruptCheckpoint):  # `prepare_record` replaces it
            state = read_state(newest)
            refuse_other_adapter(newest, state, config.training.lora)
            refuse_other_reference(newest, state, config.training)


def prepare_record(config: Config, paths: RunPaths, log: Any = None) -> int:
    """Migrate and check the record, restore a damaged newest checkpoint, and recount successes.

    A power failure may leave a damaged write-ahead log. The run keeps a copy of the log and continues without
    the transactions after the damage; no committed update is among them. It may also lose screenshots, which
    are not synced: the run continues, and the trainer drops the groups that name them. Successes are counted
    anew, because `curation.success_above` may have changed.

    log   the logger for an event about lost screenshots; None: it is only recorded

    Returns the newest policy version. Raises StoreUnavailable if there is no record or it has no version, and
    RecordDamaged if the data are damaged or contradict each other.
    """
    require_record(paths.record)
    keep_damaged_log(paths.record)
    if config.run.blobs:
        in_fresh_process(partial(continue_storage, config, paths))
    with Store(paths.record, create=False) as store:
        _note_cut_logs(store, paths)  # before a check can refuse the start
        newest = store.latest_version()
        if newest is None:
            raise StoreUnavailable(
                f"the record {paths.record} holds no policy version: restore it from a copy"
            )
        folders = list_checkpoints(paths.checkpoints)
        refuse_damage(paths, checkpoints_ahead(paths, newest.version, folders))  # before a folder is renamed
        restore_newest_checkpoint(store, newest, paths)
    remove_leftovers(paths.root)
    damage, lost_screenshots = by_gravity(
        checked_data(config, paths, newest.version, reads_checkpoints=False)
    )
    refuse_damage(paths, damage)
    with Store(paths.record, create=False, success_above=config.curation.success_above) as store:
        store.recount_successes()
        if lost_screenshots:
            _note_lost_screenshots(store, lost_screenshots, log)
    return newest.version


def _note_lost_screenshots(store: Store, lost: list[Finding], log: Any) -> None:
    event = EventDraft(
        kind=SCREENSHOTS_LOST,
        subject="store",
        data={"screenshots": len(lost), "detail": listed(lost)},
    )
    store.record_events([event])
    if log is not None:
        log_event(log, event)


def _note_cut_logs(store: Store, paths: RunPaths) -> None:
    """Record an event for each copy of a damaged log that no event names, or that is newer than its event.

    An earlier start that was refused, or another command that writes the record, may have made the copy. If a
    person has removed the copy of an earlier damage, a later one gets its name.
    """
    if not isinstance(paths.record, Path):
        return
    named = {event.data["copy"]: event.unix_s for event in store.find_events(kinds=(LOG_CUT,))}
    for copy in copies_of_damaged_logs(paths.record):
        name = str(copy.relative_to(paths.root))
        if copy.stat().st_mtime > named.get(name, -math.inf):
            store.record_event(LOG_CUT, "store", {"damage": damage_of_log(copy.read_bytes()), "copy": name})


def checked_data(
    config: Config, paths: RunPaths, fresh_since: int, *, reads_checkpoints: bool = True
) -> list[Finding]:
    """Check the data of a run and return the findings; empty if the data are sound.

    If blobs are in object storage, the check runs in a separate process (`dart.run.child_task`).

    fresh_since         only versions after this one are checked for steps that were too stale
    reads_checkpoints   False if the caller has just checked the checkpoints
    """
    work = partial(check, paths, config, fresh_since=fresh_since, reads_checkpoints=reads_checkpoints)
    return in_fresh_process(work) if config.run.blobs else work()


# ---- a newest checkpoint that is damaged ----


def restore_newest_checkpoint(store: Store, newest: Version, paths: RunPaths) -> None:
    """Replace a damaged newest checkpoint with a copy of the newest good one.

    The updates between the two versions are lost; an event `checkpoint_restored` records this before anything
    changes. The results of an evaluation of the newest version are deleted, because they are not those of the
    copy. The damaged folder is renamed, and a notice is shown as long as the folder exists. A restoration
    that was interrupted is completed. Raises RecordDamaged if there is no good checkpoint; then nothing
    changes.
    """
    damage = damage_of(newest.version, paths)
    if not damage:
        return
    good = latest_good(paths.checkpoints, up_to=newest.version - 1)[0]
    if good is None:
        refuse_damage(paths, damaged_checkpoints(paths, newest, []))
        return
    damaged = paths.checkpoints / checkpoint_name(newest.version)
    if damaged.exists() or not _is_restoring(store, newest.version):
        data = {
            "version": newest.version,
            "from_version": good.state.version,
            "damage": damage,
            "damaged_folder": str(path_aside(damaged, DAMAGED).relative_to(paths.root)),
        }
        store.record_event(CHECKPOINT_RESTORED, "trainer", data)
        damaged.mkdir(exist_ok=True)  # an empty folder stands for one that is missing
        set_aside(damaged, DAMAGED)
    store.forget_evaluations(newest.version)
    _copy_as(good, newest.version)


def _is_restoring(store: Store, version: int) -> bool:
    """Whether an earlier start recorded that it restores a version whose checkpoint is missing now."""
    event = store.newest_event(CHECKPOINT_RESTORED)
    return event is not None and event.data["version"] == version


def _copy_as(good: Checkpoint, version: int) -> None:
    """Write the files of a checkpoint again as the checkpoint of another version."""

    def copy(folder: Path) -> None:
        shutil.copytree(good.folder, folder, ignore=lambda *_: [STATE_FILE], dirs_exist_ok=True)

    write_checkpoint(good.folder.parent, CheckpointState(version=version, learner=good.state.learner), copy)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHistory:
    """The state in which the last start of a run left the run."""

    version: int
    """The newest policy version, from which training continues."""
    trajectories: int
    leased: int
    """Number of rollouts that were being played. Their leases are revoked and they are played again."""
    parked: int
    """Number of parked episodes. They continue where they were interrupted."""
    is_batch_open: bool
    """Whether a batch was being trained. It is trained again, from the same version."""
    is_held: bool
    """Whether the run was paused. It stays paused until `dartrl resume`."""
    killed: int
    """Number of actors that were up when the run was killed; 0 if the run ended by itself."""
    leftovers: tuple[Orphan, ...] = ()
    """Processes of the last start that were still running and were killed now."""

    def text(self) -> str:
        """Return the state as one line for the operator."""
        parts = [f"continues from version {self.version} with {self.trajectories} trajectories"]
        if self.killed:
            parts.insert(0, f"the run was ended by force with {counted(self.killed, 'actor')} up")
        if self.leftovers:
            names = ", ".join(f"{one.name} (process {one.pid})" for one in self.leftovers)
            parts.append(f"ended processes that were still running: {names}")
        if self.leased:
            parts.append(f"plays {counted(self.leased, 'interrupted rollout')} again")
        if self.parked:
            parts.append(f"continues {counted(self.parked, 'parked episode')}")
        if self.is_batch_open:
            parts.append("the batch that was being trained is trained again")
        if self.is_held:
            parts.append("the run is paused until `dartrl resume`")
        return "; ".join(parts)


def look_back(paths: RunPaths) -> RunHistory:
    """Read the state in which the last start left the run. Call this before the board is replaced."""
    with StoreReader(paths.record) as store:
        newest, books = store.latest_version(), store.conservation()
        _, parked = store.parkings()
        return RunHistory(
            version=newest.version if newest is not None else 0,
            trajectories=store.totals().trajectories,
            leased=max(0, books.leased - parked),
            parked=parked,
            is_batch_open=store.open_batch() is not None,
            is_held=is_work_paused(store),
            # A system that ends by itself leaves no actor up on its board, a killed one all of them.
            killed=sum(row.state in LIVING for row in rows_of(paths.board) if row.parent),
        )


def note_end_of_run(paths: RunPaths) -> None:
    """Write into a record on a server that the run has ended, so that other machines know.

    Does nothing for a record in a file. If the server takes no writes now, nothing is written: other machines
    then see a control node that does not answer.
    """
    if isinstance(paths.record, ServerAddress):
        with suppress(StoreUnavailable):
            note_end(paths.record, os.getpid(), paths.lock.stat().st_mtime, time.time())
