"""Virtual machines in containers of this computer, through docker's command line.

Docker publishes a container's ports to free ports of the loopback interface, so that two environments never
compete for one. A label names the run and the environment of a container; by it, a container that a killed
environment left behind is found and removed before the next one starts.
"""

import contextlib
from pathlib import Path

from dart.config.machine_address import CHROMIUM_PORT, SERVER_PORT, VLC_PORT, VNC_PORT, MachineAddress
from dart.config.sections import OSWorldDockerSettings
from dart.environments.faults import CallFailed, InfrastructureFault
from dart.environments.osworld.providers import MachineLease, run

LABEL = "dartrl.environment"
KVM = Path("/dev/kvm")
REMOVE_DEADLINE_S = 30.0


class DockerProvider:
    """Starts a container for each episode and removes it afterwards."""

    def __init__(self, name: str, settings: OSWorldDockerSettings, *, has_kvm: bool | None = None) -> None:
        self._name = name
        self._settings = settings
        self._has_kvm = KVM.exists() if has_kvm is None else has_kvm

    async def acquire(self, *, deadline_s: float) -> MachineLease:
        await self._remove_all(deadline_s)
        container = (await self._docker(*self.run_arguments(), deadline_s=deadline_s)).strip()
        ports = await self._ports(container, deadline_s)
        address = MachineAddress(
            host="127.0.0.1",
            server=ports[SERVER_PORT],
            chromium=ports[CHROMIUM_PORT],
            vlc=ports.get(VLC_PORT, VLC_PORT),
        )
        return MachineLease(name=f"the container {container[:12]} of {self._name}", address=address)

    async def revert(self, lease: MachineLease, snapshot: str, *, deadline_s: float) -> None:
        raise CallFailed(lease.name, "a revert", "containers have no snapshots: set renew to 'recreate'")

    async def release(self, lease: MachineLease) -> None:
        with contextlib.suppress(InfrastructureFault):  # a container that stays is removed at the next start
            await self._remove_all(REMOVE_DEADLINE_S)

    def run_arguments(self) -> list[str]:
        """Return the arguments of ``docker run``."""
        settings = self._settings
        published = [
            part
            for port in (SERVER_PORT, CHROMIUM_PORT, VNC_PORT, VLC_PORT)
            for part in ("--publish", f"127.0.0.1::{port}")
        ]
        kvm = ["--device", str(KVM)] if self._has_kvm else ["--env", "KVM=N"]
        return [
            *("run", "--detach", "--label", f"{LABEL}={self._name}", "--cap-add", "NET_ADMIN"),
            *("--volume", f"{settings.disk.absolute()}:/System.qcow2:ro"),
            *("--env", f"DISK_SIZE={settings.disk_size}", "--env", f"RAM_SIZE={settings.ram}"),
            *("--env", f"CPU_CORES={settings.cpus}"),
            *kvm,
            *published,
            settings.image,
        ]

    async def _ports(self, container: str, deadline_s: float) -> dict[int, int]:
        """Map ports of the container to ports of this computer, from the lines of ``docker port`` such as
        ``5000/tcp -> 127.0.0.1:32768``."""
        said = await self._docker("port", container, deadline_s=deadline_s)
        ports: dict[int, int] = {}
        for line in said.splitlines():
            inside, _, outside = line.partition(" -> ")
            with contextlib.suppress(ValueError):
                ports.setdefault(int(inside.partition("/")[0]), int(outside.rpartition(":")[2]))
        for port in (SERVER_PORT, CHROMIUM_PORT):
            if port not in ports:
                raise CallFailed(self._settings.program, "port", f"{port} is not published: {said!r}")
        return ports

    async def _remove_all(self, deadline_s: float) -> None:
        """Remove every container of this environment, including those of an earlier process."""
        said = await self._docker(
            "ps", "--all", "--quiet", "--filter", f"label={LABEL}={self._name}", deadline_s=deadline_s
        )
        if said.split():
            await self._docker("rm", "--force", "--volumes", *said.split(), deadline_s=deadline_s)

    async def _docker(self, *arguments: str, deadline_s: float) -> str:
        return await run([self._settings.program, *arguments], arguments[0], deadline_s=deadline_s)
