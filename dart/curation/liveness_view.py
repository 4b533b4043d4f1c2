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

SERVED_LOOK_S = 0.05
"""Time between two looks at the versions of all engines. Those of other hosts are known 0.25 s late."""


class LivenessView:
    """The board as the curator sees it.

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
        self._asker = ""
        self._oldest_served: int | None = None
        self._served_until_s = -math.inf

    # ---- who lives ----

    def refresh(self, now_s: float) -> Liveness:
        """Look at the engines. The rest of the result is read from the board when it is asked for.

        The time that this takes does not depend on how many environments there are.
        """
        if not any(self._answers(name) for name in self._engines):
            self._no_engine_until_s = now_s + self._lease_s
        self._asker = ""
        return Liveness(
            alive_since=self._alive_since,
            supervised_since=self._supervised_since,
            engines_answer=now_s >= self._no_engine_until_s,
        )

    def asks(self, environment: str) -> None:
        """Note that an environment asks for work: it lives, whatever the board shows of it yet."""
        self._asker = environment

    def _alive_since(self, environment: str) -> float | None:
        row = self._board.row(environment)
        if row is None or not (environment == self._asker or _lives(row, ACTOR_SILENT_S)):
            return None
        return row.started_unix_s

    def _supervised_since(self, environment: str) -> float | None:
        row = self._board.row(environment)
        supervisor = None if row is None else self._board.row(row.parent)
        return None if supervisor is None else supervisor.started_unix_s

    def _answers(self, engine: str) -> bool:
        row = self._board.row(engine)
        return row is not None and row.ready and _lives(row, ENGINE_SILENT_S)

    def incarnation_of(self, name: str) -> int | None:
        """The incarnation of an actor; None if it has no process."""
        slot = self._board.find(name)
        if slot is None:
            return None
        return int(self._board.get(slot, "incarnation")) if self._board.state(slot) in LIVING else None

    def is_still_playing(self, playing: Playing, now_unix_s: float) -> bool:
        """Whether the process that got the episode still runs; the lease can outlast the process."""
        slot = self._running(playing.environment)
        if slot is None:
            return False
        return bool(self._board.get(slot, "started_unix_s") <= now_unix_s - playing.for_s)

    # ---- versions ----

    def oldest_served(self, now_s: float) -> int | None:
        """The oldest version with which a rollout actor answers; None while no rollout actor answers.

        A rollout actor that serves an older version than required answers no request: it does not count.
        The answer is at most SERVED_LOOK_S old, so that no request for work looks at every engine.
        """
        if now_s >= self._served_until_s:
            self._served_until_s = now_s + SERVED_LOOK_S
            self._oldest_served = self.read_oldest_served()
        return self._oldest_served

    def read_oldest_served(self) -> int | None:
        """What `oldest_served` answers, as of now."""
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
