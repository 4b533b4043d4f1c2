"""The control endpoint: a thread of the run's main process that answers on the control socket.

The endpoint is outside the supervision tree, because every actor of the tree may hang. It has a mailbox of
its own and asks actors with deadlines. One loop handles all connections and messages, so a request that waits
for an actor does not delay other requests.
"""

import os
import signal
import socket
import threading
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Self

import structlog

from actors.actor import Actor
from actors.board import Board
from actors.client import Client
from actors.log import LogFile, to_json
from dart.core.errors import TemporaryError
from dart.core.run_directory import RunPaths
from dart.inspect.sidecar_status import CONTROL as NAME
from dart.inspect.sidecar_status import Sidecar, remove_sidecar, write_sidecar
from dart.run.control_commands import Commands
from dart.run.control_protocol import (
    MAX_FRAME_BYTES,
    ControlAnswer,
    ControlOutcome,
    Malformed,
    decode_request,
    encode,
)
from dart.run.control_socket import is_own, listen
from dart.run.definition import RunDefinition
from dart.run.sidecars import BACKOFF, emit_status
from dart.telemetry.emit import EventEmitter
from supervision.backoff import backoff_s

MAX_CONNECTIONS = 64
"""Largest number of open connections; further ones are closed at once."""

FRAME_DEADLINE_S = 2.0
"""Seconds that a client has to send its request; then its connection is closed."""

OPEN_DEADLINE_S = 10.0

SHUTDOWN_S = 5.0
"""Longest wait for the end of the thread when the run is over."""

RESTORE_EVERY_S = 5.0
"""Seconds between two checks whether a pool was restarted and lacks changes made since the run began."""

ACCEPT_PAUSE_S = 1.0
"""Seconds without accepting connections after accepting failed, such as for a lack of file descriptors."""


