"""Providers of virtual machines: their interface, and providers for machines at fixed addresses, in docker's
containers and in sandboxes of this computer. `dart.environments.osworld.pool` asks a server for machines.
"""

import asyncio
import contextlib
import os
import shlex
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from dart.config.machine_address import (
    CHROMIUM_PORT,
    SERVER_PORT,
    VLC_PORT,
    VNC_PORT,
    MachineAddress,
    parse_address,
)
from dart.config.sections import OSWorldDockerSettings, OSWorldSettings
from dart.environments.deadlines import LeftS, counting_down
from dart.environments.desktop.openbox import openbox_rc
from dart.environments.desktop.requirements import missing_for_desktops
from dart.environments.desktop.sandbox import await_exit, kill, start_sandbox
from dart.environments.faults import CallFailed, DesktopMissing, InfrastructureFault, MachineHung

QUOTED_CHARACTERS = 300
"""Number of characters of a failed command's stderr that a message quotes."""

LABEL = "dartrl.environment"
"""Label of containers: the run directory with the name of the environment. `run_label` is the other label."""

KVM = Path("/dev/kvm")
REMOVE_DEADLINE_S = 30.0

COMMAND_RETRY_S = 5.0
AWAY_S = 120.0
"""How long a command that fails is repeated, every `COMMAND_RETRY_S`: docker's daemon or the server that
reverts a machine may be restarting."""

KILLED_WITHIN_S = 2.0
"""How long a killed command may take to be gone."""

AUTHORITY = r"\001\000\000\007nowhere\000\000\000\022MIT-MAGIC-COOKIE-1\000\0200000000000000000"
"""An entry of ~/.Xauthority, written for printf. It matches no display: the X server admits every client.

Without an entry, python-xlib prints a warning into the output of each program that an evaluator runs in the
guest. The evaluators would take the warning for a part of a path, find no file, and give the score 0."""

