"""A run is inspected and stopped from elsewhere, by commands that know only the address of its record."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from dart.core.record_address import ServerAddress
from dart.inspect.sidecar_status import INSPECTION
from dart.store.control_node import read_control_node
from dart.telemetry.events import POOLS_SIZED
from dart.testing.postgresql_server import PostgresqlServer
from tests.fault.daemons import DEADLINE_S, Daemon
from tests.patience import slowness

OK, DEGRADED, NOT_RUNNING, UNKNOWN = 0, 1, 3, 4


class Elsewhere:
    """Another machine, as far as one can have it here: another folder and another home, and the address."""

    def __init__(self, folder: Path, address: str) -> None:
        (folder / "home").mkdir(parents=True)
        (folder / "tmp").mkdir()
        self.folder, self.address = folder, address
        self._variables = {
            **{name: text for name, text in os.environ.items() if not name.startswith("DARTRL")},
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder / "tmp"),
            "COLUMNS": "300",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }

    def start(self, *words: str, **streams: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "dart", *words, "--run-dir", self.address]
        return subprocess.Popen(command, cwd=self.folder, env=self._variables, text=True, **streams)

    def ask(self, *words: str) -> tuple[int, str, str]:
        """Exit code, output and errors of a command, which leaves nothing behind."""
        command = self.start(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        output, errors = command.communicate(timeout=DEADLINE_S * slowness())
        assert list((self.folder / "tmp").iterdir()) == []
        return command.returncode, output, errors

    def data(self, *words: str) -> object:
        code, output, errors = self.ask(*words, "-o", "json")
        assert code == OK, errors
        return json.loads(output)


@contextmanager
def running_at(database: str, folder: Path, more: str = "") -> Iterator[Daemon]:
    """A run with its record in a database, once it has announced itself there.

    more   more of its configuration
    """
    folder.mkdir()
    (folder / "blobs").mkdir()
    addresses = {"record": database, "blobs": f"file://{folder}/blobs"}
    places = "".join(f"run.{name} = {json.dumps(at)}\n" for name, at in addresses.items())
    started = Daemon(folder, places + more)
    try:
        started.wait_until(lambda: read_control_node(ServerAddress(database)) is not None, "its announcement")
        yield started
    finally:
        started.end()


@pytest.fixture(scope="module")
def shared_database(postgresql: PostgresqlServer) -> str:
    return postgresql.make_database("shared")


@pytest.fixture(scope="module")
def daemon(shared_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A run that several tests look at; each leaves it running."""
    with running_at(shared_database, tmp_path_factory.mktemp("run") / "there") as started:
        yield started


@pytest.fixture
def elsewhere(tmp_path: Path, shared_database: str) -> Elsewhere:
    return Elsewhere(tmp_path / "elsewhere", shared_database)


def endpoint_of(daemon: Daemon) -> int:
    return int(json.loads((daemon.paths.root / f"{INSPECTION}.json").read_text())["pid"])


def plays_on(daemon: Daemon, elsewhere: Elsewhere, more: int = 3) -> None:
    """Until the run has finished so many more episodes, as its record says."""

    goal = finished(elsewhere) + more
    daemon.wait_until(lambda: finished(elsewhere) >= goal, f"{more} more episodes")


def finished(elsewhere: Elsewhere) -> int:
    return number_of("SELECT count(*) FROM trajectories", elsewhere)


def newest_rollout(elsewhere: Elsewhere) -> int:
    return number_of("SELECT max(rollout_id) FROM trajectories", elsewhere)


