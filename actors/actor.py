"""Actors: private state, a mailbox, and asks that always end.

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

A handler's return value answers an ask. A handler may be `async def` and await
`self.ask`, `self.sleep`, `self.in_thread`, `self.in_loop`; the actor takes
other mail meanwhile. An uncaught exception ends the process: its supervisor
decides what happens next. An expected outcome is a value.
"""

from asyncio import iscoroutine
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any, ClassVar, TypeVar

import structlog

from actors.asks import PendingAsks
from actors.background import BackgroundWork
from actors.board import Board, Heartbeat
from actors.clock import Clock
from actors.codec import Envelope, MessageKind
from actors.definition import check_names, handlers_in, is_overwritten, receives, taken_names
from actors.envelope_writer import EnvelopeWriter
from actors.errors import ActorDied, ActorError, MailboxFull
from actors.exit_watch import ExitWatcher
from actors.future import Future, settle
from actors.lifecycle import Lifecycle
from actors.mail import Mail
from actors.mailbox import Mailbox, Sender
from actors.monitors import Down, Exit, Linked, MonitorsAndLinks, Unlinked
from actors.runtime import Identity, Runtime
from actors.system_messages import Preempted, Stop
from actors.timers import Timers, check_seconds

__all__ = ["Actor", "Sender", "Stop", "receives"]

ASK_DEADLINE_S = 5.0
"""The default deadline of an ask in seconds, as in OTP. A message may set its own as `answer_within_s`."""

T = TypeVar("T")


