"""Actors: state nobody else touches, a mailbox, and the promise that every ask ends.

Subclass `Actor`, mark handlers with `@receives(MessageType)`, and let a
supervisor start it:

    @message
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Increment:
        by: int

    class Counter(Actor):
        def on_start(self) -> None:
            self.value = 0

        @receives(Increment)
        def increment(self, message: Increment, sender: Sender) -> Value:
            self.value += message.by
            return Value(value=self.value)

A handler's return value answers an ask. It may be `async def` and await
`self.ask`, `self.sleep`, `self.in_thread`, `self.in_loop`; the actor takes
other mail meanwhile. An exception nobody catches ends the process: its
supervisor decides what happens next. An expected outcome is a value.
"""

import heapq
import itertools
import os
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from inspect import iscoroutine
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import structlog
from msgspec.structs import replace

from actors.background import BackgroundWorker
from actors.board import LAUNCHER, Board, Heartbeat
from actors.clock import Clock
from actors.codec import Envelope, MessageKind, UndecodedMessage, message
from actors.definition import check_message_type, check_names, handlers_in, is_overwritten, taken_names
from actors.errors import (
    ActorDied,
    ActorError,
    AskTimeout,
    MailboxFull,
    MessageTooLarge,
    Refused,
    WorkOverdue,
)
from actors.exit_watch import ExitWatcher
from actors.future import Future, drive
from actors.mail import Address, Mail
from actors.monitors import Down, Exit, Linked, MonitorsAndLinks, Unlinked
from actors.process import EXIT_IGNORED

ASK_DEADLINE_S = 5.0
"""OTP's default for a call. A message whose answer takes longer says so: `answer_within_s`."""

LIVENESS_CHECK_S = 0.05
"""How often a waiting ask looks whether it is too late, and whether the board still shows the asked actor."""

ANSWER_GRACE_S = 0.01
"""An answer sent right before the end of its sender may come this much after the news of that end."""

HELD_MESSAGES = 1000
"""Messages that wait for an `async` on_start; what comes then is refused."""

MAX_OPEN_HANDLERS = 1000
"""Messages an actor may have under way, in handlers that wait; what comes then is refused."""

REASON_CHARACTERS = 1000
"""Of the reason for a refusal: it may quote what came, and must itself fit into mail."""

LONGEST_S = 1e10
"""No deadline and no delay is longer (three hundred years): so every one can be counted in every unit."""

MAIL_PER_TURN = 64
"""Messages taken before timers and finished work get their turn."""

T = TypeVar("T")
Handler = Callable[..., Any]


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """End normally: `on_stop` runs, then the process exits with code 0."""

    finish: bool = False
    """Before that, handle the mail that is there and let handlers that wait come to their answers."""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalReason:
    """Why an ask was not taken."""

    text: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class ChildReady:
    """From a child to its supervisor, once: it takes work from now on."""

    incarnation: int


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class UsedUp:
    """From a child to its supervisor, once: it was used as often as it may be."""

    incarnation: int


_ALWAYS_TAKEN = (ChildReady, Linked, Unlinked)
"""What tells an actor of others is not refused for want of room: nobody would say it again."""


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sent the message being handled."""

    name: str
    incarnation: int


def receives(message_type: type) -> Callable[[Handler], Handler]:
    """Mark a method as the handler of one message type. Raises TypeError for what is no message."""
    check_message_type(message_type)

    def mark(handler: Handler) -> Handler:
        handler.__dict__.setdefault("receives", []).append(message_type)
        return handler

    return mark


class Runtime(Protocol):
    """What an actor needs from the process it lives in. Thespian is behind it; tests put their own."""

    def watch(self, fd: int, ready: Callable[[], None]) -> None:
        """Call `ready` on the actor's thread whenever `fd` is readable."""

    def unwatch(self, fd: int) -> None: ...

    def wake_at(self, monotonic_s: float) -> None:
        """Call the actor's `turn` no later than this."""

    def spawn(self, boot: Mapping[str, Any]) -> Any:
        """Start a child actor process; supervisors only."""

    def pidfd(self, pid: int) -> int:
        """A descriptor that is readable once the process ended. Raises ProcessLookupError when it has."""

    def exit(self, code: int) -> None:
        """End this process now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who this actor is and where its run lives."""

    name: str
    parent: str
    slot: int
    incarnation: int
    run_dir: Path
    mail_dir: Path
    beat_s: float = 0.25
    """How often it proves on the board that it runs."""
    probe_every_s: float = 0.0
    """How often it is asked whether it can take work; 0 for never."""
    max_uses: int = 0
    """After so many uses it tells its supervisor, which may replace it; 0 for never."""
    prints_reports: bool = False
    """Whether a supervisor also prints why a child ended."""


