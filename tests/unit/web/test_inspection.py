"""The inspection endpoint: who may ask, and what is answered."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from socket import create_server
from unittest.mock import Mock

import pytest
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from dart.config.config import load_config
from dart.core.errors import SilentError, UnavailableError
from dart.core.run_directory import RunPaths
from dart.inspect.signals import forget, note, prepare
from dart.run.control_protocol import ControlAnswer, ControlOutcome, Pause, Ping, decode_answer, encode
from dart.run.inspection_protocol import decode_state
from dart.store.control_node import ControlNode, read_control_node
from dart.store.errors import StoreBusy
from dart.store.store import Store
from dart.web import inspection
from dart.web.inspection import KEEP_EVERY_S, Announcement, inspection_app
from tests.control_node import NODE

TOKEN = "the-token-of-this-start"
HEADERS = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def client(recorded: RunPaths) -> Iterator[TestClient]:
    with TestClient(inspection_app(recorded, TOKEN, main_pid=0)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("method", "target"), [("GET", "/state"), ("GET", "/file"), ("POST", "/control"), ("POST", "/end")]
)
@pytest.mark.parametrize(
    "authorization", [None, "", TOKEN, "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x"]
)
def test_nothing_is_answered_without_the_token(
    client: TestClient, method: str, target: str, authorization: str | None
) -> None:
    headers = {} if authorization is None else {"authorization": authorization}

    refused = client.request(method, target, headers=headers)

    assert refused.status_code == 401
    assert "token" in refused.text
    assert TOKEN not in refused.text


def test_the_state_is_that_of_the_run(client: TestClient, recorded: RunPaths) -> None:
    answer = client.get("/state?about=env-000&about=trainer", headers=HEADERS)

    state = decode_state(answer.content)
    assert state.session == recorded.session.read_text()
    assert {file.name.partition(".")[0] for file in state.files if file.folder == "logs"} <= {
        *("env-000", "trainer")
    }


@pytest.mark.parametrize(
    "query",
    [
        *("", "folder=logs&name=../key&inode=1&offset=0", "folder=logs&name=a&inode=x&offset=0"),
        *("folder=logs&name=a&inode=1&offset=-1", "folder=.&name=key&inode=1&offset=0"),
        f"folder=logs&name=a&inode=1&offset={'1' * 4301}",
        f"folder=logs&name=a&inode=1&offset={'9' * 20}",
    ],
)
def test_a_file_that_is_not_offered_is_refused(client: TestClient, query: str) -> None:
    assert client.get(f"/file?{query}", headers=HEADERS).status_code == 400


def test_a_request_goes_to_the_control_socket(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def control(run_dir: object, call: object) -> ControlAnswer:
        asked.append(call)
        return ControlAnswer(ControlOutcome.DONE, "paused")

    monkeypatch.setattr(inspection, "control", control)

    answer = client.post("/control", headers=HEADERS, content=encode(Pause(wait_ms=7)))

    assert decode_answer(answer.content) == ControlAnswer(ControlOutcome.DONE, "paused")
    assert asked == [Pause(wait_ms=7)]


def test_a_run_that_does_not_answer_is_an_answer(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def control(run_dir: object, call: object) -> ControlAnswer:
        raise SilentError("process 7 does not answer")

    monkeypatch.setattr(inspection, "control", control)

    answer = client.post("/control", headers=HEADERS, content=encode(Ping()))

    assert (answer.status_code, answer.text) == (503, "process 7 does not answer\n")


@pytest.mark.parametrize("frame", [b"", b"no frame", b"x" * 100_000])
def test_what_is_no_request_is_refused(client: TestClient, frame: bytes) -> None:
    assert client.post("/control", headers=HEADERS, content=frame).status_code == 400


@pytest.mark.parametrize("drains_already", [False, True])
def test_the_end_of_the_run_is_a_signal_to_its_main_process(recorded: RunPaths, drains_already: bool) -> None:
    """A run that drains already gets a second signal only for an end at once."""
    if drains_already:
        prepare(recorded)
        note(recorded, signal.SIGTERM, 0.0)
    with (
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(90)"]) as sleeper,
        TestClient(inspection_app(recorded, TOKEN, sleeper.pid)) as client,
    ):
        assert client.post(f"/end?now={drains_already:d}", headers=HEADERS).status_code == 200
        assert sleeper.wait(60) == -signal.SIGTERM
    forget(recorded)


def test_an_announcement_goes_on_after_an_error_that_nobody_foresaw(
    recorded: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ended(BaseException):
        """Ends the loop, which has no end."""

    renewals = Mock(side_effect=[RuntimeError("an error of the driver"), None, Ended])
    for name in ("announce", "keep_announced"):
        monkeypatch.setattr(inspection, name, renewals)
    monkeypatch.setattr("dart.web.inspection.time.sleep", lambda _: None)
    node = ControlNode(
        address="", token="", version="", pid=1, config="", session="", began_unix_s=0.0, seen_unix_s=0.0
    )
    with pytest.raises(Ended), capture_logs() as said:
        inspection.Announcement(recorded, recorded.record, node).keep()
    assert [(one["event"], one.get("reason")) for one in said] == [
        ("control_node_not_announced", "an error of the driver"),
        ("announced", None),
    ]


def test_a_control_node_that_cannot_listen_announces_itself_without_an_address_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = RunPaths(tmp_path)
    config = load_config(None, ["inspection.host=127.0.0.1"])
    paths.config.write_text(config.to_toml())
    Store(paths.store).close()
    socket = Mock(getsockname=lambda: ("127.0.0.1", 4000))
    taken = UnavailableError("port 4000 is taken")
    monkeypatch.setattr(inspection, "listen", Mock(side_effect=[taken, taken, socket]))
    now_s = [100.0]
    rows: list[ControlNode | None] = []

    def wait(seconds: float) -> None:
        rows.append(read_control_node(paths.store))
        now_s[0] += seconds

    monkeypatch.setattr("dart.web.inspection.time.sleep", wait)
    monkeypatch.setattr("dart.web.inspection.time.time", lambda: now_s[0])
    announcement = Announcement(paths, paths.store, replace(NODE, address="", ended_unix_s=None))
    assert inspection._listening(paths, config, announcement) is socket
    seen = [(row.address, row.seen_unix_s) for row in rows if row is not None]
    assert seen == [("", 100.0), ("", 100.0 + KEEP_EVERY_S)]

    announcement.renew()
    found = read_control_node(paths.store)
    assert found is not None
    assert (found.address, found.token) == ("127.0.0.1:4000", NODE.token)


def test_an_endpoint_at_every_address_opens_its_port_after_the_record_did_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = RunPaths(tmp_path)
    with create_server(("0.0.0.0", 0)) as free:
        port = free.getsockname()[1]
    config = load_config(None, ["inspection.host=0.0.0.0", f"inspection.port={port}"])
    paths.config.write_text(config.to_toml())
    Store(paths.store).close()
    own_host = Mock(side_effect=[StoreBusy("no connection is left"), "10.0.0.7"])
    monkeypatch.setattr(inspection, "database_at", lambda _: Mock(own_host=own_host))
    monkeypatch.setattr("dart.web.inspection.time.sleep", Mock(side_effect=[None]))
    announcement = Announcement(paths, paths.store, replace(NODE, address="", ended_unix_s=None))

    with inspection._listening(paths, config, announcement) as listener:
        assert listener.getsockname() == ("0.0.0.0", port)
    assert announcement.node.address == f"10.0.0.7:{port}"
