"""The control endpoint: a thread of the run's main process that answers on the control socket.

It is no actor of the tree, because each of those may hang. It has an inbox and asks actors like one, and each
ask has a deadline. Connections and mail share one loop, so a request that waits delays no other.
"""

import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import structlog

from actors.actor import Actor
from actors.board import Board
from actors.client import Client
from actors.log import LogFile, to_json
from dart.core.errors import TemporaryError
from dart.core.run_directory import RunPaths
from dart.inspect.sidecar_status import CONTROL as NAME
from dart.inspect.sidecar_status import Sidecar, read_sidecar
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
from dart.run.main_supervisor import BACKOFF, MainSupervisor
from dart.telemetry.emit import EventEmitter
from supervision.child_spec import ChildSpec

MAX_CONNECTIONS = 64
"""Connections at a time; further ones are closed."""

FRAME_DEADLINE_S = 2.0
"""For a connection to send its request."""

OPEN_DEADLINE_S = 10.0

SPEC = ChildSpec(
    id=NAME,
    actor="dart.run.control_endpoint:ControlActor",
    shutdown_s=5.0,
    hang_deadline_s=math.inf,  # a thread that hangs cannot be ended
    backoff=BACKOFF,
)

RESTORE_EVERY_S = 5.0
"""Interval of the check whether a pool was restarted and lacks changes made since the start."""

NO_ROOM_PAUSE_S = 1.0
"""Pause of accepting connections after the process ran out of descriptors."""


class ControlActor(Actor):
    """Accepts connections, and answers one request on each.

    args   `listener`: the open socket; `wake_fd`: readable when the run is over; `connections`: the set of
           open connections; `definition`: as in Commands; `log`: the log of requests
    """

    def on_start(self) -> None:
        self.log = self.args["log"]
        self._commands = Commands(self, self.args["definition"])
        self._listener: socket.socket = self.args["listener"]
        self._open: set[socket.socket] = self.args["connections"]
        self._waiting: set[socket.socket] = set()
        """Those of them that have not sent their request yet."""
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
            self.after(NO_ROOM_PAUSE_S, self._listen)
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
    """Serves the control socket while the block lasts. Make it in the thread that starts the tree.

    mail_dir     of the running system, whose board and key are in the run directory
    definition   the run
    emitter      emits an event when the endpoint ends by a defect, and when it serves again
    Raises TemporaryError when the endpoint does not come up.
    """

    def __init__(
        self,
        paths: RunPaths,
        mail_dir: Path,
        definition: RunDefinition,
        emitter: EventEmitter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._paths, self._mail_dir, self._definition = paths, mail_dir, definition
        self._service: _Service | None = None
        self._supervisor = MainSupervisor(paths, [SPEC], self._start, emitter, clock)

    def __enter__(self) -> Self:
        self.poll()
        if self._service is None or not self._service.comes_up():
            self.poll()
            status = read_sidecar(self._paths, NAME)
            why = status.text if status else "its thread does not answer"
            self.__exit__()
            raise TemporaryError(f"the control endpoint did not come up: {why}")
        return self

    def poll(self) -> None:
        """Start it again after a defect, each time later. Call it about every second; it never waits."""
        self._supervisor.poll()

    def __exit__(self, *_: object) -> None:
        self._supervisor.__exit__()
        self._paths.control.unlink(missing_ok=True)

    def _start(self, _: ChildSpec) -> "_Service":
        is_restart = self._service is not None
        self._service = _Service(self._paths, self._mail_dir, self._definition, is_restart=is_restart)
        return self._service


class _Service:
    """One incarnation of the endpoint: its socket and its thread. Raises OSError when it cannot listen."""

    def __init__(
        self, paths: RunPaths, mail_dir: Path, definition: RunDefinition, *, is_restart: bool
    ) -> None:
        self._paths, self._mail_dir, self._definition = paths, mail_dir, definition
        self._is_restart = is_restart
        self._log_file = paths.logs / f"{NAME}.jsonl"
        self._is_serving = self._is_given_up = False
        self._defect = ""
        self._is_over = threading.Event()
        self._has_begun = threading.Event()
        self._listener = listen(paths.control)
        self._wake = os.fdopen(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC), "wb", buffering=0)
        # A daemon thread: a request under way does not keep the process from ending.
        self._thread = threading.Thread(target=self._serve, name=NAME, daemon=True)
        self._thread.start()

    def comes_up(self) -> bool:
        """Wait until it serves or has failed; whether it serves."""
        self._has_begun.wait(OPEN_DEADLINE_S)
        return self._is_serving

    def end_reason(self) -> str:
        """Why the thread has ended; empty while it runs."""
        if self._thread.is_alive():
            return "given up" if self._is_given_up else ""
        self._wake.close()
        if not self._defect:
            return "ended"
        return f"ended by a defect ({self._defect}), see {self._log_file}; the run cannot be steered"

    def silent_s(self) -> float:
        """Always 0: a thread that hangs could not be ended."""
        return 0.0

    def status(self) -> Sidecar | None:
        """Well once a restarted endpoint serves; None for the first start, which is no news."""
        if not (self._is_serving and self._is_restart):
            return None
        return Sidecar(name=NAME, is_well=True, text=f"answers at {self._paths.control}")

    def stop(self) -> None:
        """End the thread after what it does now."""
        self._is_over.set()
        self._wake.write((1).to_bytes(8, sys.byteorder))

    def kill(self) -> None:
        """Give the thread up: it ends with the process."""
        self._is_given_up = True

    def _serve(self) -> None:
        """The thread. A defect ends the endpoint, not the run; the main process restarts it."""
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        file = LogFile(self._log_file)
        log = structlog.wrap_logger(structlog.WriteLogger(file), processors=to_json())  # type: ignore[arg-type]
        try:
            self._serve_with(log.bind(actor=NAME))
        except Exception as error:
            self._defect = repr(error)
            log.exception("control_ended")
        finally:
            self._has_begun.set()
            self._listener.close()
            file.close()

    def _serve_with(self, log: Any) -> None:
        board = Board(self._paths.board)
        connections: set[socket.socket] = set()
        args = {
            "listener": self._listener,
            "wake_fd": self._wake.fileno(),
            "connections": connections,
            "definition": self._definition,
            "log": log,
        }
        client = Client(
            board, self._mail_dir, self._paths.key.read_bytes(), name=NAME, actor=ControlActor, args=args
        )
        self._is_serving = True
        self._has_begun.set()
        try:
            client.serve(self._is_over.is_set)
        finally:
            for connection in connections:
                connection.close()
            client.close()
            board.close()
