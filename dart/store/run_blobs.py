"""Where the blobs of a run are: the one place that chooses by the address `run.blobs`.

An empty address is the folder `blobs` of the run directory, which all processes of one machine share.
"""

from dataclasses import dataclass
from pathlib import Path

from dart.store.blobs import SCREENSHOTS, STEPS, BlobStore, FolderBlobs

FOLDER = "blobs"


@dataclass(frozen=True, slots=True)
class RunBlobs:
    """The blobs of a run, by their kind."""

    screenshots: BlobStore
    steps: BlobStore


def local_blobs(run_dir: Path) -> RunBlobs:
    """The blobs in a run directory."""
    root = run_dir / FOLDER
    return RunBlobs(FolderBlobs(root, SCREENSHOTS), FolderBlobs(root / STEPS.folder, STEPS))


def remove_leftovers(run_dir: Path) -> None:
    """Remove the temporary files of killed writers. Call it only while no process of the run writes."""
    for kind in (SCREENSHOTS, STEPS):
        FolderBlobs(run_dir / FOLDER / kind.folder, kind).remove_leftovers()
