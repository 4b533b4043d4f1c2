"""Virtual machines from a server that speaks DART's environment protocol, under a token with a quota.

The server may take minutes to start a machine. After a request for a machine has timed out, the machine may
still start, unknown to the run, and use up the quota. Every environment therefore writes the machine that it
holds to a file, and removes it from there when the server confirms that it is stopped. If only this run uses
the token, machines of the token that are in no file of a running process and older than
`LEAKED_AFTER_MINUTES` are stopped. This includes those of an environment that is not started again.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import msgspec

from actors.process import is_running, start_ticks
from dart.config.machine_address import VLC_PORT, MachineAddress
from dart.config.sections import OSWorldPoolSettings
from dart.core.run_directory import write_atomically
from dart.environments.deadlines import counting_down
from dart.environments.faults import (
    CallFailed,
    MachineDied,
    MachineHung,
    NoMachineFree,
    ProviderAway,
    ProviderRefused,
)
from dart.environments.osworld.providers import MachineLease, Provider

START_RETRY_S = 5.0
"""Time between two requests for a machine while the quota is full or the server is away."""

CALL_DEADLINE_S = 20.0
"""Deadline of every request except a start."""

LEAKED_AFTER_MINUTES = 2
"""Age in minutes from which a machine that no running process holds counts as leaked, and is stopped.