START = """
printf '{authority}' > "$HOME/.Xauthority"
cat > /tmp/openbox-rc.xml <<'END'
{rc}END
exec 3>/tmp/display
Xvfb -displayfd 3 -screen 0 {width}x{height}x24 -nolisten tcp -noreset -ac -dpi 96 &
until [ -s /tmp/display ]; do sleep 0.05; done
export DISPLAY=:$(cat /tmp/display)
openbox --sm-disable --config-file /tmp/openbox-rc.xml &
exec {server}
"""
"""Template of the shell script that `LocalProvider` runs in its sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineLease:
    """A machine that an environment holds."""

    name: str
    """Name of the machine in messages."""
    address: MachineAddress


class Provider(Protocol):
    """Gives one environment its machines, one at a time."""

    async def acquire(self, *, deadline_s: float) -> MachineLease:
        """Return a machine that runs or is starting. The caller checks when the machine is ready.

        Raises NoMachineFree, MachineDied or another infrastructure fault, ProviderAway or ProviderRefused.
        """
        ...

    async def revert(self, snapshot: str, *, deadline_s: float) -> None:
        """Revert the machine to a snapshot. Raises an infrastructure fault when this fails.

        This default always raises: a provider without snapshots inherits it, and the check of the
        configuration refuses ``renew = "revert"`` for it.
        """
        why = "it has no snapshots: set environments.osworld.renew to 'recreate'"
        raise CallFailed(type(self).__name__, "a revert", why)

    async def release(self) -> None:
        """Give back what this environment has: its machine, one whose start was cancelled and goes on, and
        one that an earlier process of it left.

        Never fails and ends within seconds. May be repeated."""
        ...


class AddressList(Provider):
    """Machines that already run, one for each environment; an optional command reverts them."""

    def __init__(self, addresses: Sequence[str], index: int, revert_command: Sequence[str] = ()) -> None:
        self._address = parse_address(addresses[index % len(addresses)])
        self._revert_command = tuple(revert_command)

    async def acquire(self, *, deadline_s: float) -> MachineLease:
        return MachineLease(name=f"the machine at {self._address}", address=self._address)

    async def revert(self, snapshot: str, *, deadline_s: float) -> None:
        address = self._address
        values = {"address": address, "host": address.host, "port": address.server, "snapshot": snapshot}
        command = [part.format(**values) for part in self._revert_command]
        await run_until_done(command, f"reverting the machine at {address}", deadline_s=deadline_s)

    async def release(self) -> None:
        """Do nothing: the machine keeps running."""


class DockerProvider(Provider):
    """Starts a container for each episode and removes it afterwards.

    Docker publishes a container's ports to free ports of the loopback interface, so that two environments
    never compete for one. A label of each container names its run and its environment. By this label
    the provider finds a container that a killed environment left behind, and removes the container before the
    next one starts. A second label names the run alone, for `dart.environments.osworld.give_back`.
    """

    def __init__(
        self, run_dir: Path, name: str, settings: OSWorldDockerSettings, *, has_kvm: bool | None = None
    ) -> None:
        self._run_label = run_label(run_dir)
        self._name = f"{run_dir.resolve()}:{name}"
        self._settings = settings
        self._has_kvm = KVM.exists() if has_kvm is None else has_kvm

    async def acquire(self, *, deadline_s: float) -> MachineLease:
        left_s = counting_down(deadline_s)
        await self._remove_all(left_s, run_until_done)
        container = (await self._docker(*self.run_arguments(), deadline_s=left_s())).strip()
        ports = await self._ports(container, left_s())
        address = MachineAddress(
            host="127.0.0.1",
            server=ports[SERVER_PORT],
            chromium=ports[CHROMIUM_PORT],
            vlc=ports.get(VLC_PORT, VLC_PORT),
        )
        return MachineLease(name=f"the container {container[:12]} of {self._name}", address=address)

    async def release(self) -> None:
        with contextlib.suppress(InfrastructureFault):  # a container that stays is removed at the next start
            await self._remove_all(counting_down(REMOVE_DEADLINE_S), run)

    def run_arguments(self) -> list[str]:
        """Return the arguments of docker's command line that start a container, from ``run`` on."""
        settings = self._settings
        published = [
            part
            for port in (SERVER_PORT, CHROMIUM_PORT, VNC_PORT, VLC_PORT)
            for part in ("--publish", f"127.0.0.1::{port}")
        ]
        kvm = ["--device", str(KVM)] if self._has_kvm else ["--env", "KVM=N"]
        return [
            *("run", "--detach", "--label", f"{LABEL}={self._name}", "--label", self._run_label),
            *("--cap-add", "NET_ADMIN"),
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
                why = f"port {port} of the container is not published: {said!r}"
                raise CallFailed(self._settings.program, "port", why)
        return ports

    async def _remove_all(self, left_s: LeftS, run_first: "RunCommand") -> None:
        """Remove every container of this environment, including those of an earlier process.

        run_first   `run_until_done` to wait for docker's daemon, or `run`
        """
        label, program = f"{LABEL}={self._name}", self._settings.program
        found = await labelled_containers(label, program, deadline_s=left_s(), run_command=run_first)
        if found:
            await remove_containers(found, program, deadline_s=left_s())

    async def _docker(self, *arguments: str, deadline_s: float) -> str:
        return await run([self._settings.program, *arguments], arguments[0], deadline_s=deadline_s)


def run_label(run_dir: Path) -> str:
    """Return the label of all containers of a run; the same for each path that leads to its directory."""
    return f"dartrl.run={run_dir.resolve()}"


class RunCommand(Protocol):
    """The functions `run` and `run_until_done`."""

    async def __call__(self, command: Sequence[str], what: str, *, deadline_s: float) -> str: ...


async def labelled_containers(
    label: str, program: str, *, deadline_s: float, run_command: RunCommand
) -> list[str]:
    """Return the ids of all containers with a label, also of those that have ended. Raises as `run` does."""
    command = [program, "ps", "--all", "--quiet", "--filter", f"label={label}"]
    return (await run_command(command, "ps", deadline_s=deadline_s)).split()


async def remove_containers(ids: Sequence[str], program: str, *, deadline_s: float) -> None:
    """Remove containers with their volumes, also those that run. Raises as `run` does."""
    await run([program, "rm", "--force", "--volumes", *ids], "rm", deadline_s=deadline_s)


class LocalProvider(Provider):
    """Starts a guest server in a sandbox for each episode and kills it afterwards.

    The sandbox is the same as for local desktops, but shares the network so that its port can be reached. Use
    it only with a guest server that you trust. The X server and the window manager start first, then the
    command ``environments.osworld.local.server``.
    """

    def __init__(self, name: str, settings: OSWorldSettings, scratch: Path) -> None:
        self._name = name
        self._settings = settings
        self._scratch = scratch / "local"
        self._process: asyncio.subprocess.Process | None = None

    async def acquire(self, *, deadline_s: float) -> MachineLease:
        if missing := missing_for_desktops(applications=False):
            raise DesktopMissing(missing)
        await self._kill()
        port = free_port()
        local = self._settings.local
        script = START.format(
            width=self._settings.width,
            height=self._settings.height,
            rc=openbox_rc(),
            authority=AUTHORITY,
            server=shlex.join(part.format(port=port) for part in local.server),
        )
        self._process = await start_sandbox(
            ["sh", "-c", script],
            self._scratch,
            readable=[folder.absolute() for folder in local.readable],
            shares_network=True,
        )
        return MachineLease(
            name=f"the sandbox of {self._name}", address=MachineAddress(host="127.0.0.1", server=port)
        )

    async def release(self) -> None:
        await self._kill()

    async def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            kill(process)
            await await_exit(process)


def free_port() -> int:
    """Return a free port of the loopback interface.

    Another process may take the port before the guest does. The guest then does not start, which is a fault
    like any other, and the next reset uses another port.
    """
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


async def run(command: Sequence[str], what: str, *, deadline_s: float) -> str:
    """Run a command and return its output. Processes that it leaves behind when it ends are not waited for.

    what   name of the call in messages

    Raises CallFailed when the command fails, and MachineHung when it does not end in time.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        code = await _exit_code(command, what, deadline_s, output, errors)
        output.seek(0)
        errors.seek(0)
        if code:
            said = errors.read().decode(errors="replace").strip()[-QUOTED_CHARACTERS:]
            raise CallFailed(command[0], what, f"exit code {code}: {said}")
        return output.read().decode(errors="replace")


async def run_until_done(
    command: Sequence[str], what: str, *, deadline_s: float, sleep: Callable[[float], Any] = asyncio.sleep
) -> str:
    """Run a command as `run` does, and again while it fails, for at most `AWAY_S`.

    Without the pauses, a server that restarts for seconds would cost all attempts of the episodes that begin
    meanwhile."""
    left_s, patience_s = counting_down(deadline_s), counting_down(min(deadline_s, AWAY_S))
    while True:
        try:
            return await run(command, what, deadline_s=left_s())
        except CallFailed:
            if patience_s() <= COMMAND_RETRY_S:
                raise
        await sleep(COMMAND_RETRY_S)


async def _exit_code(
    command: Sequence[str], what: str, deadline_s: float, output: IO[bytes], errors: IO[bytes]
) -> int:
    """Run a command to its end; after the deadline, or when this task is cancelled, kill its process group.

    The output goes to files: a child of the command that lives on would keep a pipe open."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=output, stderr=errors, stdin=subprocess.DEVNULL, start_new_session=True
        )
    except OSError as error:
        raise CallFailed(command[0], what, str(error)) from error
    try:
        async with asyncio.timeout(deadline_s):
            return await process.wait()
    except TimeoutError:
        raise MachineHung(command[0], what, deadline_s) from None
    finally:
        if process.returncode is None:
            await _kill_group(process)


async def _kill_group(process: asyncio.subprocess.Process) -> None:
    """Kill the leader of a session and its process group, and wait for `KILLED_WITHIN_S` until it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(KILLED_WITHIN_S):
            await process.wait()
