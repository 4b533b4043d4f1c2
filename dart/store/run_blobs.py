"""Opens the blob stores of a run, chosen by the address `run.blobs`. No other module makes this choice.

An empty address means the folder `blobs` of the run directory, which all processes of one machine share. It
needs no library. Any other address means object storage, which is read through a cache folder of this
machine.
"""

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from dart.config.sections import RunSettings
from dart.core.errors import ConfigurationError, UnavailableError
from dart.core.run_directory import RunPaths
from dart.store.blobs import SCREENSHOTS, STEPS, BlobStore, FolderBlobs

FOLDER = "blobs"
CACHE = "cache"


@dataclass(frozen=True, slots=True)
class RunBlobs:
    """The blob stores of a run, one for each kind of blob."""

    screenshots: BlobStore
    steps: BlobStore


def run_blobs(run: RunSettings, run_dir: Path) -> RunBlobs:
    """The blob stores of a run, from its configuration.

    run_dir   the run directory of this machine, for blobs in a folder and for the cache

    Raises UnavailableError if obstore is needed and not installed.
    """
    if not run.blobs:
        return local_blobs(run_dir)
    return stored_blobs(run.blobs, run.cache_bytes, run_dir, bool(run.screenshots_kept_days))


def blobs_of(paths: RunPaths) -> RunBlobs:
    """The blob stores of a run, from the config.toml in its run directory.

    Raises ConfigurationError if config.toml is damaged, and UnavailableError if obstore is needed and not
    installed.
    """
    kept = _kept_settings(paths)
    if not kept.get("blobs"):
        return local_blobs(paths.root)
    most_bytes = kept.get("cache_bytes", RunSettings.model_fields["cache_bytes"].default)
    return stored_blobs(kept["blobs"], most_bytes, paths.root, bool(kept.get("screenshots_kept_days")))


def blobs_address(paths: RunPaths) -> str:
    """The value of run.blobs in a run's config.toml; empty if it has none. Raises ConfigurationError."""
    return str(_kept_settings(paths).get("blobs", ""))


def _kept_settings(paths: RunPaths) -> dict[str, Any]:
    try:
        kept: dict[str, Any] = tomllib.loads(paths.config.read_text(encoding="utf-8")).get("run", {})
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ConfigurationError(f"{paths.config} is damaged: {error}; restore it from a copy") from error
    return kept


def local_blobs(run_dir: Path) -> RunBlobs:
    """The blob stores in a run directory."""
    root = run_dir / FOLDER
    return RunBlobs(FolderBlobs(root, SCREENSHOTS), FolderBlobs(root / STEPS.folder, STEPS))


@lru_cache(maxsize=8)
def stored_blobs(address: str, cache_bytes: int, run_dir: Path, deletes_screenshots: bool) -> RunBlobs:
    """The blob stores in object storage. Raises UnavailableError if obstore is not installed.

    deletes_screenshots   whether the run deletes old screenshots, so that each put must renew their age
    """
    from dart.store.blob_cache import CachedBlobs, CacheFolder

    storage = object_storage()
    objects = storage.ObjectStorage(address)
    folder = CacheFolder(run_dir / CACHE / FOLDER, cache_bytes)
    return RunBlobs(
        CachedBlobs(
            storage.ObjectBlobs(objects, SCREENSHOTS),
            folder,
            SCREENSHOTS,
            puts_once=not deletes_screenshots,
        ),
        CachedBlobs(storage.ObjectBlobs(objects, STEPS), folder, STEPS, puts_once=False),
    )


def object_storage() -> Any:
    """The module `dart.store.object_storage`. Raises UnavailableError if obstore cannot be imported."""
    try:
        from dart.store import object_storage as module
    except ImportError as error:
        raise UnavailableError(
            "run.blobs names object storage. That needs the package obstore, but it cannot be imported "
            f"({error}): pip install 'dartrl[cluster]'"
        ) from error
    return module


def remove_leftovers(run_dir: Path) -> None:
    """Remove the temporary files of killed writers. Call it only while no process of the run writes."""
    for kind in (SCREENSHOTS, STEPS):
        FolderBlobs(run_dir / FOLDER / kind.folder, kind).remove_leftovers()
