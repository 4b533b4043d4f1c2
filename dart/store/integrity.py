"""Checks of the data of a run: of the record itself, and of the files that it names.

The checks run when a run is resumed, when it ends, and in `dartrl doctor --data`. They only read.
"""

import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from dart.config.config import Config
from dart.core.errors import DiskError, NotRunningError
from dart.core.records import Version
from dart.core.run_directory import RunPaths, holder
from dart.store.blobs import SHA256, BlobStore
from dart.store.checkpoints import (
    STATE_FILE,
    CorruptCheckpoint,
    checkpoint_name,
    latest_good,
    list_checkpoints,
    load_checkpoint,
    version_of,
)
from dart.store.errors import BlobCorrupt, BlobMissing, BlobUnreadable, StoreError, StoreUnavailable
from dart.store.reader import StoreReader
from dart.store.record_rules import Finding, findings_of
from dart.store.run_blobs import blobs_of
from dart.store.sqlite_checks import strange_formats
from dart.store.write_ahead_log import damage_of_log_beside, log_of

SAMPLE = 2000
"""Number of screenshots that a check reads if it does not read all of them. Each check draws a new sample."""

RESTORE = "restore the file from a copy"
DAMAGED_LOG = (
    "restore a copy of the run, or continue without these transactions: --resume keeps a copy of the log"
)
"""Remedy for a damaged write-ahead log."""

SHOWN = 5
"""Largest number of findings that one message lists."""


class RecordDamaged(StoreError, DiskError):
    """The data of a run is damaged, so the run must not continue: it would train on damaged data."""


def check(
    paths: RunPaths,
    config: Config,
    full: bool = False,
    fresh_since: int = 0,
    *,
    reads_checkpoints: bool = True,
) -> list[Finding]:
    """Every damage and contradiction in the data of a run; empty when it is sound.

    full                check every row, screenshot and checkpoint; else only what the run still needs: the
                        newest checkpoint, the rows that are still used, and at most `SAMPLE` of their
                        screenshots
    fresh_since         look for too stale steps only in versions after this one, because the staleness bound
                        may have been another one before
    reads_checkpoints   False if the caller has just checked the checkpoints, which may be large

    Raises StoreUnavailable when the record cannot be read at all.
    """
    address = paths.record
    found: list[Finding] = []
    if isinstance(address, Path):
        if not address.is_file():
            return [Finding("it is missing", f"the record {address}")]
        found += damaged_log(paths)
        found += strange_formats(address) if full else []
    blobs = blobs_of(paths)
    with StoreReader(address, steps=blobs.steps) as record:
        found += record.integrity(config.curation.staleness, fresh_since)
        found += record.damaged_rows(full=full)
        found += findings_of("the screenshots", damaged_screenshots, record, blobs.screenshots, full)
    if reads_checkpoints:
        found += findings_of("the checkpoints", lambda: check_checkpoints(paths, full)[1])
    return found


def check_checkpoints(paths: RunPaths, full: bool) -> tuple[int, list[Finding]]:
    """The newest version in the record (-1: none), and what is wrong with the checkpoints of the run.

    full   read every checkpoint; else only the newest, from which the run continues

    Raises StoreUnavailable when the record cannot be read.
    """
    folders = list_checkpoints(paths.checkpoints)  # before the record is read: a running run makes more
    with StoreReader(paths.record) as record:
        versions = record.versions()
    if not versions:
        return -1, checkpoints_ahead(paths, -1, folders)
    newest = versions[-1]
    damaged = damaged_checkpoints(paths, newest, folders if full else [])
    return newest.version, damaged + checkpoints_ahead(paths, newest.version, folders)


def damaged_log(paths: RunPaths) -> list[Finding]:
    """A finding if the write-ahead log is damaged, so that SQLite would drop transactions; else none.

    A log that another process may be writing is not checked.
    """
    if is_written_by_another(paths):
        return []
    damage = damage_of_log_beside(paths.store)
    return [Finding(damage, f"the write-ahead log {log_of(paths.store)}", DAMAGED_LOG)] if damage else []


def is_written_by_another(paths: RunPaths) -> bool:
    """Whether another process is running this run, and so may write its record."""
    try:
        return holder(paths.root) not in (None, os.getpid())
    except NotRunningError:
        return False


def by_gravity(findings: Sequence[Finding]) -> tuple[list[Finding], list[Finding]]:
    """Split findings into those with which a run must not continue, and those that only cost it groups."""
    return (
        [finding for finding in findings if not finding.costs_groups_only],
        [finding for finding in findings if finding.costs_groups_only],
    )


