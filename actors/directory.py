"""The names of other hosts, kept as rows of this host's own board.

A name of another host is a row of this board with a `route`: mail for the name goes to the bridge that made
the row. To the actors of this host such a name looks like any other actor. It has a parent, a state, gauges
and ages; it can be written to, asked and monitored, and it can end. When its host is lost, the row is no
longer living, so every ask that waits for the actor ends. While nothing is heard of its host, the ages of the
row grow like those of a suspended process.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from actors.announced_rows import AnnouncedRow
from actors.board import LIVING, MAX_PLACED_INCARNATION, STATES, WAITING, ActorState, Board
from actors.clock import Clock
from actors.errors import ActorError
from actors.link import Activity, Row, can_be_announced, host_in, machine_row

PART_OF_ONE_HOST, PART_OF_ALL_HOSTS = 3 / 4, 7 / 8
"""The largest share of the board's rows that one other host may take, and that all other hosts may take."""

PART_OF_LOST_HOSTS = 1 / 8
"""The share of the board's rows that names `actor@host` of lost hosts keep after LOST_NAMES_KEPT_S."""

LOST_NAMES_KEPT_S = 60.0
"""How long a name of a lost host is kept at least, so that every monitor and ask has seen its end."""

LOST_HOSTS_SHOWN_S = 3600.0
"""How long a lost host is shown on the board. After that, it counts as replaced by one with another name."""


@dataclass(slots=True)
class KnownName:
    """What the directory knows of a name of another host."""

    host: str
    is_announced_to_all: bool
    is_lost: bool = False
    """Whether its host is lost. The name is kept so that its end is announced to the other hosts."""


