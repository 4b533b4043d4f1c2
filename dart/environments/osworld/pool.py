"""Virtual machines from a server that speaks DART's environment protocol, under a token with a quota.

The server may take minutes to start a machine, and finishes a start also when its caller no longer waits.
Every environment therefore writes each start and each machine to a file (`machine_ledger`), and removes a
machine from there when the server confirms that it is stopped. A start that is no longer waited for goes on
in the background, and its machine is stopped as soon as the server answers.

If only this run uses the token, machines of the token that are in no file of a running process and older than
`LEAKED_AFTER_MINUTES` are stopped when the quota is full, and by an environment that had a start without an
answer. This includes those of an environment that is not started again. What is left after the end of the run
is for `dart.environments.osworld.give_back`.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2
import structlog

from actors.orphans import identity_of
from actors.process import start_ticks
from dart.config.machine_address import VLC_PORT, MachineAddress
from dart.config.sections import OSWorldPoolSettings
from dart.environments.deadlines import counting_down
from dart.environments.faults import CallFailed, MachineHung, NoMachineFree, ProviderAway, ProviderRefused
from dart.environments.osworld.machine_ledger import Ledger, ledgers_in, read_ledger, write_ledger
from dart.environments.osworld.machine_server import (
    BAD_GATEWAY,
    CALL_DEADLINE_S,
    FORBIDDEN,
    GATEWAY_TIMEOUT,
    LONGEST_BOOT_S,
    OK,
    TOO_MANY,
    UNAUTHORIZED,
    UNAVAILABLE,
    MachineServer,
    message_of,
)
from dart.environments.osworld.providers import MachineLease, Provider

START_RETRY_S = 5.0
"""Time between two requests for a machine while the quota is full or the server is away."""

MOST_UNANSWERED = 100
"""How many starts without an answer the file of an environment names: the newest ones."""

LEAKED_AFTER_MINUTES = 2
"""Age in minutes from which a machine that no running process holds counts as leaked, and is stopped.

