"""Where virtual machines come from: the interface of providers, and machines whose addresses are known."""

import asyncio
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from dart.config.machine_address import MachineAddress, parse_address
from dart.environments.faults import CallFailed, MachineHung

MOST_SAID = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Lent:
    """One machine, for as long as its environment holds it."""

    name: str
    """For messages."""
    address: MachineAddress


class Provider(Protocol):
    """Gives one environment its machines, one at a time."""

    async def lend(self, *, deadline_s: float) -> Lent:
        """A machine that is starting or runs; whether it is ready is found out by asking it.

        Raises NoMachineFree, MachineDied or another infrastructure fault, or ProviderRefused.
        """
        ...

    async def revert(self, lent: Lent, snapshot: str, *, deadline_s: float) -> None:
        """Bring the machine back to a snapshot."""
        ...

    async def take_back(self, lent: Lent) -> None:
        """The machine is not needed any more. Does not fail, ends within seconds."""
        ...


class AddressList:
    """Machines that run already, one for each environment; they are brought back by a command, or not."""

    def __init__(self, addresses: Sequence[str], index: int, revert_command: Sequence[str] = ()) -> None:
        self._address = parse_address(addresses[index % len(addresses)])
        self._revert_command = tuple(revert_command)

    async def lend(self, *, deadline_s: float) -> Lent:
        return Lent(name=f"the machine at {self._address}", address=self._address)

    async def revert(self, lent: Lent, snapshot: str, *, deadline_s: float) -> None:
        values = {
            "address": str(lent.address),
            "host": lent.address.host,
            "port": str(lent.address.server),
            "snapshot": snapshot,
        }
        command = [part.format(**values) for part in self._revert_command]
        await run(command, f"reverting {lent.name}", deadline_s=deadline_s)

    async def take_back(self, lent: Lent) -> None:
        """It stays where it is."""


async def run(
    command: Sequence[str], what: str, *, deadline_s: float, refuses: Callable[[int], bool] = bool
) -> str:
    """A command's output. Raises CallFailed when it fails, MachineHung when it does not end in time."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
    except OSError as error:
        raise CallFailed(command[0], what, str(error)) from error
    try:
        async with asyncio.timeout(deadline_s):
            output, errors = await process.communicate()
    except TimeoutError:
        raise MachineHung(command[0], what, deadline_s) from None
    finally:
        if process.returncode is None:  # also when the waiting itself was cancelled
            process.kill()
            await process.communicate()
    if refuses(process.returncode or 0):
        said = errors.decode(errors="replace").strip()[-MOST_SAID:]
        raise CallFailed(command[0], what, f"exit code {process.returncode}: {said}")
    return output.decode(errors="replace")
