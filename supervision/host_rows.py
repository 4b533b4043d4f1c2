"""The rows of the other hosts on the leader's board: whether each is connected and gets work, or why not."""

from actors.board import ActorState, Board
from actors.clock import Clock
from actors.directory import LOST_HOSTS_SHOWN_S, PART_OF_LOST_HOSTS
from actors.link import machine_row
from supervision.placement import HostRecord


class HostRows:
    """Writes one row `machine-HOST` for each other host, below the actor that owns them. Not thread-safe."""

    def __init__(self, board: Board, owner: str, clock: Clock) -> None:
        self._board = board
        self._owner = owner
        self._clock = clock
        self._lost_s: dict[str, float] = {}
        """By row, since when its host is lost."""

    def close_all(self) -> None:
        """Mark the rows of the owner's earlier incarnation as stopped, until their hosts connect again."""
        for slot in self._board.slots_by_parent().get(self._owner, ()):
            if self._board.state(slot) is not ActorState.FREE:
                self._board.set_state(
                    slot, ActorState.STOPPED, ready=0, last_reason=f"{self._owner} was started anew"
                )
                self._lost_s[str(self._board.get(slot, "name"))] = self._clock.monotonic_s()

    def publish(self, host: str, record: HostRecord) -> None:
        """Write the row of a host, if its state, session or losses have changed."""
        now_s, row = self._clock.monotonic_s(), machine_row(host)
        slot = self._board.find(row)
        if slot is None or self._board.state(slot) is ActorState.FREE:
            if not record.is_there:
                return  # its row was given up
            slot = self._board.claim(row, self._owner)
        if record.is_there:
            self._lost_s.pop(row, None)
        else:
            self._lost_s.setdefault(row, record.since_s)
        state, wait_s = record.state(now_s), record.free_at_s() - now_s
        is_same = self._board.state(slot) is state and self._board.get(slot, "incarnation") == record.sessions
        if is_same and self._board.get(slot, "restarts") == record.losses:
            return
        is_free = state is ActorState.RUNNING
        self._write(slot, record, started_unix_s=self._clock.unix_s() if record.is_there else 0.0)
        retry_unix_s = 0.0 if is_free or wait_s <= 0 else self._clock.unix_s() + wait_s
        self._board.set_state(slot, state, ready=int(is_free), retry_unix_s=retry_unix_s)

    def give_up_lost(self) -> None:
        """Give up the rows of hosts that were lost long ago, or sooner when lost hosts take too many rows."""
        now_s, most = self._clock.monotonic_s(), int(self._board.slots * PART_OF_LOST_HOSTS)
        for row, since_s in sorted(self._lost_s.items(), key=lambda lost: lost[1]):
            if len(self._lost_s) > most or now_s - since_s >= LOST_HOSTS_SHOWN_S:
                self._give_up(row)

    def _give_up(self, row: str) -> None:
        del self._lost_s[row]
        slot = self._board.find(row)
        if slot is not None and self._board.get(slot, "parent") == self._owner:
            self._board.note_end(slot, self._board.get(slot, "incarnation"), "its host did not return")
            self._board.set_state(slot, ActorState.FREE, ready=0)

    def _write(self, slot: int, record: HostRecord, *, started_unix_s: float) -> None:
        self._board.set(
            slot,
            incarnation=record.sessions,
            restarts=record.losses,
            last_reason=f"the host is lost: {record.reason}" if record.reason else "",
            started_unix_s=started_unix_s,
        )
