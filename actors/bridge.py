"""The one actor of a machine that talks to other machines.

Receives   mail for names of other machines (routed here by the board), Export, WhichLinks; frames of the link
Tells      LinkUp and LinkDown to the actors named in `tells`
Dies when  it has no key, or its address is taken or not one address: it does not run without encryption
On restart every session is opened anew under a higher epoch, and every name from elsewhere is gone meanwhile

One machine leads: its bridge listens. The others follow: their bridges connect to it and say Hello until
they are welcome. Mail between two followers goes through the leader. Either side that hears nothing for
`lease_s` holds the other for lost: its names are not living any more, and what comes later under that
session's epoch is refused.

args       host          this machine's name, as the leader lists it
           keys          folder with this machine's key pair (`python -m actors.curve FOLDER`)
           capabilities  what this machine has: {"gpu": 2, "vm_host": 1}
           exports       names others may write to; who writes to another machine is known there anyway
           tells         names of local actors that want to know of links
 leader    listen        "tcp://10.0.0.1:7000"; followers  {host: public key}; lease_s
 follower  connect       "tcp://10.0.0.1:7000"; leader_key the leader's public key
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from actors.actor import Actor, Sender, receives
from actors.codec import Envelope, MessageKind, UndecodedMessage, message, module_name_of
from actors.curve import ConnectingWire, ListeningWire, Wire, read_keys
from actors.directory import Directory
from actors.errors import ActorDied, LinkNotAllowed, MailboxFull, MalformedMessage, MessageTooLarge
from actors.link import (
    LEASE_S,
    MAX_COUNT,
    Beat,
    Body,
    Carry,
    Frame,
    Gone,
    Hello,
    Row,
    Rows,
    Session,
    Welcome,
    before_session,
    can_be_told,
    check_host,
    here,
    next_epoch,
    unpack,
)
from actors.monitors import Down, Exit
from actors.system_messages import ChildReady, RefusalReason, Stop

TICK_S = 0.05
"""How often leases are looked at, and the exported names on the board."""

FRAMES_PER_TURN = 256
"""Then mail and timers get their turn, however much another machine sends."""

ROWS_PER_FRAME = 64
"""A frame of rows stays below the limit of the wire."""

ATTEMPT_LEASES = 2
"""A follower that is not welcome within so many leases connects anew; over a slow link that takes a while."""

RECONNECT_S = 0.2
"""A follower that lost its session waits this long before it says Hello again."""

LINGER_MS = 200
"""How long a bridge that stops waits for its last word to leave."""

EPOCHS_PER_INCARNATION = 2**20
"""A restarted leader's bridge goes on above every epoch of the one before."""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUp:
    """A machine is connected. Its names are on the board."""

    host: str
    epoch: int
    capabilities: dict[str, int]


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class LinkDown:
    """A machine is lost, or said that it leaves. None of its names lives any more.

    host is empty when the bridge itself was started anew: every link is down.
    """

    host: str
    epoch: int
    reason: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """Let other machines know a name of this one. Answered by Exported.

    placed   it is known under its plain name; otherwise as `name@host`
    """

    name: str
    placed: bool = False


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What other machines call it."""

    name: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class WhichLinks:
    """Answered by Links."""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class LinkVitals:
    """One open session."""

    host: str
    epoch: int
    capabilities: dict[str, int]
    silent_s: float
    carried: int
    refused: int


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """The sessions of this machine, and what was turned away.

    late        frames of sessions that are over: what a lost host sent after it was given up
    strangers   connections without a listed key
    malformed   authentic frames that say nothing this version understands
    """

    host: str
    links: tuple[LinkVitals, ...]
    late: int
    strangers: int
    malformed: int


def _wire_name(cls: type) -> str:
    return f"{module_name_of(cls)}.{cls.__qualname__}"


SAID_ON_ONE_MACHINE = frozenset(
    _wire_name(cls) for cls in (Stop, ChildReady, Down, Exit, LinkUp, LinkDown, Export)
)
"""Whoever may say these is on the same machine as whoever hears them: a supervisor, the bridge."""

_one_value = msgspec.msgpack.Decoder(msgspec.Raw)


def why_not_taken(carry: Carry) -> str:
    """Why mail of another machine is not handed on, whoever it is for; empty when it is. Pure."""
    if carry.kind == MessageKind.REFUSAL and carry.message != _wire_name(RefusalReason):
        return f"a refusal must be a {_wire_name(RefusalReason)}, not {carry.message}"
    if carry.message in SAID_ON_ONE_MACHINE:
        return f"{carry.message} is not taken from another machine"
    try:
        _one_value.decode(carry.payload)
    except msgspec.MsgspecError as error:
        return f"its message is no msgpack: {error}"
    return ""


class Bridge(Actor):
    """What leader and follower have in common. Use `LeaderBridge` and `FollowerBridge`."""

    traps_exits = True
    """Other machines may link to whatever is exported; that must not end those who join the machines."""

    speaks_for_others = False
    """Whether the other side may announce names of third machines."""

    def on_start(self) -> None:
        self.host = str(self.args["host"])
        check_host(self.host)
        self.sessions: dict[str, Session] = {}
        self.late = 0
        self.malformed = 0
        self._is_draining = False
        self.directory = Directory(self.board, self.host, self.identity.name, self.identity.slot)
        self.directory.close_all("the bridge to its machine was started anew")
        for name in (*self.args.get("exports", ()), self.identity.name):
            self.directory.export(name)
        self.wire: Wire = self.open_wire()
        self._watch_wire()
        self._tell_of(LinkDown(host="", epoch=0, reason="the bridge was started anew"))
        self.every(TICK_S, self.tick)

    def on_stop(self) -> None:
        for session in list(self.sessions.values()):
            self.lose(session, f"the bridge of {self.host!r} was told to stop")
        self.wire.close(LINGER_MS)

    # ---- what the two sides do differently ----

    def open_wire(self) -> Wire:
        raise NotImplementedError

    def heard_outside(self, host: str, frame: Frame) -> None:
        """A frame of no open session."""
        raise NotImplementedError

    # ---- mail ----

    @receives(Exit)
    def ignore_exit(self, news: Exit, sender: Sender) -> None:
        """Who linked to this one has ended."""

    @receives(Export)
    def export(self, call: Export, sender: Sender) -> Exported:
        self.directory.export(call.name, placed=call.placed)
        self._announce_to_all()
        return Exported(name=self.directory.seen_elsewhere(call.name))

    @receives(WhichLinks)
    def which_links(self, call: WhichLinks, sender: Sender) -> Links:
        now_s = self.clock.monotonic_s()
        links = tuple(
            LinkVitals(
                host=session.host,
                epoch=session.epoch,
                capabilities=session.capabilities,
                silent_s=now_s - session.heard_s,
                carried=session.carried,
                refused=session.refused,
            )
            for session in self.sessions.values()
        )
        return Links(
            host=self.host,
            links=links,
            late=self.late,
            strangers=self.wire.strangers,
            malformed=self.malformed,
        )

    def on_foreign(self, envelope: Envelope) -> None:
        """Mail from an actor of this machine to a name of another."""
        session = self.sessions.get(self.directory.host_of(envelope.to))
        if session is None:
            self.refuse(envelope, f"no link leads to {envelope.to!r}")
        else:
            self._carry(session, envelope)
        self.drain()

    def _carry(self, session: Session, envelope: Envelope) -> None:
        if not self.directory.host_of(envelope.sender):
            self.directory.export_sender(envelope.sender)
        self._announce(session)  # before the mail: its receiver answers to a name that is known
        carry = self._carried(envelope)
        if not can_be_told(carry.sender):
            self.refuse(envelope, f"{carry.sender!r} is too long a name to write to another machine under")
        elif self.say(session, carry):
            session.carried += 1
        else:
            self.refuse(envelope, f"the link to {session.host!r} takes no more")

    def _carried(self, envelope: Envelope) -> Carry:
        deadline = envelope.deadline_unix_ms
        sealed = envelope.message
        return Carry(
            kind=int(envelope.kind),
            id=envelope.id,
            to=envelope.to,
            to_incarnation=envelope.to_incarnation,
            sender=self.directory.seen_elsewhere(envelope.sender),
            sender_incarnation=envelope.sender_incarnation,
            left_ms=min(max(1, deadline - self._unix_ms()), MAX_COUNT) if deadline else 0,
            message=sealed.name,
            payload=sealed.payload,
        )

    def _deliver(self, session: Session, carry: Carry) -> None:
        """Mail from another machine: to an actor of this one, or on to a third."""
        if self.directory.host_of(carry.sender) != session.host:
            session.refused += 1
            self.log.warning("mail_refused", host=session.host, sender=carry.sender, reason="not announced")
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
        host = self.directory.host_of(envelope.to)
        further = self.sessions.get(host)
        why = why_not_taken(carry)
        if why:
            session.refused += 1
            self.refuse(envelope, why)
        elif further is not None and further is not session:
            self._carry(further, envelope)
        elif host or not self.directory.is_exported(envelope.to):
            session.refused += 1
            self.refuse(envelope, f"host {self.host!r} offers no {envelope.to!r}")
        else:
            self._hand_over(session, envelope)

    def _hand_over(self, session: Session, envelope: Envelope) -> None:
        """Its receiver may have ended meanwhile, or take no more: no reason for the bridge to end too."""
        try:
            self.forward(envelope)
        except (ActorDied, MailboxFull, MessageTooLarge) as error:
            session.refused += 1
            self.refuse(envelope, f"host {self.host!r}: {error}")

    # ---- sessions ----

    def open(self, session: Session) -> None:
        """The other side is there: tell it our names. Who wants to know hears of it once we know its own."""
        self.sessions[session.host] = session
        self.log.info("link_up", host=session.host, epoch=session.epoch)
        self._announce(session)

    def lose(self, session: Session, reason: str) -> None:
        """The other side is lost. It hears so at once if it can still hear."""
        del self.sessions[session.host]
        self.log.warning("link_down", host=session.host, epoch=session.epoch, reason=reason)
        self.directory.forget(session.host, f"host {session.host!r} is lost: {reason}")
        self.wire.send(session.host, before_session(Gone(session.epoch, reason)))
        self._tell_of(LinkDown(host=session.host, epoch=session.epoch, reason=reason))

    def _tell_of(self, news: LinkUp | LinkDown) -> None:
        for name in self.args.get("tells", ()):
            self.tell(name, news)

    def say(self, session: Session, body: Body) -> bool:
        return self.wire.send(session.host, session.say(body, self.clock.monotonic_s()))

    def tick(self) -> None:
        """What time brings: loss, changed names, beats."""
        self.drain()
        self.directory.settle()
        for session in list(self.sessions.values()):
            if session.is_lost(self.clock.monotonic_s()):
                self.lose(session, f"nothing was heard of it for {session.lease_s:g} s")
                continue
            self._announce(session)
            if session.is_beat_due(self.clock.monotonic_s()):
                self.say(session, Beat())
        self.set_gauges({0: len(self.sessions)})
        self.drain()

    def drain(self) -> None:
        """Take the frames that have come. Sending may swallow the wire's wake-up, so this follows it."""
        if self._is_draining:
            return
        self._is_draining = True
        for _ in range(FRAMES_PER_TURN):
            received = self.wire.receive()
            if received is None:
                break
            self._take_frame(*received)
        else:
            self.after(0.0, self.drain)
        self._is_draining = False

    def _take_frame(self, host: str, data: bytes) -> None:
        try:
            frame = unpack(data)
        except MalformedMessage as error:
            self.malformed += 1
            self.log.warning("frame_refused", host=host, reason=str(error))
            return
        session = self.session_of(host)
        if isinstance(frame.body, Gone):
            self._heard_gone(session, frame.body)
        elif session is None or isinstance(frame.body, Hello | Welcome):
            self.wire.settle(host)
            self.heard_outside(host, frame)
        elif session.hear(frame, self.clock.monotonic_s()):
            self.wire.settle(host)
            self._heard(session, frame.body)
        else:
            self.late += 1

    def _heard(self, session: Session, body: Body) -> None:
        match body:
            case Rows(rows):
                self._learn(session, rows)
            case Carry():
                self._deliver(session, body)

    def _heard_gone(self, session: Session | None, gone: Gone) -> None:
        if session is not None and session.epoch == gone.epoch:
            self.lose(session, gone.reason)

    def session_of(self, host: str) -> Session | None:
        return self.sessions.get(host)

    def _learn(self, session: Session, rows: tuple[Row, ...]) -> None:
        answers = (
            self.directory.learn(session.host, r, speaks_for_others=self.speaks_for_others) for r in rows
        )
        refusals = [why for why in answers if why]
        session.refused += len(refusals)
        if not session.is_introduced:
            session.is_introduced = True
            self._tell_of(LinkUp(host=session.host, epoch=session.epoch, capabilities=session.capabilities))
        if refusals:  # once, whatever there is: another machine must not fill this one's log
            self.log.warning("names_refused", host=session.host, count=len(refusals), first=refusals[0])

    def _announce_to_all(self) -> None:
        for session in self.sessions.values():
            self._announce(session)

    def _announce(self, session: Session) -> None:
        changed = session.changes(self.directory.rows_for(session.host))
        for first in range(0, len(changed), ROWS_PER_FRAME):
            part = changed[first : first + ROWS_PER_FRAME]
            if not self.say(session, Rows(part)):
                return  # the link is full: the next tick tries again
            session.announced |= {row.name: row for row in part}

    def _watch_wire(self) -> None:
        for fd in self.wire.fds:
            self.runtime.watch(fd, self.drain)

    def _unix_ms(self) -> int:
        return int(self.clock.unix_s() * 1000)


