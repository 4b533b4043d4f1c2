"""The bridge: the one actor of a host that exchanges mail with other hosts.

Receives   mail for names of other hosts (the board routes it here), Export, WhichLinks; frames from the agent
Tells      LinkUp and LinkDown to the actors named in `tells`
Dies when  the agent that carries its frames does not listen or closes the socket; a host's name is invalid
On restart it waits for the agent, which may be started anew too, for at most AGENT_WAIT_S. Every session is
           opened anew under a higher epoch; until then no name of another host is living

One host leads and the others follow. A follower sends Hello to the leader until the leader answers with
Welcome. From then on the two have a session. A side that hears nothing for `lease_s` counts the other side as
lost and marks its names as no longer living. The leader announces the sessions and names of all hosts to each
of them. Mail goes straight from host to host. A host accepts mail only from a session that the leader has
announced to it. Frames that arrive before that are held for up to a lease. Frames of a session that is over
are refused and counted.

args       host          this host's name
           wire          path of the socket at which this host's agent listens (`actors.wire`)
           capabilities  what this host has: {"gpu": 2, "vm_host": 1}
           exports       names that other hosts may write to; actors that write to other hosts are added
           tells         names of local actors that get LinkUp and LinkDown
           orders        wire names of messages that are accepted from the leader only
           lease_s       seconds of silence after which the other side counts as lost
 leader    services      names that other hosts know without `@host`, with every row below them
 follower  leader        the leader's name
"""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Protocol

from actors.actor import Actor, Sender, receives
from actors.announced_rows import AnnouncedRow, AnnouncedRows, Visibility
from actors.bridge_messages import (
    LINKS_PER_ANSWER,
    Export,
    Exported,
    LinkDown,
    Links,
    LinkUp,
    LinkVitals,
    WhichLinks,
    why_not_taken,
)
from actors.codec import Envelope, MessageKind, UndecodedMessage
from actors.directory import Directory
from actors.errors import ActorDied, MailboxFull, MalformedMessage, MessageTooLarge, WireClosed
from actors.link import (
    ACTIVITIES_PER_FRAME,
    ACTIVITY_PER_LEASE,
    LEASE_S,
    MAX_COUNT,
    ROWS_PER_FRAME,
    Activities,
    Activity,
    Again,
    Beat,
    Body,
    Carry,
    Channel,
    Frame,
    Gone,
    Hello,
    Row,
    Rows,
    Session,
    before_session,
    can_be_announced,
    check_host,
    here,
    unpack,
)
from actors.monitors import Exit
from actors.wire import AgentWire

TICK_S = 0.05
"""Seconds between two checks of the leases and of the announced rows."""

GAUGES_S = 0.25
"""Seconds between two announcements of changed gauges."""

AGENT_WAIT_S = 180.0
"""How long a restarted bridge waits for its agent, in seconds: on a cluster a new one is started within two
minutes, after a wait of a minute at most."""

AGENT_LOOK_S = 0.2
"""Seconds between two attempts to connect to an agent that does not listen yet."""

FRAMES_PER_TURN = 256
FRAMES_S = 0.1
"""After FRAMES_PER_TURN frames or FRAMES_S seconds a turn stops reading frames, so that mail is read, too."""

SESSIONS_GAUGE, LATE_GAUGE = 0, 1
"""Gauges of a bridge: its open sessions, and the frames that it refused because their session was over."""

LINGER_S = 0.2
"""How long a bridge that stops tries to send each frame that still waits, in seconds."""


class Wire(Protocol):
    """The connection to other hosts, as far as a bridge uses it; implemented by `actors.wire.AgentWire`."""

    fds: tuple[int, ...]
    malformed: int

    def send(self, host: str, frame: bytes) -> bool: ...

    def receive(self) -> tuple[str, bytes] | None: ...

    def close(self, linger_s: float = 0.0) -> None: ...


