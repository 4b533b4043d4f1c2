"""The stall monitor of the curator: it collects the facts about a stall and says when to report the stall.

The board shows what every actor does, even while the actor hangs; the curator knows who waits for what.
`dart.curation.stall_diagnosis` draws the conclusions.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from actors.board import ActorState, Vitals
from dart.config.config import Config, trained_tasks
from dart.core.records import Event
from dart.curation.stall_diagnosis import (
    Component,
    Diagnosis,
    Notice,
    Notices,
    Part,
    RunFacts,
    Since,
    Stage,
    Starving,
    diagnose,
    is_stalled,
)
from dart.store.reader import StoreReader
from dart.telemetry.board_gauges import Gauge
from dart.telemetry.events import STARVED
from dart.telemetry.liveness import ACTOR_SILENT_S, ENGINE_SILENT_S

CHECK_S = 2.0
"""Interval at which the run is checked. Reported times may be wrong by as much."""


class BoardRows(Protocol):
    """What the monitor needs of the board."""

    def row(self, name: str) -> Vitals | None: ...

    def rows(self) -> Iterable[Vitals]: ...


class StallMonitor:
    """Finds stalls of the run. The curator calls `check` every few seconds."""

    def __init__(self, config: Config, engines: Sequence[str], reader: StoreReader, now_s: float) -> None:
        self._config = config
        self._engines = engines
        self._environments = tuple(f"env-{index:03d}" for index in range(config.environments.count))
        self._reader = reader
        self._waiting, self._unwell, self._behind = Since(), Since(), Since()
        self._drops_before: Counter[str] | None = None
        """Number of groups that had been dropped when the trainer began to wait, by reason; None while the
        trainer does not wait."""
        open_notice = open_notice_of(reader.newest_event(STARVED))
        self._notices = Notices(config.curation.starved_after_s, open_notice, now_s)

    def check(self, board: BoardRows, known: RunFacts, now_s: float) -> Notice | None:
        """Return the notice that is due now; None if none is due.

        known   the facts that the curator knows
        now_s   time of a monotonic clock

        The rows of all environments are read from the board only if there is a stall, for the text of the
        notice.
        """
        facts = self._completed(known, board, now_s)
        if is_stalled(facts):
            facts = replace(facts, environments=self._environment_parts(board))
        return self._notices.next(diagnose(facts), now_s)

    def _completed(self, known: RunFacts, board: BoardRows, now_s: float) -> RunFacts:
        """Return `known` with all other facts, except those about the environments."""
        waits = self._waits(board, known, now_s)
        trainer_waits_s = waits.pop("trainer", None)
        trainer = _part_of("trainer", board, version=Gauge.TRAINED_VERSION)
        return replace(
            known,
            starved_after_s=self._config.curation.starved_after_s,
            update_deadline_s=self._config.training.update_deadline_s,
            trainer_waits_s=trainer_waits_s or 0.0,
            waiting=waits,
            tasks=len(trained_tasks(self._config)),
            groups_per_update=self._config.training.groups_per_update,
            dropped=self._dropped(trainer_waits_s),
            store=_part_of("store", board),
            trainer=trainer,
            weight_sync=_part_of("weight_sync", board),
            engines=self._engine_parts(board, trainer.version, now_s),
        )

    def _waits(self, board: BoardRows, known: RunFacts, now_s: float) -> dict[str, float]:
        """Return the time for which each running actor that got no work has waited, by name."""
        waiting = [*(["trainer"] if known.trainer_waits_because else []), *known.environments_wait_because]
        return self._waiting.seconds([name for name in waiting if _is_running(name, board)], now_s)

    def _engine_parts(self, board: BoardRows, newest: int, now_s: float) -> tuple[Component, ...]:
        parts = [_part_of(name, board, silent_after_s=ENGINE_SILENT_S) for name in self._engines]
        unwell = self._unwell.seconds((part.name for part in parts if not (part.is_up and part.ready)), now_s)
        behind = self._behind.seconds((part.name for part in parts if part.version < newest), now_s)
        return tuple(
            replace(part, unwell_s=unwell.get(part.name, 0.0), behind_s=behind.get(part.name, 0.0))
            for part in parts
        )

    def _environment_parts(self, board: BoardRows) -> tuple[Component, ...]:
        """Return the environments that exist now; if none exists yet, the configured ones."""
        rows = [row for row in board.rows() if row.name.startswith("env-")]
        there = tuple(_part(row) for row in rows if row.state is not ActorState.FREE)
        return there or tuple(_part_of(name, board) for name in self._environments)

    def _dropped(self, trainer_waits_s: float | None) -> Mapping[str, int]:
        """Return the number of groups that were dropped since the trainer began to wait, by reason; nothing
        before the wait is a stall."""
        if trainer_waits_s is None:
            self._drops_before = None
        elif self._drops_before is None:
            self._drops_before = self._drops()
        elif trainer_waits_s >= self._config.curation.starved_after_s:
            return self._drops() - self._drops_before
        return {}

    def _drops(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for drops in self._reader.drops_by_task().values():
            total.update(drops)
        return total


def _is_running(name: str, board: BoardRows) -> bool:
    row = board.row(name)
    return row is not None and row.state is ActorState.RUNNING


def _part_of(
    name: str,
    board: BoardRows,
    *,
    silent_after_s: float = ACTOR_SILENT_S,
    version: Gauge = Gauge.SERVED_VERSION,
) -> Component:
    """Return the facts about one actor from the board; `version` is the gauge that holds its version."""
    row = board.row(name)
    if row is None:
        return Component(name=name, state=ActorState.FREE.value, ready=False)
    return _part(row, silent_after_s, version)


def _part(
    row: Vitals, silent_after_s: float = ACTOR_SILENT_S, version: Gauge = Gauge.SERVED_VERSION
) -> Component:
    return Component(
        name=row.name,
        state=row.state.value,
        ready=row.ready,
        reason=row.last_reason,
        doing=row.work or (row.handler if row.busy_s else ""),
        doing_s=row.work_s or row.busy_s or 0.0,
        silent_s=row.beat_age_s or 0.0,
        silent_after_s=silent_after_s,
        version=row.gauges[version],
    )


def event_of(notice: Notice) -> Mapping[str, str | float]:
    """Return the fields of the event that records a notice."""
    return {
        "stage": notice.stage.value,
        "cause": notice.diagnosis.cause.value,
        "text": notice.diagnosis.text,
        "lasted_s": notice.lasted_s,
    }


def open_notice_of(newest: Event | None) -> Diagnosis | None:
    """Return the stall that an earlier curator reported last; None if it has ended or there was none.

    newest   the newest event STARVED in the record; None if there is none
    """
    if newest is None or newest.data["stage"] == Stage.ENDED:
        return None
    return Diagnosis(
        starving=Starving(newest.subject),
        cause=Part(str(newest.data["cause"])),
        text=str(newest.data["text"]),
    )