An environment writes its file within a second after the machine has started."""

UNAUTHORIZED, FORBIDDEN, NOT_FOUND, TOO_MANY = 401, 403, 404, 429
BAD_GATEWAY, UNAVAILABLE = 502, 503


class _Listed(msgspec.Struct):
    """What the server says of one machine."""

    emulator_id: str
    duration_minutes: float = 0.0
    """Age of the machine."""
    token: str | None = None
    """Token that the machine was started with; None if the server does not say. A server may ignore the token
    in the request and list the machines of all tokens."""

    def may_have_leaked(self, token: str) -> bool:
        """Whether the machine belongs to the token and is old enough to be in a file."""
        return self.token in (None, token) and self.duration_minutes >= LEAKED_AFTER_MINUTES


class _Ledger(msgspec.Struct):
    """The file of an environment, with the process that wrote it."""

    emulator_ids: list[str] = []
    pid: int = 0
    start_ticks: int = 0

    @property
    def held(self) -> list[str]:
        """The machines that a process still holds; after its end, none."""
        return self.emulator_ids if is_running(self.pid, self.start_ticks) else []


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
    ) -> None:
        """Create the provider of the environment ``name``.

        ledger   folder with a file for each environment of the run, which names the machine that it holds,
                 and those whose stop the server has not confirmed
        """
        self._name = name
        self._settings = settings
        self._ledger = ledger
        self._own = ledger / f"{name}.json"
        self._token = environ.get(settings.token_variable, "")
        self._client = httpx2.AsyncClient(
            base_url=settings.server,
            headers={"Authorization": f"Bearer {self._token}"},
            transport=transport,
            timeout=None,
            trust_env=False,
        )
        self._sleep = sleep

    async def acquire(self, *, deadline_s: float) -> MachineLease:
        if not self._token:
            raise ProviderRefused(
                self._settings.server,
                f"the environment variable {self._settings.token_variable} is empty; set it to your token",
            )
        left_s = counting_down(deadline_s)
        await self._stop_own()
        while True:
            try:
                return await self._lease(await self._ask("POST", "/start_emulator", left_s()), deadline_s)
            except (NoMachineFree, ProviderAway):
                if left_s() <= START_RETRY_S:
                    raise
            await self._stop_own()
            await self._stop_leaked()
            await self._sleep(START_RETRY_S)

    async def release(self) -> None:
        await self._stop_own()

    async def _lease(self, response: httpx2.Response, deadline_s: float) -> MachineLease:
        server, status = self._settings.server, response.status_code
        if status in (UNAUTHORIZED, FORBIDDEN):
            raise ProviderRefused(server, _message(response))
        if status == TOO_MANY:
            raise NoMachineFree(server, _message(response), deadline_s)
        if status in (BAD_GATEWAY, UNAVAILABLE):
            raise ProviderAway(server, f"status {status}: {_message(response)}")
        if status != 200:
            raise CallFailed(server, "a start", f"status {status}: {_message(response)}")
        try:
            data = response.json()["data"]
            emulator = str(data["emulator_id"])
            await self._remember(emulator)
            address = MachineAddress(
                host=urlsplit(server).hostname or "",
                server=int(data["server_port"]),
                chromium=int(data["chromium_port"]),
                vlc=int(data.get("vlc_port") or VLC_PORT),
            )
        except (ValueError, KeyError, TypeError) as error:
            why = f"its response does not follow the protocol: {error!r}"
            raise CallFailed(server, "a start", why) from error
        return MachineLease(name=f"the machine {emulator[:8]} of {self._name}", address=address)

    async def _remember(self, emulator: str) -> None:
        """Add a machine to the file of this environment; stop it if the file cannot be written."""
        try:
            self._write_ledger([*_read_ledger(self._own).emulator_ids, emulator])
        except OSError:
            await self._stop(emulator)  # it is in no file, so nothing would stop it later
            raise

    async def _stop_own(self) -> None:
        """Stop the machines that this environment's file names; the file may be from before a restart.

        They are stopped together, so that any number of stops that hang takes `CALL_DEADLINE_S`."""
        held = _read_ledger(self._own).emulator_ids
        are_gone = await asyncio.gather(*map(self._stop, held))
        left = [emulator for emulator, is_gone in zip(held, are_gone, strict=True) if not is_gone]
        if left != held:
            with contextlib.suppress(OSError):  # a machine that stays in the file is stopped once more
                self._write_ledger(left)

    async def _stop_leaked(self) -> None:
        """Stop leaked machines of the run's own token; with a shared token, do nothing.

        A machine in the file of a process that has ended has leaked, too: its environment may never start
        again. They are stopped together, like those of `_stop_own`."""
        if not self._settings.own_token:
            return
        response = await self._quietly("GET", f"/emulators?token={self._token}")
        if response is None or response.status_code != 200:
            return
        held = {emulator for path in self._ledger.glob("*.json") for emulator in _read_ledger(path).held}
        old = [one.emulator_id for one in _listed(response) if one.may_have_leaked(self._token)]
        await asyncio.gather(*(self._stop(emulator) for emulator in old if emulator not in held))

    async def _stop(self, emulator: str) -> bool:
        """Stop a machine. Returns whether the server confirms that it is gone."""
        response = await self._quietly("POST", "/stop_emulator", json={"emulator_id": emulator})
        return response is not None and response.status_code in (200, NOT_FOUND)

    def _write_ledger(self, emulators: Sequence[str]) -> None:
        """Replace the names in the file of this environment; without names there is no file."""
        if not emulators:
            self._own.unlink(missing_ok=True)
            return
        self._ledger.mkdir(parents=True, exist_ok=True)
        pid = os.getpid()
        ledger = _Ledger(list(emulators), pid, start_ticks(pid))
        write_atomically(self._own, msgspec.json.encode(ledger), 0o644)

    async def _quietly(self, method: str, path: str, **content: Any) -> httpx2.Response | None:
        """Send a request and return the response; None when the server does not reply."""
        try:
            return await self._ask(method, path, CALL_DEADLINE_S, **content)
        except (MachineDied, MachineHung, ProviderAway):
            return None

    async def _ask(self, method: str, path: str, deadline_s: float, **content: Any) -> httpx2.Response:
        route = path.partition("?")[0]
        try:
            async with asyncio.timeout(deadline_s):
                return await self._client.request(method, path, **content)
        except TimeoutError:
            raise MachineHung(self._settings.server, route, deadline_s) from None
        except httpx2.ConnectError as error:
            raise ProviderAway(self._settings.server, str(error)) from error
        except httpx2.TransportError as error:
            raise MachineDied(self._settings.server, route, f"{type(error).__name__}: {error}") from error


def _read_ledger(path: Path) -> _Ledger:
    """Read the file of an environment; one that is missing or damaged names no machine."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Ledger)
    except (OSError, ValueError):
        return _Ledger()


def _listed(response: httpx2.Response) -> list[_Listed]:
    """Return the machines that a response lists.

    An entry that does not follow the protocol is left out: a machine without an id cannot be stopped."""
    machines: list[_Listed] = []
    try:
        entries = response.json()
    except (ValueError, RecursionError):
        return machines
    for entry in entries if isinstance(entries, list) else ():
        with contextlib.suppress(msgspec.ValidationError):
            machines.append(msgspec.convert(entry, _Listed, strict=False))
    return machines


def _message(response: httpx2.Response) -> str:
    """Return the message in a response, or the beginning of a response that does not follow the protocol."""
    try:
        return str(response.json().get("message", ""))
    except (ValueError, AttributeError):
        return response.text[:200]
