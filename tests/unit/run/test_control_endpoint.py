"""The control socket itself, served by a thread of this process, with nobody behind it to ask."""

import contextlib
import errno
import os
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actors.board import Board
from actors.system import RootSpec
from benchmarks.control_fuzz import fuzz
from dart.config.config import Config
from dart.core.errors import NotRunningError, SilentError
from dart.core.run_directory import RunPaths, claimed, holder
from dart.inspect.sidecar_status import read_sidecar
from dart.run import control_endpoint as endpoint_module
from dart.run.control_endpoint import ControlActor, ControlEndpoint
from dart.run.control_protocol import (
    ControlAnswer,
    ControlOutcome,
    Pause,
    Ping,
    StopActor,
    decode_answer,
    encode,
)
from dart.run.control_socket import connect, request
from dart.run.definition import RunDefinition
from dart.run.tree import EXPLORER_POOL

PATIENCE_S = 20.0
DEFINITION = RunDefinition(
    config=Config(), tree_of=lambda config: RootSpec(name="root", actor="module:Class", args={})
)


class Speaker:
    """Keeps what is told."""

    def __init__(self) -> None:
        self.log = self
        self.told: list[tuple[str, str, str]] = []

    def info(self, event: str, *, subject: str, text: str) -> None:
        self.told.append((event, subject, text))

    warning = info

    def tell(self, to: str, content: object) -> bool:
        return True


@pytest.fixture
def paths(tmp_path: Path) -> Iterator[RunPaths]:
    """A claimed run directory with a board and a key, as of a run; its path is too long for a socket."""
    root = tmp_path / ("a" * 120) / "run"
    with claimed(root, resume=False, config_toml="") as directory:
        Board.create(directory.paths.board).close()
        directory.paths.key.write_bytes(bytes(32))
        yield directory.paths


