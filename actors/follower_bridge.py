"""The bridge of a host that follows: it has a session with the leader, and a channel to every other host."""

from actors.bridge import Bridge
from actors.early_frames import EarlyFrames
from actors.errors import InvalidHost
from actors.link import (
    MAX_EPOCH,
    Again,
    Body,
    Channel,
    Frame,
    Hello,
    Peer,
    Peers,
    Rows,
    Session,
    Welcome,
    before_session,
    check_host,
    pack,
    session,
    unpack,
)

HELLO_AGAIN_S = 1.0
"""Seconds after which a follower repeats an unanswered Hello, because the leader's agent may not run yet."""

RECONNECT_S = 0.2
"""Seconds that a follower waits after the end of its session before it sends Hello again."""


class FollowerBridge(Bridge):
    """Opens a session with the leader, and a channel to each other host that the leader announces."""

    speaks_for_others = True

    async def on_start(self) -> None:
        self._leader = str(self.args["leader"])
        check_host(self._leader)
        self._last_epoch = 0
        self._channels: dict[str, Channel] = {}
        self._peer_epochs: dict[str, int] = {}
        """The newest epoch of each host that the leader has announced, also of those that are lost."""
        self._early = EarlyFrames()
        await super().on_start()
        if self._leader == self.host:
            raise InvalidHost(f"{self.host!r} is the leader's own name; give this host another name")
        self._begin_hello()

    @property
    def early(self) -> int:
        return len(self._early)

    def channel_to(self, host: str) -> Channel | None:
        return self.sessions.get(host) or self._channels.get(host)

    # ---- the leader ----

    def heard_outside(self, host: str, frame: Frame) -> None:
        body = frame.body
        if host != self._leader:
            self._hear_peer(host, frame)
        elif self.sessions or not isinstance(body, Welcome) or frame.epoch <= self._last_epoch:
            self.late += 1
        else:
            self._last_epoch, self.lease_s = frame.epoch, body.lease_s
            opened = session(host, frame.epoch, lease_s=body.lease_s, now_s=self.clock.monotonic_s())
            opened.begin_with(frame)
            self.open(opened)

    def heard(self, channel: Channel, body: Body) -> None:
        if isinstance(body, Peers) and isinstance(channel, Session):
            for peer in body.peers:
                self._hear_of(peer)
        else:
            super().heard(channel, body)

    def lose(self, lost: Session, reason: str) -> None:
        super().lose(lost, reason)
        self.directory.forget_all(f"host {lost.host!r} is lost: {reason}")
        self.announced.withdraw_placed()
        self._channels.clear()
        if not self.is_stopping:
            self.after(RECONNECT_S, self._begin_hello)

    def tick(self) -> None:
        super().tick()
        now_s = self.clock.monotonic_s()
        self._tell_peers()
        self.late += self._early.drop_older(now_s - self.lease_s)  # the leader announced no such session
        if not self.sessions and now_s - self._hello_s >= HELLO_AGAIN_S:
            self._say_hello()

    def _begin_hello(self) -> None:
        """Begin to connect. The leader opens one session for it, however often Hello is repeated."""
        if not self.sessions:  # it was welcome meanwhile
            self._attempt = int(self.clock.unix_s() * 1e6)
            self._say_hello()

    def _say_hello(self) -> None:
        self._hello_s = self.clock.monotonic_s()
        capabilities = dict(self.args.get("capabilities", {}))
        hello = before_session(
            Hello(self.host, capabilities, min(self._last_epoch, MAX_EPOCH), self._attempt)
        )
        unpack(hello)  # raises here, naming the field, for a Hello that the leader would refuse
        self.wire.send(self._leader, hello)

    # ---- other hosts ----

    def _hear_of(self, peer: Peer) -> None:
        """Take the leader's news that the session of another host is open or over."""
        own = self.sessions[self._leader]
        known = self._channels.get(peer.host)
        self._peer_epochs[peer.host] = max(peer.epoch, self._peer_epochs.get(peer.host, 0))
        is_over = known is not None and (known.epoch < peer.epoch or peer.reason is not None)
        if known is not None and known.epoch <= peer.epoch and is_over:
            del self._channels[peer.host]
            why = peer.reason or "it connected anew"
            self.directory.forget(peer.host, f"host {peer.host!r} is lost: {why}")
        if peer.reason is None and peer.host not in self._channels:
            self._channels[peer.host] = Channel(peer.host, peer.epoch, own.epoch)
        for data in self._early.take(peer.host):
            self.take_frame(peer.host, data)

    def _hear_peer(self, host: str, frame: Frame) -> None:
        """Take a frame of another follower, hold it until its session is announced, or count it as late."""
        channel = self._channels.get(host)
        if channel is not None and channel.hear(frame):
            if channel.missed and self.say(channel, Again()):
                channel.missed = 0
            self.heard(channel, frame.body)
            return
        is_early = frame.epoch > self._peer_epochs.get(host, 0) or frame.to_epoch > self._last_epoch
        if not (is_early and self._early.hold(host, pack(frame), self.clock.monotonic_s())):
            self.late += 1

    def _tell_peers(self) -> None:
        """Announce the changed row of each sender to the hosts that this sender has written to."""
        for channel in self._channels.values():
            for row in list(self.announced.rows_at(channel.introduced)):
                if channel.introduced[row.slot] != row and self.say(channel, Rows((row,))):
                    channel.introduced[row.slot] = row
