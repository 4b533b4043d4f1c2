"""A client of a running desktop: a child process that serves calls through its pipes.

The child is bubblewrap and everything inside it (`dart.environments.desktop.sandbox`). Every call ends: with
its response, with `MachineDied` when the pipes break, or with `MachineHung` at its deadline. After either
fault the machine cannot be used again.
"""

import asyncio
import contextlib
import os
import signal
import struct
import sys
from pathlib import Path
from typing import Any

import msgpack
import psutil

import dart
from dart.environments.desktop.memory import MemoryLimit
from dart.environments.desktop.sandbox import LOG, await_exit, kill, start_sandbox
from dart.environments.faults import CallFailed, MachineDied, MachineHung

GUEST = "dart.environments.desktop.guest"

EXIT_GRACE_S = 0.3
"""Seconds between the moment a sandbox closes its pipe and its SIGKILL. A sandbox that exits by itself within
this time reports its own exit code."""

LOG_TAIL_BYTES = 600

RESPONSE_MOST_BYTES = 160 * 2**20
"""Limit of one response; an incompressible picture of the largest screen has 100 MiB."""


class DesktopMachine:
    """One sandbox with one desktop in it."""

    def __init__(
        self, name: str, scratch: Path, process: asyncio.subprocess.Process, limit: MemoryLimit
    ) -> None:
        self.name = name
        self._log = scratch / LOG
        self._process = process
        self._limit = limit
        self._is_over = False
        self._one_at_a_time = asyncio.Lock()

    @classmethod
    async def start(
        cls, name: str, scratch: Path, *, memory_bytes: int, deadline_s: float
    ) -> "DesktopMachine":
        """Start a sandbox and wait until its guest process serves calls. Raises MachineDied or MachineHung.

        scratch        a folder for this machine alone, for the log of its guest
        memory_bytes   limit of the total memory, where the kernel permits one; 0 for no limit
        """
        package = Path(dart.__file__).resolve().parent  # noqa: ASYNC240 - microseconds
        process = await start_sandbox(
            [sys.executable, "-m", GUEST],
            scratch,
            readable=[package],
            environment={"PYTHONPATH": str(package.parent)},
            has_pipes=True,
        )
        machine = cls(name, scratch, process, MemoryLimit(name, memory_bytes))
        await machine._response("start", deadline_s)
        machine._limit.take(machine._pids())
        return machine

    async def call(self, name: str, /, *, deadline_s: float, **arguments: Any) -> Any:
        """Call the method ``name`` of the guest's `GuestDesktop` and return its result.

        Raises MachineDied, MachineHung, or CallFailed when the guest reports an error."""
        packed = msgpack.packb({"call": name, **arguments})
        async with self._one_at_a_time:
            if self._is_over or self._process.stdin is None:
                raise MachineDied(self.name, name, self._why())
            self._process.stdin.write(struct.pack(">I", len(packed)) + packed)
            return await self._response(name, deadline_s)

    async def _response(self, call: str, deadline_s: float) -> Any:
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(deadline_s):
                (length,) = struct.unpack(">I", await self._process.stdout.readexactly(4))
                if length > RESPONSE_MOST_BYTES:
                    self.kill()
                    why = f"its response of {length} bytes exceeds {RESPONSE_MOST_BYTES}; it was killed"
                    raise MachineDied(self.name, call, why)
                response = msgpack.unpackb(await self._process.stdout.readexactly(length))
        except TimeoutError:
            self.kill()
            raise MachineHung(self.name, call, deadline_s) from None
        except (asyncio.IncompleteReadError, ConnectionError):
            await await_exit(self._process, EXIT_GRACE_S)
            why = self._why()
            self.kill()
            raise MachineDied(self.name, call, why) from None
        except asyncio.CancelledError:  # part of a response may still be in the pipe
            self.kill()
            raise
        if "error" in response:
            raise CallFailed(self.name, call, response["error"])
        return response["ok"]

    @property
    def is_over(self) -> bool:
        """Whether the sandbox was killed or has ended, so that it serves no more calls."""
        return self._is_over or self._process.returncode is not None

    @property
    def is_busy(self) -> bool:
        """Whether a call is in progress."""
        return self._one_at_a_time.locked()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to everything in the sandbox: SIGSTOP makes it hang, SIGKILL ends it."""
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """Kill everything in the sandbox without waiting."""
        self._is_over = True
        kill(self._process)

    async def close(self) -> None:
        """Kill the sandbox and wait for its end. May be repeated."""
        self.kill()
        await await_exit(self._process)
        self._limit.release()

    def _pids(self) -> list[int]:
        """Return the process ids of bubblewrap and all its descendants; none after its end."""
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self._process.pid)
            return [process.pid, *(child.pid for child in process.children(recursive=True))]
        return []

    def _why(self) -> str:
        code = self._process.returncode
        ended = "it was killed" if self._is_over and code is None else f"exit code {code}"
        with contextlib.suppress(OSError), self._log.open("rb") as log:
            log.seek(max(0, self._log.stat().st_size - LOG_TAIL_BYTES))
            words = log.read().decode(errors="replace").strip()
            return f"{ended}; its log ends with: {words}" if words else ended
        return ended