@pytest.fixture
def mail() -> Iterator[Path]:
    """A short path, as sockets need."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
def serving(paths: RunPaths, mail: Path) -> Iterator[RunPaths]:
    with ControlEndpoint(paths, mail, DEFINITION, Speaker()):
        yield paths


def said(paths: RunPaths, frame: bytes) -> ControlAnswer:
    with connect(paths.control, PATIENCE_S) as connection:
        connection.send(frame)
        return decode_answer(connection.recv(1 << 16))


def test_the_socket_is_its_users_alone_and_gone_afterwards(paths: RunPaths, mail: Path) -> None:
    with ControlEndpoint(paths, mail, DEFINITION, Speaker()):
        assert stat.S_IMODE(paths.control.stat().st_mode) == 0o600
    assert not paths.control.exists()


def test_who_is_not_there_is_said_and_the_next_request_is_answered(serving: RunPaths) -> None:
    assert request(serving.root, Pause()).outcome is ControlOutcome.SILENT
    assert request(serving.root, StopActor(name="env-000")).text == "there is no actor 'env-000'"


def test_nonsense_is_answered_and_ends_nothing(serving: RunPaths) -> None:
    for frame in (b"\xc1", b"x" * 20_000, encode(Ping())[:-1], b"\x80"):
        assert said(serving, frame).outcome is ControlOutcome.REFUSED
    assert said(serving, encode(StopActor(name="env-999"))).outcome is ControlOutcome.REFUSED


def test_malformed_requests_change_nothing_and_tell_no_secret(serving: RunPaths) -> None:
    serving.key.write_bytes(b"the key of this run, 32 bytes...")
    assert holder(serving.root) == os.getpid(), "the run's main process is this one"

    found = fuzz(serving, frames=300, seed=7)

    assert found["outcomes"] == {"refused": 300}
    assert set(found["wrong"]) <= {"it does not answer any more"}, "there is no root here to answer"


def test_who_connects_and_leaves_or_says_nothing_keeps_nobody_waiting(
    serving: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_module, "FRAME_DEADLINE_S", 0.05)
    connect(serving.control, PATIENCE_S).close()
    with connect(serving.control, PATIENCE_S) as silent:
        assert said(serving, encode(StopActor(name="env-999"))).outcome is ControlOutcome.REFUSED
        assert silent.recv(1) == b"", "it is hung up on"


def test_more_connections_than_it_takes_are_hung_up_on(
    serving: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_module, "MAX_CONNECTIONS", 2)
    crowd = [connect(serving.control, PATIENCE_S) for _ in range(3)]
    assert crowd[2].recv(1) == b""
    for connection in crowd:
        connection.close()
    give_up_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_s:
        with contextlib.suppress(ConnectionError):  # until it has seen that they left
            assert said(serving, encode(StopActor(name="env-999"))).outcome is ControlOutcome.REFUSED
            return
    pytest.fail("nobody is served any more")


def test_a_process_of_another_user_is_hung_up_on(serving: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dart.run.control_socket._TRUSTED_UIDS", frozenset({os.geteuid() + 1}))
    with connect(serving.control, PATIENCE_S) as connection:
        assert connection.recv(1) == b""


def test_while_there_are_no_file_handles_it_pauses_and_then_accepts(
    serving: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept, refused = socket.socket.accept, list[float]()

    def refuse(self: socket.socket) -> Any:
        if not refused or time.monotonic() < refused[0] + 0.2:
            refused.append(time.monotonic())
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return accept(self)

    monkeypatch.setattr(endpoint_module, "ACCEPT_PAUSE_S", 0.1)
    monkeypatch.setattr(socket.socket, "accept", refuse)
    assert said(serving, encode(StopActor(name="env-999"))).outcome is ControlOutcome.REFUSED
    assert len(refused) <= 3
    assert '"event": "control_not_accepted"' in (serving.logs / "control.jsonl").read_text()


def test_what_was_asked_is_in_its_log(serving: RunPaths) -> None:
    request(serving.root, Pause())

    assert '"event": "request_ended"' in (serving.logs / "control.jsonl").read_text()


def test_a_run_that_does_not_run_and_one_that_does_not_listen_are_told_apart(
    paths: RunPaths, tmp_path: Path
) -> None:
    with pytest.raises(SilentError, match="takes no requests now"):
        request(paths.root, Ping())
    ended = RunPaths(tmp_path)
    ended.lock.touch()
    ended.cluster.write_text("/etc/dartrl/c.toml")
    with pytest.raises(NotRunningError, match=f"`dartrl up /etc/dartrl/c.toml --run-dir {tmp_path}`"):
        request(tmp_path, Ping())


def test_a_request_to_an_exploration_says_that_it_takes_none(paths: RunPaths) -> None:
    board = Board(paths.board)
    board.claim(EXPLORER_POOL, "root")
    board.close()

    with pytest.raises(SilentError, match="an exploration takes no requests: `dartrl down` ends it"):
        request(paths.root, Ping())


def test_an_endpoint_that_hangs_is_given_up_in_time(paths: RunPaths) -> None:
    deaf = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    folder = os.open(paths.root, os.O_PATH)
    deaf.bind(f"/proc/self/fd/{folder}/control.sock")
    deaf.listen(1)
    with pytest.raises(SilentError, match="nothing within"):
        request(paths.root, Ping(wait_ms=0))
    deaf.close()
    os.close(folder)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_endpoint_whose_thread_ended_is_reported_once(
    paths: RunPaths, mail: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends_the_thread(self: ControlActor, connection: socket.socket) -> None:
        raise SystemExit

    speaker = Speaker()
    monkeypatch.setattr(ControlActor, "_read", ends_the_thread)
    with ControlEndpoint(paths, mail, DEFINITION, speaker) as endpoint:
        with pytest.raises(SilentError):
            request(paths.root, Ping(wait_ms=0))
        poll_until(endpoint, lambda: bool(speaker.told))
        endpoint.poll()
        endpoint.poll()

    assert [(event, subject) for event, subject, _ in speaker.told] == [("sidecar_down", "control")]
    assert "its thread ended" in speaker.told[0][2]


def test_one_that_ended_by_a_defect_is_told_of_and_started_again(
    paths: RunPaths, mail: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: ControlActor, connection: socket.socket) -> None:
        raise RuntimeError("a defect")

    speaker = Speaker()
    monkeypatch.setattr(endpoint_module, "BACKOFF", replace(endpoint_module.BACKOFF, initial_s=0.6))
    with ControlEndpoint(paths, mail, DEFINITION, speaker) as endpoint:
        endpoint.poll()
        with monkeypatch.context() as patched:
            patched.setattr(ControlActor, "_read", broken)
            with pytest.raises(SilentError):
                request(paths.root, StopActor(name="nobody", wait_ms=0))
            poll_until(endpoint, lambda: bool(speaker.told))
            down = read_sidecar(paths, "control")
            assert down is not None
            assert "ended by a defect (RuntimeError('a defect'))" in down.text

        poll_until(endpoint, lambda: len(speaker.told) > 1)
        assert request(paths.root, StopActor(name="env-999")).outcome is ControlOutcome.REFUSED

    assert [(event, subject) for event, subject, _ in speaker.told] == [
        ("sidecar_down", "control"),
        ("sidecar_up", "control"),
    ]
    assert "started again in 1 s" in speaker.told[0][2]
    assert read_sidecar(paths, "control") is None


def poll_until(endpoint: ControlEndpoint, holds: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up_s
        endpoint.poll()
        time.sleep(0.005)
