"""The agent of one node: passes frames between hosts by Ray calls, and runs the node's actor system.

Each node has one agent, a Ray actor that is bound to the node and reserves no processor. Ray never restarts
an agent; the launcher starts a new one (`dart.cluster.launcher`). The actor system (`dart.cluster.follower`)
is a process of its own, because a supervisor forks and a process with Ray's threads must not fork. The kernel
kills that process when the agent ends.

An agent ends itself, and with itself its actor system, in two cases. The first is the end of its raylet. The
agent watches the raylet by a pidfd, because Ray considers a dead raylet alive until its parent has reaped it.
The second is a launcher that no longer renews its lease at the agent: if Ray's head is lost, the agent has no
other sign that the run is over.
"""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from actors.log import log_to
from dart.cluster.frame_switch import Frames, FrameSwitch, HostUnreachable, log_dropped
from dart.config.gpus import VISIBLE, gpus_here
from dart.core.module_command import module_command
from dart.core.run_directory import mail_dir, make_private
from dart.environments.leftovers import GIVE_BACK_S

LAST_WORDS_BYTES = 4000
"""Number of bytes at the end of a follower's standard error that are reported with its end."""

STOP_ROOM_S = 30.0 + GIVE_BACK_S
"""How many seconds longer than its shards a follower may take after SIGTERM, to end its tree and to give back
what environments have left; then it is killed."""

LAUNCHER_LEASE_TICKS = 6
TICK_S = 1.0
"""An agent ends if its launcher has not renewed the lease for `LAUNCHER_LEASE_TICKS` ticks of `TICK_S`
seconds. Ticks are counted instead of time, so that an agent whose process was frozen does not end as soon as
it runs again: it first gets the renewals that wait."""

FOLLOWER = "dart.cluster.follower"


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerSpec:
    """What the actor system of a node needs to start. The agent writes it to the process's standard input."""

    host: str
    leader: str
    """Name of the control node."""
    folder: str
    """The folder on this node that takes the place of the run directory."""
    wire: str
    capabilities: Mapping[str, int]
    engine_gpus: tuple[str, ...]
    """Names of the GPUs of this node that engines may use."""
    config_toml: str
    """The run's configuration as TOML."""
    rows: int
    """Number of rows of the node's board."""
    longest_shutdown_s: float
    """The longest `shutdown_s` of a shard."""
    agent_pid: int = 0
    """Process id of the agent, with which the actor system ends. The agent fills it in."""


@dataclass(frozen=True, slots=True)
class FollowerEnd:
    """How an actor system ended."""

    code: int
    """Exit code; if negative, the number of the signal that ended the process."""
    words: str
    """The last part of its standard error."""


@dataclass(frozen=True, slots=True)
class ListeningAgent:
    """An agent that is ready for the bridge of its node."""

    pid: int
    wire: str
    """Path of the agent's socket for the bridge."""
    gpus: tuple[str, ...]
    """The GPUs of its node, as CUDA_VISIBLE_DEVICES names them."""


def wire_path(folder: Path) -> Path:
    """Return the path of the agent's socket. It is in a folder beside that of the actors' sockets.

    folder   the node's part of the run directory
    """
    mail = mail_dir(folder)
    return mail.with_name(f"{mail.name}.wire") / "wire"


def gpus_of_raylet() -> tuple[str, ...]:
    """Return the names of the GPUs that the raylet, the parent of this process, can see.

    The raylet is asked because Ray hides all GPUs from a worker that reserves none.
    """
    content = Path(f"/proc/{os.getppid()}/environ").read_bytes()
    pairs = (entry.decode(errors="replace").partition("=") for entry in content.split(b"\0") if entry)
    return gpus_here({name: value for name, _, value in pairs})


