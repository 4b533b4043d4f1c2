"""The launcher's side: asking, starting again, and what the board says at the end."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from actors import thespian_base
from actors.board import LAUNCHER, ActorState, Board
from actors.errors import ActorDied, ActorError, AskTimeout, Refused, SystemStartFailed
from actors.process import is_alive, start_ticks
from actors.system import ActorSystem, RootSpec
from supervision.child_spec import SupervisorFlags
from supervision.supervisor import supervisor_args
from tests.fault.actors_under_test import (
    PATIENCE_S,
    Echo,
    Misbehave,
    Who,
    eventually,
    pool,
    worker,
)
from tests.patience import slowness

AGAIN_WITHIN_S = 5.0
"""A second on a machine that has nothing else to do."""


def root() -> RootSpec:
    children = (worker("a"), pool("crowd", worker("b")))
    return RootSpec(
        name="root",
        actor="supervision.supervisor:Supervisor",
        args=supervisor_args(SupervisorFlags(), children),
    )


@pytest.fixture
def folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="fault-", dir="/tmp"))
    (folder / "mail").mkdir()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def launched(folder: Path) -> Iterator[ActorSystem]:
    system = ActorSystem(folder, folder / "mail", root())
    with system:
        eventually(lambda: bool(system.board.get(0, "ready")), "the root is ready")
        yield system
    system.board.close()


def test_the_launcher_asks_and_every_ask_ends(folder: Path) -> None:
    with launched(folder) as system:
        assert LAUNCHER not in [row.name for row in system.board.rows()], "no ask, no row"
        assert system.ask("a", Echo(text="hello")) == Echo(text="hello")
        with pytest.raises(ActorDied, match="'ghost'"):
            system.ask("ghost", Echo())
        with pytest.raises(Refused, match="has no handler for Echo"):
            system.ask("root", Echo())
        with pytest.raises(AskTimeout, match=r"within 0.2 s"):
            system.ask("a", Misbehave(how="never answer"), deadline_s=0.2)
        assert [system.ask("b", Echo(text=str(n))).text for n in range(50)] == [str(n) for n in range(50)]


def test_only_the_thread_that_asked_first_may_ask(folder: Path) -> None:
    said: list[str] = []

    def asks(system: ActorSystem) -> None:
        try:
            system.ask("a", Who())
        except ActorError as error:
            said.append(str(error))

    with launched(folder) as system:
        system.ask("a", Who())
        thread = threading.Thread(target=asks, args=(system,))
        thread.start()
        thread.join()
    assert said
    assert "belongs to the thread that first used tell or ask" in said[0]


LAUNCH = """
import sys
from pathlib import Path
from typing import Any
from tests.fault.test_launcher import launched

with launched(Path(sys.argv[1])) as system:
    print("runs", flush=True)
    system.wait(600)
"""


@pytest.mark.parametrize("victim", ["launcher", "admin"])
def test_the_next_start_in_the_same_directory_follows_the_kill_at_once(folder: Path, victim: str) -> None:
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCH, str(folder)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert launcher.stdout is not None
        assert any(line == "runs\n" for line in launcher.stdout)
        pid = launcher.pid if victim == "launcher" else int((folder / "admin.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        if victim == "admin":
            launcher.wait(PATIENCE_S)
        started = time.monotonic()
        with launched(folder) as system:
            assert system.ask("a", Echo(text="again")) == Echo(text="again")
            assert time.monotonic() - started < AGAIN_WITHIN_S * slowness()
            assert system.reaped == ()
    finally:
        launcher.kill()
        launcher.wait()
        assert launcher.stdout is not None
        launcher.stdout.close()


def test_a_directory_whose_launcher_runs_is_refused_and_its_system_unharmed(folder: Path) -> None:
    with launched(folder) as system:
        with pytest.raises(SystemStartFailed, match=rf"in use by process {os.getpid()}"):
            ActorSystem(folder, folder / "mail", root())
        assert system.ask("a", Echo(text="unharmed")) == Echo(text="unharmed")


def open_files(processes: list[psutil.Process]) -> set[str]:
    """What the descriptors of these processes refer to, as /proc names it."""
    found = set()
    for process in processes:
        for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
                found.add(str(descriptor.readlink()))
    return found


def test_nobody_else_is_given_the_port_of_a_system_that_starts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, held_inodes = [], []
    install = thespian_base.install

    def bind_it_first(*args: Any) -> None:
        install(*args)
        held_inodes.append(os.fstat(args[-1].fileno()).st_ino)
        with socket.socket() as other, contextlib.suppress(OSError):
            other.bind(("127.0.0.1", args[-1].getsockname()[1]))
            answers.append("bound")

    monkeypatch.setattr(thespian_base, "install", bind_it_first)
    with launched(folder) as system:
        assert system.ask("a", Echo(text="up")) == Echo(text="up")
        links = open_files(psutil.Process().children(recursive=True))
    assert answers == []
    assert links
    assert f"socket:[{held_inodes[0]}]" not in links, "no process below the launcher keeps the port"


def test_a_process_that_escaped_an_earlier_system_is_killed_at_the_next_start_and_named(folder: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as escaped:
        board = Board.create(folder / "board")
        board.set(board.claim("env-3", "root"), pid=escaped.pid, pid_start_ticks=start_ticks(escaped.pid))
        board.close()
        with launched(folder) as system:
            assert [(left.name, left.pid) for left in system.reaped] == [("env-3", escaped.pid)]
            assert not is_alive(escaped.pid)


@pytest.mark.parametrize("end", ["kill the root", "leave"])
def test_when_the_system_is_over_no_row_says_that_it_runs(folder: Path, end: str) -> None:
    with launched(folder) as system:
        if end == "kill the root":
            os.kill(system.board.get(0, "pid"), signal.SIGKILL)
            assert system.wait(PATIENCE_S)
            states = {row.name: (row.state, row.ready) for row in system.board.rows()}
            assert states == dict.fromkeys(("root", "a", "crowd", "b"), (ActorState.STOPPED, False))
    board = Board(folder / "board")
    for row in board.rows():
        assert (row.state, row.ready) == (ActorState.STOPPED, False)
        assert row.name == "root" or row.last_reason.startswith("the system ended"), row
    board.close()
