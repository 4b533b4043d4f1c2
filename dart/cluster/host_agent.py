"""The agent of one node: passes frames between hosts by Ray calls, and runs the node's actor system.

One agent per node, a Ray actor that needs no processor, bound to its node, and never restarted by Ray: the
launcher starts a new one (`dart.cluster.launcher`). The actor system is a process of its own, because Ray's
threads and the forks of a supervisor must not share one. The kernel ends it with the agent.

An agent ends itself, and its actor system with it, when its raylet is gone or its launcher is silent. It
watches the raylet by a pidfd: Ray itself takes a dead raylet that its parent has not reaped for a living one.
The launcher renews a lease: without Ray's head, nothing else says that the run is over.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dart.cluster.frame_switch import Frames, FrameSwitch, HostUnreachable, SwitchCounts
from dart.config.gpus import VISIBLE, gpus_here
from dart.core.run_directory import mail_dir, make_private

LAST_WORDS_BYTES = 4000
"""Bytes of a follower's last output that its end is reported with."""

STOP_DEADLINE_S = 60.0
"""Time for a follower to end its tree after SIGTERM; then it is killed."""

LAUNCHER_LEASE_TICKS = 6
TICK_S = 1.0
"""An agent that has not heard of its launcher for so many ticks ends. Ticks are counted, not time, so that an
agent that was frozen has a moment to hear of it."""

FOLLOWER = "dart.cluster.follower"


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerSpec:
    """What the actor system of a node needs to start. It travels to the program on its standard input."""

    host: str
    leader: str
    """Name of the control node."""
    folder: str
    """The node's part of the run directory."""
    wire: str
    capabilities: Mapping[str, int]
    engine_gpus: tuple[str, ...]
    """GPUs that engines may have there."""
    config_toml: str
    """The run's configuration."""
    rows: int
    """Rows of the board."""
    agent_pid: int = 0
    """Process that the actor system ends with; the agent fills it in."""


@dataclass(frozen=True, slots=True)
class FollowerEnd:
    """How an actor system ended."""

    code: int
    """Exit code; negative: a signal."""
    words: str
    """The end of what it wrote on standard error."""


@dataclass(frozen=True, slots=True)
class ListeningAgent:
    """An agent that is ready for the bridge of its node."""

    pid: int
    wire: str
    """Path of its socket."""
    gpus: tuple[str, ...]
    """The GPUs of its node, as CUDA_VISIBLE_DEVICES names them."""


def wire_path(folder: Path) -> Path:
    """The socket of the agent of a node, beside the sockets of its actors."""
    mail = mail_dir(folder)
    return mail.with_name(f"{mail.name}.wire") / "wire"


def gpus_of_raylet() -> tuple[str, ...]:
    """The GPUs of the raylet, the parent of this process. Ray hides them from a worker that asks for none."""
    content = Path(f"/proc/{os.getppid()}/environ").read_bytes()
    pairs = (entry.decode(errors="replace").partition("=") for entry in content.split(b"\0") if entry)
    return gpus_here({name: value for name, _, value in pairs})


def _without_rays_gpus(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what Ray hides: the actors of the node choose among all its GPUs."""
    return {name: value for name, value in environment.items() if name != VISIBLE}


def _errors_of(folder: Path) -> Path:
    """The file with the standard error of a node's actor system."""
    make_private(folder)
    return folder / "follower.stderr"


class HostAgent:
    """Made a Ray actor by `dart.cluster.ray_agents`. All methods run in one asyncio loop."""

    def __init__(self) -> None:
        self._host = ""
        self._name = ""
        """Its own name in Ray."""
        self._names: dict[str, str] = {}
        """Names of the agents of other hosts, in Ray."""
        self._handles: dict[str, Any] = {}
        self._switch: FrameSwitch | None = None
        self._process: asyncio.subprocess.Process | None = None
        """The actor system of this node."""
        self._ticks_left: int | None = None
        """Ticks until the launcher's lease ends; None before its first renewal."""

    async def listen(self, name: str, host: str, folder: str) -> ListeningAgent:
        """Open the socket for the bridge of this node.

        name     of this agent in Ray
        folder   the node's part of the run directory
        """
        self._name, self._host = name, host
        wire = wire_path(Path(folder))
        make_private(wire.parent)
        self._switch = FrameSwitch(wire, self._send)
        self._watch_raylet()
        asyncio.get_running_loop().call_later(TICK_S, self._tick)
        return ListeningAgent(os.getpid(), str(wire), gpus_of_raylet())

    async def renew(self) -> None:
        """Begin the launcher's lease, or renew it."""
        self._ticks_left = LAUNCHER_LEASE_TICKS

    async def know(self, names: Mapping[str, str]) -> None:
        """Learn the names of other hosts' agents in Ray; one that has changed belongs to a new agent."""
        for host, name in names.items():
            if self._names.get(host) != name:
                self._names[host] = name
                self._handles.pop(host, None)

    async def gone(self, host: str) -> None:
        """Take the news that a host is gone, and tell the bridge."""
        self._names.pop(host, None)
        self._handles.pop(host, None)
        if self._switch is not None:
            self._switch.gone(host)

    async def deliver(self, sender: str, host: str, frames: Frames) -> None:
        """Take frames of another host for the bridge of this node.

        sender   the name in Ray of that host's agent

        Frames of an agent that is gone, or not known yet, are dropped: no answer could reach it. A node that
        Ray has given up for dead can still send when it is back, until its agent is ended.
        """
        if self._switch is None:
            return
        if self._names.get(host) == sender:
            await self._switch.deliver(host, frames)
        else:
            self._switch.counts.dropped += len(frames)

    async def counts(self) -> SwitchCounts:
        """What has passed through this agent."""
        return self._switch.counts if self._switch else SwitchCounts()

    async def run(self, spec: FollowerSpec, environment: Mapping[str, str]) -> FollowerEnd:
        """Run the actor system of this node to its end.

        environment   variables such as passwords, which are added to those of the node unless it has them
        """
        errors = _errors_of(Path(spec.folder))
        with errors.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                FOLLOWER,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=stderr,
                env={**environment, **_without_rays_gpus(os.environ)},
                start_new_session=True,
            )
        self._process = process
        assert process.stdin is not None
        with contextlib.suppress(ConnectionError):  # it has ended already; its exit code says why
            process.stdin.write(json.dumps(asdict(spec) | {"agent_pid": os.getpid()}).encode())
            await process.stdin.drain()
            process.stdin.close()
        code = await process.wait()
        self._process = None
        words = errors.read_bytes()[-LAST_WORDS_BYTES:].decode(errors="replace").strip()
        return FollowerEnd(code, words)

    async def stop(self) -> None:
        """End the actor system of this node: its tree ends children first, or is killed at the deadline."""
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_DEADLINE_S):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    # ---- inside ----

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
        """The agent of a host. Raises HostUnreachable if there is none."""
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
        """End with the raylet, which is the parent of Ray's workers."""
        parent = os.pidfd_open(os.getppid())
        asyncio.get_running_loop().add_reader(parent, self._end)

    def _tick(self) -> None:
        """Count the launcher's lease down, and end with it."""
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
