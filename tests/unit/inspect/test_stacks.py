"""How the stack of an actor's process is read: what py-spy is asked, and what is said when it fails."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dart.core.errors import TemporaryError, UnavailableError
from dart.inspect import stacks
from dart.inspect.stacks import read_stack

FakePySpy = Callable[[str], None]


@pytest.fixture
def py_spy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePySpy:
    """Puts a shell script on the PATH as py-spy; none is beside the Python interpreter."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")

    def put(script: str) -> None:
        program = tmp_path / "bin" / "py-spy"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o700)

    return put


@pytest.mark.parametrize(
    ("stands_still", "native", "arguments"),
    [
        (False, False, "dump --pid 42"),
        (True, False, "dump --pid 42 --nonblocking"),
        (False, True, "dump --pid 42 --native"),
        (True, True, "dump --pid 42 --native"),
    ],
)
def test_py_spy_dumps_the_process_and_does_not_pause_one_that_stands_still(
    py_spy: FakePySpy, stands_still: bool, native: bool, arguments: str
) -> None:
    py_spy('echo "$@"')
    assert read_stack("env-003", 42, stands_still=stands_still, native=native) == arguments


def test_a_process_that_hangs_in_the_kernel_is_given_up_in_time(
    py_spy: FakePySpy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "DEADLINE_S", 0.1)
    py_spy("exec sleep 60")
    with pytest.raises(
        TemporaryError, match=r"no stack of 'env-003' .* within 0.1 s; .* read /proc/42/stack"
    ):
        read_stack("env-003", 42)


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        (
            "echo Error: Permission denied >&2; exit 1",
            ": Error: Permission denied; run this command as root, or ",
        ),
        ("echo Error: >&2; echo no such process >&2; exit 1", ": no such process$"),
        ("exit 1", ": it gave no reason$"),
    ],
)
def test_a_py_spy_that_fails_is_quoted_and_the_right_to_trace_has_a_remedy(
    py_spy: FakePySpy, script: str, complaint: str
) -> None:
    py_spy(script)
    with pytest.raises(UnavailableError, match=rf"the stack of 'env-003' \(process 42\){complaint}"):
        read_stack("env-003", 42)


def test_without_py_spy_the_remedy_is_to_install_it(
    py_spy: FakePySpy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UnavailableError, match="pip install py-spy"):
        read_stack("env-003", 42)