def refuse_damage(paths: RunPaths, findings: list[Finding]) -> None:
    """Raise RecordDamaged with the first findings if there are any."""
    if findings:
        raise RecordDamaged(f"the data in {paths.root} is damaged, nothing was started:\n{listed(findings)}")


def listed(findings: list[Finding]) -> str:
    """A text of the first `SHOWN` findings, one per line, each with its remedy."""
    lines = [f"{finding} ({finding.remedy})" for finding in findings[:SHOWN]]
    if len(findings) > SHOWN:
        lines.append(f"and {len(findings) - SHOWN} more")
    return "\n".join(lines)


def damaged_screenshots(record: StoreReader, blobs: BlobStore, full: bool) -> Iterator[Finding]:
    """A finding for each screenshot that is missing or does not have the sha256 that is its name.

    full   read all screenshots that the record names and the run keeps; else a sample of those that are still
           needed
    """
    named = sorted(record.screenshots(full=full))
    missing: set[str] = set()
    for sha256 in named if full else random.sample(named, min(SAMPLE, len(named))):
        if not SHA256.fullmatch(sha256):
            yield Finding("the record gives it this name, which is no sha256", f"screenshot {sha256!r}")
            continue
        which = f"screenshot {blobs.place(sha256)}"
        try:
            blobs.read(sha256)
        except BlobMissing:
            missing.add(sha256)
        except BlobUnreadable:
            yield _lost("cannot be read from the disk", which)
        except BlobCorrupt:
            yield _lost("has other bytes than its name promises", which)
        except StoreUnavailable as unreadable:
            yield Finding(str(unreadable), which)
    if missing:  # a running run may have deleted old ones meanwhile
        for sha256 in sorted(missing & record.screenshots(full=full)):
            yield _lost("is missing", f"screenshot {blobs.place(sha256)}")


def _lost(what: str, which: str) -> Finding:
    """The finding for a screenshot that is lost. A power failure may do that: screenshots are not synced."""
    return Finding(what, which, RESTORE, costs_groups_only=True)


def damaged_checkpoints(paths: RunPaths, newest: Version, folders: Sequence[Path]) -> list[Finding]:
    """Findings about the checkpoint of the newest version, from which the run continues, and about `folders`.

    A folder that the run has pruned meanwhile is no finding.
    """
    own = paths.checkpoints / checkpoint_name(newest.version)
    damage = damage_of(newest.version, paths)
    found = [Finding(damage, f"checkpoint {own}", newest_remedy(paths, newest.version))] if damage else []
    return found + [
        Finding(
            damage, f"checkpoint {folder}", "remove the folder: it is read only if all newer ones are damaged"
        )
        for folder in folders
        if folder != own
        if (damage := checkpoint_damage(folder, version_of(folder))) and folder.exists()
    ]


def damage_of(version: int, paths: RunPaths) -> str:
    """What is wrong with the checkpoint of a version; empty if nothing is, and always for the base policy."""
    return checkpoint_damage(paths.checkpoints / checkpoint_name(version), version) if version > 0 else ""


def newest_remedy(paths: RunPaths, version: int) -> str:
    """The remedy for a damaged newest checkpoint."""
    good, _ = latest_good(paths.checkpoints, up_to=version - 1)
    if good is None:
        return "restore the folder from a copy, or start a new run in another directory"
    return (
        "restore the folder from a copy, or start the run again: --resume (or `dartrl up`) continues from "
        f"the newest whole checkpoint, {good.folder.name}, and renames the damaged one"
    )


def checkpoints_ahead(paths: RunPaths, newest: int, folders: Sequence[Path]) -> list[Finding]:
    """A finding if checkpoints are more than one version ahead of the record; else none.

    Then the record is an older copy than the checkpoints.
    """
    ahead = [folder.name for folder in folders if version_of(folder) > newest + 1]
    if not ahead:
        return []
    names = ", ".join(ahead)
    return [
        Finding(
            f"the record ends at version {newest}",
            f"checkpoint {names}",
            f"put the newer record back; or, to continue from version {newest}, move {names} out of "
            f"{paths.checkpoints}",
        )
    ]


def checkpoint_damage(folder: Path, version: int) -> str:
    """What is wrong with the checkpoint of a version; empty if nothing is."""
    if not (folder / STATE_FILE).is_file():
        return "is missing or incomplete"
    try:
        found = load_checkpoint(folder).state.version
    except CorruptCheckpoint as corrupt:
        return corrupt.damage
    return "" if found == version else f"{STATE_FILE} says version {found}"
