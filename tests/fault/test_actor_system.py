"""The actor system against the world: nothing is left behind, nothing foreign is believed."""

import contextlib
import hmac
import importlib
import importlib.metadata
import json
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import zmq

from actors import thespian_base
from actors.board import Board
from actors.errors import ActorDied, SystemStartFailed
from actors.process import die_with_parent, is_alive
from actors.system import ActorSystem, RootSpec
from tests.fault.actors_under_test import (
    PATIENCE_S,
    Echo,
    Me,
    Misbehave,
    Running,
    Who,
    eventually,
    pool,
    running,
    sockets_left_to_the_collector,
    worker,
)

GONE_WITHIN_S = 5.0
MARK = "DARTRL_TEST_MARK"


@pytest.fixture(scope="module")
def system() -> Iterator[Running]:
    with running(worker("a"), pool("crowd", worker("b"), worker("c"))) as system:
        system.await_up("a", "crowd", "b", "c")
        yield system


# ---- no-orphans ----

LAUNCHER = """
import sys
from pathlib import Path
from tests.fault.actors_under_test import pool, running, worker

with running(worker("a"), pool("crowd", worker("b"), worker("c"))) as system:
    system.await_up("a", "crowd", "b", "c")
    print("runs in", system.system.run_dir, flush=True)
    system.system.wait(600)
"""


