"""What another user of the machine finds of a run: closed folders, and ports that believe nothing."""

import os
import socket
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from actors.board import Board, Vitals
from actors.errors import SystemStartFailed
from actors.system import ActorSystem
from actors.thespian_base import new_key
from tests.fault.actors_under_test import Misbehave, Running, pool, running, worker
from tests.fault.keepers import root_spec

NOBODY = 65534


@pytest.fixture(scope="module")
def system() -> Iterator[Running]:
    before = os.umask(0o000)  # nothing may depend on the user's own care
    try:
        with running(worker("a"), pool("crowd", worker("b"))) as system:
            system.await_up("a", "crowd", "b")
            system.await_new("a", _crash(system, "a"))
            yield system
    finally:
        os.umask(before)


def _crash(system: Running, name: str) -> Vitals:
    old = system.row(name)
    system.probe.tell(name, Misbehave(how="raise"))
    return old


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_the_folders_of_a_run_let_nobody_else_in(system: Running) -> None:
    assert {mode(system.system.run_dir), mode(system.mail_dir)} == {0o700}


def test_the_key_the_board_and_the_logs_are_their_owners_alone(system: Running) -> None:
    run_dir = system.system.run_dir
    logs = list((run_dir / "logs").iterdir())
    assert logs
    assert {mode(path) for path in (run_dir / "key", run_dir / "board", *logs)} == {0o600}


def test_a_key_and_a_board_that_were_there_before_are_made_private(tmp_path: Path) -> None:
    for name in ("key", "board"):
        (tmp_path / name).touch(mode=0o666)
        (tmp_path / name).chmod(0o666)
    new_key(tmp_path / "key")
    Board.create(tmp_path / "board").close()
    assert {mode(tmp_path / name) for name in ("key", "board")} == {0o600}


def denied_to_nobody(attempts: list[Callable[[], object]]) -> int:
    """How many of the attempts another user is denied; made by a child that has become that user."""
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        os._exit(sum(map(_is_denied, attempts)))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _is_denied(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except PermissionError:
        return True
    return False


def connect_to_inbox(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(str(path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_another_user_reads_no_key_no_board_no_log_and_reaches_no_inbox(system: Running) -> None:
    run_dir, inbox = system.system.run_dir, system.mail_dir / str(system.row("a").slot)
    reads = [(run_dir / name).read_bytes for name in ("key", "board", "logs/a.jsonl", "crash/a.1.txt")]
    attempts = [*reads, partial(connect_to_inbox, inbox), partial(os.kill, system.pid("a"), 0)]
    for attempt in attempts:
        attempt()  # the owner may
    assert denied_to_nobody(attempts) == len(attempts)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mail").mkdir()
    os.chown(tmp_path / "mail", NOBODY, NOBODY)
    with pytest.raises(SystemStartFailed, match=f"belongs to user {NOBODY}"):
        ActorSystem(tmp_path, tmp_path / "mail", root_spec())