class LeaderBridge(Bridge):
    """Listens; gives every follower that connects an epoch of its own."""

    def on_start(self) -> None:
        self._lease_s = float(self.args.get("lease_s", LEASE_S))
        self._epochs: dict[str, int] = {}
        self._first_epoch = self.identity.incarnation * EPOCHS_PER_INCARNATION
        super().on_start()

    def open_wire(self) -> Wire:
        followers: Mapping[str, str] = self.args["followers"]
        for host in followers:
            check_host(host)
        if self.host in followers:
            raise LinkNotAllowed(f"{self.host!r} is the leader's own name; give that follower another")
        return ListeningWire(self.args["listen"], read_keys(Path(self.args["keys"])), followers)

    def heard_outside(self, host: str, frame: Frame) -> None:
        if isinstance(frame.body, Hello) and frame.body.host == host:
            self._welcome(frame.body)
        else:
            self.late += 1
            reason = f"{self.host!r} knows no session {frame.epoch} of {host!r}"
            self.wire.send(host, before_session(Gone(frame.epoch, reason)))

    def _welcome(self, hello: Hello) -> None:
        old = self.sessions.get(hello.host)
        if old is not None:
            self.lose(old, "it connected anew")
        epoch = next_epoch(self._first_epoch, self._epochs.get(hello.host, 0), hello.last_epoch)
        self._epochs[hello.host] = epoch
        session = Session(
            host=hello.host,
            epoch=epoch,
            lease_s=self._lease_s,
            heard_s=self.clock.monotonic_s(),
            capabilities=hello.capabilities,
        )
        self.say(session, Welcome(self.host, self._lease_s))
        self.open(session)


