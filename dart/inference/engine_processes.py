"""The processes that an engine spawns: lets none outlive its actor, and finds out why one ended.

vLLM spawns its engine core through `multiprocessing`, and the core spawns the workers. A shell script starts
the interpreter of each spawned process: it first sets the kernel's parent-death signal, and redirects the
output to a file.
"""

import multiprocessing.resource_tracker
import multiprocessing.spawn
import os
import re
import shlex
import signal
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from actors.process import ExitReason, is_alive, start_ticks
from dart.inference.protocol import EngineError

SETPRIV = "setpriv"
"""Program of util-linux that sets the parent-death signal of a process, which stays set across an exec."""

TAIL_BYTES = 65536
"""Number of bytes at the end of a log that are searched for the last error."""

SHORT_OF_MEMORY = (
    "the kernel killed a process for want of memory (OOM killer): lower rollout.vllm.memory, "
    "rollout.vllm.cpu_cache_gib, rollout.vllm.max_tokens or rollout.max_batch"
)

_LAST_WORDS = re.compile(r"(?:\b\w*(?:Error|Exception)\b|Killed|Segmentation fault|out of memory).*")


class EngineDied(EngineError):
    """A process of an engine has ended. The rollout actor ends, too, and is restarted with a new engine."""


class EngineWedged(EngineError):
    """The processes of an engine run but do not answer. The rollout actor ends, and its processes with it."""


@dataclass(frozen=True, slots=True)
class Member:
    """One process of an engine, identified by its pid and start time (`ticks`, in clock ticks since boot)."""

    role: str
    pid: int
    ticks: int

    @property
    def is_there(self) -> bool:
        return start_ticks(self.pid) == self.ticks and is_alive(self.pid)

    @property
    def condition(self) -> str:
        """`gone`, or the status of the process as psutil names it, such as `running` or `stopped`."""
        if not self.is_there:
            return "gone"
        try:
            return str(psutil.Process(self.pid).status())
        except psutil.NoSuchProcess:
            return "gone"


def launcher_script(python: str, parent_pid: int, log: Path) -> str:
    """Return a shell script that runs `python` with its arguments, and is killed when its parent ends.

    If the parent ended before the parent-death signal was set, the script has another parent and exits.

    parent_pid   pid of the process that starts the script
    log          file to which the output is appended
    """
    inner = f'[ "$PPID" = {parent_pid} ] || exit 1; exec "$0" "$@" >>{shlex.quote(str(log))} 2>&1'
    return (
        "#!/bin/sh\n"
        f'exec {SETPRIV} --pdeathsig KILL -- /bin/sh -c {shlex.quote(inner)} {shlex.quote(python)} "$@"\n'
    )


def tie_spawned_processes(log: Path) -> None:
    """Have processes that `multiprocessing` spawns from now on killed when the spawning thread ends.

    Their output goes to a new file `log`. The log of an earlier engine is renamed, so that old errors are not
    taken for new ones. The resource tracker of multiprocessing is started first, without the script. It has
    to outlive the processes, because it removes what they leave in shared memory; then it ends by itself.
    """
    multiprocessing.resource_tracker.ensure_running()
    if log.exists():
        log.replace(log.with_suffix(".previous.log"))
    script = log.with_suffix(".launcher")
    script.write_text(launcher_script(sys.executable, os.getpid(), log))
    script.chmod(0o700)
    multiprocessing.spawn.set_executable(str(script))


def members_below(pids: Iterable[int]) -> tuple[Member, ...]:
    """Return the engine cores with these pids, then all their descendants except resource trackers."""
    cores = [psutil.Process(pid) for pid in pids]
    below = [child for core in cores for child in core.children(recursive=True)]
    workers = [child for child in below if "resource_tracker" not in " ".join(child.cmdline())]
    return tuple(
        Member(role, process.pid, start_ticks(process.pid))
        for role, processes in (("engine core", cores), ("worker", workers))
        for process in processes
    )


def oom_kills() -> int:
    """Return the number of processes that the kernel has killed for want of memory since the boot."""
    lines = Path("/proc/vmstat").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def last_words(log: Path) -> str:
    """Return the last error in a log, at most 300 characters; empty if there is none or no log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    found = (match.group(0) for line in reversed(lines) if (match := _LAST_WORDS.search(line)))
    return next(found, "")[:300]


def why_died(gone: tuple[Member, ...], exits: dict[int, ExitReason], killed: int, log: Path) -> str:
    """Return a text that says why an engine ended and, if known, what to do. Reads the log and nothing else.

    gone     the processes of the engine that have ended
    exits    how child processes of this process ended, by pid
    killed   number of processes that the kernel killed for want of memory since the engine started
    """
    ends = ", ".join(f"{one.role} {one.pid} ended{_by(exits.get(one.pid))}" for one in gone)
    words = last_words(log)
    parts = [
        f"the engine has ended: {ends or 'vLLM reports it'}",
        SHORT_OF_MEMORY if killed and _were_killed(gone, exits) else "",
        f"the last error in its log: {words}" if words else "",
        f"its log is {log}",
    ]
    return "; ".join(part for part in parts if part)


def _were_killed(gone: Iterable[Member], exits: Mapping[int, ExitReason]) -> bool:
    """Whether the kernel may have killed one of these processes, and not only processes of others."""
    ends = [exits.get(one.pid) for one in gone]
    return not ends or any(end is None or end.signal == signal.SIGKILL for end in ends)


def why_wedged(missing: str, members: Iterable[Member], deadline_s: float, log: Path) -> str:
    """Return a text that says what did not come in time, and the status of each process of the engine.

    missing   what did not come, with "no" before it, such as "no token"
    """
    conditions = ", ".join(f"{one.role} {one.pid} is {one.condition}" for one in members)
    return f"{missing} came within {deadline_s:g} s: {conditions}; its log is {log}"


def _by(reason: ExitReason | None) -> str:
    return f" ({reason})" if reason is not None else ""
