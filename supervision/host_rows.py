"""The rows of the other hosts on the leader's board: whether each is connected and gets work, or why not."""

from actors.board import ActorState, Board
from actors.clock import Clock
from actors.link import machine_row
from supervision.placement import HostRecord


class HostRows:
    """Writes one row `machine-HOST` for each other host, below the actor that owns them. Not thread-safe."""

    def __init__(self, board: Board, owner: str, clock: Clock) -> None:
        self._board = board
        self._owner = owner
        self._clock = clock

    def close_all(self) -> None:
        """Mark the rows of the owner's earlier incarnation as stopped, until their hosts connect again."""
        for slot in self._board.slots_by_parent().get(self._owner, ()):
            if self._board.state(slot) is not ActorState.FREE:
                self._board.set_state(
                    slot, ActorState.STOPPED, ready=0, last_reason=f"{self._owner} was started anew"
                )

    def publish(self, host: str, record: HostRecord) -> None:
        """Write the row of a host, if its state, session or losses have changed."""
        now_s, row = self._clock.monotonic_s(), machine_row(host)
        slot = self._board.find(row)
        if slot is None:
            slot = self._board.claim(row, self._owner)
        state, wait_s = record.state(now_s), record.free_at_s() - now_s
        is_same = self._board.state(slot) is state and self._board.get(slot, "incarnation") == record.sessions
        if is_same and self._board.get(slot, "restarts") == record.losses:
            return
        is_free = state is ActorState.RUNNING
        self._write(slot, record, started_unix_s=self._clock.unix_s() if record.is_there else 0.0)
        retry_unix_s = 0.0 if is_free or wait_s <= 0 else self._clock.unix_s() + wait_s
        self._board.set_state(slot, state, ready=int(is_free), retry_unix_s=retry_unix_s)

    def _write(self, slot: int, record: HostRecord, *, started_unix_s: float) -> None:
        self._board.set(
            slot,
            incarnation=record.sessions,
            restarts=record.losses,
            last_reason=f"the host is lost: {record.reason}" if record.reason else "",
            started_unix_s=started_unix_s,
        )
