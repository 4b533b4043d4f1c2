"""Providers of virtual machines: their interface, and a provider of machines at fixed addresses."""

import asyncio
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from dart.config.machine_address import MachineAddress, parse_address
from dart.environments.faults import CallFailed, MachineHung

MOST_SAID = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineLease:
    """A machine that an environment holds."""

    name: str
    """Name of the machine in messages."""
    address: MachineAddress


class Provider(Protocol):
    """Gives one environment its machines, one at a time."""

    async def acquire(self, *, deadline_s: float) -> MachineLease:
        """Return a machine that runs or is starting; the environment checks itself when it is ready.

        Raises NoMachineFree, MachineDied or another infrastructure fault, or ProviderRefused.
        """
        ...

    async def revert(self, lease: MachineLease, snapshot: str, *, deadline_s: float) -> None:
        """Revert the machine to a snapshot. Raises an infrastructure fault."""
        ...

    async def release(self, lease: MachineLease) -> None:
        """Give a machine back. Never fails and ends within seconds."""
        ...


class AddressList:
    """Machines that already run, one for each environment; an optional command reverts them."""

    def __init__(self, addresses: Sequence[str], index: int, revert_command: Sequence[str] = ()) -> None:
        self._address = parse_address(addresses[index % len(addresses)])
        self._revert_command = tuple(revert_command)

    async def acquire(self, *, deadline_s: float) -> MachineLease:
        return MachineLease(name=f"the machine at {self._address}", address=self._address)

    async def revert(self, lease: MachineLease, snapshot: str, *, deadline_s: float) -> None:
        values = {
            "address": str(lease.address),
            "host": lease.address.host,
            "port": str(lease.address.server),
            "snapshot": snapshot,
        }
        command = [part.format(**values) for part in self._revert_command]
        await run(command, f"reverting {lease.name}", deadline_s=deadline_s)

    async def release(self, lease: MachineLease) -> None:
        """Do nothing: the machine keeps running."""


async def run(
    command: Sequence[str], what: str, *, deadline_s: float, refuses: Callable[[int], bool] = bool
) -> str:
    """Run a command and return its output.

    Raises CallFailed when it fails, MachineHung when it does not end in time.
    """
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
        if process.returncode is None:  # after a timeout, or when this task was cancelled
            process.kill()
            await process.communicate()
    if refuses(process.returncode or 0):
        said = errors.decode(errors="replace").strip()[-MOST_SAID:]
        raise CallFailed(command[0], what, f"exit code {process.returncode}: {said}")
    return output.decode(errors="replace")
