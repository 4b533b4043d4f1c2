"""A mirror shows a run of another machine: as it is, or what the record knows of it."""

import errno
import fcntl
import json
import os
import re
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
import uvicorn

from actors.board import rows_of
from actors.process import start_ticks
from dart import __version__
from dart.config.config import load_config
from dart.core.errors import DiskError, NotRunningError, SilentError, TemporaryError, UnavailableError
from dart.core.record_address import ServerAddress
from dart.core.run_directory import RunPaths, holder
from dart.inspect import signals
from dart.inspect.actor_table import is_of_earlier_part, read_actors
from dart.inspect.exit_reports import all_reports
from dart.inspect.logs import read_log
from dart.inspect.processes import UNREACHABLE, state_of_main
from dart.inspect.sidecar_status import INSPECTION, WEB, Sidecar, read_sidecar, write_sidecar
from dart.inspect.time_budget import read_session
from dart.run import mirror as mirrors
from dart.run.control_protocol import ControlAnswer, ControlOutcome, Ping
from dart.run.inspection_client import InspectionClient, Unreachable
from dart.run.inspection_protocol import FILE_BYTES, FileState
from dart.run.mirror import Mirror, kept_fresh
from dart.run.steering import request
from dart.store.control_node import ControlNode
from dart.web import inspection
from dart.web.inspection import inspection_app
from dart.web.server import listen
from tests.recorded_run import record_run

RECORD = ServerAddress("postgresql://dartrl@db.example/run")
TOKEN = "the-token-of-this-start"
DEADLINE_S = 60.0