class Directory:
    """The names of other hosts that one bridge has learned. Not thread-safe; one owner."""

    def __init__(self, board: Board, host: str, bridge_slot: int, clock: Clock) -> None:
        self._board = board
        self._host = host
        self._route = bridge_slot + 1
        self._clock = clock
        self._names: dict[str, KnownName] = {}
        self._names_of: Counter[str] = Counter()
        """The number of known names, by host."""
        self._slots: dict[tuple[str, int], int] = {}
        """The slot on this board, by the host that announced the row and the slot on that host's board."""
        self._told_as: dict[int, set[tuple[str, int]]] = {}
        """The reverse of `_slots`, by slot on this board; several hosts may announce one row."""
        self._lost_at_s: dict[str, float] = {}
        """By name `actor@host` of a lost host, when the host was lost; the earliest loss is first."""
        self._waiting: dict[tuple[str, str], tuple[Row, bool]] = {}
        """Announced rows whose name another actor still has, with `speaks_for_others`; by teller and name."""

    def host_of(self, name: str) -> str:
        """The host on which the actor with this name lives or lived; empty if it is this one or unknown."""
        known = self._names.get(name)
        return known.host if known is not None and self._slot_of(name) is not None else ""

    def passed_on(self) -> Iterator[tuple[int, AnnouncedRow]]:
        """The rows of other hosts that the leader announces to every host, with their slots on this board."""
        for name, known in self._names.items():
            slot = self._slot_of(name) if known.is_announced_to_all else None
            if slot is not None:
                parent = str(self._board.get(slot, "parent"))
                yield slot, AnnouncedRow(name, known.host, parent, is_announced_to_all=True)

    # ---- rows that another host sends ----

    def learn(self, teller: str, row: Row, *, speaks_for_others: bool) -> str:
        """Put an announced row on this board. Return why that is refused, or an empty string.

        A row whose name another actor still has waits until that actor ends (see `settle`).

        teller              the host that announces the row
        speaks_for_others   whether the teller is the leader, which may announce rows of other hosts as well
        """
        self._waiting.pop((teller, row.name), None)
        why = self._why_not(teller, row, speaks_for_others)
        if why:
            return why
        is_free, changes = STATES[row.state] is ActorState.FREE, self._board.changes
        if is_free and not self._is_known(row, speaks_for_others):
            return ""
        if self._has_to_wait(row, speaks_for_others):
            self._waiting[teller, row.name] = row, speaks_for_others
            return ""
        why = self._why_full(row)
        if why:
            return why
        try:
            slot = self._slot_for(teller, row)
        except ActorError as error:
            return str(error)
        self._write(slot, row)
        if is_free:
            self._drop_name(row.name)
            self._unbind(slot)
        else:
            self._note_name(slot, row, changes)
        return ""

    def hear_activity(self, teller: str, news: Activity) -> None:
        """Write an actor's activity to its row; ignored if the row was not announced or its host is lost."""
        slot = self._slots.get((teller, news.slot))
        if slot is None or self._board.get(slot, "route") != self._route:
            return
        moments = (self._moment_ns(age) for age in (news.beat, news.progress, news.busy, news.work))
        counts = (news.messages, news.refused, news.unsent, news.uses)
        self._board.set_activity(slot, (*moments, *counts), handler=news.handler, work=news.doing)
        self._board.set_gauges(slot, dict(enumerate(news.gauges)))

    def forget(self, host: str, reason: str) -> None:
        """Mark every name of a lost host as no longer living."""
        self._waiting = {place: waits for place, waits in self._waiting.items() if waits[0].host != host}
        for place in [place for place in self._slots if place[0] == host]:
            self._told_as[self._slots.pop(place)].discard(place)
        for name, known in self._names.items():
            if known.host == host and not known.is_lost:
                known.is_lost = True
                if host_in(name):
                    self._lost_at_s[name] = self._clock.monotonic_s()
                self._close(name, reason)

    def forget_all(self, reason: str) -> None:
        """Mark every name of every other host as no longer living, because the leader is lost."""
        for host in {known.host for known in self._names.values()}:
            self.forget(host, reason)
        self._slots.clear()
        self._told_as.clear()
        self._waiting.clear()

    def settle(self) -> None:
        """Try again to learn the rows that wait for the end of another actor, and forget old lost names."""
        self._forget_lost()
        for (teller, _), (row, speaks_for_others) in list(self._waiting.items()):
            self.learn(teller, row, speaks_for_others=speaks_for_others)

    def close_all(self, reason: str) -> None:
        """Mark the rows of all other hosts as ended, also those that an earlier bridge left."""
        for slot in self._board.slots_behind(self._route - 1):
            name = str(self._board.get(slot, "name"))
            self._close(name, reason)
            if host_in(name) and self._board.state(slot) is not ActorState.FREE:
                self._lost_at_s[name] = self._clock.monotonic_s()

    # ---- inside: whether ----

    def _why_not(self, teller: str, row: Row, speaks_for_others: bool) -> str:
        at = host_in(row.name)
        is_others = row.host != teller or at not in ("", teller)
        if self._host in (at, row.host) or (is_others and not speaks_for_others):
            return f"{row.name!r} may not be announced by host {teller!r}"
        if not can_be_announced(row.name):
            return f"{row.name!r} cannot be the name of an actor"
        may_wait = speaks_for_others and STATES[row.state] in LIVING
        if not may_wait and self._is_alive_here(row.name):
            return f"{row.name!r} is an actor of this machine"
        if not speaks_for_others and self._is_kept_here(row.name):
            return f"{row.name!r} is an actor of this machine"
        if not (at or speaks_for_others) and row.incarnation > MAX_PLACED_INCARNATION:
            return f"{row.name!r} has incarnation {row.incarnation}, higher than any that a placed actor has"
        return self._why_late(teller, row, speaks_for_others)

    def _why_late(self, teller: str, row: Row, speaks_for_others: bool) -> str:
        """Return why news of a plain name is late; empty if it is not.

        A plain name moves from host to host, so a row may be about an earlier incarnation on another host.
        """
        slot = self._board.find(row.name)
        if slot is None or host_in(row.name) or (speaks_for_others and row.host == teller):
            return ""
        incarnation = int(self._board.get(slot, "incarnation"))
        known = self._names.get(row.name)
        is_lost = known is None or known.host != row.host or known.is_lost
        is_same = row.incarnation == incarnation
        if row.incarnation < incarnation or (is_same and is_lost and not speaks_for_others):
            return f"{row.name!r} incarnation {row.incarnation} is late: {incarnation} is newer or was lost"
        return ""

    def _why_full(self, row: Row) -> str:
        """Return why the board has no room for another name of the row's host; empty if it has."""
        if row.name in self._names:
            return ""
        rows = self._board.slots
        is_full = self._names_of[row.host] >= rows * PART_OF_ONE_HOST
        if is_full or len(self._names) >= rows * PART_OF_ALL_HOSTS:
            return (
                f"no room on the board for {row.name!r}: host {row.host!r} has {self._names_of[row.host]}, "
                f"all other hosts together have {len(self._names)} of its {rows} rows; "
                "start the system with more rows"
            )
        return ""

    def _has_to_wait(self, row: Row, speaks_for_others: bool) -> bool:
        """Whether another actor still has the name, so that the row must wait until that actor ends.

        A row from the leader waits only for an actor of this host, because the leader knows on which host a
        name lives now. A row from any other host waits also while a third host has the name.
        """
        if speaks_for_others:
            return self._is_alive_here(row.name)
        known = self._names.get(row.name)
        if known is None or known.is_lost or known.host == row.host:
            return False
        slot = self._slot_of(row.name)
        return slot is not None and self._board.state(slot) in LIVING | WAITING

    def _is_known(self, row: Row, speaks_for_others: bool) -> bool:
        return row.name in self._names if speaks_for_others else self._is_of(row.name, row.host)

    def _is_alive_here(self, name: str) -> bool:
        slot = self._board.find(name)
        return slot is not None and not self._board.get(slot, "route") and self._board.state(slot) in LIVING

    def _is_kept_here(self, name: str) -> bool:
        """Whether this host keeps a name: a supervisor will restart its actor, or it is the row of a host."""
        slot = self._board.find(name)
        if slot is None or self._board.get(slot, "route"):
            return False
        state = self._board.state(slot)
        return state in WAITING or (name.startswith(machine_row("")) and state is not ActorState.FREE)

    # ---- inside: rows ----

    def _slot_for(self, teller: str, row: Row) -> int:
        """The slot of a row on this board. A row that has another name on its host loses its earlier one."""
        slot = self._slots.get((teller, row.slot))
        if slot is not None:
            before = str(self._board.get(slot, "name"))
            if before != row.name and self._is_of(before, row.host):
                self._forget_name(before, slot)
        slot = self._board.claim(row.name, row.parent, incarnation=row.incarnation)
        if not self._is_of(row.name, row.host):
            self._unbind(slot)
        self._slots[teller, row.slot] = slot
        self._told_as.setdefault(slot, set()).add((teller, row.slot))
        return slot

    def _is_of(self, name: str, host: str) -> bool:
        known = self._names.get(name)
        return known is not None and known.host == host

    def _unbind(self, slot: int) -> None:
        """Forget which announced rows a slot stands for: their activities are not those of its next actor."""
        for place in self._told_as.pop(slot, ()):
            if self._slots.get(place) == slot:
                del self._slots[place]

    def _note_name(self, slot: int, row: Row, changes: int) -> None:
        """Note which host has a name. `changes` is `Board.changes` from before the row was learned."""
        known, before = KnownName(row.host, row.is_announced_to_all), self._drop_name(row.name)
        self._names[row.name] = known
        self._names_of[row.host] += 1
        if before != known and self._board.changes == changes:
            self._board.set(slot, name=row.name)  # counts as a change, so the name is announced with its host

    def _drop_name(self, name: str) -> KnownName | None:
        known = self._names.pop(name, None)
        self._lost_at_s.pop(name, None)
        if known is not None:
            self._names_of[known.host] -= 1
        return known

    def _forget_lost(self) -> None:
        """Forget the names of hosts that were lost long ago, or sooner when lost hosts take too many rows.

        A cluster may replace each lost host by one with a new name. Plain names are kept: the incarnations in
        their rows show which news of a lost host are late.
        """
        while self._lost_at_s:
            name, lost_s = next(iter(self._lost_at_s.items()))
            are_too_many = len(self._lost_at_s) > self._board.slots * PART_OF_LOST_HOSTS
            kept_s = LOST_NAMES_KEPT_S if are_too_many else LOST_HOSTS_SHOWN_S
            if self._clock.monotonic_s() - lost_s < kept_s:
                return
            slot = self._slot_of(name)
            if slot is None:
                self._drop_name(name)
            else:
                self._forget_name(name, slot)

    def _forget_name(self, name: str, slot: int) -> None:
        """Mark a name as forgotten: on its own host, its row belongs to another actor by now."""
        self._drop_name(name)
        if self._board.get(slot, "route") == self._route:
            incarnation = self._board.get(slot, "incarnation")
            self._board.note_end(slot, incarnation, "it has ended and was forgotten")
            self._board.set_state(slot, ActorState.FREE, ready=0)
            self._unbind(slot)

    def _write(self, slot: int, row: Row) -> None:
        """Write an announced row to the board; its state comes last, because mail is sent from then on."""
        is_new = (
            self._board.get(slot, "incarnation") != row.incarnation
            or self._board.get(slot, "route") != self._route
        )
        if is_new:
            self._begin(slot, row)
        now_unix_s = self._clock.unix_s()
        is_free = STATES[row.state] is ActorState.FREE
        ended = max(row.ended_incarnation, 1) if is_free else row.ended_incarnation  # or it is not used again
        self._board.note_end(slot, ended, row.ended_reason)
        self._board.set(
            slot,
            incarnation=row.incarnation,
            route=self._route,
            ready=int(row.is_ready),
            restarts=row.restarts,
            last_reason=row.reason,
            last_error=row.last_error,
            retry_unix_s=0.0 if row.retry_in is None else now_unix_s + row.retry_in / 1000,
        )
        self._board.set_gauges(slot, dict(enumerate(row.gauges)))
        self._board.set_state(slot, STATES[row.state])

    def _begin(self, slot: int, row: Row) -> None:
        """Prepare a row for a process of another host that is new here; its ages are announced soon."""
        self._board.set(
            slot,
            pid=0,
            pid_start_ticks=0,
            own_exit=0,
            started_unix_s=0.0 if row.started is None else self._clock.unix_s() - row.started / 1000,
        )
        beat_ns = self._board.now_ns()
        self._board.set_activity(slot, (beat_ns, 0, 0, 0, 0, 0, 0, 0), handler="", work="")

    def _close(self, name: str, reason: str) -> None:
        """Mark the row of a name as ended, unless an actor of this host has the name by now."""
        slot = self._slot_of(name)
        if slot is not None and self._board.state(slot) in LIVING | WAITING:
            self._board.set_state(slot, ActorState.STOPPED, ready=0, last_reason=reason)

    def _slot_of(self, name: str) -> int | None:
        """The slot of a name of another host; None if no row or an actor of this host has the name."""
        slot = self._board.find(name)
        return slot if slot is not None and self._board.get(slot, "route") == self._route else None

    def _moment_ns(self, age_ms: int | None) -> int:
        return 0 if age_ms is None else self._board.now_ns() - age_ms * 1_000_000
