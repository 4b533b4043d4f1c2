"""Whether the data of a run is whole: the record against itself, and against the files that it names.

Runs when a run is taken up, when it ends, and on demand. It reads only.
"""

import random
from collections.abc import Iterable
from pathlib import Path

from dart.config import Config
from dart.errors import DiskError
from dart.rundir import RunPaths
from dart.store.audit import Finding
from dart.store.blobs import BlobStore
from dart.store.errors import BlobCorrupt, BlobMissing, StoreError
from dart.store.reader import StoreReader
from dart.store.records import Version
from dart.training.checkpoint import STATE_FILE, CorruptCheckpoint, list_checkpoints, load_checkpoint

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
    with StoreReader(paths.store) as record:
        found = [*record.integrity(config.curation.staleness, fresh_since)]
        named = record.screenshots() if full else sample(record.screenshots_needed())
        versions = record.versions()
    found += damaged_screenshots(paths.blobs, named)
    found += damaged_checkpoints(paths, versions, config.training.checkpoints_kept, full)
    return found


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
    return sorted(named) if len(named) <= SAMPLE else random.sample(sorted(named), SAMPLE)


def damaged_screenshots(folder: Path, named: Iterable[str]) -> list[Finding]:
    """Screenshots that are not there, or not what their name promises."""
    blobs = BlobStore(folder, read_only=True)
    found = []
    for sha256 in named:
        try:
            blobs.read(sha256)
        except (BlobMissing, BlobCorrupt) as damage:
            what = (
                "is missing" if isinstance(damage, BlobMissing) else "has other bytes than its name promises"
            )
            found.append(Finding(what, f"screenshot {blobs.path(sha256)}", "restore the file from a copy"))
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
