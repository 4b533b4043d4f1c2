"""The life of one actor: it starts, gets ready, and stops. The hooks of a subclass are called here."""

import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from actors.board import LAUNCHER, Heartbeat
from actors.future import settle
from actors.mail import Mail
from actors.process import EXIT_IGNORED
from actors.system_messages import ChildReady, Stop

if TYPE_CHECKING:
    from actors.actor import Actor


class Lifecycle:
    """How far one actor's life has come. The flags are plain attributes: they are read for each message."""

    def __init__(self, actor: "Actor", mail: Mail, heartbeat: Heartbeat) -> None:
        self.is_started = False
        """`on_start` has returned."""
        self.is_ignored = False
        """`on_start` found nothing to do (OTP's `ignore`)."""
        self.is_stop_requested = False
        """The actor called `stop`; `on_stop` follows at the end of this turn."""
        self.is_finishing = False
        """The actor stops once its mail is taken and every open handler has answered."""
        self.is_stopping = False
        """`on_stop` has begun."""
        self.stop_by_s = math.inf
        """The moment, on the actor's clock, at which the sender of a `Stop` kills the process."""
        self._actor = actor
        self._mail = mail
        self._heartbeat = heartbeat
        self._was_ready = False
        self._is_probing = False

    # ---- start ----

    def start(self, started: Callable[[], None]) -> None:
        """Run `on_start`; then call `started`, and say that the actor is ready or begin to probe it."""
        self._heartbeat.busy("on_start")
        settle(self._actor.on_start(), lambda _: self._start_returned(started))
        self._heartbeat.idle()

    def _start_returned(self, started: Callable[[], None]) -> None:
        actor = self._actor
        if self.is_ignored:
            actor.log.info("actor_ignored")
            self._end(EXIT_IGNORED)
            return
        self.is_started = True
        self._wake_now()  # for the mail that was held
        started()
        if actor.identity.probe_every_s > 0:
            self._probe()
        else:
            self._set_fit(True)

    # ---- readiness ----

    def _probe(self) -> None:
        if self.is_stopping:
            return
        if self._is_probing:
            self._actor.set_ready(False)  # a probe that lasts until the next is due counts as a no
        else:
            self._is_probing = True
            settle(self._actor.on_probe(), self._probed)
        self._actor.after(self._actor.identity.probe_every_s, self._probe)

    def _probed(self, answer: Any) -> None:
        self._is_probing = False
        self._set_fit(bool(answer))

    def _set_fit(self, is_fit: bool) -> None:
        if self.is_stopping:
            return
        actor = self._actor
        self._heartbeat.busy("getting ready")  # hang detection starts here, however long on_start took
        actor.set_ready(is_fit)
        if is_fit and not self._was_ready:
            self._was_ready = True
            actor.log.info("actor_ready", pid=os.getpid())
            if actor.identity.parent != LAUNCHER:
                actor.tell(actor.identity.parent, ChildReady(incarnation=actor.identity.incarnation))

    # ---- stop ----

    def request_stop(self, *, finish: bool) -> None:
        """Have the actor stop at the end of the turn; the actor itself asked for it (`Actor.stop`)."""
        if self.is_started:
            self.is_finishing, self.is_stop_requested = finish, not finish
            self._wake_now()
        else:
            self._begin_stop()

    def take_stop(self, stop: Stop) -> None:
        """Handle a `Stop` message: stop at once, or with `finish` when all mail is answered."""
        self.stop_by_s = min(self.stop_by_s, self._actor.clock.monotonic_s() + stop.within_s)
        if stop.finish and self.is_started:
            self.is_finishing = True  # the end of this turn or a later one finds the mail taken
        else:
            self._begin_stop()

    def stop_if_due(self, *, is_all_answered: bool) -> None:
        """Stop if that was requested and, with `finish`, all mail is answered. Called after each turn."""
        if self.is_stop_requested or (self.is_finishing and is_all_answered):
            self._begin_stop()

    def _begin_stop(self) -> None:
        if not self.is_stopping:
            self.is_stopping = True
            self._actor.set_ready(False)
            settle(self._actor.on_stop(), self._stopped)

    def _stopped(self, _: Any) -> None:
        self._actor.log.info("actor_stopped")
        self._end(0)

    def _end(self, code: int) -> None:
        self._mail.close()
        self._actor.runtime.exit(code)

    def _wake_now(self) -> None:
        self._actor.runtime.wake_at(self._actor.clock.monotonic_s())