def number_of(query: str, elsewhere: Elsewhere) -> int:
    with psycopg.connect(elsewhere.address) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def test_every_command_works_from_another_machine(daemon: Daemon, elsewhere: Elsewhere) -> None:
    plays_on(daemon, elsewhere)
    there = daemon.row("env-000")

    code, output, errors = elsewhere.ask("status")
    assert (code in (OK, DEGRADED), errors) == (True, "")  # an engine may be loading
    assert output.startswith(elsewhere.address)
    assert f"pid {daemon.process.pid}" in output

    rows = {row["name"]: row for row in elsewhere.data("tree")}  # type: ignore[attr-defined]
    assert rows["env-000"]["parent"] == "environment_pool"
    assert (rows["env-000"]["pid"], rows["env-000"]["process"]) == (there.pid, "alive")
    assert rows["env-000"]["rss_bytes"] > 0
    assert "inspection" in elsewhere.ask("tree")[1]

    os.kill(there.pid, signal.SIGKILL)
    daemon.wait_until(lambda: daemon.row("env-000").incarnation > there.incarnation, "another env-000")
    code, output, errors = elsewhere.ask("why", "env-000")
    assert (code, errors) == (OK, "")
    assert "SIGKILL" in output
    code, output, errors = elsewhere.ask("events", "--kind", "child_terminated")
    assert (code, errors) == (OK, "")
    assert "env-000" in output
    code, output, errors = elsewhere.ask("actors", "logs", "env-000", "-n", "0")
    assert (code, errors) == (OK, "")
    assert "actor_ready" in output
    code, output, errors = elsewhere.ask("metrics")
    assert (code, errors) == (OK, "")
    assert "dartrl_updates_total" in output

    shown = elsewhere.data("trajectories", "show", str(newest_rollout(elsewhere)))
    assert shown["trajectory"]["steps"]  # type: ignore[index]

    assert elsewhere.ask("pause")[0] == OK
    assert "work_held" in elsewhere.ask("events", "--kind", "work_held")[1]
    assert elsewhere.ask("resume")[0] == OK

    code, output, errors = elsewhere.ask("actors", "restart", "env-001", "--wait", "60")
    assert (code, errors) == (OK, "waiting up to 60 s until env-001 runs again\n")
    assert "runs again" in output


def test_down_drains_from_another_machine(tmp_path: Path, database: str) -> None:
    elsewhere = Elsewhere(tmp_path / "elsewhere", database)
    with running_at(database, tmp_path / "there") as daemon:
        plays_on(daemon, elsewhere)
        shows_its_end(daemon, elsewhere)


def shows_its_end(daemon: Daemon, elsewhere: Elsewhere) -> None:
    code, output, errors = elsewhere.ask("down")

    assert (code, errors) == (OK, "")
    assert "has ended" in output
    exit_code, log = daemon.ended()
    assert exit_code == OK
    assert log[-1]["is_drained"] is True

    code, output, errors = elsewhere.ask("status")
    assert code == NOT_RUNNING
    assert "NOT RUNNING" in output
    assert "the run ended at" in errors
    assert str(daemon.paths.root) in errors
    for words in (("tree",), ("why", "env-000"), ("down",), ("pause",)):
        assert elsewhere.ask(*words)[0] == NOT_RUNNING


def test_it_answers_while_actors_hang(daemon: Daemon, elsewhere: Elsewhere) -> None:
    names = ("root", "store", "curator")
    held = [daemon.row(name).pid for name in names]
    for pid in held:
        os.kill(pid, signal.SIGSTOP)
    try:
        rows = {row["name"]: row for row in elsewhere.data("tree")}  # type: ignore[attr-defined]
    finally:
        for pid in held:
            os.kill(pid, signal.SIGCONT)
    assert {rows[name]["process"] for name in names} == {"suspended"}


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_the_record_is_shown_when_the_control_node_is_out_of_reach(
    daemon: Daemon, elsewhere: Elsewhere, number: signal.Signals
) -> None:
    plays_on(daemon, elsewhere)
    endpoint = endpoint_of(daemon)
    daemon.process.send_signal(signal.SIGSTOP)  # nobody starts the endpoint again
    os.kill(endpoint, number)
    try:
        code, output, errors = elsewhere.ask("status")
        assert code == UNKNOWN
        assert "CANNOT TELL" in output
        assert "trajectories" in output
        assert "was last seen at" in errors
        assert "check that its machine runs" in errors
        code, output, errors = elsewhere.ask("events", "--kind", POOLS_SIZED)
        assert code == OK
        assert POOLS_SIZED in output
        frozen = number == signal.SIGSTOP  # each request would wait for its deadline
        for words in (("tree",),) if frozen else (("tree",), ("why", "env-000"), ("down",), ("pause",)):
            code, _, errors = elsewhere.ask(*words)
            assert code == UNKNOWN
            assert "does not answer" in errors
    finally:
        daemon.process.send_signal(signal.SIGCONT)
        with suppress(ProcessLookupError):
            os.kill(endpoint, signal.SIGKILL)
    daemon.wait_until(lambda: elsewhere.ask("tree")[0] == OK, "an endpoint that answers")


def test_a_killed_endpoint_comes_back_with_another_token(daemon: Daemon, elsewhere: Elsewhere) -> None:
    before = read_control_node(ServerAddress(elsewhere.address))
    os.kill(endpoint_of(daemon), signal.SIGKILL)

    def is_back() -> bool:
        now = read_control_node(ServerAddress(elsewhere.address))
        return now is not None and before is not None and now.token != before.token

    daemon.wait_until(is_back, "another endpoint")
    assert elsewhere.ask("tree")[0] == OK


