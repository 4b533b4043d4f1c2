"""A guest server in a sandbox of this computer: a desktop with OSWorld's protocol but no virtual machine.

The sandbox is the same as for local desktops, but shares the network so that its port can be reached. Use it
only with a guest server that you trust. The X server and the window manager start first, then the configured
command.
"""

import asyncio
import contextlib
import shlex
import socket
import subprocess
import sys
from pathlib import Path

from dart.config.machine_address import MachineAddress
from dart.config.sections import OSWorldSettings
from dart.environments.desktop.openbox import openbox_rc
from dart.environments.desktop.requirements import missing_for_desktops
from dart.environments.desktop.sandbox import passwd_text, sandbox_command
from dart.environments.faults import CallFailed, DesktopMissing
from dart.environments.osworld.providers import MachineLease

START = """
touch "$HOME/.Xauthority"
exec 3>/tmp/display
Xvfb -displayfd 3 -screen 0 {width}x{height}x24 -nolisten tcp -noreset -ac -dpi 96 &
until [ -s /tmp/display ]; do sleep 0.05; done
export DISPLAY=:$(cat /tmp/display)
openbox --sm-disable --config-file {rc} &
exec {server}
"""
"""The shell script that runs in the sandbox."""

KILL_DEADLINE_S = 5.0


class LocalProvider:
    """Starts a sandbox for each episode and kills it afterwards."""

    def __init__(self, name: str, settings: OSWorldSettings, scratch: Path) -> None:
        self._name = name
        self._settings = settings
        self._scratch = scratch / "local"
        self._process: asyncio.subprocess.Process | None = None

    async def acquire(self, *, deadline_s: float) -> MachineLease:
        missing = missing_for_desktops(applications=False)
        if missing:
            raise DesktopMissing(missing)
        await self._kill()
        port = free_port()
        self._scratch.mkdir(parents=True, exist_ok=True)
        with (self._scratch / "guest.log").open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command(port), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        return MachineLease(
            name=f"the sandbox of {self._name}", address=MachineAddress(host="127.0.0.1", server=port)
        )

    async def revert(self, lease: MachineLease, snapshot: str, *, deadline_s: float) -> None:
        raise CallFailed(lease.name, "a revert", "sandboxes have no snapshots: set renew to 'recreate'")

    async def release(self, lease: MachineLease) -> None:
        await self._kill()

    def _command(self, port: int) -> list[str]:
        settings = self._settings
        passwd, rc = self._scratch / "passwd", self._scratch / "openbox-rc.xml"
        passwd.write_text(passwd_text())
        rc.write_text(openbox_rc())
        script = START.format(
            width=settings.width,
            height=settings.height,
            rc=shlex.quote(str(rc)),
            server=shlex.join(part.format(port=port) for part in settings.local.server),
        )
        readable = [*(path.absolute() for path in settings.local.readable), self._scratch.absolute()]
        prefixes = [Path(sys.prefix), Path(sys.base_prefix)]
        return sandbox_command(
            ["sh", "-c", script], readable=[*readable, *prefixes], passwd=passwd, shares_network=True
        )

    async def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KILL_DEADLINE_S):
                await process.wait()


def free_port() -> int:
    """Return a free port of the loopback interface.

    Another process may take the port before the guest does. The guest then does not start, which is a fault
    like any other, and the next reset uses another port.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
