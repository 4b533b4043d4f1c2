"""One run, opened for one HTTP response: its record, its board and its files.

Reading blocks, so the event loop does it in threads (`dart.web.blocking`).
"""

import contextlib
from functools import cached_property, lru_cache
from os import SEEK_END
from pathlib import Path

from actors.board import rows_of
from dart.config.config import Config, kept_config
from dart.core.errors import TemporaryError
from dart.core.png import png_size
from dart.core.record_address import RecordAddress
from dart.core.records import NO_EVENTS, EventCounts
from dart.core.run_directory import RunPaths, holder
from dart.inspect.actor_table import find_actor, read_actors, starting
from dart.inspect.logs import LogLine, parse
from dart.inspect.report import family_of
from dart.inspect.snapshot import ActorRow, EngineRow, RunSnapshot
from dart.inspect.snapshot_reader import SnapshotReader, engine_rows
from dart.run.mirror import fetch_logs
from dart.store.browse_queries import RunBrowser
from dart.store.errors import StoreError
from dart.store.run_blobs import RunBlobs, blobs_of
from dart.store.run_checkpoints import LocalCheckpoints
from dart.web.step_views import token_texts
from supervision import reports
from supervision.reports import SupervisorReport

LOG_BYTES = 64 << 10
"""Largest number of bytes that are read from the end of a log."""

LOG_LINES = 120
REPORTS_MOST = 20
PNG_HEAD_BYTES = 24


class RunView:
    """A run as one HTTP response shows it. Each property is read at its first use and then kept.

    Making a view raises TemporaryError if the run has no configuration yet, or is running and has no record
    yet.
    """

    def __init__(self, paths: RunPaths) -> None:
        self.paths = paths
        self._require(paths.config)
        self._record = paths.record_at(self.config.run.record)
        if isinstance(self._record, Path) and self.pid is not None:
            self._require(self._record)  # a run that has ended lost its record, and opening it says so
        self._resources = contextlib.ExitStack()

    def __enter__(self) -> "RunView":
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def _require(self, *files: Path) -> None:
        for file in files:
            if not file.exists():
                raise TemporaryError(
                    f"the run in {self.paths.title} has no {file.name} yet; it appears when the run starts"
                )

    @cached_property
    def pid(self) -> int | None:
        """Pid of the main process; 0 if it has not written its pid yet, None if the run is not running."""
        return holder(self.paths.root)

    @cached_property
    def blobs(self) -> RunBlobs:
        """The screenshots and steps of the run."""
        return blobs_of(self.paths)

    @cached_property
    def config(self) -> Config:
        return _config(self.paths.config, self.paths.config.stat().st_mtime_ns)

    @cached_property
    def family(self) -> str:
        """The parts with which all ids of its tasks begin; the pages leave them out in lists of tasks."""
        return family_of(self.config.tasks.train)

    @cached_property
    def store(self) -> RunBrowser:
        return self._resources.enter_context(RunBrowser(self._record, steps=self.blobs.steps))

    @cached_property
    def snapshot(self) -> RunSnapshot:
        self._refuse_earlier_board()
        self._require(self.paths.board, self.paths.session)
        record = self._record, _inode(self._record)
        with SnapshotReader(self.paths, self.config, known_events=_counted.get(record, NO_EVENTS)) as reader:
            snapshot = reader.read()
        _counted[record] = reader.events
        return snapshot

    @cached_property
    def actors(self) -> tuple[ActorRow, ...]:
        """Every actor, read from the board alone.

        Raises NotRunningError if there is no board yet, and TemporaryError while the run is starting.
        """
        self._refuse_earlier_board()
        return read_actors(self.paths.root)

    def _refuse_earlier_board(self) -> None:
        """Raise TemporaryError while the run is starting and the board is still that of its last start."""
        if text := starting(self.paths, self.pid):
            raise TemporaryError(text)

    @cached_property
    def engines(self) -> tuple[EngineRow, ...]:
        """Every engine, read from the board alone."""
        return engine_rows(rows_of(self.paths.board))

    def actor(self, name: str) -> ActorRow:
        """Return the row of an actor. Raises UsageError if the board has no actor of this name."""
        return find_actor(name, self.actors)

    def log(self, actor: ActorRow) -> list[LogLine]:
        """Return the last lines of an actor's log, oldest first."""
        fetch_logs(self.paths.root, actor.name)
        return [
            line for text in _last_lines(self.paths.logs / f"{actor.name}.jsonl") if (line := parse(text))
        ]

    def ends(self, actor: ActorRow) -> list[SupervisorReport]:
        """Return the newest reports of its supervisor about an actor, newest first; none for the root."""
        found = reports.read(self.paths.root, actor.parent) if actor.parent else ()
        return [report for report in reversed(found) if report.offender.id == actor.name][:REPORTS_MOST]

    def token_texts(self) -> dict[int, str]:
        """Return the text of each token id. All checkpoints of a run have the tokenizer of its base policy.

        The result is empty if the engines of the run have no policy (`simulated`, `oracle`).
        """
        if self.config.rollout.engine in ("simulated", "oracle"):
            return {}
        newest = self.store.latest_version()
        folder = LocalCheckpoints(self.paths.checkpoints, self.config.training.policy).policy
        folders = [folder(version) for version in (0, newest.version if newest else 0)]
        return next((texts for folder in folders if (texts := token_texts(folder))), {})

    def size_of(self, sha256: str) -> tuple[int, int] | None:
        """Read width and height of a screenshot in pixels; None if it cannot be read or is not a PNG."""
        try:
            return png_size(self.blobs.screenshots.read(sha256)[:PNG_HEAD_BYTES])
        except (StoreError, ValueError):
            return None


_counted: dict[tuple[RecordAddress, int], EventCounts] = {}
"""How many events each record has, as counted so far. The next response only has to count newer events.

The key is the address of the record and its inode, which is 0 for a record on a server.
"""


def _inode(record: RecordAddress) -> int:
    """Return the inode of the file of a record; 0 for a record on a server, or a file that is lost."""
    return record.stat().st_ino if isinstance(record, Path) and record.exists() else 0


@lru_cache(maxsize=4)
def _config(path: Path, mtime_ns: int) -> Config:
    """Read the configuration of a run, and cache it, because reading takes most of the time of a response.

    mtime_ns   modification time of the file, so that a changed file is read again
    """
    return kept_config(path)


def _last_lines(path: Path) -> list[bytes]:
    """Read the last lines of a log, oldest first. The beginning of the first line may be cut off."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, SEEK_END) - LOG_BYTES))
            return file.read(LOG_BYTES).splitlines()[-LOG_LINES:]
    except OSError:
        return []
