"""How a process ended, in words."""

import os
import signal
import socket
from pathlib import Path

import pytest

from actors.process import drop_parents_descriptors, exit_reason_of, is_alive


@pytest.mark.parametrize(
    ("returncode", "text", "is_normal"),
    [
        (0, "normal", True),
        (70, "exit code 70", False),
        (-signal.SIGKILL, "SIGKILL", False),
        (-signal.SIGSEGV, "SIGSEGV", False),
        (None, "exit code None", False),
    ],
)
def test_an_exit_is_named_after_its_code_or_its_signal(
    returncode: int | None, text: str, is_normal: bool
) -> None:
    reason = exit_reason_of(returncode)
    assert (str(reason), reason.is_normal) == (text, is_normal)


def test_a_signal_without_a_name_is_named_by_its_number() -> None:
    assert str(exit_reason_of(-(signal.SIGRTMIN + 1))) == f"signal {signal.SIGRTMIN + 1}"


def test_this_process_is_alive_and_one_that_was_reaped_is_not() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert is_alive(os.getpid())
    assert not is_alive(pid), "a zombie runs no more"
    os.waitpid(pid, 0)
    assert not is_alive(pid)


def test_a_child_leaves_sockets_and_the_like_to_its_parent_and_keeps_files_and_pipes(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    event = os.eventfd(0)
    kept = socket.socket(socket.AF_UNIX)
    said, saying = os.pipe()
    with (tmp_path / "file").open("w") as file:
        if not (pid := os.fork()):
            drop_parents_descriptors(except_fd=kept.fileno())
            is_open = [
                Path(f"/proc/self/fd/{fd}").exists()
                for fd in (ours.fileno(), theirs.fileno(), event, kept.fileno(), saying, file.fileno())
            ]
            os.write(saying, bytes(is_open))
            os._exit(0)
    os.waitpid(pid, 0)
    assert list(os.read(said, 100)) == [False, False, False, True, True, True]
    for holder in (ours, theirs, kept):
        holder.close()
    for fd in (event, said, saying):
        os.close(fd)
