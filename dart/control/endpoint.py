"""The control endpoint: a thread of the run's main process that answers on the control socket.

No actor of the tree serves it, for any of them may hang; the main process does nothing that could. The
endpoint is an actor itself as far as asking goes: it has an inbox, and every ask of it ends. Connections and
mail share one loop, so a request that waits for somebody holds up no other.
"""

import os
import signal
import socket
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import structlog

from actors.actor import Actor
from actors.board import Board
from actors.client import Client
from actors.log import LogFile, to_json
from dart.control.commands import Commands
from dart.control.plant import Plant
from dart.control.protocol import (
    MAX_FRAME_BYTES,
    Answer,
    Malformed,
    Outcome,
    decode_request,
    encode,
)
from dart.control.socket import is_own, listen
from dart.errors import TemporaryError
from dart.rundir import RunPaths

NAME = "control"
MAX_CONNECTIONS = 64
"""More at a time are hung up on."""

FRAME_DEADLINE_S = 2.0
"""For a connection to say what it wants."""

OPEN_DEADLINE_S = 10.0
CLOSE_DEADLINE_S = 5.0

RESTORE_LOOK_S = 5.0
"""How often it is looked whether a pool was restarted and has to be told what changed since the start."""

NO_ROOM_PAUSE_S = 1.0
"""After a connection could not be taken because the process has no descriptor left."""


class ControlActor(Actor):
    """Takes connections; one request and one answer each.

    args   `listener`: the open socket, `wake_fd`: readable when it is over, `connections`: a set for those
           that are open, `plant`: as in Commands, `log`: where requests are noted
    """

    def on_start(self) -> None:
        self.log = self.args["log"]
        self._commands = Commands(self, self.args["plant"])
        self._listener: socket.socket = self.args["listener"]
        self._open: set[socket.socket] = self.args["connections"]
        self._waiting: set[socket.socket] = set()
        """Of these, who has not said what it wants."""
        self.runtime.watch(self.args["wake_fd"], lambda: None)
        self.every(RESTORE_LOOK_S, self._commands.restore)
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
            self._heard(connection)
            self._hang_up(connection)

    def _heard(self, connection: socket.socket) -> None:
        """Nothing more is read from it."""
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
        self._heard(connection)
        if frame:
            self.run(self._serve(connection, frame))
        else:
            self._hang_up(connection)

    async def _serve(self, connection: socket.socket, frame: bytes) -> None:
        try:
            answer = await self._commands.answer(decode_request(frame))
        except Malformed as error:
            answer = Answer(Outcome.REFUSED, str(error))
        with suppress(OSError):  # who asked is gone, or takes nothing: nobody waits for it
            connection.send(encode(answer))
        self._hang_up(connection)


class ControlEndpoint:
    """Serves while the block lasts. Made by the process and in the thread that the tree is started from.

    mail_dir   of the running system, whose board and key are in the run directory
    plant      what the run is made of
    Raises OSError when the socket cannot be opened, TemporaryError when the thread does not come up.
    """

    def __init__(self, paths: RunPaths, mail_dir: Path, plant: Plant) -> None:
        self._paths, self._mail_dir, self._plant = paths, mail_dir, plant
        self._log_file = paths.logs / f"{NAME}.jsonl"
        self._is_over = threading.Event()
        self._has_begun = threading.Event()
        self._is_serving = False
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._listener = listen(paths.control)
        # A daemon thread: a request that is under way keeps no process from ending.
        self._thread = threading.Thread(target=self._serve, name=NAME, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._has_begun.wait(OPEN_DEADLINE_S)
        if not self._is_serving:
            self.__exit__(None, None, None)
            raise TemporaryError(
                f"the control endpoint did not come up; {self._log_file} says why, if it is known"
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over.set()
        os.eventfd_write(self._wake_fd, 1)
        self._thread.join(CLOSE_DEADLINE_S)
        self._paths.control.unlink(missing_ok=True)
        os.close(self._wake_fd)

    def _serve(self) -> None:
        """The thread. A defect of the endpoint costs the endpoint, not the run; who waits for it notices."""
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        file = LogFile(self._log_file)
        log = structlog.wrap_logger(structlog.WriteLogger(file), processors=to_json())  # type: ignore[arg-type]
        try:
            self._serve_with(log.bind(actor=NAME))
        except Exception:
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
            "wake_fd": self._wake_fd,
            "connections": connections,
            "plant": self._plant,
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
