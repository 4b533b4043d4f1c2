"""Whether the data of a run is whole: the record against itself, and against the files that it names.

Runs when a run is taken up, when it ends, and on demand. It reads only.
"""

import os
import random
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from dart.config import Config
from dart.errors import DiskError, NotRunningError
from dart.rundir import RunPaths, holder
from dart.store.audit import Finding
from dart.store.blobs import BlobStore
from dart.store.errors import BlobCorrupt, BlobMissing, StoreError, StoreUnavailable
from dart.store.reader import StoreReader
from dart.store.records import Version
from dart.store.wal import damage_of_log, log_of
from dart.training.checkpoint import STATE_FILE, CorruptCheckpoint, list_checkpoints, load_checkpoint

T = TypeVar("T")

SHA256 = re.compile("[0-9a-f]{64}")

SAMPLE = 2000
"""Screenshots that are read where not all of them are; chosen at random, so that checks add up."""

SHOWN = 5
"""Findings told in one message."""


class RecordDamaged(StoreError, DiskError):
    """The data of a run contradicts itself; going on would train on damage."""


def check(paths: RunPaths, config: Config, full: bool = False, fresh_since: int = 0) -> list[Finding]:
    """Everything about the data of a run that must not be; empty when it is sound.

    full          every screenshot and checkpoint is read; else only what the run still needs, screenshots
                  beyond a number by sample
    fresh_since   steps trained too late count in versions after this one; before, the bound may have been
                  another
    Raises StoreUnavailable when the record cannot be read at all.
    """
    if not paths.store.is_file():
        return [Finding("it is missing", f"the record {paths.store}")]
    found = [*damaged_log(paths)]
    with StoreReader(paths.store) as record:
        found += record.integrity(config.curation.staleness, fresh_since)
        found += record.damaged_rows(full=full)
        nothing: frozenset[str] = frozenset()
        needed = record.screenshots if full else record.screenshots_needed
        named = or_finding(needed, nothing, "the names of screenshots", found)
        made: tuple[Version, ...] = ()
        versions = or_finding(record.versions, made, "the versions", found)
    found += damaged_screenshots(paths.blobs, named if full else sample(named))
    found += damaged_checkpoints(paths, versions, config.training.checkpoints_kept, full)
    return found


def or_finding(read: Callable[[], T], default: T, which: str, found: list[Finding]) -> T:
    """What can be read; else the default, and why as one more finding."""
    try:
        return read()
    except StoreUnavailable as error:
        found.append(Finding(str(error), which))
        return default


def damaged_log(paths: RunPaths) -> list[Finding]:
    """Transactions in the write-ahead log that SQLite would leave out; of a log that another process may be
    writing nothing can be said."""
    if is_written_by_another(paths):
        return []
    log = log_of(paths.store)
    try:
        damage = damage_of_log(log.read_bytes())
    except FileNotFoundError:
        return []
    return [Finding(damage, f"the write-ahead log {log}")] if damage else []


def is_written_by_another(paths: RunPaths) -> bool:
    """Whether another process runs the run."""
    try:
        return holder(paths.root) not in (None, os.getpid())
    except NotRunningError:
        return False


def refuse_damage(paths: RunPaths, findings: list[Finding]) -> None:
    """Raises RecordDamaged that names the first findings, each with its remedy."""
    if findings:
        raise RecordDamaged(f"the data in {paths.root} is damaged, nothing was started:\n{told(findings)}")


def told(findings: list[Finding]) -> str:
    """The first findings, one to a line, each with its remedy."""
    lines = [f"{finding} ({finding.remedy})" for finding in findings[:SHOWN]]
    if len(findings) > SHOWN:
        lines.append(f"and {len(findings) - SHOWN} more")
    return "\n".join(lines)


def sample(named: frozenset[str]) -> list[str]:
    """All of them, or some at random."""
    return sorted(named, key=str) if len(named) <= SAMPLE else random.sample(sorted(named, key=str), SAMPLE)


def damaged_screenshots(folder: Path, named: Iterable[str]) -> list[Finding]:
    """Screenshots that are not there, or not what their name promises."""
    blobs = BlobStore(folder, read_only=True)
    found = []
    for sha256 in named:
        if not SHA256.fullmatch(str(sha256)):
            found.append(Finding("the record names it, and that is no sha256", f"screenshot {sha256!r}"))
            continue
        try:
            blobs.read(sha256)
        except (BlobMissing, BlobCorrupt) as damage:
            what = (
                "is missing" if isinstance(damage, BlobMissing) else "has other bytes than its name promises"
            )
            found.append(Finding(what, f"screenshot {blobs.path(sha256)}", "restore the file from a copy"))
        except StoreUnavailable as unreadable:
            found.append(Finding(str(unreadable), f"screenshot {blobs.path(sha256)}"))
    return found


def damaged_checkpoints(
    paths: RunPaths, versions: tuple[Version, ...], kept: int, full: bool
) -> list[Finding]:
    """The newest version must be there to go on from; in full, every checkpoint that is kept.

    Version 0 is the base policy, which is not the run's own.
    """
    made = [version for version in versions if version.version > 0]
    folders = list_checkpoints(paths.checkpoints)
    wanted = [Path(version.checkpoint) for version in made[-min(kept, max(len(folders), 1)) :]]
    return [
        Finding(
            damage,
            f"checkpoint {folder}",
            "restore the folder from a copy, or start a new run from an older one (training.policy)",
        )
        for folder in (dict.fromkeys([*wanted, *folders]) if full else wanted[-1:])
        if (damage := checkpoint_damage(folder, full))
    ]


def checkpoint_damage(folder: Path, full: bool) -> str:
    """What is wrong with a checkpoint, in words; empty when nothing is."""
    if not (folder / STATE_FILE).is_file():
        return "is missing, or was not written to its end"
    if full:
        try:
            load_checkpoint(folder)
        except CorruptCheckpoint as corrupt:
            return f"{corrupt.file} is corrupt: expected {corrupt.expected}, got {corrupt.got}"
    return ""