def _without_rays_gpus(environment: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables without Ray's CUDA_VISIBLE_DEVICES, which hides GPUs of the node."""
    return {name: value for name, value in environment.items() if name != VISIBLE}


def _errors_of(folder: Path) -> Path:
    """Return the path of the file with the standard error of a node's actor system; makes its folder."""
    make_private(folder)
    return folder / "follower.stderr"


class HostAgent:
    """The agent of one node, made a Ray actor by `dart.cluster.ray_agents`. It runs in one asyncio loop."""

    def __init__(self) -> None:
        self._host = ""
        self._name = ""
        """Name of this agent in Ray."""
        self._names: dict[str, str] = {}
        """Names in Ray of the agents of other hosts, by host."""
        self._handles: dict[str, Any] = {}
        self._switch: FrameSwitch | None = None
        self._process: asyncio.subprocess.Process | None = None
        """The process with the actor system of this node; None while there is none."""
        self._stop_deadline_s = STOP_ROOM_S
        """Seconds in which that process may end its tree after SIGTERM."""
        self._ticks_left: int | None = None
        """Ticks until the launcher's lease ends; None before its first renewal."""

    async def listen(self, name: str, host: str, folder: str) -> ListeningAgent:
        """Open the socket for the bridge of this node.

        name     name of this agent in Ray
        host     name of this node
        folder   the node's part of the run directory
        """
        self._name, self._host = name, host
        wire = wire_path(Path(folder))
        make_private(wire.parent)
        log = Path(folder) / "logs" / "agent.jsonl"
        make_private(log.parent)  # the node's first start makes it later
        log_to(log)
        self._switch = FrameSwitch(wire, self._send)
        self._watch_raylet()
        asyncio.get_running_loop().call_later(TICK_S, self._tick)
        return ListeningAgent(os.getpid(), str(wire), gpus_of_raylet())

    async def renew(self) -> None:
        """Begin the launcher's lease, or renew it for another `LAUNCHER_LEASE_TICKS` ticks."""
        self._ticks_left = LAUNCHER_LEASE_TICKS

    async def know(self, names: Mapping[str, str]) -> None:
        """Learn the names in Ray of other hosts' agents, by host. A changed name is that of a new agent."""
        for host, name in names.items():
            if self._names.get(host) != name:
                self._names[host] = name
                self._handles.pop(host, None)

    async def gone(self, host: str) -> None:
        """Forget the agent of a host that is gone, and tell the bridge that the host is gone."""
        self._names.pop(host, None)
        self._handles.pop(host, None)
        if self._switch is not None:
            self._switch.gone(host)

    async def deliver(self, sender: str, host: str, frames: Frames) -> None:
        """Take frames of another host for the bridge of this node.

        sender   name in Ray of the agent that sends them
        host     host of that agent

        If the sender is not the agent that is known for this host, the frames are dropped, because no answer
        could reach it. So a node that Ray considered dead and that comes back is not heard.
        """
        if self._switch is None:
            return
        if self._names.get(host) == sender:
            await self._switch.deliver(host, frames)
        else:
            log_dropped(host, len(frames), f"they are from {sender}, which is not the agent of its host")

    async def run(self, spec: FollowerSpec, environment: Mapping[str, str]) -> FollowerEnd:
        """Run the actor system of this node in a new process, wait for its end, and return how it ended.

        environment   environment variables such as passwords; a variable that the node has already is kept
        """
        errors = _errors_of(Path(spec.folder))
        with errors.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                *module_command(FOLLOWER),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=stderr,
                env={**environment, **_without_rays_gpus(os.environ)},
                start_new_session=True,
            )
        self._process, self._stop_deadline_s = process, spec.longest_shutdown_s + STOP_ROOM_S
        assert process.stdin is not None
        with contextlib.suppress(ConnectionError):  # the process has ended already; its exit code says why
            process.stdin.write(json.dumps(asdict(spec) | {"agent_pid": os.getpid()}).encode())
            await process.stdin.drain()
            process.stdin.close()
        code = await process.wait()
        self._process = None
        words = errors.read_bytes()[-LAST_WORDS_BYTES:].decode(errors="replace").strip()
        return FollowerEnd(code, words)

    async def outlive(self) -> None:
        """Do nothing until this agent ends. So Ray's reference to a call of this method shows the end."""
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """End the actor system of this node, children first, and remove the folder of the agent's socket.

        The actor system is killed if it takes too long. On the control node it has ended already.
        """
        if self._process is not None:
            await self._stop(self._process)
        if self._switch is not None:
            self._switch.close()
            with contextlib.suppress(OSError):  # it holds what this agent did not make
                self._switch.path.parent.rmdir()

    # ---- inside ----

    async def _stop(self, process: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(self._stop_deadline_s):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _send(self, host: str, frames: Frames) -> None:
        """Pass frames to the agent of a host. Raises HostUnreachable."""
        from ray.exceptions import RayError

        try:
            handle = self._handles.get(host) or await self._found(host)
            await handle.deliver.remote(self._name, self._host, frames)
        except RayError as error:
            self._handles.pop(host, None)
            raise HostUnreachable(f"{host}: {error}") from error

    async def _found(self, host: str) -> Any:
        """Return Ray's handle of the agent of a host. Raises HostUnreachable if there is none."""
        import ray

        name = self._names.get(host)
        if name is None:
            raise HostUnreachable(f"there is no host {host!r}")
        try:
            handle = await asyncio.get_running_loop().run_in_executor(None, ray.get_actor, name)
        except ValueError as error:
            raise HostUnreachable(f"Ray knows no agent of {host!r}") from error
        self._handles[host] = handle
        return handle

    def _watch_raylet(self) -> None:
        """Have this process end when the raylet, its parent, ends."""
        parent = os.pidfd_open(os.getppid())
        asyncio.get_running_loop().add_reader(parent, self._end)

    def _tick(self) -> None:
        """Take one tick from the launcher's lease, and end this process if none is left."""
        if self._ticks_left is not None:
            self._ticks_left -= 1
            if self._ticks_left <= 0:
                self._end()
        asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _end(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        os._exit(1)
