"""The bridge of the host that leads: it has a session with every other host."""

from collections.abc import Iterable

from actors.announced_rows import AnnouncedRow, Visibility
from actors.bridge import Bridge
from actors.link import (
    PEERS_PER_FRAME,
    ChangeLog,
    Frame,
    Gone,
    Hello,
    Peer,
    Peers,
    Session,
    Welcome,
    before_session,
    first_epoch,
    is_host,
    next_epoch,
    session,
)


class LeaderBridge(Bridge):
    """Opens a session for every host that says Hello, and announces each session to the other hosts."""

    async def on_start(self) -> None:
        self._epochs: dict[str, int] = {}
        self._first_epoch = first_epoch(self.clock.unix_s())
        self._peers: ChangeLog[str, Peer] = ChangeLog()
        await super().on_start()
        for name in self.args.get("services", ()):
            self.announced.export(name, Visibility(is_plain=True))

    def passed_on(self) -> Iterable[tuple[int, AnnouncedRow]]:
        return self.directory.passed_on()

    def heard_outside(self, host: str, frame: Frame) -> None:
        if isinstance(frame.body, Hello) and frame.body.host == host != self.host and is_host(host):
            self._welcome(frame.body)
        else:
            self.late += 1
            reason = f"{self.host!r} knows no session {frame.epoch} of {host!r}"
            self.wire.send(host, before_session(Gone(frame.epoch, reason)))

    def open(self, opened: Session) -> None:
        self._peers.note(opened.host, Peer(opened.host, opened.epoch))
        super().open(opened)

    def lose(self, lost: Session, reason: str) -> None:
        self.directory.forget(lost.host, f"host {lost.host!r} is lost: {reason}")
        self._peers.note(lost.host, Peer(lost.host, lost.epoch, reason))
        super().lose(lost, reason)

    def was_late(self, late_s: float) -> None:
        """Extend every lease by the time in which this bridge read no frames.

        A follower's bridge does not: its placed actors must stop before the leader starts them elsewhere.
        """
        for each in self.sessions.values():
            each.forgive(late_s)

    def _welcome(self, hello: Hello) -> None:
        old = self.sessions.get(hello.host)
        if old is not None and old.attempt == hello.attempt:
            self._welcome_again(old)
            return
        if old is not None:
            self.lose(old, "it connected anew")
        epoch = next_epoch(self._first_epoch, self._epochs.get(hello.host, 0), hello.last_epoch)
        self._epochs[hello.host] = epoch
        opened = session(hello.host, epoch, lease_s=self.lease_s, now_s=self.clock.monotonic_s())
        opened.capabilities, opened.attempt = hello.capabilities, hello.attempt
        self.say(opened, Welcome(self.host, self.lease_s))
        self.open(opened)

    def _welcome_again(self, known: Session) -> None:
        """Repeat the Welcome and the announcements, unless the follower has sent a frame in the session."""
        if not known.has_heard:
            self.say(known, Welcome(self.host, self.lease_s))
            known.rows_cursor = known.peers_cursor = 0
            self._announce(known)

    def _announce(self, to: Session) -> bool:
        """Announce changed sessions, then changed rows; False when the link is full.

        Sessions come first, because a host cannot write to names of a host whose session it does not know.
        """
        changed = [(n, peer) for n, peer in self._peers.since(to.peers_cursor) if peer.host != to.host]
        for first in range(0, len(changed), PEERS_PER_FRAME):
            part = changed[first : first + PEERS_PER_FRAME]
            if not self.say(to, Peers(tuple(peer for _, peer in part))):
                return False
            to.peers_cursor = part[-1][0]
        return super()._announce(to)