class FollowerBridge(Bridge):
    """Connects to the leader, again and again until it is welcome."""

    speaks_for_others = True

    def on_start(self) -> None:
        self._lease_s = float(self.args.get("lease_s", LEASE_S))
        self._last_epoch = 0
        super().on_start()
        self._say_hello()

    def open_wire(self) -> Wire:
        keys = read_keys(Path(self.args["keys"]))
        give_up_ms = int(self._lease_s * 1000)
        return ConnectingWire(self.args["connect"], keys, self.args["leader_key"], give_up_ms=give_up_ms)

    def session_of(self, host: str) -> Session | None:
        return next(iter(self.sessions.values()), None)

    def heard_outside(self, host: str, frame: Frame) -> None:
        body = frame.body
        if self.sessions or not isinstance(body, Welcome) or frame.epoch <= self._last_epoch:
            self.late += 1
            return
        self._last_epoch, self._lease_s = frame.epoch, body.lease_s
        session = Session(body.host, frame.epoch, body.lease_s, self.clock.monotonic_s())
        session.hear(frame, self.clock.monotonic_s())
        self.open(session)

    def lose(self, session: Session, reason: str) -> None:
        super().lose(session, reason)
        if not self.is_stopping:
            self._hello_s = self.clock.monotonic_s()
            self.after(RECONNECT_S, self._connect_anew)

    def tick(self) -> None:
        super().tick()
        waited_s = self.clock.monotonic_s() - self._hello_s
        if not self.sessions and waited_s > ATTEMPT_LEASES * self._lease_s:
            self._connect_anew()

    def _connect_anew(self) -> None:
        """What still waits in the old connection belongs to a session that is over."""
        if self.sessions:  # it was welcome meanwhile
            return
        for fd in self.wire.fds:
            self.runtime.unwatch(fd)
        refused = self.wire.strangers
        self.wire.close()
        self.wire = self.open_wire()
        self.wire.strangers = refused
        self._watch_wire()
        self._say_hello()

    def _say_hello(self) -> None:
        self._hello_s = self.clock.monotonic_s()
        hello = before_session(Hello(self.host, dict(self.args.get("capabilities", {})), self._last_epoch))
        unpack(hello)  # what the leader would refuse is refused here, by field
        self.wire.send("", hello)