class Bridge(Actor):
    """Base of the leader's bridge and the followers' (`actors.leader_bridge`, `actors.follower_bridge`)."""

    traps_exits = True
    """An actor of another host may link itself to this bridge; its end must not end the bridge."""

    speaks_for_others = False
    """Whether the other side of a session may announce names of third hosts; only the leader may."""

    async def on_start(self) -> None:
        self.host = str(self.args["host"])
        check_host(self.host)
        self.lease_s = float(self.args.get("lease_s", LEASE_S))
        self._orders = frozenset(self.args.get("orders", ()))
        self.sessions: dict[str, Session] = {}
        self.late = 0
        self.malformed = 0
        self._is_draining = self._drains_soon = False
        self._activity_s = self._gauges_s = 0.0
        self._activity_turn = 0
        self.directory = Directory(self.board, self.host, self.identity.slot, self.clock)
        self.announced = AnnouncedRows(self.board, self.host, self.clock, self.passed_on)
        self.directory.close_all("the bridge to its host was started anew")
        self._tell_of(LinkDown(host="", epoch=0, reason="the bridge was started anew", is_given_up=True))
        for name in (*self.args.get("exports", ()), self.identity.name):
            self.announced.export(name, Visibility())
        self.wire = await self._wire_of_agent()
        for fd in self.wire.fds:
            self.runtime.watch(fd, self.drain)
        self._ticked_s = self.clock.monotonic_s()
        self.every(TICK_S, self.tick)

    def on_stop(self) -> None:
        for open_session in list(self.sessions.values()):
            self.lose(open_session, f"the bridge of {self.host!r} was ordered to stop")
        self.wire.close(LINGER_S)

    def open_wire(self) -> Wire:
        return AgentWire(Path(self.args["wire"]))

    async def _wire_of_agent(self) -> Wire:
        """Connect to the agent. It listens before the first start; a restarted bridge waits for it."""
        is_restarted = self.identity.incarnation > 1
        give_up_s = self.clock.monotonic_s() + (AGENT_WAIT_S if is_restarted else 0.0)
        while True:
            try:
                return self.open_wire()
            except WireClosed:
                if self.clock.monotonic_s() >= give_up_s:
                    raise
            await self.sleep(AGENT_LOOK_S)

    # ---- what the two sides do differently ----

    def passed_on(self) -> Iterable[tuple[int, AnnouncedRow]]:
        """The rows of other hosts that this host announces to the others, with their slots on this board."""
        return ()

    def heard_outside(self, host: str, frame: Frame) -> None:
        """Handle a Hello, or a frame from a host with which this host has no session."""
        raise NotImplementedError

    def channel_to(self, host: str) -> Channel | None:
        """The channel to a host; None unless both its session and this host's own are open."""
        return self.sessions.get(host)

    def agent_lost(self, host: str) -> None:
        """End the session with a host that this host's agent reports as gone."""
        known = self.sessions.get(host)
        if known is not None:
            self.lose(known, "its agent is gone")

    def was_late(self, late_s: float) -> None:
        """Take note that a tick came `late_s` seconds late: frames that came meanwhile are not read yet.

        Does nothing here; the leader overrides it.
        """

    # ---- mail ----

    @receives(Exit)
    def ignore_exit(self, news: Exit, sender: Sender) -> None:
        """Ignore the end of an actor that had linked itself to this one."""

    @receives(Export)
    def export(self, call: Export, sender: Sender) -> Exported:
        telling = Visibility(is_plain=call.placed, is_announced_to_all=call.is_announced_to_all)
        self.announced.export(call.name, telling)
        self.announced.update()
        self._announce_to_all()
        return Exported(name=self.announced.seen_elsewhere(call.name))

    @receives(WhichLinks)
    def which_links(self, call: WhichLinks, sender: Sender) -> Links:
        now_s = self.clock.monotonic_s()
        links = tuple(
            LinkVitals(
                host=each.host,
                epoch=each.epoch,
                capabilities=each.capabilities,
                silent_s=now_s - each.heard_s,
                carried=each.carried,
                refused=each.refused,
                said_bytes=each.said_bytes,
                heard_bytes=each.heard_bytes,
            )
            for each in islice(self.sessions.values(), call.offset, call.offset + LINKS_PER_ANSWER)
        )
        return Links(
            host=self.host,
            links=links,
            total=len(self.sessions),
            late=self.late,
            early=self.early,
            malformed=self.malformed + self.wire.malformed,
        )

    @property
    def early(self) -> int:
        """The number of frames that are held until the leader announces their session."""
        return 0

    def on_foreign(self, envelope: Envelope) -> None:
        """Send mail of an actor of this host to the host of its receiver, or refuse it."""
        channel = self.channel_to(self.directory.host_of(envelope.to))
        if channel is None:
            self.refuse(envelope, f"the host of {envelope.to!r} is not connected to this one")
        else:
            self._carry(channel, envelope)

    def _carry(self, channel: Channel, envelope: Envelope) -> None:
        is_known = self._prepare(channel, envelope.sender)
        carry = self._carried(envelope)
        if not can_be_announced(carry.sender):
            self.refuse(
                envelope,
                f"the sender's name {carry.sender!r} is too long for other hosts; give it a shorter name",
            )
        elif is_known and self.say(channel, carry):
            channel.carried += 1
        else:
            self.refuse(envelope, f"the link to {channel.host!r} takes no more now: it is full")

    def _prepare(self, channel: Channel, sender: str) -> bool:
        """Announce changed rows, then the sender, before its mail; False when the link takes no more."""
        if isinstance(channel, Session) and not self._announce(channel):
            return False  # the mail may follow from these rows, for example from the loss of a host
        self.announced.export_sender(sender)
        return self._introduce(channel, sender)

    def _introduce(self, channel: Channel, sender: str) -> bool:
        """Announce the sender to the other host, unless that host knows its row as it is now.

        Later changes of the row follow over the same channel. Returns False when the link takes no more.
        """
        row = self.announced.sender_row(sender)
        if row is None or channel.introduced.get(row.slot) == row:
            return True
        is_said = self.say(channel, Rows((row,)))
        if is_said:
            channel.introduced[row.slot] = row
        return is_said

    def _carried(self, envelope: Envelope) -> Carry:
        deadline = envelope.deadline_unix_ms
        sealed = envelope.message
        return Carry(
            kind=int(envelope.kind),
            id=envelope.id,
            to=envelope.to,
            to_incarnation=envelope.to_incarnation,
            sender=self.announced.seen_elsewhere(envelope.sender),
            sender_incarnation=envelope.sender_incarnation,
            left_ms=min(max(1, deadline - self._unix_ms()), MAX_COUNT) if deadline else 0,
            message=sealed.name,
            payload=sealed.payload,
        )

    def _deliver(self, channel: Channel, carry: Carry) -> None:
        """Hand mail from another host to its receiver on this host, or refuse it."""
        if self.directory.host_of(carry.sender) != channel.host:
            channel.refused += 1
            self.log.warning("mail_refused", host=channel.host, sender=carry.sender, reason="not announced")
            return
        envelope = Envelope(
            kind=MessageKind(carry.kind),
            id=carry.id,
            to=here(carry.to, self.host),
            to_incarnation=carry.to_incarnation,
            sender=carry.sender,
            sender_incarnation=carry.sender_incarnation,
            deadline_unix_ms=self._unix_ms() + carry.left_ms if carry.left_ms else 0,
            message=UndecodedMessage(carry.message, carry.payload),
        )
        why = why_not_taken(carry)
        if carry.message in self._orders and not self._is_leader(channel):
            why = f"{carry.message} is accepted from the leader only"
        if not why and (self.directory.host_of(envelope.to) or not self.announced.is_announced(envelope.to)):
            why = f"host {self.host!r} exports no actor named {envelope.to!r}"
        if why:
            channel.refused += 1
            self.refuse(envelope, why)
        else:
            self._hand_over(channel, envelope)

    def _hand_over(self, channel: Channel, envelope: Envelope) -> None:
        """Forward mail to its receiver; if that fails, refuse the mail instead of ending the bridge."""
        try:
            self.forward(envelope)
        except (ActorDied, MailboxFull, MessageTooLarge) as error:
            channel.refused += 1
            self.refuse(envelope, f"host {self.host!r}: {error}")

    # ---- sessions ----

    def open(self, opened: Session) -> None:
        """Begin a session: announce this host's names. LinkUp follows when the other side's are known."""
        self.sessions[opened.host] = opened
        self.log.info("link_up", host=opened.host, epoch=opened.epoch)
        self.announced.update()
        self._announce(opened)

    def lose(self, lost: Session, reason: str) -> None:
        """End a session: send Gone to the other side, and LinkDown to the actors named in `tells`."""
        del self.sessions[lost.host]
        self.log.warning("link_down", host=lost.host, epoch=lost.epoch, reason=reason)
        self.wire.send(lost.host, before_session(Gone(lost.epoch, reason)))
        news = LinkDown(host=lost.host, epoch=lost.epoch, reason=reason, is_given_up=self.is_stopping)
        self._tell_of(news)

    def _tell_of(self, news: LinkUp | LinkDown) -> None:
        for name in self.args.get("tells", ()):
            self.tell(name, news)

    def say(self, channel: Channel, body: Body) -> bool:
        frame = channel.say(body)
        is_sent = self.wire.send(channel.host, frame)
        if not is_sent:
            channel.take_back(frame)
        elif isinstance(channel, Session):
            channel.said_s = self.clock.monotonic_s()
        return is_sent

    def tick(self) -> None:
        """Do what is due by time: end silent sessions, announce changed rows and activities, send beats."""
        self.was_late(self.clock.monotonic_s() - self._ticked_s - TICK_S)
        self.drain()
        self.directory.settle()
        self.announced.update()
        now_s = self.clock.monotonic_s()
        for each in list(self.sessions.values()):
            if each.is_lost(now_s):
                self.lose(each, f"nothing was heard of it for {each.lease_s:g} s")
        self._announce_to_all()
        self._announce_activity(now_s)
        for each in self.sessions.values():
            if each.is_beat_due(now_s):
                self.say(each, Beat())
        self.set_gauges({SESSIONS_GAUGE: len(self.sessions), LATE_GAUGE: self.late})
        self._ticked_s = self.clock.monotonic_s()

    def drain(self) -> None:
        """Handle the frames that have come. Raises WireClosed when the agent has closed the connection."""
        if self._is_draining:
            return
        self._is_draining = True
        if not self._take_all_frames() and not self._drains_soon:
            self._drains_soon = True
            self.after(0.0, self._drain_again)
        self._is_draining = False

    def _drain_again(self) -> None:
        self._drains_soon = False
        self.drain()

    def _take_all_frames(self) -> bool:
        """Handle the frames that have come, within the limits of one turn; False when some may be left."""
        until_s = self.clock.monotonic_s() + FRAMES_S
        for _ in range(FRAMES_PER_TURN):
            received = self.wire.receive()
            if received is None:
                return True
            self.take_frame(*received)
            if self.clock.monotonic_s() > until_s:
                break
        return False

    def take_frame(self, host: str, data: bytes) -> None:
        if not data:
            self.agent_lost(host)
            return
        try:
            frame = unpack(data)
        except MalformedMessage as error:
            self._refuse_frame(host, str(error))
            return
        known = self.sessions.get(host)
        if isinstance(frame.body, Gone):
            if known is not None and known.epoch == frame.body.epoch:
                self.lose(known, frame.body.reason)
        elif known is None or isinstance(frame.body, Hello):
            self.heard_outside(host, frame)
        elif known.hear(frame):
            known.heard_s, known.forgiven_s = self.clock.monotonic_s(), 0.0
            known.heard_bytes += len(data)
            self._hear_next(known, frame.body)
        else:
            self.late += 1

    def _hear_next(self, known: Session, body: Body) -> None:
        lost = known.missed - known.malformed
        if lost > 0:
            self.lose(known, f"{lost} of its frames were lost on the way")
        else:
            self.heard(known, body)

    def _refuse_frame(self, host: str, reason: str) -> None:
        self.malformed += 1
        self.log.warning("frame_refused", host=host, reason=reason)
        known = self.sessions.get(host)
        if known is not None:
            known.malformed += 1

    def heard(self, channel: Channel, body: Body) -> None:
        match body:
            case Rows(rows):
                self._learn(channel, rows)
            case Activities(activities):
                for activity in activities:
                    self.directory.hear_activity(channel.host, activity)
            case Again():
                channel.introduced.clear()
            case Carry():
                self._deliver(channel, body)

    # ---- rows ----

    def _learn(self, channel: Channel, rows: tuple[Row, ...]) -> None:
        is_leader = self._is_leader(channel)
        answers = (self.directory.learn(channel.host, row, speaks_for_others=is_leader) for row in rows)
        refusals = [why for why in answers if why]
        channel.refused += len(refusals)
        if isinstance(channel, Session) and not channel.is_introduced:
            channel.is_introduced = True
            self._tell_of(LinkUp(host=channel.host, epoch=channel.epoch, capabilities=channel.capabilities))
        if refusals:  # one line for all of them: another host must not fill this host's log
            self.log.warning("names_refused", host=channel.host, count=len(refusals), first=refusals[0])

    def _is_leader(self, channel: Channel) -> bool:
        return self.speaks_for_others and isinstance(channel, Session)

    def _announce_to_all(self) -> None:
        for each in self.sessions.values():
            self._announce(each)

    def _announce(self, to: Session) -> bool:
        """Announce every row that has changed; False when the link is full. The next tick then continues."""
        changed = self.announced.changed_since(to.rows_cursor, host=to.host)
        for first in range(0, len(changed), ROWS_PER_FRAME):
            part = changed[first : first + ROWS_PER_FRAME]
            if not self.say(to, Rows(tuple(row for _, row in part))):
                return False
            to.rows_cursor = part[-1][0]
        return True

    def _announce_activity(self, now_s: float) -> None:
        """Announce activities ACTIVITY_PER_LEASE times in a lease, and changed gauges every GAUGES_S.

        Activities of rows that only the leader hears of are announced once in a lease.
        """
        if now_s - self._activity_s >= self.lease_s / ACTIVITY_PER_LEASE:
            self._activity_s = self._gauges_s = now_s
            self._activity_turn = (self._activity_turn + 1) % ACTIVITY_PER_LEASE
            news = self.announced.activities(only_announced_to_all=self._activity_turn > 0)
        elif now_s - self._gauges_s >= GAUGES_S:
            self._gauges_s = now_s
            news = self.announced.activities(only_new_gauges=True)
        else:
            return
        for each in self.sessions.values():
            self._say_activities(each, [activity for host, activity in news if host != each.host])

    def _say_activities(self, to: Session, activities: list[Activity]) -> None:
        for first in range(0, len(activities), ACTIVITIES_PER_FRAME):
            self.say(to, Activities(tuple(activities[first : first + ACTIVITIES_PER_FRAME])))

    def _unix_ms(self) -> int:
        return int(self.clock.unix_s() * 1000)
