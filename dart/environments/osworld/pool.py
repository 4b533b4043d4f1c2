"""Virtual machines lent by a server of DART's environment protocol, under a token with a quota.

The server may take minutes to start a machine. A request that was given up is not a request that failed: the
machine may come up all the same, unknown to us, and use up the quota. So what this environment holds, or has
asked for, stands in a file; and with a token of our own, machines of it that stand in no such file and are
older than any request can be are given back.
"""

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2

from dart.config.machine_address import VLC_PORT, MachineAddress
from dart.config.sections import OSWorldPoolSettings
from dart.environments.faults import CallFailed, MachineDied, MachineHung, NoMachineFree, ProviderRefused
from dart.environments.osworld.providers import Lent

QUOTA_RETRY_S = 5.0
"""How often a full quota is looked at again."""

CALL_DEADLINE_S = 20.0
"""For everything but a start."""

LEAKED_AFTER_MINUTES = 2
"""A machine this old that nobody wrote down was lent to nobody. Told within a second, it would be known."""

UNAUTHORIZED, FORBIDDEN, NOT_FOUND, TOO_MANY = 401, 403, 404, 429


class PoolProvider:
    """Asks the server for a machine for each episode and gives it back afterwards."""

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
        """
        ledger   folder in which every environment of the run writes down what it holds, one file each
        """
        self._name = name
        self._settings = settings
        self._ledger = ledger
        self._own = ledger / f"{name}.json"
        self._token = environ.get(settings.token_variable, "")
        self._client = httpx2.AsyncClient(transport=transport, timeout=None, trust_env=False)
        self._sleep = sleep

    async def lend(self, *, deadline_s: float) -> Lent:
        if not self._token:
            raise ProviderRefused(
                self._settings.server, f"the variable {self._settings.token_variable} is empty"
            )
        give_up_s = time.monotonic() + deadline_s
        await self._give_back_old()
        while True:
            left_s = give_up_s - time.monotonic()
            response = await self._ask("POST", "/start_emulator", max(0.001, left_s))
            if response.status_code != TOO_MANY:
                return self._lent(response)
            why = _said(response)
            if left_s <= QUOTA_RETRY_S:
                raise NoMachineFree(self._settings.server, why, deadline_s)
            await self._give_back_leaks()
            await self._sleep(QUOTA_RETRY_S)

    async def revert(self, lent: Lent, snapshot: str, *, deadline_s: float) -> None:
        raise CallFailed(lent.name, "a revert", "the server has no snapshots: set renew to 'recreate'")

    async def take_back(self, lent: Lent) -> None:
        await self._give_back_old()

    def _lent(self, response: httpx2.Response) -> Lent:
        if response.status_code in (UNAUTHORIZED, FORBIDDEN):
            raise ProviderRefused(self._settings.server, _said(response))
        if response.status_code != 200:
            raise CallFailed(self._settings.server, "a start", f"{response.status_code}: {_said(response)}")
        try:
            data = response.json()["data"]
            emulator = str(data["emulator_id"])
            address = MachineAddress(
                host=urlsplit(self._settings.server).hostname or "",
                server=int(data["server_port"]),
                chromium=int(data["chromium_port"]),
                vlc=int(data.get("vlc_port") or VLC_PORT),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise CallFailed(self._settings.server, "a start", f"its answer has no {error}") from error
        self._write_down(emulator)
        return Lent(name=f"the machine {emulator[:8]} of {self._name}", address=address)

    async def _give_back_old(self) -> None:
        """What this environment holds by its file, also from before it was started again."""
        emulator = self._held(self._own)
        if emulator and await self._gave_back(emulator):
            self._own.unlink(missing_ok=True)

    async def _give_back_leaks(self) -> None:
        """Machines of our own token that nobody in this run knows of."""
        if not self._settings.own_token:
            return
        response = await self._quietly("GET", f"/emulators?token={self._token}")
        if response is None or response.status_code != 200:
            return
        held = {self._held(path) for path in self._ledger.glob("*.json")}
        for one in response.json():
            is_old = int(one.get("duration_minutes", 0)) >= LEAKED_AFTER_MINUTES
            if is_old and one["emulator_id"] not in held:
                await self._gave_back(one["emulator_id"])

    async def _gave_back(self, emulator: str) -> bool:
        """Whether the server has it no more."""
        response = await self._quietly("POST", "/stop_emulator", json={"emulator_id": emulator})
        return response is not None and response.status_code in (200, NOT_FOUND)

    def _write_down(self, emulator: str) -> None:
        self._ledger.mkdir(parents=True, exist_ok=True)
        written = self._own.with_suffix(".new")
        written.write_text(json.dumps({"emulator_id": emulator}))
        written.replace(self._own)

    @staticmethod
    def _held(path: Path) -> str:
        try:
            return str(json.loads(path.read_text())["emulator_id"])
        except (OSError, ValueError, KeyError):
            return ""

    async def _quietly(self, method: str, path: str, **content: Any) -> httpx2.Response | None:
        """An exchange whose failure only means that it has to be tried another time."""
        try:
            return await self._ask(method, path, CALL_DEADLINE_S, **content)
        except (MachineDied, MachineHung):
            return None

    async def _ask(self, method: str, path: str, deadline_s: float, **content: Any) -> httpx2.Response:
        url = f"{self._settings.server.rstrip('/')}{path}"
        headers = {"Authorization": f"Bearer {self._token}"}
        route = path.partition("?")[0]
        try:
            async with asyncio.timeout(deadline_s):
                return await self._client.request(method, url, headers=headers, **content)
        except TimeoutError:
            raise MachineHung(self._settings.server, route, deadline_s) from None
        except httpx2.TransportError as error:
            raise MachineDied(self._settings.server, route, f"{type(error).__name__}: {error}") from error


def _said(response: httpx2.Response) -> str:
    try:
        return str(response.json().get("message", ""))
    except (ValueError, AttributeError):
        return response.text[:200]