def test_a_wrong_token_is_refused(daemon: Daemon, elsewhere: Elsewhere) -> None:
    with psycopg.connect(elsewhere.address, autocommit=True) as connection:
        connection.execute("UPDATE control_node SET token = 'forged'")

    code, _, errors = elsewhere.ask("tree")

    assert code == UNKNOWN
    assert "refuses the token" in errors
    assert elsewhere.ask("down", "--now")[0] == UNKNOWN
    assert daemon.process.poll() is None
    os.kill(endpoint_of(daemon), signal.SIGKILL)  # the next one announces its own
    daemon.wait_until(lambda: elsewhere.ask("tree")[0] == OK, "an endpoint that answers")


def test_the_token_is_in_no_file_of_the_run_and_in_no_command_line(
    daemon: Daemon, elsewhere: Elsewhere
) -> None:
    node = read_control_node(ServerAddress(elsewhere.address))
    assert node is not None
    elsewhere.ask("tree")

    contents = {}
    for path in daemon.paths.root.rglob("*"):
        with suppress(OSError):  # a folder, a socket, or a file that is gone again
            contents[path] = path.read_bytes()
    assert {"config.toml", "board", "inspection.jsonl"} <= {path.name for path in contents}
    assert [path for path, content in contents.items() if node.token.encode() in content] == []
    command = Path(f"/proc/{endpoint_of(daemon)}/cmdline").read_bytes()
    assert node.token.encode() not in command


def test_the_page_shows_the_run_from_another_machine(daemon: Daemon, elsewhere: Elsewhere) -> None:
    page = elsewhere.start("web", "--port", "0", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert page.stdout is not None
        place = page.stdout.readline().split()[0]
        text = _page_with(place, "tree", "environment_pool")
        assert elsewhere.address.replace("&", "&amp;") in text
        plays_on(daemon, elsewhere)
        assert _page_with(place, "actor?name=env-000", "trajectory_ended")
        with urllib.request.urlopen(f"{place}metrics", timeout=DEADLINE_S) as answer:
            assert b"dartrl_updates_total" in answer.read()
    finally:
        page.send_signal(signal.SIGINT)
        page.communicate(timeout=DEADLINE_S * slowness())
    assert list((elsewhere.folder / "tmp").iterdir()) == []


def _page_with(place: str, page: str, text: str) -> str:
    give_up = time.monotonic() + DEADLINE_S * slowness()
    while True:
        with urllib.request.urlopen(f"{place}{page}", timeout=DEADLINE_S) as answer:
            found: str = answer.read().decode()
        if text in found:
            return found
        assert time.monotonic() < give_up, found
        time.sleep(0.2)


def test_a_view_that_is_followed_sees_new_events(daemon: Daemon, elsewhere: Elsewhere) -> None:
    kind = "events", "--kind", "child_terminated"
    kill_environment(daemon)
    daemon.wait_until(lambda: "env-002" in elsewhere.ask(*kind)[1], "the first event")
    following = elsewhere.start(*kind, "-n", "1", "--follow", stdout=subprocess.PIPE)
    try:
        assert following.stdout is not None
        assert following.stdout.readline(), "the newest event so far comes first"
        kill_environment(daemon)
        assert "env-002" in following.stdout.readline()
    finally:
        following.send_signal(signal.SIGINT)
        following.communicate(timeout=DEADLINE_S * slowness())
    assert following.returncode == OK


def kill_environment(daemon: Daemon) -> None:
    """SIGKILL env-002 once it runs, and wait until another process has its name."""
    daemon.wait_until(lambda: daemon.row("env-002").ready, "env-002")
    killed = daemon.row("env-002").pid
    os.kill(killed, signal.SIGKILL)
    daemon.wait_until(lambda: daemon.row("env-002").pid not in (0, killed), "another env-002")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("checkpoints", "list"), "run it on the control node"),
        (("pool", "drop", "1"), "run it on the control node"),
        (("actors", "stack", "root"), "run it on the control node"),
        (("doctor", "--data"), "run it on the control node"),
    ],
)
def test_commands_on_the_files_of_the_run_say_where_to_run_them(
    elsewhere: Elsewhere, words: tuple[str, ...], says: str
) -> None:
    code, _, errors = elsewhere.ask(*words)
    assert (code, says in errors) == (2, True)


def test_a_record_without_a_run_says_so(tmp_path: Path, database: str) -> None:
    code, _, errors = Elsewhere(tmp_path / "elsewhere", database).ask("status")
    assert code != OK
    assert "has no schema" in errors
    assert "Traceback" not in errors
