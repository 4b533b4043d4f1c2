"""The run directory of an alignment: a folder and a result for each stage.

    config.toml      the configuration             explore/          run directory of the exploration
    explore.json     result of a finished stage    data/train ...    grounding data, a folder for each split
    data.json        ... and so on                 align/            the aligned policy
    report.json      the closing report            train/            run directory of the training run

A stage is finished if its result file exists. The file is written atomically, after everything else that its
stage writes, so a stage that was killed never counts as finished.
"""

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from dart.alignment.stages import AlignmentStage
from dart.core.errors import DiskError, RunDirectoryError
from dart.core.run_directory import (
    ORPHANS_END_S,
    RunPaths,
    keep_config,
    make_private,
    temporary_of,
    write_atomically,
)

LOCK_POLL_S = 0.1

Result = Mapping[str, Any]
"""The result of a stage, as JSON data."""


class AlignmentFolder:
    """The paths and the results of one alignment."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = root / "config.toml"
        self.report = root / "report.json"

    def of(self, stage: AlignmentStage) -> Path:
        """Return the path of the folder of a stage."""
        return self.root / stage.value

    def run_of(self, stage: AlignmentStage) -> RunPaths:
        """Return the paths of the run directory of a stage that is a run (explore, train)."""
        return RunPaths(self.of(stage))

    def keep_config(self, config_toml: str) -> None:
        """Write the configuration. From then on the folder counts as that of an alignment."""
        keep_config(RunPaths(self.root), config_toml)

    def results(self) -> dict[AlignmentStage, Result]:
        """Return the results of the finished stages. Raises DiskError if one is damaged."""
        return {stage: _read(self._result(stage)) for stage in AlignmentStage if self._result(stage).exists()}

    def finish(self, stage: AlignmentStage, result: Result) -> None:
        """Write the result of a stage, which marks the stage as finished. Raises OSError."""
        write_atomically(self._result(stage), _as_json(result), 0o644)

    def withdraw(self, stage: AlignmentStage) -> None:
        """Delete the result of a stage, so that --resume continues the stage."""
        self._result(stage).unlink(missing_ok=True)

    def forget_run(self, stage: AlignmentStage) -> None:
        """Delete the run of a stage, if it has one, so that the stage begins anew. Raises OSError."""
        if self.of(stage).exists():
            shutil.rmtree(self.of(stage))

    def write_report(self, report: Result) -> None:
        """Write the closing report. Raises OSError."""
        write_atomically(self.report, _as_json(report), 0o644)

    @contextlib.contextmanager
    def fresh(self, stage: AlignmentStage) -> Iterator[Path]:
        """Yield a temporary path, at which the block makes the folder of a stage.

        Earlier folders of the stage are deleted first. When the block ends without an error, the new folder
        is renamed to `of(stage)`; after an error it is deleted.
        """
        made = self.root / f".{stage.value}.new"
        for left_over in (made, self.of(stage)):
            shutil.rmtree(left_over, ignore_errors=True)
        try:
            yield made
            made.rename(self.of(stage))
        finally:
            shutil.rmtree(made, ignore_errors=True)

    def _result(self, stage: AlignmentStage) -> Path:
        return self.root / f"{stage.value}.json"


@contextlib.contextmanager
def claimed_alignment(root: Path, *, resume: bool) -> Iterator[AlignmentFolder]:
    """Lock the run directory of an alignment while the block lasts; make the directory if it is missing.

    Raises RunDirectoryError in these cases: `resume` is false, and the directory is not empty; `resume` is
    true, and the directory has no alignment; the directory cannot be made; another process holds the lock.
    """
    folder = AlignmentFolder(root.resolve())
    refuse_unfit_folder(folder.root, resume=resume)
    try:
        make_private(folder.root)
        lock_fd = os.open(folder.root, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise RunDirectoryError(
            f"run directory {folder.root} cannot be made: {error.strerror}; choose another one with --run-dir"
        ) from error
    try:
        _lock(lock_fd, folder.root)
        refuse_unfit_folder(folder.root, resume=resume)
        yield folder
    finally:
        os.close(lock_fd)


def _lock(lock_fd: int, root: Path) -> None:
    """Take the lock. Wait up to ORPHANS_END_S, because processes of a killed alignment may still hold it.

    Raises RunDirectoryError if another process still holds the lock then.
    """
    patient = Retrying(
        retry=retry_if_exception_type(BlockingIOError),
        stop=stop_after_delay(ORPHANS_END_S),
        wait=wait_fixed(LOCK_POLL_S),
        reraise=True,
    )
    try:
        patient(fcntl.flock, lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise RunDirectoryError(
            f"run directory {root} is taken by another `dartrl align`; end that command, or choose another "
            "directory with --run-dir"
        ) from error


def refuse_unfit_folder(root: Path, *, resume: bool) -> None:
    """Raise RunDirectoryError if the folder is not usable.

    With `resume`, it must have an alignment; without `resume`, it must be empty or must not exist. The
    temporary file of a start that was killed counts as nothing.
    """
    config = AlignmentFolder(root).config
    has_alignment = config.is_file()
    if resume and not has_alignment:
        raise RunDirectoryError(
            f"run directory {root} holds no alignment to resume; leave out --resume to begin one, or name "
            "the directory of an alignment with --run-dir"
        )
    if resume or not root.exists():
        return
    if not root.is_dir():
        raise RunDirectoryError(f"run directory {root} is a file; choose a folder with --run-dir")
    if found := sorted(path.name for path in root.iterdir() if path != temporary_of(config)):
        what = "an alignment or another run" if has_alignment else f"files ({', '.join(found[:3])})"
        raise RunDirectoryError(
            f"run directory {root} holds {what} already; continue an alignment with --resume, or choose an "
            "empty or a new directory with --run-dir"
        )


def _read(path: Path) -> Result:
    try:
        found: Result = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DiskError(
            f"{path} is damaged: {error}; delete it, then --resume repeats this stage and all later ones"
        ) from error
    return found


def _as_json(value: Result) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()