class Actor:
    """Base of every actor. Not thread-safe: everything runs on the actor's own thread.

    The private attributes of this class begin with two underscores. So a subclass may use any name with one.
    """

    forks: ClassVar[bool] = False
    """True for supervisors: they fork their children, so they run no other thread, and their loop beats."""

    traps_exits: ClassVar[bool] = False
    """If true, the end of a linked actor, normal or not, is reported by an `Exit` message and is no crash."""

    prints_to_stderr: ClassVar[bool] = False
    """If true, the standard output of the process is its standard error, also for the processes that it
    starts. For actors that run code of others, whose prints would mix with the output of the command."""

    _handlers: ClassVar[dict[type, str]] = {
        Linked: "_Actor__linked_by",
        Unlinked: "_Actor__unlinked_by",
    }

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        check_names(cls, Actor, _TAKEN_NAMES)
        table = cls._handlers = cls._handlers | handlers_in(cls)
        if cls.traps_exits and Exit not in table:
            raise TypeError(
                f"{cls.__name__} traps exits but has no handler of Exit; mark a method with @receives(Exit)"
            )

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
        self.__resources = ExitStack()
        self.__heartbeat = Heartbeat(board, identity.slot)
        self.__timers = Timers(clock, runtime)
        self.__writer = EnvelopeWriter(identity, board, mail, clock)
        mail.is_mine = self.__writer.is_own_name
        self.__watcher = ExitWatcher(board, runtime, self.after)
        self.__monitors = MonitorsAndLinks(self, self.__watcher)
        self.__asks = PendingAsks(board, mail, clock, self.__writer, self.__watcher, self.__timers)
        self.__lifecycle = Lifecycle(self, mail, self.__heartbeat)
        self.__mailbox = Mailbox(self, mail, self.__writer, self.__asks, self.__lifecycle, self.__heartbeat)
        self.__work = BackgroundWork(
            board, identity.slot, runtime, self.__timers, clock, self.__mailbox.note_progress
        )

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute. Raises ActorError if `Actor` itself uses an attribute of that name."""
        if name in _TAKEN_NAMES and is_overwritten(vars(self), name, value):
            raise ActorError(
                f"{type(self).__name__} sets self.{name}, which Actor uses under that name; "
                f"call it something else (self._{name})"
            )
        object.__setattr__(self, name, value)

    # ---- for subclasses to override ----

    def on_start(self) -> Any:
        """Get ready. The actor takes no mail before this has returned. May be `async def`."""

    def on_probe(self) -> Any:
        """Do a little real work; return whether this actor can take work now. May be `async def`.

        Called every `Identity.probe_every_s` seconds. The first True makes the actor ready. False makes it
        unready (`ready` on the board) without a restart. A probe that lasts until the next one is due counts
        as False.
        """
        return True

    def on_stop(self) -> Any:
        """Release what would outlive the process, within `shutdown_s` of the child spec.

        May be `async def`.
        """

    def on_foreign(self, envelope: Envelope) -> None:
        """Refuse mail for another name; its message is not decoded. Bridges between hosts override this."""
        self.__mail.refused += 1
        self.refuse(envelope, f"the message is for {envelope.to!r}, but reached {self.__writer.name!r}")

    # ---- messages ----

    def tell(self, to: str, content: Any, *, incarnation: int = 0) -> bool:
        """Send a message without waiting. Return False, and log why, if no actor has the name or its mailbox
        is full.

        incarnation   the only incarnation that may take the message; 0: the one that has the name now

        Raises MessageTooLarge, and TypeError for a message that cannot be packed.
        """
        envelope = self.__writer.write(MessageKind.TELL, to, content, to_incarnation=incarnation)
        try:
            self.__mail.send(envelope)
        except (ActorDied, MailboxFull) as error:
            self.__writer.count_unsent()
            self.log.warning("tell_not_sent", to=to, message=type(content).__name__, reason=str(error))
            return False
        return True

    def ask(self, to: str, content: Any, *, deadline_s: float | None = None) -> Future[Any]:
        """Send a message; await the future for its answer.

        deadline_s   seconds to wait; None: `answer_within_s` of the message, or else ASK_DEADLINE_S

        Every ask ends: with the answer, ActorDied, AskTimeout, Refused or MailboxFull. If the future is not
        awaited, the error is dropped.
        Mistakes of the caller are raised at once: ActorError for a deadline that is negative, not a number or
        over `actors.timers.LONGEST_S`, MessageTooLarge, and TypeError for a message that cannot be packed.
        """
        if deadline_s is None:
            deadline_s = getattr(content, "answer_within_s", ASK_DEADLINE_S)
        self.__check_seconds("ask(deadline_s)", deadline_s)
        envelope = self.__writer.write(MessageKind.ASK, to, content, deadline_s=deadline_s)
        return self.__asks.send(envelope, deadline_s)

    def refuse(self, envelope: Envelope, reason: str) -> None:
        """Refuse an envelope and, if its sender asked, answer with the reason; for bridges between hosts."""
        self.__mailbox.refuse(envelope, reason)

    def forward(self, envelope: Envelope) -> int:
        """Send an envelope as it is, under its own sender's name; for bridges between hosts.

        Returns the incarnation that it was sent to. Raises ActorDied, MailboxFull or MessageTooLarge; then
        nothing was sent.
        """
        return self.__mail.send(envelope).incarnation

    # ---- time and work ----

    def sleep(self, seconds: float) -> Future[None]:
        """Return a future that is done after `seconds`; the actor takes other mail meanwhile.

        Raises ActorError as `after` does.
        """
        self.__check_seconds("sleep(seconds)", seconds)
        over: Future[None] = Future()
        self.__timers.after(seconds, lambda: over.succeed(None))
        return over

    def after(self, seconds: float, callback: Callable[[], Any]) -> None:
        """Call `callback` once, after `seconds`. If it returns a coroutine, that coroutine is run.

        Raises ActorError when `seconds` is negative, not a number or over `actors.timers.LONGEST_S`.
        """
        self.__check_seconds("after(seconds)", seconds)
        self.__timers.after(seconds, callback)

    def every(self, seconds: float, callback: Callable[[], Any]) -> None:
        """Call `callback` again and again, each time `seconds` after the last call or its coroutine ended.

        Raises ActorError as `after` does.
        """

        def again() -> None:
            settle(callback(), lambda _: self.after(seconds, again))

        self.after(seconds, again)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine while the actor takes mail. An error that it does not catch crashes the actor."""
        settle(coroutine)

    def in_thread(
        self, work: Callable[[], T], *, name: str, deadline_s: float, setting: str = ""
    ) -> Future[T]:
        """Run blocking work in a thread; await the future for its result.

        name         names the work on the board and in errors
        deadline_s   seconds after which unfinished work crashes the actor with WorkOverdue
        setting      the setting that holds the deadline, which the error then names; empty: none

        An error of the work is raised where the future is awaited; if it is not awaited, the actor crashes.
        Raises ActorError when the deadline is negative, not a number or over `actors.timers.LONGEST_S`.
        """
        self.__check_seconds(f"in_thread(deadline_s) of {name!r}", deadline_s)
        return self.__work.in_thread(work, name, deadline_s, setting)

    def in_loop(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on this actor's asyncio loop, without a deadline; await the future for its result.

        An error of the coroutine is raised where the future is awaited; without an await the actor crashes.
        Raises ActorError for anything but a coroutine, which would never be run.
        """
        if not iscoroutine(coroutine):
            raise ActorError(
                f"{self.identity.name!r} called in_loop with {coroutine!r}; the call takes a coroutine, "
                "which an `async def` function returns when it is called"
            )
        return self.__work.in_loop(coroutine)

    # ---- other actors ----

    def monitor(self, name: str) -> int:
        """Have this actor get one `Down` message, with the reason, when the actor that has the name now ends.

        Returns the reference that the message carries and `demonitor` takes. If no actor has the name, `Down`
        comes at once with reason `noproc`. A restarted actor is another incarnation; monitor it anew.
        Raises ActorError when this class has no handler for Down.
        """
        if Down not in self._handlers:
            raise ActorError(
                f"{type(self).__name__} monitors {name!r} but has no handler of Down; "
                "mark a method with @receives(Down)"
            )
        return self.__monitors.monitor(name)

    def demonitor(self, ref: int) -> None:
        """End a monitor: no `Down` comes for this reference any more."""
        self.__monitors.demonitor(ref)

    def link(self, name: str) -> None:
        """Tie this actor's life to the life of the actor that has the name now, and the other way round.

        When one of the two ends abnormally (neither `normal` nor `shutdown`), the other crashes with
        LinkedActorEnded, or gets an `Exit` message if it `traps_exits`. If no actor has the name, it counts
        as ended with reason `noproc`.
        """
        self.__monitors.link(name)

    def unlink(self, name: str) -> None:
        """End the link, on both sides."""
        self.__monitors.unlink(name)

    # ---- its own life ----

    def enter_context(self, resource: AbstractContextManager[T]) -> T:
        """Enter a context manager for the life of the actor, and return its value.

        `let_go` exits the context manager. The end of the actor's process does not exit it: the kernel then
        releases what it holds.
        """
        return self.__resources.enter_context(resource)

    def stop(self, *, finish: bool = False) -> None:
        """End normally once the handler that calls this has returned, as a `Stop` message does.

        The answer of that handler is sent first. If it awaits something after this call, its answer is lost,
        unless `finish` is true: then the mail that is there is handled and every open handler answers first.
        """
        self.__lifecycle.request_stop(finish=finish)

    def ignore(self) -> None:
        """Say in `on_start` that there is nothing for this actor to do (OTP's `ignore`).

        When `on_start` has returned the process ends, with neither `on_stop` nor a restart; its supervisor
        keeps the child as stopped. Raises ActorError after the start.
        """
        if self.__lifecycle.is_started:
            raise ActorError(f"{self.identity.name!r} is started and cannot be ignored; call stop() instead")
        self.__lifecycle.is_ignored = True

    @property
    def is_stopping(self) -> bool:
        """Whether `on_stop` has begun."""
        return self.__lifecycle.is_stopping

    @property
    def stop_by_s(self) -> float:
        """The moment of `clock.monotonic_s` at which the supervisor that stops this actor kills it.

        Infinity if it was not told to stop, or not by when. A change of `shutdown_s` meanwhile is counted in.
        """
        return self.__lifecycle.stop_by_s

    # ---- what the board shows ----

    def used(self, n: int = 1) -> None:
        """Count `n` uses of this actor on the board. Its supervisor may replace it after a number of uses."""
        self.board.set(self.identity.slot, uses=self.board.get(self.identity.slot, "uses") + n)

    def still_working(self) -> None:
        """Show that a long handler makes progress: its time counts from now on in hang detection."""
        now_ns = self.board.now_ns()
        self.board.set(self.identity.slot, beat_ns=now_ns, busy_since_ns=now_ns)

    def set_gauges(self, gauges: Mapping[int, int]) -> None:
        """Publish whole numbers on the board, by the index of the gauge (see `actors.board.GAUGES`)."""
        self.board.set_gauges(self.identity.slot, gauges)

    def set_ready(self, ready: bool) -> None:
        """Say on the board whether this actor takes work (readiness is not liveness).

        An actor whose `on_start` has not returned takes no work, whatever it says.
        """
        self.board.set(self.identity.slot, ready=int(ready and self.__lifecycle.is_started))

    # ---- called by the runtime ----

    def boot(self, inbox_fd: int) -> None:
        """Watch the inbox and start the actor: `on_start` is called."""
        self.runtime.watch(inbox_fd, lambda: None)  # every turn drains the inbox
        self.board.set(self.identity.slot, messages=0, refused=0, unsent=0, uses=0, progress_ns=0)
        self.__lifecycle.start(self.__mailbox.release_held_news)

    def turn(self) -> None:
        """Take what has come: mail, finished work, due timers; then say when to be called again."""
        self.__heartbeat.beat()
        self.__mailbox.drain()
        self.__heartbeat.busy("finished work and timers")
        self.__work.deliver()
        self.__timers.run_due()
        self.__heartbeat.idle()
        self.__lifecycle.stop_if_due(is_all_answered=self.__mailbox.is_all_answered)
        self.__timers.wake_for_next()

    def beat(self) -> None:
        """Write to the board that this process runs."""
        self.__heartbeat.beat()

    def announce_preemption(self) -> None:
        """Tell the supervisor that this process will be taken away; it stops the actor in order."""
        self.log.info("preemption_announced")
        self.tell(self.identity.parent, Preempted(incarnation=self.identity.incarnation))

    def take_news(self, news: Any, name: str, incarnation: int) -> None:
        """Handle a message about another actor that the runtime reports; before the start, keep it."""
        self.__mailbox.take_news(news, name, incarnation)

    def let_go(self) -> None:
        """Close threads, descriptors and contexts without ending the process; for tests and clients."""
        self.__watcher.close()
        self.__work.close()
        self.__resources.close()

    # ---- inside ----

    def __linked_by(self, _: Linked, sender: Sender) -> None:
        self.__monitors.linked_by(sender.name, sender.incarnation)

    def __unlinked_by(self, _: Unlinked, sender: Sender) -> None:
        self.__monitors.unlinked_by(sender.name, sender.incarnation)

    def __check_seconds(self, what: str, seconds: float) -> None:
        check_seconds(self.__writer.name, what, seconds)


_TAKEN_NAMES = taken_names(Actor)