An environment writes its file within a second after the machine has started."""


class PoolProvider(Provider):
    """Starts a machine on the server for each episode and stops it afterwards."""

    def __init__(
        self,
        name: str,
        settings: OSWorldPoolSettings,
        ledger: Path,
        *,
        environ: Mapping[str, str] = os.environ,
        transport: httpx2.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Any] = asyncio.sleep,
        unix_s: Callable[[], float] = time.time,
    ) -> None:
        """Create the provider of the environment ``name``.

        ledger   folder with a file for each environment of the run, which names the machine that it holds,
                 those whose stop the server has not confirmed, and starts that the server has not answered
        """
        self._name = name
        self._has_own_token = settings.own_token
        self._server = MachineServer(settings, environ=environ, transport=transport)
        self._ledger = ledger
        self._own = ledger / f"{name}.json"
        self._sleep, self._unix_s = sleep, unix_s
        self._abandoned: set[asyncio.Task[None]] = set()
        """Tasks that wait for a start which `acquire` no longer waits for, and then stop its machine."""

    async def acquire(self, *, deadline_s: float) -> MachineLease:
        if self._server.lacks_token:
            raise ProviderRefused(self._server.address, self._server.lacks_token)
        left_s = counting_down(deadline_s)
        await self._stop_own()
        if read_ledger(self._own).unanswered:
            await self._stop_leaked()
        while True:
            try:
                return await self._started(left_s(), deadline_s)
            except (NoMachineFree, ProviderAway):
                if left_s() <= START_RETRY_S:
                    raise
            await self._stop_own()
            await self._stop_leaked()
            await self._sleep(START_RETRY_S)

    async def release(self) -> None:
        await self._stop_own()
        if self._abandoned:
            await asyncio.wait(self._abandoned, timeout=CALL_DEADLINE_S)

    async def _started(self, left_s: float, deadline_s: float) -> MachineLease:
        """Start a machine and wait for it. If the wait ends early, the start goes on in the background."""
        start = asyncio.create_task(self._start())
        try:
            async with asyncio.timeout(left_s):
                response = await asyncio.shield(start)
        except TimeoutError:
            raise MachineHung(self._server.address, "/start_emulator", deadline_s) from None
        finally:
            if not start.done():
                stopping = asyncio.create_task(self._stop_when_started(start))
                self._abandoned.add(stopping)
                stopping.add_done_callback(self._abandoned.discard)
        return self._lease(response, deadline_s)

    async def _start(self) -> httpx2.Response:
        """Ask the server for a machine; the file names the start first, and the machine afterwards."""
        asked_unix_s = self._unix_s()
        self._note(asked=[asked_unix_s])
        try:
            response = await self._server.start()
        except ProviderAway:
            self._note(answered=[asked_unix_s])
            raise
        started = _started_by(response)
        if started is None:  # the server may have started a machine whose id did not arrive
            return response
        try:
            self._note(answered=[asked_unix_s], started=started)
        except OSError:
            await asyncio.gather(*map(self._server.stop, started))  # no file names it to stop it later
            raise
        return response

    async def _stop_when_started(self, start: "asyncio.Task[httpx2.Response]") -> None:
        """Wait for a start for at most `LONGEST_BOOT_S`, then give it up; the file keeps its time."""
        await asyncio.wait([start], timeout=LONGEST_BOOT_S)
        if not start.done():
            start.cancel()
        elif not start.cancelled() and start.exception() is None:
            await self._stop_these(_started_by(start.result()) or ())

    def _lease(self, response: httpx2.Response, deadline_s: float) -> MachineLease:
        server, status = self._server.address, response.status_code
        if status in (UNAUTHORIZED, FORBIDDEN):
            raise ProviderRefused(server, message_of(response))
        if status == TOO_MANY:
            raise NoMachineFree(server, message_of(response), deadline_s)
        if status in (BAD_GATEWAY, UNAVAILABLE):
            raise ProviderAway(server, f"status {status}: {message_of(response)}")
        if status != OK:
            raise CallFailed(server, "a start", f"status {status}: {message_of(response)}")
        try:
            data = response.json()["data"]
            address = MachineAddress(
                host=self._server.host,
                server=int(data["server_port"]),
                chromium=int(data["chromium_port"]),
                vlc=int(data.get("vlc_port") or VLC_PORT),
            )
            emulator = str(data["emulator_id"])
        except (ValueError, KeyError, TypeError) as error:
            why = f"its response does not follow the protocol: {error!r}"
            raise CallFailed(server, "a start", why) from error
        return MachineLease(name=f"the machine {emulator[:8]} of {self._name}", address=address)

    async def _stop_own(self) -> None:
        """Stop the machines that this environment's file names; the file may be from before a restart."""
        await self._stop_these(read_ledger(self._own).emulator_ids)

    async def _stop_leaked(self) -> None:
        """Stop leaked machines of the run's own token; with a shared token, do nothing.

        A machine in the file of a process that has ended has leaked, too: its environment may never start
        again."""
        if not self._has_own_token:
            return
        held = {
            emulator
            for _, ledger in ledgers_in(self._ledger)
            if ledger.is_held
            for emulator in ledger.emulator_ids
        }
        listed = await self._server.listed() or ()
        old = [one.emulator_id for one in listed if one.duration_minutes >= LEAKED_AFTER_MINUTES]
        await self._stop_these([emulator for emulator in old if emulator not in held])

    async def _stop_these(self, emulators: Sequence[str]) -> None:
        """Stop machines, and remove those that are gone from the file of this environment.

        They are stopped together, so that any number of stops that hang takes `CALL_DEADLINE_S`."""
        outcomes = await asyncio.gather(*map(self._server.stop, emulators))
        for emulator, why in zip(emulators, outcomes, strict=True):
            if why:
                structlog.get_logger().warning("machine_not_stopped", machine=emulator, reason=why)
        gone = [emulator for emulator, why in zip(emulators, outcomes, strict=True) if not why]
        if gone:
            with contextlib.suppress(OSError):  # a machine that stays in the file is stopped once more
                self._note(gone=gone)

    def _note(
        self,
        *,
        asked: Sequence[float] = (),
        answered: Collection[float] = (),
        started: Sequence[str] = (),
        gone: Collection[str] = (),
    ) -> None:
        """Write into the file of this environment what has changed. Raises OSError."""
        before, pid = read_ledger(self._own), os.getpid()
        self._ledger.mkdir(parents=True, exist_ok=True)
        ledger = Ledger(
            emulator_ids=[*(one for one in before.emulator_ids if one not in gone), *started],
            unanswered=[*(one for one in before.unanswered if one not in answered), *asked][
                -MOST_UNANSWERED:
            ],
            pid=pid,
            start_ticks=start_ticks(pid),
            folder=identity_of(self._ledger),
        )
        if ledger != before:
            write_ledger(self._own, ledger)


def _started_by(response: httpx2.Response) -> list[str] | None:
    """Return the id of the machine that a request has started; no id if it has started none, and None if the
    response does not say."""
    if response.status_code == GATEWAY_TIMEOUT:
        return None
    if response.status_code != OK:
        return []
    try:
        return [str(response.json()["data"]["emulator_id"])]
    except (ValueError, KeyError, TypeError):
        return None
