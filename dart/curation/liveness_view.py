"""What the curator reads from the board: which actors are alive, and which versions the engines serve."""

import math
import shutil
from collections.abc import Sequence
from pathlib import Path

from actors.board import LIVING, ActorState, Board, Vitals
from dart.curation.curator import Liveness
from dart.telemetry.board_gauges import Gauge
from dart.telemetry.liveness import ACTOR_SILENT_S, ENGINE_SILENT_S

SCREENSHOT_MAX_BYTES = 2**18
"""Largest size of a screenshot in bytes. With less free space on the disk, an environment may be unable to
write one."""

SERVED_LOOK_S = 0.05
"""Interval at which the versions of all engines are read from the board. The board shows the versions of
engines on other hosts up to 0.25 s late."""


class LivenessView:
    """What the curator reads from the board and from the disk.

    engines   names of the rollout actors
    lease_s   time for which engines must have been able to answer before `Liveness.engines_answer` is true
              again, after a time in which no engine could
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
        """Read the state of the engines, and return a new `Liveness`.

        The functions of the result read the board when they are called. So the time of this call does not
        depend on the number of environments.
        """
        if not any(self._answers(name) for name in self._engines):
            self._no_engine_until_s = now_s + self._lease_s
        self._asker = ""
        return Liveness(
            alive_since=self._alive_since,
            supervised_since=self._supervised_since,
            waited_unix_s=self.waited_unix_s,
            engines_answer=now_s >= self._no_engine_until_s,
        )

    def asks(self, environment: str) -> None:
        """Note that an environment asks for work. Until the next `refresh` it counts as alive, even if the
        board does not show this yet."""
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

    def waited_unix_s(self, environment: str) -> int:
        """Return when a full disk or the object storage last made an environment, or the store, wait.

        In unix seconds; 0 if neither of them waited since it started, and if the environment does not run.
        """
        waited = self._gauge(environment, Gauge.WAITED_UNIX_S)
        return 0 if waited is None else max(waited, self._gauge("store", Gauge.WAITED_UNIX_S) or 0)

    def _answers(self, engine: str) -> bool:
        row = self._board.row(engine)
        return row is not None and row.ready and _lives(row, ENGINE_SILENT_S)

    def incarnation_of(self, name: str) -> int | None:
        """Return the incarnation of an actor; None if it has no process."""
        slot = self._board.find(name)
        if slot is None:
            return None
        return int(self._board.get(slot, "incarnation")) if self._board.state(slot) in LIVING else None

    def is_running(self, name: str) -> bool:
        """Whether an actor has a process that has started and was not asked to stop."""
        return self._running(name) is not None

    # ---- versions ----

    def oldest_served(self, now_s: float) -> int | None:
        """Return the oldest version with which a rollout actor answers; None while no rollout actor answers.

        A rollout actor that serves an older version than required answers no request and does not count. The
        result may be up to `SERVED_LOOK_S` old, so that not every request for work reads all engines.
        """
        if now_s >= self._served_until_s:
            self._served_until_s = now_s + SERVED_LOOK_S
            self._oldest_served = self.read_oldest_served()
        return self._oldest_served

    def read_oldest_served(self) -> int | None:
        """Return the same as `oldest_served`, read from the board now."""
        served = [self._gauge(name, Gauge.SERVED_VERSION) for name in self._engines]
        required = self._gauge("weight_sync", Gauge.REQUIRED_VERSION) or 0
        return min(
            (version for version in served if version is not None and version >= required), default=None
        )

    def _gauge(self, name: str, gauge: Gauge) -> int | None:
        """Return the value of a gauge of an actor; None while the actor does not run."""
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
    """Whether an actor runs and its last beat is at most `silent_after_s` old (or the board has no age)."""
    return row.state is ActorState.RUNNING and (row.beat_age_s or 0.0) <= silent_after_s