class ControlActor(Actor):
    """Accepts connections, and answers one request on each.

    args   `listener`: the listening socket; `wake_fd`: a descriptor that is readable when the run is over;
           `connections`: a set that this actor keeps equal to the open connections; `definition`: the
           definition of the run; `log`: the log of requests
    """

    def on_start(self) -> None:
        self.log = self.args["log"]
        self._commands = Commands(self, self.args["definition"])
        self._listener: socket.socket = self.args["listener"]
        self._open: set[socket.socket] = self.args["connections"]
        self._waiting: set[socket.socket] = set()
        """The open connections that have not sent their request yet."""
        self.runtime.watch(self.args["wake_fd"], lambda: None)
        self.every(RESTORE_EVERY_S, self._commands.restore)
        self._listen()

    def _listen(self) -> None:
        self.runtime.watch(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError as error:
            self.log.error("control_not_accepted", reason=str(error))
            self.runtime.unwatch(self._listener.fileno())
            self.after(ACCEPT_PAUSE_S, self._listen)
            return
        if len(self._open) >= MAX_CONNECTIONS or not is_own(connection):
            connection.close()
            return
        connection.setblocking(False)
        self._open.add(connection)
        self._waiting.add(connection)
        self.runtime.watch(connection.fileno(), lambda: self._read(connection))
        self.after(FRAME_DEADLINE_S, lambda: self._hang_up_if_silent(connection))

    def _hang_up_if_silent(self, connection: socket.socket) -> None:
        if connection in self._waiting:
            self._stop_reading(connection)
            self._hang_up(connection)

    def _stop_reading(self, connection: socket.socket) -> None:
        self._waiting.remove(connection)
        self.runtime.unwatch(connection.fileno())

    def _hang_up(self, connection: socket.socket) -> None:
        self._open.discard(connection)
        connection.close()

    def _read(self, connection: socket.socket) -> None:
        try:
            frame = connection.recv(MAX_FRAME_BYTES + 1)
        except BlockingIOError:
            return
        except ConnectionError:
            frame = b""
        self._stop_reading(connection)
        if frame:
            self.run(self._serve(connection, frame))
        else:
            self._hang_up(connection)

    async def _serve(self, connection: socket.socket, frame: bytes) -> None:
        try:
            answer = await self._commands.answer(decode_request(frame))
        except Malformed as error:
            answer = ControlAnswer(ControlOutcome.REFUSED, str(error))
        with suppress(OSError):  # the client has gone, or does not read
            connection.send(encode(answer))
        self._hang_up(connection)


class ControlEndpoint:
    """A context manager that serves the control socket. Enter it in the thread that starts the tree.

    mail_dir     folder of the mailboxes of the run's actors
    definition   the definition of the run
    emitter      emits an event when the endpoint ends by a defect, and when it serves again

    Entering raises TemporaryError if the endpoint cannot be started.
    """

    def __init__(
        self, paths: RunPaths, mail_dir: Path, definition: RunDefinition, emitter: EventEmitter
    ) -> None:
        self._paths, self._mail_dir, self._definition = paths, mail_dir, definition
        self._emitter = emitter
        self._log_file = paths.logs / f"{NAME}.jsonl"
        self._statuses: SimpleQueue[Sidecar] = SimpleQueue()
        """Queue from the endpoint's thread to the main thread: does the endpoint serve, and if not, why?"""
        self._is_over = threading.Event()
        self._has_ended = False
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # A daemon thread: a request under way does not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name=NAME, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        first = Sidecar(name=NAME, is_well=False, text="its thread does not answer")
        with suppress(Empty):
            first = self._statuses.get(timeout=OPEN_DEADLINE_S)
        if not first.is_well:
            self.__exit__()
            raise TemporaryError(f"the control endpoint did not come up: {first.text}")
        return self

    def poll(self) -> None:
        """Emit an event if the endpoint ended by a defect or serves again since the last call.

        Call this about every second. It never waits.
        """
        if not self._thread.is_alive() and not self._has_ended and not self._is_over.is_set():
            self._has_ended = True
            text = f"its thread ended, see {self._log_file}; restart the run to steer it again"
            self._statuses.put(Sidecar(name=NAME, is_well=False, text=text))
        while not self._statuses.empty():
            status = self._statuses.get()
            emit_status(self._emitter, status)
            remove_sidecar(self._paths, NAME)
            if not status.is_well:
                with suppress(OSError):  # the event has the reason, too
                    write_sidecar(self._paths, status)

    def __exit__(self, *_: object) -> None:
        """End the thread after its present work. After SHUTDOWN_S, leave it to end with the process."""
        self._is_over.set()
        os.eventfd_write(self._wake, 1)
        self._thread.join(SHUTDOWN_S)
        if not self._thread.is_alive():
            os.close(self._wake)
        remove_sidecar(self._paths, NAME)
        self._paths.control.unlink(missing_ok=True)

    def _run(self) -> None:
        """Serve until the run is over. After a defect, wait, longer each time, and serve again."""
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        file = LogFile(self._log_file)
        log = structlog.wrap_logger(structlog.WriteLogger(file), processors=to_json())  # type: ignore[arg-type]
        failures = 0
        while not self._is_over.is_set():
            began_s = time.monotonic()
            try:
                self._serve(log.bind(actor=NAME))
            except Exception as error:
                log.exception("control_ended")
                failures = 1 if time.monotonic() - began_s > BACKOFF.reset_after_s else failures + 1
                wait_s = backoff_s(BACKOFF, failures, draw=0.5)
                self._note_defect(error, wait_s)
                self._is_over.wait(wait_s)
        file.close()

    def _note_defect(self, error: Exception, wait_s: float) -> None:
        text = (
            f"ended by a defect ({error!r}), see {self._log_file}; the run cannot be steered; "
            f"the endpoint is started again in {wait_s:.0f} s"
        )
        self._statuses.put(Sidecar(name=NAME, is_well=False, text=text))

    def _serve(self, log: Any) -> None:
        """Listen and serve until the run is over. Raises OSError if the socket cannot be opened."""
        connections: set[socket.socket] = set()
        with ExitStack() as stack:
            listener = stack.enter_context(listen(self._paths.control))
            board = stack.enter_context(closing(Board(self._paths.board)))
            args = {
                "listener": listener,
                "wake_fd": self._wake,
                "connections": connections,
                "definition": self._definition,
                "log": log,
            }
            key = self._paths.key.read_bytes()
            client = Client(board, self._mail_dir, key, name=NAME, actor=ControlActor, args=args)
            stack.callback(client.close)
            self._statuses.put(Sidecar(name=NAME, is_well=True, text=f"answers at {self._paths.control}"))
            try:
                client.serve(self._is_over.is_set)
            finally:
                for connection in connections:
                    connection.close()