def identity_of(boot: Mapping[str, Any]) -> Identity:
    """The identity a supervisor gave in its boot map; what it left out has its default."""
    optional = {key: float(boot[key]) for key in ("beat_s", "probe_every_s") if key in boot}
    return Identity(
        name=boot["name"],
        parent=boot["parent"],
        slot=boot["slot"],
        incarnation=boot["incarnation"],
        run_dir=Path(boot["run_dir"]),
        mail_dir=Path(boot["mail_dir"]),
        max_uses=boot.get("max_uses", 0),
        prints_reports=bool(boot.get("prints_reports", False)),
        **optional,
    )


@dataclass(slots=True)
class _PendingAsk:
    completion: Future[Any]
    to: str
    address: Address
    """Where the asked incarnation lives, whatever it is called by the time it answers."""
    deadline_s: float
    waited_s: float


class Actor:
    """Base of every actor. Not thread-safe: everything runs on the actor's own thread.

    What is private here has two underscores: a subclass may call its own attributes what it likes.
    """

    forks: ClassVar[bool] = False
    """Supervisors fork their children and therefore own no thread: they beat from their loop."""

    traps_exits: ClassVar[bool] = False
    """True: the end of a linked actor, normal or not, is a message (`Exit`) and no crash."""

    _handlers: ClassVar[dict[type, str]] = {
        Linked: "_Actor__linked_by",
        Unlinked: "_Actor__unlinked_by",
    }

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        check_names(cls, Actor, _TAKEN_NAMES)
        table = cls._handlers = cls._handlers | handlers_in(cls)
        if cls.traps_exits and Exit not in table:
            raise TypeError(f"{cls.__name__} traps exits and has no handler marked @receives(Exit)")

    def __init__(
        self,
        identity: Identity,
        args: Mapping[str, Any],
        *,
        board: Board,
        mail: Mail,
        clock: Clock,
        runtime: Runtime,
    ) -> None:
        self.identity = identity
        self.args = args
        self.clock = clock
        self.log = structlog.get_logger(actor=identity.name, incarnation=identity.incarnation)
        self.board = board
        self.runtime = runtime
        self.__mail = mail
        self.__ids = itertools.count(1)
        self.__asks: dict[int, _PendingAsk] = {}
        self.__is_checking_asks = False
        self.__watcher = ExitWatcher(board, runtime, self.after)
        self.__bonds = MonitorsAndLinks(self, self.__watcher)
        self.__asked: set[Address] = set()
        """Slot and incarnation of whom it ever asked and has an eye on."""
        self.__timers: list[tuple[float, int, Callable[[], None]]] = []
        self.__worker: BackgroundWorker | None = None
        self.__resources = ExitStack()
        self.__works: dict[int, tuple[str, int]] = {}
        self.__messages = 0
        self.__unsent = 0
        self.__uses = 0
        self.__progress_ns = 0
        self.__pulse = Heartbeat(board, identity.slot)
        self.__held: deque[Envelope] = deque()
        self.__held_news: list[tuple[Any, str, int]] = []
        self.__name = identity.name
        self.__names = {identity.name}
        mail.is_mine = self.__is_mine
        self.__is_started = False
        self.__is_ignored = False
        self.__was_ready = False
        self.__is_probing = False
        self.__is_stopping = False
        self.__is_finishing = False
        self.__is_to_stop = False
        self.__is_drained = True
        self.__open_handlers = 0
        self.__has_logged_full = False

    def __setattr__(self, name: str, value: Any) -> None:
        """Raises ActorError where a subclass would hide a method or a part of its base with its own state."""
        if name in _TAKEN_NAMES and is_overwritten(vars(self), name, value):
            raise ActorError(
                f"{type(self).__name__} sets self.{name}, which Actor uses under that name; "
                f"call it something else (self._{name})"
            )
        object.__setattr__(self, name, value)  # by name: cheaper than super(), and each message sets several

    # ---- for subclasses to override ----

    def on_start(self) -> Any:
        """Get ready. The actor serves nothing before this returned. May be `async def`."""

    def on_probe(self) -> Any:
        """Whether this actor can take work now: a bool, or a coroutine of one that does a little real work.

        Asked every `Identity.probe_every_s`; the first yes makes it ready. No takes it out of rotation
        (`ready` on the board) without a restart, and so does a probe that lasts until the next is due.
        """
        return True

    def on_stop(self) -> Any:
        """Let go of what outlives the process. May be `async def`; bounded by the child spec's shutdown."""

    # ---- for subclasses to call ----

    def enter_context(self, resource: AbstractContextManager[T]) -> T:
        """Enter a context that is left when the actor lets go; the end of its process closes the rest."""
        return self.__resources.enter_context(resource)

    def tell(self, to: str, content: Any, *, incarnation: int = 0) -> bool:
        """Send without waiting. False when nobody bears the name or its mailbox is full (it is logged).

        incarnation   whom it is for and nobody else; 0 for whoever bears the name
        """
        try:
            self.__mail.send(
                replace(self.__envelope(MessageKind.TELL, to, content), to_incarnation=incarnation)
            )
        except (ActorDied, MailboxFull) as error:
            self.__count_unsent()
            self.log.warning("tell_not_sent", to=to, message=type(content).__name__, reason=str(error))
            return False
        return True

    def ask(self, to: str, content: Any, *, deadline_s: float | None = None) -> Future[Any]:
        """Send and await the answer.

        deadline_s   left out: the message's own `answer_within_s`, or ASK_DEADLINE_S when it has none
        Ends always: with the answer, ActorDied, AskTimeout, Refused or MailboxFull. An error nobody looks at
        is dropped: who does not want the answer has nothing to lose by it.
        Raises, here and at once, ActorError for a deadline that is none, MessageTooLarge and TypeError for
        what cannot be sent: these are mistakes of the one who asks.
        """
        if deadline_s is None:
            deadline_s = getattr(content, "answer_within_s", ASK_DEADLINE_S)
        self.__check_seconds("ask(deadline_s)", deadline_s)
        completion: Future[Any] = Future()
        envelope = self.__envelope(MessageKind.ASK, to, content, deadline_s=deadline_s)
        try:
            address = self.__mail.send(envelope)
        except (ActorDied, MailboxFull) as error:
            self.__count_unsent()
            completion.fail(error)
            return completion
        if address not in self.__asked:
            self.__watch_asked(address)
        if not self.__is_checking_asks:
            self.__is_checking_asks = True
            self.after(LIVENESS_CHECK_S, self.__check_asks)
        now_s = self.clock.monotonic_s()
        self.__asks[envelope.id] = _PendingAsk(completion, to, address, now_s + deadline_s, deadline_s)
        return completion

    def sleep(self, seconds: float) -> Future[None]:
        """Await the passing of time; other mail is taken meanwhile. Raises ActorError as `after` does."""
        self.__check_seconds("sleep(seconds)", seconds)
        completion: Future[None] = Future()
        self.after(seconds, lambda: completion.succeed(None))
        return completion

    def after(self, seconds: float, callback: Callable[[], Any]) -> None:
        """Call back once; a coroutine it returns is run.

        Raises ActorError when `seconds` is negative, not a number or over LONGEST_S.
        """
        self.__check_seconds("after(seconds)", seconds)
        when_s = self.clock.monotonic_s() + seconds
        heapq.heappush(self.__timers, (when_s, next(self.__ids), lambda: self.__settle(callback())))
        self.runtime.wake_at(when_s)

    def every(self, seconds: float, callback: Callable[[], Any]) -> None:
        """Call back for ever; the next call is timed from the end of the last, coroutine or not."""

        def again() -> None:
            self.__settle(callback(), lambda _: self.after(seconds, again))

        self.after(seconds, again)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Let a coroutine run beside the mailbox."""
        self.__settle(coroutine)

    def in_thread(self, work: Callable[[], T], *, name: str, deadline_s: float) -> Future[T]:
        """Await blocking work. If it is not done by its deadline the actor crashes, naming the work.

        An error is raised where the work is awaited; awaited by nobody, it crashes the actor.
        Raises ActorError when the deadline is negative, not a number or over LONGEST_S.
        """
        self.__check_seconds(f"in_thread(deadline_s) of {name!r}", deadline_s)
        completion = self.__own_worker().in_thread(work)
        id_ = next(self.__ids)
        self.__works[id_] = (name, self.board.now_ns())
        self.__show_oldest_work()
        completion.then(lambda: self.__work_ended(id_))
        self.after(deadline_s, lambda: self.__crash_if_overdue(id_, deadline_s))
        return completion

    def in_loop(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Await a coroutine on this actor's asyncio loop. The coroutine keeps its own deadlines.

        An error is raised where it is awaited; awaited by nobody, it crashes the actor.
        """
        return self.__own_worker().in_loop(coroutine)

    def monitor(self, name: str) -> int:
        """Be told once, by a `Down` message, when the actor that bears the name now ends, and why.

        Returns a reference for `demonitor` and to know the message by. Nobody bears the name: `Down` comes at
        once, with reason `noproc`. A restarted actor is another incarnation; monitor it anew.
        Raises ActorError when this class has no handler for Down.
        """
        if Down not in self._handlers:
            raise ActorError(
                f"{type(self).__name__} monitors {name!r} and has no handler marked @receives(Down)"
            )
        return self.__bonds.monitor(name)

    def demonitor(self, ref: int) -> None:
        """No `Down` comes for this reference any more."""
        self.__bonds.demonitor(ref)

    def link(self, name: str) -> None:
        """Share the fate of the actor that bears the name now, and let it share this one's.

        When one of the two ends abnormally (neither `normal` nor `shutdown`), the other crashes with
        LinkedActorEnded, or gets an `Exit` message if it `traps_exits`. Nobody bears the name: as if it had
        ended with reason `noproc`.
        """
        self.__bonds.link(name)

    def unlink(self, name: str) -> None:
        """End the link, on both sides."""
        self.__bonds.unlink(name)

    def stop(self, *, finish: bool = False) -> None:
        """End normally, as if told to, once the handler that calls this has returned.

        Its answer is sent first. A handler that awaits something after this call is not waited for, unless
        `finish`: then mail that is there is handled and all handlers come to their answers before (see Stop).
        """
        if self.__is_started:
            self.__is_finishing, self.__is_to_stop = finish, not finish
            self.runtime.wake_at(self.clock.monotonic_s())
        else:
            self.__begin_stop()

    def ignore(self) -> None:
        """Say in `on_start` that there is nothing for this actor to do (OTP's `ignore`).

        Once `on_start` is through the process ends, with neither `on_stop` nor a restart; its supervisor
        keeps the child as stopped. Raises ActorError after the start.
        """
        if self.__is_started:
            raise ActorError(f"{self.identity.name!r} is started and cannot be ignored; call stop() instead")
        self.__is_ignored = True

    def on_foreign(self, envelope: Envelope) -> None:
        """Mail for another name came here, its message still sealed; bridges between hosts override it.

        Otherwise it is refused.
        """
        self.__mail.refused += 1
        self.__refuse(envelope, f"{self.__name!r} is not {envelope.to!r}")

    def refuse(self, envelope: Envelope, reason: str) -> None:
        """Let whoever sent it know, if it asked, that it is not taken and why; for bridges between hosts."""
        self.__refuse(envelope, reason)

    def forward(self, envelope: Envelope) -> int:
        """Send an envelope as it is, its sender kept; for bridges between hosts.

        Returns the incarnation it went to. Raises ActorDied or MailboxFull; then nothing was sent.
        """
        return self.__mail.send(envelope).incarnation

    def used(self, n: int = 1) -> None:
        """Count `n` uses on the board; a supervisor may replace an actor of so many."""
        before, self.__uses = self.__uses, self.__uses + n
        self.board.set(self.identity.slot, uses=self.__uses)
        if before < self.identity.max_uses <= self.__uses:
            self.tell(self.identity.parent, UsedUp(incarnation=self.identity.incarnation))

    def still_working(self) -> None:
        """A long handler that gets on: restarts the clock its supervisor holds against it."""
        now_ns = self.board.now_ns()
        self.board.set(self.identity.slot, beat_ns=now_ns, busy_since_ns=now_ns)

    @property
    def is_stopping(self) -> bool:
        """It was told to stop, or stops by itself; on_stop has begun."""
        return self.__is_stopping

    def set_gauges(self, **gauges: int) -> None:
        """Publish numbers on the board: `version`, `in_flight`."""
        self.board.set(self.identity.slot, **{f"gauge_{name}": value for name, value in gauges.items()})

    def set_ready(self, ready: bool) -> None:
        """Say on the board whether this actor takes work (readiness is not liveness)."""
        self.board.set(self.identity.slot, ready=int(ready))

    # ---- the loop: called by the runtime ----

    def boot(self, inbox_fd: int) -> None:
        """Open for business: run on_start, then announce readiness."""
        self.runtime.watch(inbox_fd, lambda: None)  # every turn drains the inbox
        self.board.set(self.identity.slot, messages=0, refused=0, unsent=0, uses=0, progress_ns=0)
        self.__pulse.busy("on_start")
        self.__settle(self.on_start(), self.__started)
        self.__pulse.idle()

    def turn(self) -> None:
        """Take what has come: mail, finished work, due timers; then say when to be woken."""
        self.beat()
        self.__has_logged_full = False
        self.__learn_name()
        self.__drain_mail()
        self.__pulse.busy("finished work and timers")
        if self.__worker is not None:
            self.__worker.deliver()
        self.__run_due_timers()
        self.__pulse.idle()
        is_finished = self.__is_finishing and self.__is_drained and not self.__open_handlers
        if self.__is_to_stop or is_finished:
            self.__begin_stop()
        if self.__timers:
            self.runtime.wake_at(self.__timers[0][0])

    def beat(self) -> None:
        self.__pulse.beat()

    def take_news(self, news: Any, name: str, incarnation: int) -> None:
        """Handle what the runtime, not mail, tells of another actor; once this one is started."""
        if not self.__is_started:
            self.__held_news.append((news, name, incarnation))
            return
        self.__pulse.busy(type(news).__name__)
        self.__settle(getattr(self, self._handlers[type(news)])(news, Sender(name, incarnation)))

    def let_go(self) -> None:
        """Close worker threads and descriptors without ending the process; for tests."""
        self.__watcher.close()
        if self.__worker is not None:
            self.__worker.close()
        self.__resources.close()

    # ---- inside ----

    def __started(self, _: Any) -> None:
        if self.__is_ignored:
            self.log.info("actor_ignored")
            self.__end(EXIT_IGNORED)
            return
        self.__is_started = True
        self.runtime.wake_at(self.clock.monotonic_s())  # for the mail that was held
        for held in self.__held_news:
            self.after(0.0, lambda held=held: self.take_news(*held))  # type: ignore[misc]
        if self.identity.probe_every_s > 0:
            self.__next_probe()
        else:
            self.__is_fit(True)

    def __next_probe(self) -> None:
        if self.__is_stopping:
            return
        if self.__is_probing:
            self.set_ready(False)  # whoever needs longer than the time between two probes is not fit
        else:
            self.__is_probing = True
            self.__settle(self.on_probe(), self.__probed)
        self.after(self.identity.probe_every_s, self.__next_probe)

    def __probed(self, answer: Any) -> None:
        self.__is_probing = False
        self.__is_fit(bool(answer))

    def __is_fit(self, fit: bool) -> None:
        if self.__is_stopping:
            return
        self.__pulse.busy("getting ready")  # however long on_start took: from now on it is watched
        self.set_ready(fit)
        if fit and not self.__was_ready:
            self.__was_ready = True
            self.log.info("actor_ready", pid=os.getpid())
            if self.identity.parent != LAUNCHER:
                self.tell(self.identity.parent, ChildReady(incarnation=self.identity.incarnation))

    def __drain_mail(self) -> None:
        self.__is_drained = False
        for _ in range(MAIL_PER_TURN):
            if self.__is_to_stop and not self.__is_stopping:
                break
            envelope = self.__next_envelope()
            if envelope is None:
                self.__is_drained = True
                break
            if self.__waits_for_start(envelope):
                self.__hold(envelope)
                continue
            self.__messages += 1
            self.__pulse.busy(type(envelope.message).__name__)
            self.__take(envelope)
            self.__pulse.idle()
        else:
            self.runtime.wake_at(self.clock.monotonic_s())
        self.board.set(
            self.identity.slot,
            messages=self.__messages,
            refused=self.__mail.refused,
            unsent=self.__unsent + self.__mail.lost,
            progress_ns=self.__progress_ns,
        )

    def __next_envelope(self) -> Envelope | None:
        if self.__is_started and self.__held:
            return self.__held.popleft()
        return self.__mail.receive()

    def __hold(self, envelope: Envelope) -> None:
        if len(self.__held) < HELD_MESSAGES or isinstance(envelope.message, _ALWAYS_TAKEN):
            self.__held.append(envelope)
        else:
            self.__turn_away(
                envelope, f"{self.__name!r} is still starting and holds {HELD_MESSAGES} messages"
            )

    def __waits_for_start(self, envelope: Envelope) -> bool:
        """An `async` on_start gets answers and word of children and can be stopped; nothing else is taken."""
        return (
            not self.__is_started
            and envelope.kind in (MessageKind.TELL, MessageKind.ASK)
            and not isinstance(envelope.message, Stop | ChildReady)
        )

    def __learn_name(self) -> None:
        """A supervisor may rename a running actor: a spare takes over, an old one is retired."""
        self.__name = self.board.get(self.identity.slot, "name")
        self.__names.add(self.__name)

    def __is_mine(self, name: str) -> bool:
        if name not in self.__names:
            self.__learn_name()
        return name in self.__names

    def __take(self, envelope: Envelope) -> None:
        if envelope.to not in self.__names:
            self.on_foreign(envelope)
        elif not self.__is_for_me(envelope):
            return
        elif envelope.kind in (MessageKind.REPLY, MessageKind.REFUSAL):
            self.__take_answer(envelope)
        elif isinstance(envelope.message, Stop):
            self.__told_to_stop(envelope.message)
        elif self.__is_expired(envelope):
            self.__turn_away(envelope, f"{self.__name!r} came to it after its deadline and did not begin")
        elif self.__open_handlers >= MAX_OPEN_HANDLERS and not isinstance(envelope.message, _ALWAYS_TAKEN):
            self.__turn_away(
                envelope, f"{self.__name!r} has {MAX_OPEN_HANDLERS} messages under way and takes no more now"
            )
        else:
            self.__handle(envelope)

    def __handle(self, envelope: Envelope) -> None:
        handler_name = self._handlers.get(type(envelope.message))
        if handler_name is None:
            self.__mail.refused += 1
            self.__refuse(envelope, self.__why_not(envelope.message))
            return
        sender = Sender(envelope.sender, envelope.sender_incarnation)
        self.__open_handlers += 1
        outcome = getattr(self, handler_name)(envelope.message, sender)
        self.__settle(outcome, lambda answer: self.__handled(envelope, answer))

    def __why_not(self, content: Any) -> str:
        if isinstance(content, UndecodedMessage):
            return f"{self.identity.name!r} does not understand it: {content.why}"
        return f"{self.identity.name!r} takes no {type(content).__name__}"

    def __handled(self, envelope: Envelope, answer: Any) -> None:
        self.__open_handlers -= 1
        self.__progress_ns = self.board.now_ns()
        if envelope.kind is MessageKind.ASK:
            self.__answer(envelope, MessageKind.REPLY, answer)

    def __is_for_me(self, envelope: Envelope) -> bool:
        if envelope.to_incarnation == self.identity.incarnation:
            return True
        self.__mail.refused += 1
        self.__refuse(envelope, f"incarnation {envelope.to_incarnation} is gone")
        return False

    def __is_expired(self, envelope: Envelope) -> bool:
        """Nobody waits for the answer any more: the work is not begun."""
        return 0 < envelope.deadline_unix_ms < self.clock.unix_s() * 1000

    def __take_answer(self, envelope: Envelope) -> None:
        pending = self.__asks.pop(envelope.id, None)
        if pending is None:
            return  # the ask timed out before; its answer has nobody to go to
        if isinstance(envelope.message, UndecodedMessage):
            self.__mail.refused += 1
            pending.completion.fail(Refused(f"the answer of {pending.to!r}: {envelope.message.why}"))
        elif envelope.kind is MessageKind.REFUSAL:
            pending.completion.fail(Refused(self.__reason_in(envelope, pending.to)))
        else:
            pending.completion.succeed(envelope.message)

    def __reason_in(self, refusal: Envelope, asked: str) -> str:
        if isinstance(refusal.message, RefusalReason):
            return refusal.message.text
        return f"{asked!r} refused it without a readable reason"

    def __answer(self, asked: Envelope, kind: MessageKind, content: Any) -> None:
        """Send it to who asked; an answer that mail does not carry is a refusal that says so."""
        envelope = Envelope(
            kind=kind,
            id=asked.id,
            to=asked.sender,
            to_incarnation=asked.sender_incarnation,
            sender=self.__name,
            sender_incarnation=self.identity.incarnation,
            deadline_unix_ms=0,
            message=content,
        )
        try:
            self.__mail.send(envelope)
        except (ActorDied, MailboxFull) as error:
            self.__count_unsent()
            self.log.info("answer_not_sent", to=asked.sender, reason=str(error))
        except (MessageTooLarge, TypeError) as error:
            self.__count_unsent()
            self.__refuse(asked, f"{self.__name!r} cannot send its answer: {error}")

    def __refuse(self, envelope: Envelope, reason: str) -> None:
        self.log.warning("message_refused", sender=envelope.sender, reason=reason)
        self.__tell_refused(envelope, reason)

    def __turn_away(self, envelope: Envelope, reason: str) -> None:
        """Refuse what may come in floods: each is counted and told, the log has one line of each turn."""
        self.__mail.refused += 1
        if not self.__has_logged_full:
            self.__has_logged_full = True
            self.log.warning("message_turned_away", sender=envelope.sender, reason=reason)
        self.__tell_refused(envelope, reason)

    def __tell_refused(self, envelope: Envelope, reason: str) -> None:
        if envelope.kind is MessageKind.ASK:
            self.__answer(envelope, MessageKind.REFUSAL, RefusalReason(text=reason[:REASON_CHARACTERS]))

    def __check_seconds(self, what: str, seconds: float) -> None:
        if not 0 <= seconds <= LONGEST_S:
            raise ActorError(
                f"{self.__name!r} called {what} with {seconds!r}; it takes 0 to {LONGEST_S:g} seconds"
            )

    def __envelope(self, kind: MessageKind, to: str, content: Any, deadline_s: float = 0.0) -> Envelope:
        return Envelope(
            kind=kind,
            id=next(self.__ids),
            to=to,
            to_incarnation=0,
            sender=self.__name,
            sender_incarnation=self.identity.incarnation,
            deadline_unix_ms=int((self.clock.unix_s() + deadline_s) * 1000) if deadline_s else 0,
            message=content,
        )

    def __check_asks(self) -> None:
        """Fail asks whose actor is gone or whose deadline passed (invariant ask-ends)."""
        now_s = self.clock.monotonic_s()
        for id_, pending in list(self.__asks.items()):
            error = self.__ended(pending, now_s)
            if error is not None:
                del self.__asks[id_]
                pending.completion.fail(error)
        self.__is_checking_asks = bool(self.__asks)
        if self.__asks:
            self.after(LIVENESS_CHECK_S, self.__check_asks)

    def __ended(self, pending: _PendingAsk, now_s: float) -> Exception | None:
        if not self.__mail.is_living(pending.address):
            return ActorDied(self.__describe_death(pending))
        if now_s >= pending.deadline_s:
            return AskTimeout(self.__describe_timeout(pending))
        return None

    def __watch_asked(self, address: Address) -> None:
        """An ask of an actor whose process ends is over then, and not only at the next look at the board."""
        if self.board.get(address.slot, "pid") and not self.board.get(address.slot, "route"):
            self.__asked.add(address)
            self.__watcher.watch(
                *address, lambda reason: self.__asked_ended(address, reason), grace_s=ANSWER_GRACE_S
            )

    def __asked_ended(self, address: Address, reason: str) -> None:
        self.__asked.discard(address)
        for id_, pending in list(self.__asks.items()):
            if pending.address == address:
                del self.__asks[id_]
                pending.completion.fail(ActorDied(f"{pending.to!r} ended before it answered: {reason}"))

    def __linked_by(self, _: Linked, sender: Sender) -> None:
        self.__bonds.linked_by(sender.name, sender.incarnation)

    def __unlinked_by(self, _: Unlinked, sender: Sender) -> None:
        self.__bonds.unlinked_by(sender.name, sender.incarnation)

    def __describe_death(self, pending: _PendingAsk) -> str:
        slot, incarnation = pending.address
        if self.board.get(slot, "ended_incarnation") == incarnation:
            return f"{pending.to!r} ended before it answered: {self.board.get(slot, 'ended_reason')}"
        if self.board.get(slot, "incarnation") != incarnation:
            return f"{pending.to!r} was restarted before it answered"
        state, why = self.board.state(slot), self.board.get(slot, "last_reason")
        return f"{pending.to!r} ended before it answered (state {state}{f': {why}' if why else ''})"

    def __describe_timeout(self, pending: _PendingAsk) -> str:
        vitals = self.board.vitals(pending.address.slot)
        doing = f"in {vitals.handler} for {vitals.busy_s:.1f} s" if vitals.busy_s else "idle"
        return (
            f"{pending.to!r} did not answer within {pending.waited_s} s; it is {vitals.state}, {doing}, "
            f"last beat {vitals.beat_age_s or 0:.1f} s ago"
        )

    def __run_due_timers(self) -> None:
        now_s = self.clock.monotonic_s()
        while self.__timers and self.__timers[0][0] <= now_s:
            _, _, callback = heapq.heappop(self.__timers)
            callback()

    def __settle(self, outcome: Any, done: Callable[[Any], None] = lambda _: None) -> None:
        """Wait for a coroutine or a completion, or take a plain value; then `done` with the result."""
        if iscoroutine(outcome):
            drive(outcome, done)
        elif isinstance(outcome, Future):
            outcome.then(lambda: done(outcome.result()))
        else:
            done(outcome)

    def __own_worker(self) -> BackgroundWorker:
        if self.__worker is None:
            self.__worker = BackgroundWorker()
            self.runtime.watch(self.__worker.fd, lambda: None)  # every turn delivers
        return self.__worker

    def __work_ended(self, id_: int) -> None:
        del self.__works[id_]
        self.__progress_ns = self.board.now_ns()
        self.__show_oldest_work()

    def __crash_if_overdue(self, id_: int, deadline_s: float) -> None:
        if id_ in self.__works:
            raise WorkOverdue(f"{self.__works[id_][0]!r} is not done after {deadline_s} s")

    def __show_oldest_work(self) -> None:
        name, since_ns = next(iter(self.__works.values()), ("", 0))
        self.board.set(self.identity.slot, work=name, work_since_ns=since_ns)

    def __told_to_stop(self, stop: Stop) -> None:
        if stop.finish and self.__is_started:
            self.__is_finishing = True  # this turn or a later one sees that all is answered
        else:
            self.__begin_stop()

    def __begin_stop(self) -> None:
        if not self.__is_stopping:
            self.__is_stopping = True
            self.set_ready(False)
            self.__settle(self.on_stop(), self.__stopped)

    def __stopped(self, _: Any) -> None:
        self.log.info("actor_stopped")
        self.__end(0)

    def __end(self, code: int) -> None:
        self.__mail.close()
        self.runtime.exit(code)

    def __count_unsent(self) -> None:
        self.__unsent += 1
        self.board.set(self.identity.slot, unsent=self.__unsent + self.__mail.lost)


_TAKEN_NAMES = taken_names(Actor)
