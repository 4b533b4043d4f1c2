"""How a process ended, in words."""

import os
import signal

import pytest

from actors.process import exit_reason_of, is_alive, send_signal


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
    assert not send_signal(pid, signal.SIGTERM)
