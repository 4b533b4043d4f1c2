"""The child process that runs OSWorld's evaluators (`dart.environments.osworld.scoring_child`): its sandbox,
its messages and its end.

The sandbox has no network, a read-only system and a /tmp of limited size. Where bubblewrap is not installed
the child runs without it; functions that run code are then refused (`dart.environments.osworld.judging`).
"""

import asyncio
import contextlib
import itertools
import os
import shutil
import struct
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgpack

from actors.process import exit_reason_of
from actors.scratch import base_folder
from dart.core.run_directory import SOCKET_PATH_BYTES
from dart.environments.desktop.memory import MemoryLimit
from dart.environments.desktop.sandbox import PASSWD, await_exit, kill, sandbox_command
from dart.environments.osworld import scoring_child
from dart.environments.osworld.guest import Guest
from dart.environments.osworld.scoring_environment import ScoringEnvironment

MOST_MESSAGE_BYTES = 2**20
"""Limit of a message of the child, which is a question or the end with a score."""

MOST_TMP_BYTES = 2**30
MOST_SANDBOX_BYTES = scoring_child.MOST_MEMORY_BYTES + MOST_TMP_BYTES
"""Limit of the memory of a sandbox, all processes and /tmp together, where the kernel permits control groups.
One process at its own limit and a full /tmp fit in."""

FIRST_UID = 2**20
"""Smallest uid of the children of a process that is root (`_own_uid`)."""

PIDS = 2**22
"""Largest number of pids that Linux permits."""

OWN_UIDS = 512
"""Number of different uids that the children of this process get, one after the other."""

_started_before = itertools.count()

CHILD = Path(scoring_child.__file__)
CACHE = "/tmp/cache"
PREFIX = "dartrl-score-"
SOCKET = "browser"

ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",  # each thread would take some of the addresses
    "PYTHONDONTWRITEBYTECODE": "1",
}


class ChildBroke(Exception):
    """The child ended, broke the protocol or exceeded a limit.

    The message follows the words "its evaluation"."""


def has_sandbox() -> bool:
    return shutil.which("bwrap") is not None


class ScoringProcess:
    """One child, for one evaluation."""

    def __init__(self, process: asyncio.subprocess.Process, limit: MemoryLimit) -> None:
        self._process = process
        self._limit: MemoryLimit | None = limit

    async def send(self, message: Mapping[str, Any]) -> None:
        """Write a message. If the child has ended, do nothing; the next `receive` then raises ChildBroke.

        The first message is the order. This method limits the child's memory just before, which is early
        enough: until the order arrives, the child has read nothing that comes from a guest."""
        assert self._process.stdin is not None
        if self._limit is not None:
            self._limit.take_tree(self._process.pid)
            self._limit = None
        packed = msgpack.packb(message, unicode_errors=scoring_child.ERRORS)
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(struct.pack(">I", len(packed)) + packed)
            await self._process.stdin.drain()

    async def receive(self) -> Mapping[str, Any]:
        """Return the next message. Raises ChildBroke."""
        assert self._process.stdout is not None
        try:
            (length,) = struct.unpack(">I", await self._process.stdout.readexactly(4))
            if length > MOST_MESSAGE_BYTES:
                raise ChildBroke(f"sent a message of {length} bytes; {MOST_MESSAGE_BYTES} are accepted")
            found = msgpack.unpackb(
                await self._process.stdout.readexactly(length), unicode_errors=scoring_child.ERRORS
            )
        except (asyncio.IncompleteReadError, ConnectionError):
            await await_exit(self._process, 1.0)
            code = self._process.returncode
            why = "its pipe is closed" if code is None else exit_reason_of(code)
            raise ChildBroke(f"crashed ({why}), or exceeded its memory") from None
        except (ValueError, msgpack.UnpackException) as error:
            raise ChildBroke(f"sent something that is not a message: {error}") from error
        if not isinstance(found, dict):
            raise ChildBroke(f"sent {type(found).__name__} in place of a message")
        return found


@contextlib.asynccontextmanager
async def scoring_process(scoring: ScoringEnvironment, guest: Guest | None) -> AsyncIterator[ScoringProcess]:
    """Start a child and kill it at the end.

    guest   the guest whose browser the evaluation reads, for which the child gets a relay; None to read none
    """
    base = base_folder(f"{PREFIX}12345678/{SOCKET}", SOCKET_PATH_BYTES - 1)
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=base, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        async with contextlib.AsyncExitStack() as stack:
            if guest is not None:
                await stack.enter_async_context(_browser(guest, folder / SOCKET))
            process = await _started(scoring, folder, browses=guest is not None)
            limit = MemoryLimit(folder.name, MOST_SANDBOX_BYTES)
            try:
                yield ScoringProcess(process, limit)
            finally:
                kill(process)
                await await_exit(process)
                limit.release()


async def _started(scoring: ScoringEnvironment, folder: Path, *, browses: bool) -> asyncio.subprocess.Process:
    socket = str(folder / SOCKET) if browses else ""
    cache = CACHE if has_sandbox() else str(folder / "cache")
    command = [*(str(scoring.python), "-B", "-P", str(CHILD)), str(scoring.packages), cache, socket]
    environment: Mapping[str, str] | None = {**ENVIRONMENT, "PATH": os.defpath, "HOME": str(folder)}
    if has_sandbox():
        passwd = folder / "passwd"
        passwd.write_text(PASSWD)
        command = sandbox_command(
            command,
            readable=[scoring.folder, scoring.base, CHILD, *([Path(socket)] if browses else [])],
            passwd=passwd,
            environment=ENVIRONMENT,
            tmp_bytes=MOST_TMP_BYTES,
            as_uid=_own_uid() if os.geteuid() == 0 else None,
        )
        environment = None
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=environment,
        cwd=folder,
        start_new_session=True,
    )


def _own_uid() -> int:
    """Return the uid of the next child, if this process is root.

    No other process has this uid, because the kernel counts the processes of a uid together: children with
    one uid would share the limit on the number of processes."""
    return FIRST_UID + os.getpid() + PIDS * (next(_started_before) % OWN_UIDS)


@contextlib.asynccontextmanager
async def _browser(guest: Guest, path: Path) -> AsyncIterator[None]:
    """Serve the debugging port of the guest's browser on a Unix socket.

    When no browser listens, or the guest does not answer, a connection ends at once. Whether the machine
    still works is checked after the metric."""
    relays: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        relays.add(task)
        try:
            with contextlib.suppress(asyncio.CancelledError):  # at the end; asyncio prints it otherwise
                await _relayed(guest, reader, writer)
        finally:
            relays.discard(task)
            writer.close()

    server = await asyncio.start_unix_server(serve, path)
    os.chmod(path, 0o666)  # noqa: PTH101 - its folder is private; the child may be another user
    try:
        yield
    finally:
        server.close()
        for relay in list(relays):
            relay.cancel()


async def _relayed(guest: Guest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    if guest.simulated_failure:
        return
    with contextlib.suppress(OSError):
        theirs, ours = await asyncio.open_connection(guest.address.host, guest.address.chromium)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_copied(reader, ours))
                group.create_task(_copied(theirs, writer))
        finally:
            ours.close()


async def _copied(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while part := await source.read(scoring_child.RELAY_BYTES):
            sink.write(part)
            await sink.drain()
    with contextlib.suppress(OSError):
        sink.write_eof()
