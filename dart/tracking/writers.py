"""Writers of points: event files of TensorBoard, a run of Weights & Biases.

A writer imports its library when it is made.
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
    """The policy version that the update made: the step of the point."""
    unix_s: float
    """When the update was committed."""
    figures: Mapping[str, float]


class TrackingWriter(Protocol):
    """Takes points in the order of their versions."""

    def write(self, point: Point) -> None:
        """Take one point."""

    def flush(self) -> None:
        """Make the points taken so far outlive this process."""

    def close(self) -> None:
        """Wait until every point is written. Called after the last one."""


class TensorBoard:
    """Event files in a folder, one for each start; `tensorboard --logdir` reads them as one run.

    This uses tensorboardX's `EventsWriter`, which writes at once. Its `SummaryWriter` hands everything to a
    thread, for which `flush` does not wait. A point is one record, so it is written wholly or not at all.
    """

    def __init__(self, folder: Path, first: int) -> None:
        """Begin a file whose first version is `first`.

        TensorBoard then ignores points from that version on which an earlier process wrote, but did not note
        in `Position`.
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
    """Hide torch from tensorboardX, which would import it without need: that takes seconds."""
    if "torch" in sys.modules:
        yield
        return
    sys.modules["torch"] = None  # type: ignore[assignment]  # for the import system: there is none
    try:
        yield
    finally:
        del sys.modules["torch"]


class WeightsAndBiases:
    """One run of Weights & Biases, continued after a restart. A point's step there is its version."""

    def __init__(self, folder: Path, config: Config, run_id: str) -> None:
        """Begin or continue the run. Raises what `wandb.init` raises, for instance without a login."""
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
        """Nothing to do: each point is handed to wandb's own process as soon as it is written."""

    def close(self) -> None:
        self._run.finish()