class ControlMachine:
    """The machine of a control node: its run directory, its endpoint, and its row in the record."""

    def __init__(self, root: Path) -> None:
        self.paths = RunPaths(root)
        self.paths.lock.write_text(f"{os.getpid()}\n")
        (root / "processes.json").write_text(json.dumps({"launcher": [os.getpid(), 0]}))
        began_s = self.paths.lock.stat().st_mtime - 90.0
        os.utime(self.paths.lock, (began_s, began_s))
        self.listener = listen("127.0.0.1", 0, "")
        self.row: ControlNode | None = ControlNode(
            address=f"127.0.0.1:{self.listener.getsockname()[1]}",
            token=TOKEN,
            version=__version__,
            pid=os.getpid(),
            config=self.paths.config.read_text(),
            session=(self.paths.root / "session.json").read_text(),
            began_unix_s=began_s,
            seen_unix_s=time.time(),
        )

    def announce(self, **fields: object) -> None:
        assert self.row is not None
        self.row = replace(self.row, **fields)  # type: ignore[arg-type]  # fields of the row

    @contextmanager
    def serving(self) -> Iterator[None]:
        app = inspection_app(self.paths, TOKEN, os.getpid())
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off"))
        thread = threading.Thread(target=server.run, args=([self.listener],))
        thread.start()
        try:
            yield
        finally:
            server.should_exit = True
            thread.join(DEADLINE_S)
            self.listener.close()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory, which is made once."""
    return record_run(tmp_path_factory.mktemp("recorded") / "run").root


@pytest.fixture
def machine(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlMachine]:
    """A control node whose endpoint does not answer yet."""
    shutil.copytree(recorded, tmp_path / "there")
    made = ControlMachine(tmp_path / "there")
    monkeypatch.setattr(mirrors, "read_control_node", lambda record: made.row)
    with made.paths.lock.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield made
    made.listener.close()


@pytest.fixture
def answering(machine: ControlMachine) -> Iterator[ControlMachine]:
    with machine.serving():
        yield machine


@pytest.fixture
def open_mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Mirror]]:
    monkeypatch.setattr(mirrors, "_mirrors", {})
    opened: list[Mirror] = []

    def make(**settings: float) -> Mirror:
        opened.append(Mirror(RECORD, **settings))  # type: ignore[arg-type]  # answer_s
        mirrors._mirrors[str(RECORD)] = opened[-1]
        return opened[-1]

    yield make
    for one in opened:
        one.close()
        assert not one.paths.root.exists()


# ---- a control node that answers ----


def test_readers_see_in_a_mirror_what_is_there(
    answering: ControlMachine, open_mirror: Callable[[], Mirror]
) -> None:
    write_sidecar(answering.paths, Sidecar(name=WEB, is_well=True, text="http://there:8700/"))
    here, there = open_mirror().paths, answering.paths

    assert holder(here.root) == os.getpid()
    assert state_of_main(here.root, os.getpid()) == ""
    assert not is_of_earlier_part(here, holder(here.root))
    assert [row.name for row in rows_of(here.board)] == [row.name for row in rows_of(there.board)]
    assert all_reports(here.root) == all_reports(there.root) != []
    assert read_session(here) == read_session(there)
    assert read_sidecar(here, WEB) == Sidecar(name=WEB, is_well=True, text="http://there:8700/")
    assert here.title == str(RECORD)
    assert here.root.stat().st_mode & 0o777 == 0o700


def test_the_configuration_names_the_record_as_this_machine_reaches_it(
    answering: ControlMachine, open_mirror: Callable[[], Mirror]
) -> None:
    there = load_config(answering.paths.config)
    here = open_mirror().paths

    config = load_config(here.config)

    assert here.record == RECORD
    assert config.model_copy(update={"run": there.run}) == there
    assert config.run.dir == there.run.dir


def test_processes_are_those_of_the_other_machine(
    answering: ControlMachine, open_mirror: Callable[[], Mirror]
) -> None:
    """The process table of this machine is another one: its pids say nothing."""
    there = {row.name: row.process for row in read_actors(answering.paths.root)}
    here = open_mirror()

    assert {row.name: row.process for row in read_actors(here.paths.root)} == there

    here._processes = {}
    mirrors.write_table(here.paths.root, "", {})
    alive = [row.name for row in read_actors(here.paths.root) if row.pid and row.process == "alive"]
    assert alive == []


def test_a_log_is_fetched_when_it_is_asked_for_and_then_followed(
    answering: ControlMachine, open_mirror: Callable[[], Mirror]
) -> None:
    log = answering.paths.logs / "env-000.jsonl"
    line = {"actor": "env-000", "incarnation": 1, "level": "info", "timestamp": "2026-01-01T00:00:00Z"}

    def say(event: str) -> None:
        with log.open("a") as file:
            file.write(json.dumps({**line, "event": event}) + "\n")

    def events() -> list[str]:
        return [one.event for one in read_log(mirror.paths, "env-000")]

    log.unlink(missing_ok=True)
    say("one")
    mirror = open_mirror()
    assert events() == []
    mirror.fetch_logs("env-000")
    assert events() == ["one"]
    say("two")
    mirror.refresh()
    assert events() == ["one", "two"]
    log.rename(log.with_name("env-000.jsonl.1"))
    say("three")
    mirror.refresh()
    assert events() == ["one", "two", "three"]
    assert not (mirror.paths.logs / "env-001.jsonl").exists()


def test_a_log_is_whole_after_a_request_for_one_of_its_parts_failed(
    answering: ControlMachine, open_mirror: Callable[[], Mirror], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = answering.paths.logs / "env-000.jsonl"
    log.write_bytes(b"first\n")
    mirror = open_mirror()
    mirror.fetch_logs("env-000")
    log.write_bytes(b"first\n" + bytes(range(256)) * (2 * FILE_BYTES // 256))

    def fail_in_the_middle(client: InspectionClient, file: FileState, offset: int) -> bytes:
        if offset > FILE_BYTES:
            raise Unreachable("does not answer within 5 s")
        return part(client, file, offset)

    part = InspectionClient.part
    with monkeypatch.context() as failing:
        failing.setattr(InspectionClient, "part", fail_in_the_middle)
        mirror.refresh()
    assert "does not answer within 5 s" in mirror.trouble

    mirror.refresh()
    assert (mirror.paths.logs / log.name).read_bytes() == log.read_bytes()


def test_a_mirror_keeps_no_file_that_the_run_does_not_have_any_more(
    answering: ControlMachine, open_mirror: Callable[[], Mirror]
) -> None:
    answering.paths.crash.mkdir(exist_ok=True)
    there = answering.paths.crash / "env-000.1.txt"
    there.write_text("an error")
    mirror = open_mirror()
    mirror.fetch_logs("env-000")
    here = mirror.paths.crash / there.name
    assert here.read_text() == "an error"

    there.unlink()
    mirror.refresh()
    assert not here.exists()

    there.write_text("another one")
    mirror.refresh()
    assert here.read_text() == "another one"


def test_a_run_that_drains_shows_its_signals(
    answering: ControlMachine, open_mirror: Callable[[], Mirror]
) -> None:
    mirror = open_mirror()
    assert signals.read(mirror.paths) is None

    signals.prepare(answering.paths)
    for _ in range(2):
        signals.note(answering.paths, 15, 123.0)
    mirror.refresh()
    mirror.refresh()

    assert signals.read(mirror.paths) == signals.Ending(signal=15, since_unix_s=123.0, count=2)


def test_a_request_goes_to_the_control_node(
    answering: ControlMachine, open_mirror: Callable[[], Mirror], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = ControlAnswer(ControlOutcome.DONE, "root answers")
    monkeypatch.setattr(inspection, "control", lambda root, call: done)

    assert request(open_mirror().paths.root, Ping()) == done


def test_the_words_of_a_control_node_that_cannot_carry_out_a_request_are_shown(
    answering: ControlMachine, open_mirror: Callable[[], Mirror], monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(root: Path, call: object) -> ControlAnswer:
        raise SilentError("process 7 takes no requests now")

    monkeypatch.setattr(inspection, "control", silent)

    with pytest.raises(SilentError, match="process 7 takes no requests now"):
        request(open_mirror().paths.root, Ping())


def test_a_followed_mirror_is_refreshed(answering: ControlMachine, open_mirror: Callable[[], Mirror]) -> None:
    mirror = open_mirror()
    with kept_fresh(mirror.paths.root, every_s=0.01):
        write_sidecar(answering.paths, Sidecar(name=WEB, is_well=False, text="the port is taken"))
        give_up_s = time.monotonic() + DEADLINE_S
        while read_sidecar(mirror.paths, WEB) is None:
            assert time.monotonic() < give_up_s
            time.sleep(0.01)


def test_a_followed_mirror_that_cannot_be_written_says_so_and_is_refreshed_again(
    answering: ControlMachine, open_mirror: Callable[[], Mirror], monkeypatch: pytest.MonkeyPatch
) -> None:
    tries, is_tried_again, is_seen = [], threading.Event(), threading.Event()

    def refuse(*_: object) -> None:
        tries.append(1)
        if len(tries) == 2:
            is_tried_again.set()
            is_seen.wait(DEADLINE_S)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    mirror = open_mirror()
    with monkeypatch.context() as full_disk:
        full_disk.setattr(mirrors, "write_copy", refuse)
        with kept_fresh(mirror.paths.root, every_s=0.01):
            assert is_tried_again.wait(DEADLINE_S), "the thread has ended"
            assert f"the copy of the run in {mirror.paths.root} cannot be written" in mirror.trouble
            assert "No space left on device" in mirror.trouble
            sidecar = read_sidecar(mirror.paths, INSPECTION)
            assert sidecar == Sidecar(name=INSPECTION, is_well=False, text=mirror.trouble)
            is_seen.set()

    mirror.refresh()
    assert mirror.trouble == ""


def no_space(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_mirror_that_cannot_be_written_says_so_and_leaves_no_folder(
    machine: ControlMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(Mirror, "_write", no_space)
    with pytest.raises(DiskError, match=rf"{tmp_path}.*No space left on device.*TMPDIR"):
        Mirror(RECORD)
    assert not list(tmp_path.glob("dartrl-mirror-*"))


def test_a_machine_without_a_folder_for_a_mirror_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_get_default_tempdir", refuse)
    with pytest.raises(DiskError, match=r"No usable temporary directory found in \['/tmp'\].*TMPDIR"):
        Mirror(RECORD)


def test_a_log_for_which_a_mirror_has_no_space_is_an_error_that_names_the_folder(
    answering: ControlMachine, open_mirror: Callable[[], Mirror], monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = open_mirror()
    monkeypatch.setattr(Mirror, "_fetch", no_space)
    with pytest.raises(DiskError, match=rf"{mirror.paths.root.parent}.*No space left on device"):
        mirror.fetch_logs("env-000")


# ---- a control node that does not answer ----


def shows_the_record_alone(mirror: Mirror) -> None:
    assert state_of_main(mirror.paths.root, os.getpid()) == UNREACHABLE
    assert holder(mirror.paths.root) == os.getpid()
    assert read_session(mirror.paths)["elapsed_s"] == 90.0
    sidecar = read_sidecar(mirror.paths, INSPECTION)
    assert sidecar is not None
    assert (sidecar.is_well, sidecar.text) == (False, mirror.trouble)
    assert TOKEN not in mirror.trouble


def test_an_endpoint_that_is_gone_leaves_what_the_record_knows(
    machine: ControlMachine, open_mirror: Callable[[], Mirror]
) -> None:
    machine.listener.close()
    machine.announce(seen_unix_s=time.time() - 4000.0)

    mirror = open_mirror()

    shows_the_record_alone(mirror)
    assert machine.row is not None
    assert f"the control node at {machine.row.address} does not answer" in mirror.trouble
    assert "1h06m ago" in mirror.trouble
    assert "continue the run on another one with `dartrl up FILE --resume`" in mirror.trouble
    assert read_actors(mirror.paths.root) == ()
    for ask in (lambda: mirror.control(Ping()), lambda: mirror.end(now=False, deadline_s=0.0)):
        with pytest.raises(SilentError, match=r"does not answer .* check that its machine runs"):
            ask()


def test_an_endpoint_that_cannot_listen_has_no_address_at_which_it_is_asked(
    machine: ControlMachine, open_mirror: Callable[[], Mirror]
) -> None:
    machine.announce(address="")

    mirror = open_mirror()

    shows_the_record_alone(mirror)
    assert "the control node has no address at which it answers other machines; it was last" in mirror.trouble
    with pytest.raises(SilentError, match="`dartrl status` on its machine says why it cannot listen"):
        mirror.control(Ping())

    machine.announce(ended_unix_s=time.time())
    mirror.refresh()
    assert mirror.trouble.endswith("on the machine of its control node")


def test_an_endpoint_that_hangs_is_not_waited_for(
    machine: ControlMachine, open_mirror: Callable[..., Mirror]
) -> None:
    mirror = open_mirror(answer_s=0.05)  # connections are taken by the kernel, and nobody reads them

    shows_the_record_alone(mirror)
    assert "does not answer within" in mirror.trouble


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc", "does not understand"),
        (b"HTTP/1.1 500 Oh\r\ncontent-length: 5\r\n\r\nouch!", "ouch!"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "does not answer"),
        (b"", "does not answer"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 300\r\n\r\nabc", "does not answer"),
    ],
)
def test_another_server_at_that_address_is_named_as_it_is(
    machine: ControlMachine, open_mirror: Callable[[], Mirror], answer: bytes, says: str
) -> None:
    def stand_in() -> None:
        connection, _ = machine.listener.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(answer)
            with suppress(OSError):
                connection.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=stand_in)
    thread.start()
    mirror = open_mirror()
    thread.join(DEADLINE_S)

    shows_the_record_alone(mirror)
    assert says in mirror.trouble


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("dart.run.inspection_client.ANSWER_BYTES_MOST", "sends an answer of more than 10 bytes"),
        ("dart.run.inspection_protocol.BOARD_BYTES_MOST", "the board has more than 10 bytes"),
        ("dart.run.mirror.FILE_BYTES_MOST", "bytes, which is more than 10"),
    ],
)
def test_an_endpoint_that_answers_more_than_any_run_has_fills_neither_memory_nor_disk(
    answering: ControlMachine,
    open_mirror: Callable[[], Mirror],
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    said: str,
) -> None:
    monkeypatch.setattr(limit, 10)
    mirror = open_mirror()
    assert said in mirror.trouble
    assert state_of_main(mirror.paths.root, os.getpid()) == UNREACHABLE


def test_an_endpoint_that_lists_more_files_than_any_run_has_fills_no_disk(
    answering: ControlMachine, open_mirror: Callable[[], Mirror], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dart.run.mirror.FILES_MOST", 10)
    for number in range(11):
        (answering.paths.root / "reports" / f"pool-{number}.jsonl").touch()
    mirror = open_mirror()
    assert re.search(r"cannot be used: it lists \d\d files, which is more than 10", mirror.trouble)
    assert list((mirror.paths.root / "reports").iterdir()) == []


def test_a_board_that_cannot_be_unpacked_is_an_answer_that_cannot_be_used(
    answering: ControlMachine, open_mirror: Callable[[], Mirror], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dart.run.inspection_state.zlib.compress", lambda rows, level: b"no zlib")
    assert "sends an answer that cannot be used: the board cannot be unpacked" in open_mirror().trouble


def test_a_token_that_is_not_the_endpoints_is_refused(
    answering: ControlMachine, open_mirror: Callable[[], Mirror]
) -> None:
    answering.announce(token="that-of-an-earlier-start")

    mirror = open_mirror()

    shows_the_record_alone(mirror)
    assert "refuses the token that is in the record" in mirror.trouble
    with pytest.raises(SilentError, match="refuses the token"):
        mirror.end(now=True, deadline_s=0.0)


def test_a_control_node_that_comes_back_is_shown_again(
    machine: ControlMachine, open_mirror: Callable[..., Mirror]
) -> None:
    mirror = open_mirror(answer_s=0.5)
    assert mirror.trouble

    mirror._answer_s = DEADLINE_S
    with machine.serving():
        mirror.refresh()
        assert (mirror.trouble, read_sidecar(mirror.paths, INSPECTION)) == ("", None)
        assert [row.name for row in rows_of(mirror.paths.board)]

    mirror.refresh()  # gone again: what it said last stays
    assert mirror.trouble
    assert [row.name for row in rows_of(mirror.paths.board)]


# ---- runs that do not run ----


def test_a_run_that_has_ended_is_shown_as_one(
    answering: ControlMachine, open_mirror: Callable[[], Mirror]
) -> None:
    mirror = open_mirror()
    assert holder(mirror.paths.root) == os.getpid()

    answering.announce(ended_unix_s=time.time())
    mirror.refresh()

    assert holder(mirror.paths.root) is None
    assert mirror.has_ended
    assert str(load_config(answering.paths.config).run.dir) in mirror.trouble
    assert {row.process for row in read_actors(mirror.paths.root) if row.pid} == {"gone"}
    with pytest.raises(NotRunningError, match="start it with `dartrl up FILE --resume`"):
        mirror.control(Ping())
    with pytest.raises(NotRunningError, match="is not running"):
        mirror.end(now=False, deadline_s=0.0)


def test_a_run_that_does_not_end_in_time_says_so(
    answering: ControlMachine, open_mirror: Callable[[], Mirror], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "ask_to_end", lambda paths, pidfd, now: None)

    with pytest.raises(TemporaryError, match="still runs"):
        open_mirror().end(now=False, deadline_s=0.0)


@pytest.mark.parametrize("then", [{"ended_unix_s": 5.0}, {"began_unix_s": 5.0}])
def test_the_end_is_over_when_the_record_says_so(
    answering: ControlMachine,
    open_mirror: Callable[[], Mirror],
    monkeypatch: pytest.MonkeyPatch,
    then: dict[str, float],
) -> None:
    """The next start of the run shows as well that this one is over."""
    monkeypatch.setattr(inspection, "ask_to_end", lambda paths, pidfd, now: answering.announce(**then))

    open_mirror().end(now=True, deadline_s=DEADLINE_S)


def test_a_record_without_a_control_node_says_so_and_leaves_no_mirror(
    machine: ControlMachine,
    open_mirror: Callable[[], Mirror],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    machine.row = None
    with pytest.raises(NotRunningError, match="no control node has announced itself"):
        open_mirror()
    assert list(tmp_path.glob("dartrl-mirror-*")) == []


def test_another_version_is_named(machine: ControlMachine, open_mirror: Callable[[], Mirror]) -> None:
    machine.announce(version="99.0")
    with pytest.raises(UnavailableError, match=r"run by dartrl 99\.0.*install the version of the run here"):
        open_mirror()


def test_mirrors_of_processes_that_were_killed_are_removed(
    answering: ControlMachine,
    open_mirror: Callable[[], Mirror],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    abandoned, used = tmp_path / "dartrl-mirror-4194305-x", tmp_path / f"dartrl-mirror-{os.getpid()}-x"
    for folder in (abandoned, used):
        folder.mkdir()
    assert start_ticks(4194305) == 0  # above the largest pid

    open_mirror()

    assert (abandoned.exists(), used.exists()) == (False, True)
