"""The rows of this host's board that its bridge announces to other hosts, and their changes.

The bridge announces the rows of exported names and every row below an exported name that is plain: a placed
actor or a service, which every host knows without `@host`. The leader's bridge also announces the rows of
other hosts that every host must know. A row is announced when its condition changes (`Board.condition`). The
fields that change with every message, such as the heartbeat, are announced a few times in a lease, for all
rows at once.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from actors.board import LIVING, MOST, STATES, ActorState, Board, Vitals
from actors.clock import Clock
from actors.link import Activity, ChangeLog, Row, can_be_announced, machine_row, seen_elsewhere


@dataclass(frozen=True, slots=True)
class Visibility:
    """How other hosts see an exported name of this host."""

    is_plain: bool = False
    """Whether other hosts know the name without `@host`; then every row below it is announced, too."""
    is_announced_to_all: bool = True


@dataclass(frozen=True, slots=True)
class AnnouncedRow:
    """A row of this board as other hosts see it."""

    name: str
    host: str
    parent: str
    is_announced_to_all: bool


class AnnouncedRows:
    """The rows that one bridge announces. Not thread-safe; one owner."""

    def __init__(
        self,
        board: Board,
        host: str,
        clock: Clock,
        passed_on: Callable[[], Iterable[tuple[int, "AnnouncedRow"]]],
    ) -> None:
        """passed_on: returns the rows of other hosts that this host announces too, with their slots here."""
        self._board = board
        self._passed_on = passed_on
        self._host = host
        self._clock = clock
        self._exports: dict[str, Visibility] = {}
        self._rows: dict[int, AnnouncedRow] = {}
        self._conditions: dict[int, bytes] = {}
        self._gauges: dict[int, tuple[int, ...]] = {}
        self._log: ChangeLog[int, Row] = ChangeLog()
        self._seen_changes = -1

    # ---- what is exported ----

    def export(self, name: str, visibility: Visibility) -> None:
        """Announce a name of this host to the others from now on, whether or not an actor has it yet."""
        if self._exports.get(name) != visibility:
            self._exports[name] = visibility
            self._seen_changes = -1

    def export_sender(self, name: str) -> None:
        """Export an actor that writes to another host, so that the other host can answer it."""
        if not self.is_announced(name):
            self.export(name, Visibility())

    def withdraw_placed(self) -> None:
        """Stop exporting the plain names: the session that placed these actors on this host is over."""
        self._exports = {name: seen for name, seen in self._exports.items() if not seen.is_plain}
        self._seen_changes = -1

    def is_announced(self, name: str) -> bool:
        """Whether other hosts may write to the actor of this host that has the name."""
        self._find_rows()
        slot = self._board.find(name)
        row = None if slot is None else self._rows.get(slot)
        return name in self._exports or (row is not None and row.host == self._host)

    def seen_elsewhere(self, name: str) -> str:
        """Return the name under which other hosts know a name of this board."""
        slot = self._board.find(name)
        row = None if slot is None else self._rows.get(slot)
        if row is not None:
            return row.name
        return seen_elsewhere(name, self._host, self._exports.get(name, Visibility()).is_plain)

    # ---- what has changed ----

    def update(self) -> None:
        """Record every announced row whose condition has changed since the last call."""
        self._find_rows()
        for slot in self._rows:
            self.update_one(slot)

    def update_one(self, slot: int) -> None:
        """Record the row in this slot if its condition has changed."""
        condition = self._board.condition(slot)
        if condition != self._conditions.get(slot):
            self._conditions[slot] = condition
            self._log.note(slot, self._row(slot, self._rows[slot]))

    def changed_since(self, cursor: int, *, host: str) -> list[tuple[int, Row]]:
        """The changes after number `cursor`, oldest first, each with its number, without rows of `host`."""
        return [(number, row) for number, row in self._log.since(cursor) if row.host != host]

    def sender_row(self, name: str) -> Row | None:
        """The announced row of an actor that writes to another host; None without a row."""
        self._find_rows()
        slot = self._board.find(name)
        if slot is None or slot not in self._rows:
            return None
        self.update_one(slot)
        return self._log.get(slot)

    def rows_at(self, slots: Iterable[int]) -> Iterator[Row]:
        """The row of each of these slots that has been announced; the others are left out."""
        for slot in slots:
            row = self._log.get(slot)
            if row is not None:
                yield row

    def activities(
        self, *, only_new_gauges: bool = False, only_announced_to_all: bool = False
    ) -> list[tuple[str, Activity]]:
        """Return host and activity of each living row.

        only_new_gauges          leave out rows whose gauges are those of the last call
        only_announced_to_all    leave out rows that only the leader hears of, unless their gauges are new
        """
        found = []
        for slot, row in self._rows.items():
            gauges = self._board.gauges(slot)
            is_left_out = only_new_gauges or (only_announced_to_all and not row.is_announced_to_all)
            if is_left_out and self._gauges.get(slot) == gauges:
                continue
            if self._board.state(slot) in LIVING:
                self._gauges[slot] = gauges
                found.append((row.host, activity_of(self._board.vitals(slot))))
        return found

    # ---- inside ----

    def _find_rows(self) -> None:
        """Find the rows to announce, if a row has got a name, a parent or a route since the last call."""
        changes = self._board.changes
        if changes == self._seen_changes:
            return
        self._seen_changes = changes
        found = dict(self._exported()) | dict(self._passed_on())
        for slot, row in self._rows.items():
            if slot not in found:
                self._log.note(slot, self._no_more(slot, row))
                self._conditions.pop(slot, None)
        for slot, row in found.items():
            if self._rows.get(slot) != row:
                self._conditions.pop(slot, None)
        self._rows = found

    def _exported(self) -> Iterator[tuple[int, AnnouncedRow]]:
        """The rows of exported names and the rows below plain names, each with its slot."""
        below = self._board.slots_by_parent() if any(seen.is_plain for seen in self._exports.values()) else {}
        for name, seen in self._exports.items():
            slot = self._board.find(name)
            seen_as = seen_elsewhere(name, self._host, seen.is_plain)
            if slot is not None and not self._board.get(slot, "route") and can_be_announced(seen_as):
                parent = machine_row(self._host)
                yield slot, AnnouncedRow(seen_as, self._host, parent, seen.is_announced_to_all)
            if seen.is_plain:
                yield from self._below(name, seen, below)

    def _below(
        self, parent: str, seen: Visibility, below: dict[str, list[int]]
    ) -> Iterator[tuple[int, AnnouncedRow]]:
        for slot in below.get(parent, ()):
            name = str(self._board.get(slot, "name"))
            if self._board.get(slot, "route") or name == parent:
                continue
            yield slot, AnnouncedRow(name, self._host, parent, seen.is_announced_to_all)
            yield from self._below(name, seen, below)

    def _row(self, slot: int, seen: AnnouncedRow) -> Row:
        vitals, now_unix_s = self._board.vitals(slot), self._clock.unix_s()
        started_s, retry_s = vitals.started_unix_s, vitals.retry_unix_s
        return Row(
            slot=slot,
            host=seen.host,
            name=seen.name,
            parent=seen.parent,
            incarnation=vitals.incarnation,
            state=STATES.index(vitals.state),
            is_ready=vitals.ready,
            is_announced_to_all=seen.is_announced_to_all,
            restarts=vitals.restarts,
            started=_ms(now_unix_s - started_s) if started_s else None,
            retry_in=_ms(retry_s - now_unix_s) if now_unix_s < retry_s < float("inf") else None,
            reason=vitals.last_reason,
            ended_incarnation=int(self._board.get(slot, "ended_incarnation")),
            ended_reason=str(self._board.get(slot, "ended_reason")),
            last_error=vitals.last_error,
            gauges=vitals.gauges,
        )

    def _no_more(self, slot: int, seen: AnnouncedRow) -> Row:
        """The announcement that a row is gone: another actor has its slot, or it is no longer exported."""
        row = self._log.get(slot)
        incarnation = 0 if row is None else row.incarnation
        return Row(
            slot=slot,
            host=seen.host,
            name=seen.name,
            parent=seen.parent,
            incarnation=incarnation,
            state=STATES.index(ActorState.FREE),
            is_ready=False,
            is_announced_to_all=seen.is_announced_to_all,
            restarts=0,
            started=None,
            retry_in=None,
            reason="it has ended and was forgotten",
            ended_incarnation=incarnation,
            ended_reason="it has ended and was forgotten",
            last_error="",
            gauges=(0, 0, 0, 0),
        )


def activity_of(vitals: Vitals) -> Activity:
    """Return what an actor does now, from its row, in the form that is announced."""
    return Activity(
        slot=vitals.slot,
        beat=_age_ms(vitals.beat_age_s),
        progress=_age_ms(vitals.progress_age_s),
        busy=_age_ms(vitals.busy_s),
        work=_age_ms(vitals.work_s),
        messages=max(0, vitals.messages),
        refused=max(0, vitals.refused),
        unsent=max(0, vitals.unsent),
        uses=max(0, vitals.uses),
        handler=vitals.handler if vitals.busy_s is not None else "",
        doing=vitals.work if vitals.work_s is not None else "",
        gauges=vitals.gauges,
    )


def _age_ms(age_s: float | None) -> int | None:
    return None if age_s is None else _ms(age_s)


def _ms(seconds: float) -> int:
    return min(max(0, round(seconds * 1000)), MOST - 1)
