"""Which names live on which machine, kept on this machine's own board.

A name of another machine is a row of this board with a `route`: mail for it goes to the bridge that made
the row. To everybody here it looks like any other actor: it can be written to, asked, monitored, and it
dies. When its machine is lost the row is not living any more, and so every ask that waits for it ends.
"""

from actors.board import LIVING, ActorState, Board
from actors.errors import ActorError
from actors.link import MAX_NAMES_PER_HOST, Row, can_be_told, host_in, seen_elsewhere


class Directory:
    """What one bridge has told and was told about names. Not thread-safe; one owner."""

    def __init__(self, board: Board, host: str, bridge: str, slot: int) -> None:
        self._board = board
        self._host = host
        self._bridge = bridge
        self._route = slot + 1
        self._exported: dict[str, bool] = {}
        self._hosts: dict[str, str] = {}
        self._lost: set[str] = set()
        """Names of machines that are lost; the others still have to hear that they do not live."""
        self._waiting: dict[str, tuple[str, Row]] = {}
        """Names that an actor of this machine bears still, while it is being stopped."""

    # ---- what lives here ----

    def export(self, name: str, *, placed: bool = False) -> None:
        """Make a name of this machine known to the others, as it comes and goes."""
        self._exported[name] = placed
        self._hosts.pop(name, None)

    def export_sender(self, name: str) -> None:
        """Whoever writes to another machine is known there, or nobody could answer."""
        self._exported.setdefault(name, False)

    def is_exported(self, name: str) -> bool:
        return name in self._exported

    def seen_elsewhere(self, name: str) -> str:
        """What other machines call a name that is on this board."""
        return (
            name if name in self._hosts else seen_elsewhere(name, self._host, self._exported.get(name, False))
        )

    def rows_for(self, host: str) -> dict[str, Row]:
        """What `host` may know: the names exported here, and what the others announced."""
        rows = [
            self._row(name, self.seen_elsewhere(name))
            for name in self._exported
            if self._is_on_this_board(name)
        ]
        rows = [row for row in rows if can_be_told(row.name)]
        rows += [self._row(name, name) for name, at in self._hosts.items() if at != host]
        return {row.name: row for row in rows}

    # ---- what lives elsewhere ----

    def host_of(self, name: str) -> str:
        """The machine that announced the name; empty when none did."""
        return self._hosts.get(name, "")

    def learn(self, host: str, row: Row, *, speaks_for_others: bool) -> str:
        """Put a name of another machine on this board; the reason when that is refused, else empty.

        speaks_for_others   the leader passes names of other hosts on; a follower announces only its own
        """
        self._waiting.pop(row.name, None)
        if speaks_for_others and row.is_living and self._is_alive_here(row.name):
            self._waiting[row.name] = host, row
            return ""
        why = self._why_not(host, row, speaks_for_others)
        if why or not (row.is_living or self._hosts.get(row.name) == host):
            return why
        try:
            slot = self._board.claim(row.name, self._bridge)
        except ActorError as error:
            return str(error)
        self._hosts[row.name] = host
        self._lost.discard(row.name)
        self._board.set_state(
            slot,
            ActorState.RUNNING if row.is_living else ActorState.STOPPED,
            incarnation=row.incarnation,
            route=self._route,
            pid=0,
            ready=int(row.is_ready),
            beat_ns=0,
            busy_since_ns=0,
            last_reason=row.reason,
        )
        return ""

    def forget(self, host: str, reason: str) -> None:
        """A machine is lost: none of its names lives any more."""
        self._waiting = {name: waits for name, waits in self._waiting.items() if waits[0] != host}
        for name in [name for name, at in self._hosts.items() if at == host]:
            self._lost.add(name)
            self._close(name, reason)

    def settle(self) -> None:
        """Learn what had to wait for the end of an actor of this machine."""
        for host, row in list(self._waiting.values()):
            self.learn(host, row, speaks_for_others=True)

    def close_all(self, reason: str) -> None:
        """No name from elsewhere lives; also none that an earlier bridge of this name left behind."""
        for row in self._board.rows():
            if row.route == self._route and row.state in LIVING:
                self._close(row.name, reason)

    # ---- inside ----

    def _why_not(self, host: str, row: Row, speaks_for_others: bool) -> str:
        at = host_in(row.name)
        if at == self._host or (at not in ("", host) and not speaks_for_others):
            return f"{row.name!r} is not for host {host!r} to announce"
        if not speaks_for_others and self._is_over_share(host, row.name):
            return f"host {host!r} announced {MAX_NAMES_PER_HOST} names and may announce no more"
        if self._is_alive_here(row.name) or (not speaks_for_others and self._is_kept_here(row.name)):
            return f"{row.name!r} is an actor of this machine"
        slot = self._board.find(row.name)
        if slot is None or at:
            return ""
        incarnation = int(self._board.get(slot, "incarnation"))
        is_lost = self._hosts.get(row.name) != host or row.name in self._lost
        is_same = row.incarnation == incarnation
        if row.incarnation < incarnation or (is_same and is_lost and not speaks_for_others):
            return f"{row.name!r} incarnation {row.incarnation} is late: {incarnation} is lost or came after"
        return ""

    def _is_over_share(self, host: str, name: str) -> bool:
        count = sum(at == host and known not in self._lost for known, at in self._hosts.items())
        return self._hosts.get(name) != host and count >= MAX_NAMES_PER_HOST

    def _close(self, name: str, reason: str) -> None:
        """The row says that nobody lives there, unless an actor of this machine bears the name by now."""
        slot = self._board.find(name)
        if slot is not None and self._board.get(slot, "route") == self._route:
            self._board.set_state(slot, ActorState.STOPPED, ready=0, last_reason=reason)

    def _is_alive_here(self, name: str) -> bool:
        slot = self._board.find(name)
        return slot is not None and not self._board.get(slot, "route") and self._board.state(slot) in LIVING

    def _is_kept_here(self, name: str) -> bool:
        """It does not live, but its supervisor here will have it live again."""
        slot = self._board.find(name)
        if slot is None or self._board.get(slot, "route"):
            return False
        return self._board.state(slot) in (ActorState.BACKOFF, ActorState.QUARANTINED)

    def _is_on_this_board(self, name: str) -> bool:
        slot = self._board.find(name)
        return slot is not None and self._board.get(slot, "route") == 0

    def _row(self, name: str, seen_as: str) -> Row:
        slot = self._board.find(name)
        assert slot is not None, "it was found just now, and names are never given up"
        return Row(
            name=seen_as,
            incarnation=int(self._board.get(slot, "incarnation")),
            is_living=self._board.state(slot) in LIVING,
            is_ready=bool(self._board.get(slot, "ready")),
            reason=str(self._board.get(slot, "last_reason"))[:400],
        )
