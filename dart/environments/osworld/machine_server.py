"""A client of a server that lends virtual machines by DART's environment protocol."""

import asyncio
import contextlib
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx2
import msgspec

from dart.config.sections import OSWorldPoolSettings
from dart.environments.faults import MachineDied, ProviderAway

CALL_DEADLINE_S = 20.0
"""Deadline of every request except a start."""

LONGEST_BOOT_S = 600.0
"""Longest time after which a server answers a start, or lists the machine that came from it."""

OK, UNAUTHORIZED, FORBIDDEN, NOT_FOUND, TOO_MANY = 200, 401, 403, 404, 429
BAD_GATEWAY, UNAVAILABLE, GATEWAY_TIMEOUT = 502, 503, 504


class Listed(msgspec.Struct):
    """What the server says of one machine."""

    emulator_id: str
    duration_minutes: float = 0.0
    """Age of the machine."""
    token: str | None = None
    """Token that the machine was started with; None if the server does not say. A server may ignore the token
    in the request and list the machines of all tokens."""


class MachineServer:
    """Sends requests to the server, under the token of the run."""

    def __init__(
        self,
        settings: OSWorldPoolSettings,
        *,
        environ: Mapping[str, str] = os.environ,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.address = settings.server
        self.host = urlsplit(settings.server).hostname or ""
        self.token = environ.get(settings.token_variable, "")
        self.lacks_token = (
            ""
            if self.token
            else f"the environment variable {settings.token_variable} is empty; set it to your token"
        )
        """What to do if there is no token; empty if there is one."""
        self._client = httpx2.AsyncClient(
            base_url=settings.server,
            headers={"Authorization": f"Bearer {self.token}"},
            transport=transport,
            timeout=None,
            trust_env=False,
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def start(self) -> httpx2.Response:
        """Ask for a machine, for as long as the server takes.

        Raises ProviderAway if nothing was started because the server cannot be reached, and MachineDied if
        the connection broke."""
        return await self._ask("POST", "/start_emulator")

    async def stop(self, emulator: str, *, deadline_s: float = CALL_DEADLINE_S) -> str:
        """Stop a machine. Returns "" if the server confirms that it is gone, else why it may still run."""
        try:
            async with asyncio.timeout(deadline_s):
                response = await self._ask("POST", "/stop_emulator", json={"emulator_id": emulator})
        except TimeoutError:
            return f"no answer within {deadline_s:.0f} s"
        except (MachineDied, ProviderAway) as fault:
            return str(fault)
        if response.status_code in (OK, NOT_FOUND):
            return ""
        return f"status {response.status_code}: {message_of(response)}"

    async def listed(self) -> list[Listed] | None:
        """Return the machines of the token; None if the server does not say.

        An entry that does not follow the protocol is left out: a machine without an id cannot be stopped."""
        try:
            async with asyncio.timeout(CALL_DEADLINE_S):
                response = await self._ask("GET", f"/emulators?token={self.token}")
        except (TimeoutError, MachineDied, ProviderAway):
            return None
        if response.status_code != OK:
            return None
        return [one for one in _listed(response) if one.token in (None, self.token)]

    async def _ask(self, method: str, path: str, **content: Any) -> httpx2.Response:
        try:
            return await self._client.request(method, path, **content)
        except httpx2.ConnectError as error:
            raise ProviderAway(self.address, str(error)) from error
        except httpx2.TransportError as error:
            route, why = path.partition("?")[0], f"{type(error).__name__}: {error}"
            raise MachineDied(self.address, route, why) from error


def _listed(response: httpx2.Response) -> list[Listed]:
    machines: list[Listed] = []
    try:
        entries = response.json()
    except (ValueError, RecursionError):
        return machines
    for entry in entries if isinstance(entries, list) else ():
        with contextlib.suppress(msgspec.ValidationError):
            machines.append(msgspec.convert(entry, Listed, strict=False))
    return machines


def message_of(response: httpx2.Response) -> str:
    """Return the message in a response, or the beginning of a response that does not follow the protocol."""
    try:
        return str(response.json().get("message", ""))
    except (ValueError, AttributeError):
        return response.text[:200]
