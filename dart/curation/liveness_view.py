"""What the curator reads from the board: which actors live, and which versions they serve."""

import math
import shutil
from collections.abc import Sequence
from pathlib import Path

from actors.board import LIVING, ActorState, Board, Vitals
from dart.curation.curator import Liveness
from dart.curation.stall_diagnosis import Playing
from dart.telemetry.board_gauges import Gauge
from dart.telemetry.liveness import ACTOR_SILENT_S, ENGINE_SILENT_S

SCREENSHOT_MAX_BYTES = 2**18
"""Room that a screenshot may take on the disk. With less room an environment may be unable to write it."""


class LivenessView:
    """The board as the curator sees it; `refresh` reads it anew.

    engines   names of the rollout actors
    lease_s   after a time in which no engine could answer: for how long one must be able to answer again
              before `Liveness.engines_answer` is true
    """

    def __init__(self, board: Board, engines: Sequence[str], run_dir: Path, lease_s: float) -> None:
        self._board = board
        self._engines = engines
        self._run_dir = run_dir
        self._lease_s = lease_s
        self._no_engine_until_s = -math.inf
        self._living: dict[str, float] = {}
        self._supervised_since: dict[str, float] = {}

    # ---- who lives ----

    def refresh(self, now_s: float) -> Liveness:
        """Read every row of the board and return who lives; `refresh_one` updates this result in place."""
        rows = {row.name: row for row in self._board.rows()}
        living = {name: row for name, row in rows.items() if _lives(row, ACTOR_SILENT_S)}
        engines = [living[name] for name in self._engines if name in living]
        if not any(row.ready and _lives(row, ENGINE_SILENT_S) for row in engines):
            self._no_engine_until_s = now_s + self._lease_s
        self._living = {name: row.started_unix_s for name, row in living.items()}
        self._supervised_since = {
            name: rows[row.parent].started_unix_s for name, row in rows.items() if row.parent in rows
        }
        return Liveness(
            living=self._living,
            supervised_since=self._supervised_since,
            engines_answer=now_s >= self._no_engine_until_s,
        )

    def refresh_one(self, environment: str) -> None:
        """Read again from the board when an environment and its supervisor started: both may be new.

        Updates the Liveness that `refresh` returned.
        """
        slot = self._board.find(environment)
        if slot is None:
            return
        row = self._board.vitals(slot)
        self._living[environment] = row.started_unix_s
        supervisor = self._board.find(row.parent)
        if supervisor is not None:
            self._supervised_since[environment] = self._board.vitals(supervisor).started_unix_s

    def incarnation_of(self, name: str) -> int | None:
        """The incarnation of an actor; None if it has no process."""
        slot = self._board.find(name)
        if slot is None:
            return None
        row = self._board.vitals(slot)
        return row.incarnation if row.state in LIVING else None

    def is_still_playing(self, playing: Playing, now_unix_s: float) -> bool:
        """Whether the process that got the episode still runs; the lease can outlast the process."""
        slot = self._running(playing.environment)
        if slot is None:
            return False
        return bool(self._board.get(slot, "started_unix_s") <= now_unix_s - playing.for_s)

    # ---- versions ----

    def oldest_served(self) -> int | None:
        """The oldest version with which a rollout actor answers; None while no rollout actor answers.

        A rollout actor that serves an older version than required answers no request: it does not count.
        """
        served = [self._gauge(name, Gauge.SERVED_VERSION) for name in self._engines]
        required = self._gauge("weight_sync", Gauge.REQUIRED_VERSION) or 0
        return min(
            (version for version in served if version is not None and version >= required), default=None
        )

    def _gauge(self, name: str, gauge: Gauge) -> int | None:
        """The value of a gauge of an actor; None while the actor does not run."""
        slot = self._running(name)
        return None if slot is None else self._board.gauge(slot, gauge)

    def _running(self, name: str) -> int | None:
        slot = self._board.find(name)
        is_running = slot is not None and self._board.state(slot) is ActorState.RUNNING
        return slot if is_running else None

    # ---- the store ----

    def can_store_results(self) -> bool:
        """Whether the store takes writes, and the disk has room for another screenshot."""
        slot = self._board.find("store")
        takes_writes = slot is not None and bool(self._board.get(slot, "ready"))
        return takes_writes and shutil.disk_usage(self._run_dir).free >= SCREENSHOT_MAX_BYTES


def _lives(row: Vitals, silent_after_s: float) -> bool:
    """Whether an actor runs and its last beat is at most `silent_after_s` old, or of unknown age."""
    return row.state is ActorState.RUNNING and (row.beat_age_s or 0.0) <= silent_after_s
