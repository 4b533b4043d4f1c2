"""The actor system against the world: nothing foreign is believed, and what it starts can be told apart."""

import contextlib
import hmac
import importlib
import importlib.metadata
import json
import os
import pickle
import resource
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from actors import thespian_base
from actors.errors import ActorDied, SystemStartFailed
from actors.last_words import crash_file
from actors.process import MANY_FILES, start_ticks
from actors.system import ActorSystem, RootSpec
from supervision.child_spec import ChildSpec, SupervisorFlags
from supervision.supervisor import supervisor_args
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
    worker,
)


@pytest.fixture(scope="module")
def system() -> Iterator[Running]:
    with running(worker("a"), pool("crowd", worker("b"), worker("c"))) as system:
        system.await_up("a", "crowd", "b", "c")
        yield system


def test_a_root_that_cannot_start_is_told_apart_from_a_slow_one() -> None:
    folder = Path(tempfile.mkdtemp(prefix="fault-", dir="/tmp"))
    (folder / "mail").mkdir()
    root = RootSpec(name="root", actor="no_such_module:Class", args={})
    try:
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


def test_a_root_that_ends_before_it_has_a_mailbox_is_not_waited_for() -> None:
    root = RootSpec(name="root", actor="supervision.supervisor:Supervisor", args={})
    with tempfile.TemporaryDirectory(prefix="fault-", dir="/tmp") as made:
        mail = Path(made) / "mail"
        (mail / "0.1").mkdir(parents=True)  # where the root would make its socket
        began_s = time.monotonic()
        with pytest.raises(SystemStartFailed, match="'root' died at start: IsADirectoryError"):
            ActorSystem(Path(made), mail, root, start_deadline_s=PATIENCE_S)
    assert time.monotonic() - began_s < PATIENCE_S / 2


def test_what_an_actor_of_an_earlier_system_said_is_not_taken_for_the_words_of_this_one() -> None:
    with tempfile.TemporaryDirectory(prefix="fault-", dir="/tmp") as made:
        folder = Path(made)
        (folder / "mail").mkdir()
        (folder / "crash").mkdir()
        crash_file(folder, "a", 1, "txt").write_text("RuntimeError: of an earlier start")
        root = RootSpec(
            name="root",
            actor="supervision.supervisor:Supervisor",
            args=supervisor_args(SupervisorFlags(), (worker("a"),)),
        )
        system = ActorSystem(folder, folder / "mail", root)
        with system:
            system.await_ready("a", deadline_s=PATIENCE_S)
            os.kill(system.vitals("a").pid, signal.SIGKILL)
            system.await_ready("a", incarnation=2, deadline_s=PATIENCE_S)
            assert system.vitals("a").last_reason == "SIGKILL"
        assert (folder / "crash.earlier" / "a.1.txt").exists()


# ---- foreign bytes ----


