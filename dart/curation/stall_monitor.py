"""The watchdog of the curator: what it sees of the run, made into facts about who starves.

The board shows what every part does even while it hangs; the curator knows who waits for what. All other
thinking is in `dart.curation.stall_diagnosis`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from actors.board import ActorState, Vitals
from dart.config.config import Config
from dart.core.records import Event
from dart.curation.stall_diagnosis import (
    Component,
    Diagnosis,
    Link,
    Notice,
    Notices,
    Playing,
    RunFacts,
    Since,
    Stage,
    Starving,
    diagnose,
)
from dart.store.reader import StoreReader
from dart.telemetry.events import STARVED
from dart.telemetry.liveness import ACTOR_SILENT_S, ENGINE_SILENT_S

LOOK_S = 2.0
"""How often the watchdog looks, and so how exact its times are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CuratorView:
    """What the curator knows at one moment."""

    trainer_told: str = ""
    """Why the trainer was given no batch; empty when it was given one or need not have any."""
    environments_told: Mapping[str, str] = field(default_factory=dict)
    """Why idle environments were given no work."""
    playing: tuple[Playing, ...] = ()
    quarantined: Mapping[str, str] = field(default_factory=dict)
    """Tasks in quarantine, with the reason."""
    paused: str = ""
    """Why the store takes no writes."""


class StallMonitor:
    """Looks at the run every few seconds and says when there is something to tell."""

    def __init__(self, config: Config, engines: Iterable[str], reader: StoreReader, now_s: float) -> None:
        self._config = config
        self._engines = tuple(engines)
        self._environments = tuple(f"env-{index:03d}" for index in range(config.environments.count))
        self._reader = reader
        self._waiting, self._unwell, self._behind = Since(), Since(), Since()
        self._drops_before: Counter[str] | None = None
        """Groups dropped until the trainer began to wait; None while it does not."""
        open_notice = untold_end(reader.newest_event(STARVED))
        self._notices = Notices(config.curation.starved_after_s, open_notice, now_s)

    def look(self, rows: Iterable[Vitals], hand: CuratorView, now_s: float) -> Notice | None:
        """What is to be told now, if anything is. `now_s` is monotonic."""
        return self._notices.next(diagnose(self._facts(rows, hand, now_s)), now_s)

    def _facts(self, rows: Iterable[Vitals], hand: CuratorView, now_s: float) -> RunFacts:
        board = {row.name: row for row in rows}
        waits = self._waits(board, hand, now_s)
        trainer_waits_s = waits.pop("trainer", None)
        return RunFacts(
            starved_after_s=self._config.curation.starved_after_s,
            trainer_waits_s=trainer_waits_s or 0.0,
            trainer_told=hand.trainer_told,
            waiting=waits,
            environments_told=next(iter(hand.environments_told.values()), ""),
            playing=hand.playing,
            quarantined=hand.quarantined,
            tasks=len(self._config.tasks.train),
            paused=hand.paused,
            groups_per_update=self._config.training.groups_per_update,
            dropped=self._dropped(trainer_waits_s),
            store=part_of("store", board),
            trainer=part_of("trainer", board),
            weight_sync=part_of("weight_sync", board),
            engines=self._engine_parts(board, now_s),
            environments=tuple(part_of(name, board) for name in self._environments_of(board)),
        )

    def _waits(self, board: Mapping[str, Vitals], hand: CuratorView, now_s: float) -> dict[str, float]:
        """For how long everybody has waited who was told to and is still there to wait."""
        told = [*(["trainer"] if hand.trainer_told else []), *hand.environments_told]
        return self._waiting.look([name for name in told if is_running(name, board)], now_s)

    def _engine_parts(self, board: Mapping[str, Vitals], now_s: float) -> tuple[Component, ...]:
        parts = [part_of(name, board, silent_after_s=ENGINE_SILENT_S) for name in self._engines]
        newest = part_of("trainer", board).version
        unwell = self._unwell.look((part.name for part in parts if not (part.is_up and part.ready)), now_s)
        behind = self._behind.look((part.name for part in parts if part.version < newest), now_s)
        return tuple(
            part_of(
                part.name,
                board,
                unwell_s=unwell.get(part.name, 0.0),
                behind_s=behind.get(part.name, 0.0),
                silent_after_s=ENGINE_SILENT_S,
            )
            for part in parts
        )

    def _environments_of(self, board: Mapping[str, Vitals]) -> tuple[str, ...]:
        """Those of the pool now, whose size may have changed; before it has any, those to come."""
        rows = [row for row in board.values() if row.name.startswith("env-") and not row.name.endswith("~")]
        return tuple(row.name for row in rows if row.state is not ActorState.FREE) or self._environments

    def _dropped(self, trainer_waits_s: float | None) -> Mapping[str, int]:
        """Groups dropped since the trainer began to wait, by reason; counted only when that is long ago."""
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


def is_running(name: str, board: Mapping[str, Vitals]) -> bool:
    return name in board and board[name].state is ActorState.RUNNING


def part_of(
    name: str,
    board: Mapping[str, Vitals],
    *,
    unwell_s: float = 0.0,
    behind_s: float = 0.0,
    silent_after_s: float = ACTOR_SILENT_S,
) -> Component:
    """One actor in the words of a diagnosis."""
    row = board.get(name)
    if row is None:
        return Component(name=name, state=ActorState.FREE.value, ready=False, unwell_s=unwell_s)
    return Component(
        name=name,
        state=row.state.value,
        ready=row.ready,
        reason=row.last_reason,
        doing=row.work or (row.handler if row.busy_s else ""),
        doing_s=row.work_s or row.busy_s or 0.0,
        silent_s=row.beat_age_s or 0.0,
        silent_after_s=silent_after_s,
        unwell_s=unwell_s,
        behind_s=behind_s,
        version=row.gauge_version,
    )


def event_of(notice: Notice) -> Mapping[str, str | float]:
    """The fields of its event."""
    return {
        "stage": notice.stage.value,
        "link": notice.diagnosis.link.value,
        "text": notice.diagnosis.text,
        "lasted_s": notice.lasted_s,
    }


def untold_end(newest: Event | None) -> Diagnosis | None:
    """What an earlier curator told and never said the end of; that is for this one to do."""
    if newest is None or newest.data["stage"] == Stage.ENDED:
        return None
    return Diagnosis(
        starving=Starving(newest.subject),
        waited_s=0.0,
        link=Link(str(newest.data["link"])),
        text=str(newest.data["text"]),
    )
