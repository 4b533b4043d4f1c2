"""Policy versions and their checkpoints, from the record, the board and the disk."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from actors.board import rows_of
from dart.config.config import kept_config
from dart.core.run_directory import RunPaths
from dart.inspect.actor_table import serving
from dart.store.checkpoints import STATE_FILE, list_checkpoints, version_of
from dart.store.reader import StoreReader
from dart.store.run_checkpoints import LocalCheckpoints


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRow:
    """One policy version."""

    version: int
    created_unix_s: float
    checkpoint: str
    is_kept: bool
    """Whether the run still has the checkpoint of this version."""
    served_by: tuple[str, ...]
    """Names of the engines that serve this version now."""
    metrics: Mapping[str, float]
    """The figures of the update that made this version; empty for version 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRow:
    """One checkpoint folder."""

    version: int
    folder: str
    written_unix_s: float
    size_bytes: int
    is_complete: bool
    """Whether the checkpoint was written to its end."""


def read_versions(paths: RunPaths) -> list[VersionRow]:
    """Every version, oldest first."""
    engines = serving(rows_of(paths.board), paths.root)
    with StoreReader(paths.record) as store:
        found = store.versions()
    base = kept_config(paths.config).training.policy
    folder = LocalCheckpoints(paths.checkpoints, base).policy
    return [
        VersionRow(
            version=one.version,
            created_unix_s=one.created_unix_s,
            checkpoint=str(folder(one.version)),
            is_kept=folder(one.version).is_dir(),
            served_by=tuple(name for name, version in engines.items() if version == one.version),
            metrics=one.metrics,
        )
        for one in found
    ]


def read_checkpoints(paths: RunPaths) -> list[CheckpointRow]:
    """Every checkpoint folder of the run, oldest version first."""
    found = []
    for folder in list_checkpoints(paths.checkpoints):
        with suppress(FileNotFoundError):  # the run removes old ones
            row = CheckpointRow(
                version=version_of(folder),
                folder=str(folder),
                written_unix_s=folder.stat().st_mtime,
                size_bytes=sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
                is_complete=(folder / STATE_FILE).is_file(),
            )
            found.append(row)
    return found