class Bomb:
    """Unpickled, it leaves a file."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.trace}",)


def thespian_ports(system: Running) -> dict[str, tuple[str, int]]:
    """Where the processes of the system listen that do so."""
    pids = {name: system.pid(name) for name in ("root", "a", "crowd", "b", "c")}
    pids |= {"admin": system.admin_pid(), "launcher": os.getpid()}
    return {
        name: (connection.laddr.ip, connection.laddr.port)
        for name, pid in pids.items()
        for connection in psutil.Process(pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }


def test_a_supervisor_may_have_more_children_than_the_usual_limit_of_open_files(system: Running) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for name in ("root", "crowd", "b"):
        soft, _ = psutil.Process(system.pid(name)).rlimit(psutil.RLIMIT_NOFILE)
        assert soft == -1 or soft >= min(hard if hard != -1 else MANY_FILES, MANY_FILES)


def test_thespian_listens_on_this_machine_alone_and_only_where_processes_are_forked(system: Running) -> None:
    assert {name: ip for name, (ip, _) in thespian_ports(system).items()} == {
        "admin": "127.0.0.1",
        "root": "127.0.0.1",
        "crowd": "127.0.0.1",
    }


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
    frames = [b"garbage", pickle.dumps(Bomb(trace)), b"\0" * 32 + pickle.dumps(Bomb(trace)), os.urandom(4096)]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as foreign:
        foreign.connect(f"{system.mail_dir}/{row.slot}")
        for frame in frames:
            foreign.send(frame)
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
        ("actors.thespian_host", "Shell"),
        ("tests.fault.actors_under_test", "Worker"),
    ],
)
def test_a_signed_frame_that_names_anything_else_is_refused(module: str, name: str) -> None:
    thespian_base.install(b"k" * 32, Path(os.devnull))
    raw = b"\x80\x04" + f"c{module}\n{name}\n.".encode()
    with pytest.raises(pickle.UnpicklingError, match="a frame of Thespian may not contain"):
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
    forker = ChildSpec(id="a", actor="tests.fault.actors_under_test:Forker", start_deadline_s=PATIENCE_S)
    with running(forker) as system:
        system.await_up("a")
        old = system.row("a")
        system.probe.tell("a", Misbehave(how="leave Thespian's loop"))
        assert system.await_new("a", old).last_reason == "exit code 71"


@pytest.mark.parametrize("size", [b"-1", b"-5", b"99999999999"])
def test_a_frame_of_an_impossible_length_is_refused(size: bytes) -> None:
    buffer = importlib.import_module("thespian.system.transport.streamBuffer").ReceiveBuffer()
    with pytest.raises(ValueError, match="expected a frame of 0 to"):
        buffer.addMore(size + b">" + b"x" * 10)


def test_twenty_hung_peers_are_not_enough_to_stop_all_sends() -> None:
    transport = importlib.import_module("thespian.system.transport.asyncTransportBase")
    assert transport.MAX_PENDING_TRANSMITS == 500


def test_a_message_to_thespian_is_never_turned_into_text() -> None:
    """Thespian builds str(message) on every send, logging or not."""
    assert str(thespian_base.Boot(b"x" * 1_000_000)) == "Boot"


# ---- what the launcher sees ----


def test_the_log_of_an_actor_is_one_json_object_per_line(system: Running) -> None:
    lines = (system.system.run_dir / "logs" / "a.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert events[0]["event"] == "actor_ready"
    assert {"actor", "incarnation", "level", "timestamp"} <= set(events[0])


@pytest.mark.parametrize("preload", [(), ("tests.fault.logging_library",)])
def test_a_library_logger_made_at_import_writes_to_the_actors_log_and_touches_no_descriptor(
    preload: tuple[str, ...], tmp_path: Path
) -> None:
    actor, args = "tests.fault.logging_library:LoggingActor", {"report": str(tmp_path)}
    below_root = worker("below-root", actor=actor, args=args, preload=preload)
    below_pool = worker("below-pool", actor=actor, args=args, preload=preload)
    with running(below_root, pool("crowd", below_pool)) as system:
        for name in ("below-root", "below-pool"):
            system.await_up(name)
            for _ in range(2):  # the supervisor's first record is on its way only after the first start
                system.await_new(name, system.kill(name))
            lines = (system.system.run_dir / "logs" / f"{name}.jsonl").read_text().splitlines()
            events = [json.loads(line) for line in lines]
            said = [event["text"] for event in events if event["event"] == "library_logged"]
            own = [text for text in said if text != "imported"]
            assert own == ["started 1", "started 2", "started 3"]
            changed = [json.loads((tmp_path / f"{name}.{number}").read_text()) for number in (1, 2, 3)]
            assert changed == [[], [], []]
        assert not preload or "imported" in (system.system.run_dir / "logs" / "root.jsonl").read_text()


@pytest.mark.parametrize("name", ["root", "crowd", "a", "b"])
def test_the_board_names_every_process_by_pid_and_start_whoever_wrote_it(system: Running, name: str) -> None:
    row = system.row(name)
    assert row.pid > 0
    assert row.pid_start_ticks == start_ticks(row.pid) > 0


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
