"""A client of a running desktop: a child process that answers calls through its pipes.

The child is bubblewrap and everything inside it (`dart.environments.desktop.sandbox`). Every call ends: with
its answer, with `MachineDied` when the pipes break, or with `MachineHung` at its deadline. After either fault
the machine cannot be used again.
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
from dart.environments.desktop.sandbox import passwd_text, sandbox_command
from dart.environments.faults import CallFailed, MachineDied, MachineHung

GUEST = "dart.environments.desktop.guest"

KILL_DEADLINE_S = 5.0
"""How long to wait for a killed sandbox to end."""

EXIT_GRACE_S = 0.3
"""How long a sandbox that closed its pipe has to exit by itself, with its exit code, before it is killed."""

LOG_TAIL_BYTES = 600

ANSWER_MOST_BYTES = 160 * 2**20
"""Limit of one answer; an incompressible picture of the largest screen has 100 MiB."""


class DesktopMachine:
    """One sandbox with one desktop in it."""

    def __init__(
        self, name: str, scratch: Path, process: asyncio.subprocess.Process, limit: MemoryLimit
    ) -> None:
        self.name = name
        self._log = scratch / "guest.log"
        self._process = process
        self._limit = limit
        self._is_over = False
        self._one_at_a_time = asyncio.Lock()

    @classmethod
    async def start(
        cls, name: str, scratch: Path, *, memory_bytes: int, deadline_s: float
    ) -> "DesktopMachine":
        """Start a sandbox and wait until its guest process answers. Raises MachineDied or MachineHung.

        scratch        a folder for this machine alone, for the log of its guest
        memory_bytes   limit of the total memory, where the kernel permits one; 0 for no limit
        """
        scratch.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - one local folder, microseconds
        passwd = scratch / "passwd"
        passwd.write_text(passwd_text())
        command = sandbox_command([sys.executable, "-m", GUEST], **_python(passwd))
        with (scratch / "guest.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        machine = cls(name, scratch, process, MemoryLimit(name, memory_bytes))
        await machine._answer("start", deadline_s)
        machine._limit.take(machine._pids())
        return machine

    async def call(self, name: str, /, *, deadline_s: float, **arguments: Any) -> Any:
        """Call the guest. Raises MachineDied, MachineHung, or CallFailed when it answers with an error."""
        packed = msgpack.packb({"call": name, **arguments})
        async with self._one_at_a_time:
            if self._is_over or self._process.stdin is None:
                raise MachineDied(self.name, name, self._why())
            self._process.stdin.write(struct.pack(">I", len(packed)) + packed)
            return await self._answer(name, deadline_s)

    async def _answer(self, call: str, deadline_s: float) -> Any:
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(deadline_s):
                (length,) = struct.unpack(">I", await self._process.stdout.readexactly(4))
                if length > ANSWER_MOST_BYTES:
                    self.kill()
                    why = f"its answer of {length} bytes exceeds {ANSWER_MOST_BYTES}; it was killed"
                    raise MachineDied(self.name, call, why)
                answer = msgpack.unpackb(await self._process.stdout.readexactly(length))
        except TimeoutError:
            self.kill()
            raise MachineHung(self.name, call, deadline_s) from None
        except (asyncio.IncompleteReadError, ConnectionError):
            await self._await_exit(EXIT_GRACE_S)
            why = self._why()
            self.kill()
            raise MachineDied(self.name, call, why) from None
        except asyncio.CancelledError:  # part of an answer may still be in the pipe
            self.kill()
            raise
        if "error" in answer:
            raise CallFailed(self.name, call, answer["error"])
        return answer["ok"]

    @property
    def is_over(self) -> bool:
        """Whether the machine was killed or has ended, so that it answers no more calls."""
        return self._is_over or self._process.returncode is not None

    @property
    def is_busy(self) -> bool:
        """Whether a call is in progress."""
        return self._one_at_a_time.locked()

    @property
    def pid(self) -> int:
        """Process id of bubblewrap."""
        return self._process.pid

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to everything in the sandbox: SIGSTOP makes it hang, SIGKILL ends it."""
        if number is signal.SIGKILL:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            return
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """Kill everything in the sandbox without waiting."""
        self._is_over = True
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def close(self) -> None:
        """Kill the sandbox and wait for its end. May be repeated."""
        self.kill()
        await self._await_exit(KILL_DEADLINE_S)
        self._limit.release()

    async def _await_exit(self, within_s: float) -> None:
        """Wait for the exit and read the pipes to their end, since only then asyncio closes them."""
        assert self._process.stdout is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._process.wait()
                await self._process.stdout.read()

    def _pids(self) -> list[int]:
        """Return the process ids of bubblewrap and all its descendants."""
        try:
            process = psutil.Process(self._process.pid)
            return [process.pid, *(child.pid for child in process.children(recursive=True))]
        except psutil.NoSuchProcess:
            return []

    def _why(self) -> str:
        code = self._process.returncode
        ended = "it was killed" if self._is_over and code is None else f"exit code {code}"
        with contextlib.suppress(OSError), self._log.open("rb") as log:
            log.seek(max(0, self._log.stat().st_size - LOG_TAIL_BYTES))
            words = log.read().decode(errors="replace").strip()
            return f"{ended}; its log ends with: {words}" if words else ended
        return ended


def _python(passwd: Path) -> dict[str, Any]:
    """Return the options of the sandbox that make this interpreter and this package usable inside."""
    package = Path(dart.__file__).resolve().parent
    prefixes = {Path(prefix) for prefix in (sys.prefix, sys.base_prefix)}
    return {
        "readable": [*prefixes, package],
        "passwd": passwd,
        "environment": {"PYTHONPATH": str(package.parent)},
    }
