"""A running desktop as its environment sees it: one child process that answers calls through its pipes.

The child is bubblewrap with everything in it (`dart.environments.desktop.sandbox`). Every call ends: by its
answer, by `MachineDied` when the pipes break, or by `MachineHung` at its deadline; after either of the last
two the machine is dead for good.
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
"""SIGKILL takes effect within this or the computer is broken."""

EXIT_GRACE_S = 0.3
"""Who broke the pipe may tell its exit code before it is killed."""

LAST_WORDS_BYTES = 600

ANSWER_MOST_BYTES = 160 * 2**20
"""Of one answer; a picture of the largest screen that cannot be compressed has 100 MiB."""


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
        """Start a sandbox; its guest answers when this returns.

        scratch        a folder of its own, for the log of what runs in it
        memory_bytes   limit for everything in it together, where the kernel lets us set one; 0 for none
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
        """Ask the guest. Raises MachineDied, MachineHung, or CallFailed when it answered with an error."""
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
                    raise MachineDied(self.name, call, f"it answers with {length} bytes and was killed")
                answer = msgpack.unpackb(await self._process.stdout.readexactly(length))
        except TimeoutError:
            self.kill()
            raise MachineHung(self.name, call, deadline_s) from None
        except (asyncio.IncompleteReadError, ConnectionError):
            await self._await_exit(EXIT_GRACE_S)
            why = self._why()
            self.kill()
            raise MachineDied(self.name, call, why) from None
        except asyncio.CancelledError:  # half an answer may be left in the pipe
            self.kill()
            raise
        if "error" in answer:
            raise CallFailed(self.name, call, answer["error"])
        return answer["ok"]

    @property
    def is_over(self) -> bool:
        """It was killed or has ended; nothing can be asked any more."""
        return self._is_over or self._process.returncode is not None

    @property
    def is_busy(self) -> bool:
        """A call is under way."""
        return self._one_at_a_time.locked()

    @property
    def pid(self) -> int:
        """Of bubblewrap."""
        return self._process.pid

    def send_signal(self, number: signal.Signals) -> None:
        """To everything in the sandbox: SIGSTOP makes it hang, SIGKILL ends it."""
        if number is signal.SIGKILL:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            return
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """End everything in the sandbox; does not wait."""
        self._is_over = True
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def close(self) -> None:
        """As `kill`, and waits until it is gone. May be called again."""
        self.kill()
        await self._await_exit(KILL_DEADLINE_S)
        self._limit.release()

    async def _await_exit(self, within_s: float) -> None:
        """Its pipes are read to their end: only then does asyncio close them."""
        assert self._process.stdout is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._process.wait()
                await self._process.stdout.read()

    def _pids(self) -> list[int]:
        """Bubblewrap and everything below it."""
        try:
            process = psutil.Process(self._process.pid)
            return [process.pid, *(child.pid for child in process.children(recursive=True))]
        except psutil.NoSuchProcess:
            return []

    def _why(self) -> str:
        code = self._process.returncode
        ended = "it was killed" if self._is_over and code is None else f"exit code {code}"
        with contextlib.suppress(OSError), self._log.open("rb") as log:
            log.seek(max(0, self._log.stat().st_size - LAST_WORDS_BYTES))
            words = log.read().decode(errors="replace").strip()
            return f"{ended}; its last words: {words}" if words else ended
        return ended


def _python(passwd: Path) -> dict[str, Any]:
    """What this interpreter needs inside, and how it finds this package there."""
    package = Path(dart.__file__).resolve().parent
    prefixes = {Path(prefix) for prefix in (sys.prefix, sys.base_prefix)}
    return {
        "readable": [*prefixes, package],
        "passwd": passwd,
        "environment": {"PYTHONPATH": str(package.parent)},
    }
