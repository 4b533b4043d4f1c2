"""Writers for TensorBoard and for Weights & Biases. They write points: each holds the figures of one update.

The library of a writer is imported when the writer is created.
"""

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from dart.config.config import Config


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The figures of one update."""

    version: int
    """The policy version that the update made. TensorBoard and Weights & Biases show it as the step."""
    unix_s: float
    """When the update was committed, in unix seconds."""
    figures: Mapping[str, float]


class TrackingWriter(Protocol):
    """Writes points. It gets them in the order of their policy versions."""

    def write(self, point: Point) -> None:
        """Write one point. If the process is killed before `flush`, the point may be lost."""

    def flush(self) -> None:
        """Make sure that the points written so far are not lost if this process is killed."""

    def close(self) -> None:
        """Wait until every point is written, and close the writer."""


class TensorBoard:
    """Writes event files into a folder, one for each start; `tensorboard --logdir` reads them as one run.

    It uses tensorboardX's `EventsWriter`, which writes at once. (tensorboardX's `SummaryWriter` writes in a
    thread, and its `flush` does not wait for the thread.) A point is one record of the file, so it is written
    as a whole or not at all.
    """

    def __init__(self, folder: Path, first: int) -> None:
        """Begin a file whose first point has the policy version `first`.

        The file tells TensorBoard to ignore the points of earlier files from version `first` on. Such points
        exist if an earlier process ended after it had written them and before it noted them in `Position`.
        """
        with _without_torch():
            from tensorboardX.event_file_writer import EventsWriter
            from tensorboardX.proto import event_pb2, summary_pb2

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        folder.mkdir(parents=True, exist_ok=True)
        # TensorBoard reads files in the order of their names, in which the time has whole seconds.
        self._file: Any = EventsWriter(str(folder / "events"), f".{first:08d}.{os.getpid()}")
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._file.write_event(event_pb2.Event(step=first, wall_time=time.time(), session_log=start))

    def write(self, point: Point) -> None:
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in point.figures.items()]
        summary = self._summary(value=values)
        self._file.write_event(self._event(step=point.version, wall_time=point.unix_s, summary=summary))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


@contextmanager
def _without_torch() -> Iterator[None]:
    """In the `with` block, hide torch from tensorboardX, which would import it without need. Importing torch
    takes seconds."""
    if "torch" in sys.modules:
        yield
        return
    sys.modules["torch"] = None  # type: ignore[assignment]  # for the import system: there is none
    try:
        yield
    finally:
        del sys.modules["torch"]


class WeightsAndBiases:
    """Writes points into one run of Weights & Biases, which is continued after a restart. The step of a point
    is its policy version."""

    def __init__(self, folder: Path, config: Config, run_id: str) -> None:
        """Begin the run with this id, or continue it if it exists. Raises the exceptions of `wandb.init`."""
        import wandb

        folder.mkdir(parents=True, exist_ok=True)
        wanted = config.tracking
        is_online = wanted.wandb_mode == "online"
        self._run: Any = wandb.init(
            dir=str(folder),
            id=run_id,
            project=wanted.wandb_project,
            entity=wanted.wandb_entity or None,
            name=config.run.dir.name,
            mode=wanted.wandb_mode,
            resume="allow" if is_online else None,
            config=config.model_dump(mode="json"),
            settings=wandb.Settings(console="off", disable_git=True, quiet=True),
        )

    def write(self, point: Point) -> None:
        self._run.log({**point.figures, "unix_s": point.unix_s}, step=point.version, commit=True)

    def flush(self) -> None:
        """Do nothing: `write` passes each point to wandb's own process at once."""

    def close(self) -> None:
        self._run.finish()