class Launched:
    """A launcher in a process of its own; everything it starts bears its mark in its environment."""

    def __init__(self) -> None:
        self.mark = f"{MARK}={uuid.uuid4()}"
        name, _, value = self.mark.partition("=")
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER],
            env=os.environ | {name: value, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        said = next((line for line in self.process.stdout if line.startswith("runs in ")), "")
        assert said, "the launcher did not come up"
        self.run_dir = Path(said.removeprefix("runs in ").strip())
        self.board = Board(self.run_dir / "board")

    def pid(self, who: str) -> int:
        if who == "launcher":
            return self.process.pid
        if who == "admin":
            return int((self.run_dir / "admin.pid").read_text())
        slot = self.board.find(who)
        assert slot is not None
        return int(self.board.get(slot, "pid"))

    def marked(self) -> set[int]:
        """Every living process that bears the mark."""
        return {int(path.name) for path in Path("/proc").glob("[0-9]*") if self._is_marked(path)}

    def _is_marked(self, process: Path) -> bool:
        try:
            return self.mark.encode() in (process / "environ").read_bytes().split(b"\0") and is_alive(
                int(process.name)
            )
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return False

    def close(self) -> None:
        for pid in self.marked():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.board.close()
        shutil.rmtree(self.run_dir, ignore_errors=True)


@pytest.fixture
def launched() -> Iterator[Launched]:
    launched = Launched()
    yield launched
    launched.close()


@pytest.mark.parametrize("victim", ["launcher", "admin", "root"])
def test_when_the_system_is_killed_at_its_top_every_process_is_gone_within_5_s(
    launched: Launched, victim: str
) -> None:
    assert len(launched.marked()) >= 7, "launcher, admin, logger, root, crowd and three workers"
    os.kill(launched.pid(victim), signal.SIGKILL)
    eventually(
        lambda: launched.marked() <= {launched.process.pid},
        f"everything below {victim} is gone",
        lambda: str(launched.marked()),
        GONE_WITHIN_S,
    )
    if victim != "launcher":
        assert launched.process.wait(PATIENCE_S) == 0, "the launcher notices and ends by itself"


def test_when_a_pools_supervisor_is_killed_every_process_below_it_is_gone_within_5_s(
    launched: Launched,
) -> None:
    below = {launched.pid("b"), launched.pid("c")}
    os.kill(launched.pid("crowd"), signal.SIGKILL)
    eventually(lambda: not any(map(is_alive, below)), "its children are gone", str, GONE_WITHIN_S)


def test_even_stopped_processes_are_gone_when_the_launcher_is_killed(launched: Launched) -> None:
    for who in ("a", "b", "crowd"):
        os.kill(launched.pid(who), signal.SIGSTOP)
    os.kill(launched.process.pid, signal.SIGKILL)
    eventually(
        lambda: launched.marked() == set(), "all is gone", lambda: str(launched.marked()), GONE_WITHIN_S
    )


def test_a_child_whose_parent_died_before_it_could_say_so_ends_at_once() -> None:
    """The kernel's promise counts from the call on; whoever calls it as an orphan already is one."""
    pid = os.fork()
    if pid == 0:
        die_with_parent(expected_parent_pid=os.getppid() + 1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1


def test_the_admin_is_a_child_of_its_launcher_and_no_daemon(system: Running) -> None:
    admin = psutil.Process(system.admin_pid())
    assert admin.ppid() == os.getpid()


def test_a_run_can_be_started_again_in_its_directory_right_after_its_admin_was_killed() -> None:
    """Stock Thespian leaves the port wedged by orphans; nothing of this system outlives its admin."""
    folder = Path(tempfile.mkdtemp(prefix="fault-", dir="/tmp"))
    (folder / "mail").mkdir()
    root = RootSpec(name="root", actor="tests.fault.actors_under_test:Worker", args={})
    for _ in range(3):
        with sockets_left_to_the_collector():
            system = ActorSystem(folder, folder / "mail", root)
        with system:
            eventually(lambda: bool(system.board.get(0, "ready")), "the root is up")  # noqa: B023
            os.kill(int((folder / "admin.pid").read_text()), signal.SIGKILL)
            assert system.wait(PATIENCE_S)
        system.board.close()
    shutil.rmtree(folder)


def test_a_root_that_cannot_start_is_told_apart_from_a_slow_one() -> None:
    folder = Path(tempfile.mkdtemp(prefix="fault-", dir="/tmp"))
    (folder / "mail").mkdir()
    root = RootSpec(name="root", actor="no_such_module:Class", args={})
    try:
        with sockets_left_to_the_collector():
            system = ActorSystem(folder, folder / "mail", root, start_deadline_s=PATIENCE_S)
    except SystemStartFailed as error:
        said = str(error)
    else:
        with system:
            assert system.wait(PATIENCE_S)
            said = system.verdict()
        system.board.close()
    assert "No module named 'no_such_module'" in said
    shutil.rmtree(folder)


# ---- foreign bytes ----


class Bomb:
    """Unpickled, it leaves a file."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.trace}",)


def thespian_ports(system: Running) -> dict[str, tuple[str, int]]:
    """Where each process of the system listens."""
    pids = {"admin": system.admin_pid()} | {name: system.pid(name) for name in ("root", "a", "crowd", "b")}
    ports = {}
    for name, pid in pids.items():
        listening = [c for c in psutil.Process(pid).net_connections("tcp") if c.status == psutil.CONN_LISTEN]
        assert listening, f"{name} listens nowhere"
        for connection in listening:
            ports[f"{name} {connection.laddr.port}"] = (connection.laddr.ip, connection.laddr.port)
    return ports


def test_thespian_listens_on_this_machine_alone(system: Running) -> None:
    assert {ip for ip, _ in thespian_ports(system).values()} == {"127.0.0.1"}


def framed(data: bytes) -> bytes:
    """As Thespian puts it on the wire."""
    return f"{len(data)}>".encode() + data


def test_foreign_bytes_on_thespians_ports_are_refused_and_everybody_answers_meanwhile(
    system: Running, tmp_path: Path
) -> None:
    trace = tmp_path / "executed"
    bomb = pickle.dumps((None, Bomb(trace)))
    wrong_key = hmac.digest(b"w" * 32, bomb, "sha256") + bomb
    attacks = [
        framed(bomb),
        framed(wrong_key),
        framed(b"\0" * 32 + bomb),
        framed(b""),
        b"garbage without a length and far longer than any length could be " * 10,
        b"-5>" + bomb,
        b"99999999>" + bomb,
        os.urandom(4096),
    ]
    before = {name: system.row(name).incarnation for name in ("root", "a", "crowd", "b", "c")}
    held_open = []
    for ip, port in thespian_ports(system).values():
        for attack in attacks:
            with contextlib.suppress(OSError):
                connection = socket.create_connection((ip, port), timeout=PATIENCE_S)
                connection.sendall(attack)
                held_open.append(connection)
    try:
        for name in ("a", "b", "c"):
            assert system.probe.ask(name, Echo(text="still here")) == Echo(text="still here")
        system.await_new("b", system.kill("b"))  # its supervisor still forks and is still told
        assert not trace.exists()
        assert {name: system.row(name).incarnation for name in before} == before | {"b": before["b"] + 1}
    finally:
        for connection in held_open:
            connection.close()


def test_foreign_bytes_in_the_unix_sockets_are_counted_and_everybody_answers_meanwhile(
    system: Running, tmp_path: Path
) -> None:
    trace = tmp_path / "executed"
    row = system.row("a")
    before = row.refused
    endpoint = f"ipc://{system.mail_dir}/{row.slot}.{row.incarnation}"
    frames = [b"garbage", b"", pickle.dumps(Bomb(trace)), b"\0" * 32 + pickle.dumps(Bomb(trace))]
    with zmq.Context() as context, context.socket(zmq.PUSH) as foreign:
        foreign.setsockopt(zmq.LINGER, 0)
        foreign.connect(endpoint)
        for frame in frames:
            foreign.send(frame)
        with socket.socket(
            socket.AF_UNIX
        ) as raw:  # no ZeroMQ either; what it takes for frames is counted too
            raw.connect(endpoint.removeprefix("ipc://"))
            raw.sendall(os.urandom(4096))
        eventually(
            lambda: (
                system.probe.ask("a", Echo()) == Echo() and system.row("a").refused >= before + len(frames)
            ),
            "all are counted",
            system.explain,
        )
    assert not trace.exists()
    assert system.probe.ask("a", Who()) == Me(pid=row.pid, incarnation=row.incarnation)


def test_an_authentic_stop_to_a_dead_incarnation_stops_nobody(system: Running) -> None:
    old = system.kill("c")
    new = system.await_new("c", old)
    with pytest.raises(ActorDied):
        system.probe.ask("ghost", Who())
    assert system.probe.ask("c", Who()) == Me(pid=new.pid, incarnation=new.incarnation)


# ---- the repairs, one by one ----


def test_frames_carry_thespians_own_classes_and_nothing_else() -> None:
    from thespian.actors import ChildActorExited, WakeupMessage

    thespian_base.install(b"k" * 32, Path(os.devnull))
    frames = thespian_base.SignedFrames
    for fine in (ChildActorExited(None), thespian_base.Boot(b"plain"), {"a": [1, (2, b"3")]}, {1, 2}):
        assert type(frames.loads(frames.dumps(fine))) is type(fine)
    assert isinstance(frames.loads(frames.dumps(WakeupMessage(None, "x"))), WakeupMessage)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "system"),
        ("builtins", "eval"),
        ("builtins", "getattr"),
        ("subprocess", "Popen"),
        ("thespian.shell", "os.system"),
        ("thespian.system.multiprocCommon", "startChild"),
        ("actors.thespian_base", "os"),
        ("actors.thespian_base", "Path"),
        ("actors.thespian_base", "new_key"),
        ("actors.shell", "Shell"),
        ("tests.fault.actors_under_test", "Worker"),
    ],
)
def test_a_signed_frame_that_names_anything_else_is_refused(module: str, name: str) -> None:
    thespian_base.install(b"k" * 32, Path(os.devnull))
    raw = b"\x80\x04" + f"c{module}\n{name}\n.".encode()
    with pytest.raises(pickle.UnpicklingError, match="may not come over the wire"):
        thespian_base.SignedFrames.loads(hmac.digest(b"k" * 32, raw, "sha256") + raw)


@pytest.mark.parametrize("frame", [b"", b"x" * 40, pickle.dumps("unsigned"), b"\0" * 32 + pickle.dumps("x")])
def test_a_frame_that_is_not_signed_is_not_unpickled(frame: bytes) -> None:
    thespian_base.install(b"k" * 32, Path(os.devnull))
    with pytest.raises(pickle.UnpicklingError, match="not signed"):
        thespian_base.SignedFrames.loads(frame)


def test_without_a_key_nothing_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thespian_base, "_key", b"")
    with pytest.raises(pickle.UnpicklingError):
        thespian_base.SignedFrames.loads(thespian_base.SignedFrames.dumps("x"))
    with pytest.raises(ValueError, match="at least 16 bytes, got 5"):
        thespian_base.install(b"short", Path(os.devnull))


def test_a_new_key_is_its_owners_alone_and_another_every_time(tmp_path: Path) -> None:
    keys = {thespian_base.new_key(tmp_path / f"key-{number}") for number in range(3)}
    assert {len(key) for key in keys} == {32}
    assert len(keys) == 3
    assert (tmp_path / "key-0").stat().st_mode & 0o777 == 0o600


def test_another_version_of_thespian_is_refused_at_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "4.0.2")
    with pytest.raises(ImportError, match=r"thespian 4.0.2 is installed, 4.0.1 is what was repaired"):
        thespian_base._assert_pinned()


def test_a_thespian_without_what_is_repaired_is_refused_at_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(importlib.import_module("thespian.system.transport.TCPTransport"), "serializer")
    with pytest.raises(ImportError, match="no 'serializer' to repair"):
        thespian_base._assert_pinned()


def test_thespians_own_end_of_an_actor_is_a_failure_and_no_normal_end() -> None:
    """Stock, the process exits with 0: a trainer would be taken for done."""
    with running(worker("a")) as system:
        old = system.row("a")
        system.probe.tell("a", Misbehave(how="leave thespian"))
        assert system.await_new("a", old).last_reason == "exit code 71"


@pytest.mark.parametrize("size", [b"-1", b"-5", b"99999999999"])
def test_a_frame_of_an_impossible_length_is_refused(size: bytes) -> None:
    buffer = importlib.import_module("thespian.system.transport.streamBuffer").ReceiveBuffer()
    with pytest.raises(ValueError, match="a frame cannot have"):
        buffer.addMore(size + b">" + b"x" * 10)


def test_twenty_hung_peers_are_not_enough_to_stop_all_sends() -> None:
    transport = importlib.import_module("thespian.system.transport.asyncTransportBase")
    assert transport.MAX_PENDING_TRANSMITS == 500


def test_the_system_survives_the_death_of_thespians_logger() -> None:
    """Stock, the admin dies with it (and everything with the admin)."""
    with running(worker("a")) as system:
        system.await_up("a")
        admin = psutil.Process(system.admin_pid())
        (logger,) = [child for child in admin.children() if child.pid != system.pid("root")]
        logger.kill()
        eventually(lambda: not is_alive(logger.pid), "the logger is gone")
        old = system.kill("a")
        new = system.await_new("a", old)
        assert system.probe.ask("a", Who()) == Me(pid=new.pid, incarnation=new.incarnation)
        eventually(lambda: len(admin.children()) == 2, "there is a new logger")
        assert system.row("root").incarnation == 1


def test_a_message_to_thespian_is_never_turned_into_text() -> None:
    """Thespian builds str(message) on every send, logging or not."""
    assert str(thespian_base.Boot(b"x" * 1_000_000)) == "Boot"


# ---- what the launcher sees ----


def test_the_log_of_an_actor_is_one_json_object_per_line(system: Running) -> None:
    lines = (system.system.run_dir / "logs" / "a.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert events[0]["event"] == "actor_ready"
    assert {"actor", "incarnation", "level", "timestamp"} <= set(events[0])


def test_the_launcher_can_tell_and_is_told_when_nobody_is_there(system: Running) -> None:
    assert system.system.tell("a", Echo())
    assert not system.system.tell("ghost", Echo())


def test_a_system_that_is_left_leaves_no_process_and_no_descriptor() -> None:
    own = psutil.Process()
    with running(worker("a")) as system:
        system.await_up("a")
    before_fds, before_children = own.num_fds(), len(own.children())
    for _ in range(3):
        with running(worker("a")) as system:
            system.await_up("a")
    assert len(own.children()) == before_children
    assert own.num_fds() <= before_fds + 1


def test_a_first_answer_comes_soon_after_the_start() -> None:
    started = time.monotonic()
    with running(worker("a")) as system:
        assert system.probe.ask("a", Echo(text="hello")) == Echo(text="hello")
    assert time.monotonic() - started < PATIENCE_S
