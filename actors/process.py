"""Processes as the kernel sees them: whether one runs, how it ended, and how it dies with its parent."""

import ctypes
import gc
import os
import resource
import select
import signal
import sys
from dataclasses import dataclass

EXIT_CRASHED = 70
"""Exit code of an actor with an uncaught exception; the crash file has the traceback."""

EXIT_LOOP_ENDED = 71
"""Exit code when Thespian's own loop ended. An actor that ends by itself never returns to that loop."""

EXIT_SHUTDOWN = 75
"""Exit code of a supervisor that gave up (OTP's reason `shutdown`)."""

EXIT_IGNORED = 76
"""Exit code of an actor that had nothing to do, which is no failure (OTP's `ignore`)."""

EXIT_OVERDUE = 77
"""Exit code of an actor whose work in a thread passed its deadline (`actors.errors.WorkOverdue`)."""

MANY_FILES = 65536

STAT_BYTES = 4096
"""The bytes to read of /proc/pid/stat, which is always shorter."""

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(expected_parent_pid: int | None = None) -> None:
    """Have the kernel SIGKILL this process when the thread that forked it ends (invariant no-orphans).

    expected_parent_pid closes the race where the parent died before this call.
    """
    if _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if expected_parent_pid is not None and os.getppid() != expected_parent_pid:
        os._exit(1)


@dataclass(frozen=True, slots=True)
class ExitReason:
    """How a process ended: an exit code, or the signal that ended it."""

    code: int | None
    signal: int | None = None

    @property
    def is_normal(self) -> bool:
        """OTP's normal: the process ended by itself with code 0."""
        return self.code == 0

    def __str__(self) -> str:
        if self.signal is not None:
            is_named = self.signal in signal.Signals.__members__.values()
            return signal.Signals(self.signal).name if is_named else f"signal {self.signal}"
        return "normal" if self.code == 0 else f"exit code {self.code}"


def exit_reason_of(returncode: int | None) -> ExitReason:
    """Return the end that a return code of multiprocessing or subprocess means (negative: a signal)."""
    if returncode is not None and returncode < 0:
        return ExitReason(code=None, signal=-returncode)
    return ExitReason(code=returncode)


def has_ended(pidfd: int, timeout_s: float = 0.0) -> bool:
    """Whether the process behind a pidfd ended, waiting for that at most `timeout_s`."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def kill_process(pid: int, ticks: int) -> bool:
    """SIGKILL the process of this pid and start time; False when it has ended. Does not wait."""
    if ticks <= 0:
        return False
    try:
        fd = os.pidfd_open(pid)
    except OSError:  # it has ended, or there is no descriptor to identify it by
        return False
    try:
        if not is_running(pid, ticks):
            return False
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def fill_standard_streams() -> None:
    """Open /dev/null where standard input, output or error is closed.

    Otherwise a file that is opened later gets that number, and printed text goes into it. The same holds for
    the processes that this one starts, so they inherit what is opened here.
    """
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number: this one
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115


def stat_fields(pid: int) -> list[bytes]:
    """The fields of /proc/pid/stat from the state to the resident memory: fields 3 to 24 of proc_pid_stat(5).

    The list is empty after the end of the process. No file object is made, because a scrape of metrics may
    read the fields of a thousand processes.
    """
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        try:
            return parse_stat(os.read(fd, STAT_BYTES))
        finally:
            os.close(fd)
    except (FileNotFoundError, ProcessLookupError):
        return []


def parse_stat(stat: bytes) -> list[bytes]:
    """Split a line of /proc/pid/stat behind the name of the process, which may hold brackets and spaces."""
    return stat.rpartition(b")")[2].split(None, 22)[:22]


def start_ticks(pid: int) -> int:
    """When a process started, in ticks since the machine did (/proc/pid/stat, field 22); 0 after its end.

    Pid and start time identify one process for as long as the machine runs; a pid alone is used again.
    """
    fields = stat_fields(pid)
    return int(fields[19]) if fields else 0


def is_alive(pid: int) -> bool:
    """True while the process runs (a zombie does not)."""
    fields = stat_fields(pid)
    return bool(fields) and fields[0] not in (b"Z", b"X")


def is_running(pid: int, ticks: int) -> bool:
    """Whether the process of this pid and start time runs; a zombie does not."""
    return ticks > 0 and start_ticks(pid) == ticks and is_alive(pid)


def allow_many_files() -> None:
    """Raise the limit of open files of this process and its children, as far as allowed.

    A supervisor holds two descriptors for each child: the usual limit of 1024 is reached by 500 children.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MANY_FILES if hard == resource.RLIM_INFINITY else min(hard, MANY_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def can_open(count: int, like_fd: int) -> bool:
    """Whether this process can open `count` more descriptors now; tried by copying an open one."""
    copies = []
    try:
        for _ in range(count):
            copies.append(os.dup(like_fd))
    except OSError:
        return False
    finally:
        for fd in copies:
            os.close(fd)
    return True


def drop_parents_descriptors(except_fd: int) -> None:
    """In a forked child: close the parent's sockets, pidfds and the like; do not garbage-collect its objects.

    Files and pipes stay open. Garbage collection of the parent's objects would close descriptors by number
    when the child may use these numbers for its own, and would copy the memory pages of these objects.
    """
    gc.freeze()
    for fd in (int(name) for name in os.listdir("/proc/self/fd")):  # noqa: PTH208  # on the way of every start
        if fd > 2 and fd != except_fd and _is_socket_or_anonymous(fd):
            os.close(fd)


def _is_socket_or_anonymous(fd: int) -> bool:
    try:
        target = os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115
    except FileNotFoundError:  # the descriptor the list itself was read from
        return False
    return target.startswith(("socket:", "anon_inode:"))
