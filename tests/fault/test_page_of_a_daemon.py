"""The page beside a daemon: waits for its port, comes back when it is killed, steers, ends with the run."""

import json
import os
import signal
import socket
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dart.run.control_protocol import ControlOutcome, Pause
from dart.run.sidecars import NICENESS
from tests.fault.daemons import DEADLINE_S, Daemon

pytestmark = pytest.mark.slow


@pytest.fixture
def taken() -> Iterator[socket.socket]:
    """A port that somebody else has."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture
def daemon(tmp_path: Path, taken: socket.socket) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path, port=taken.getsockname()[1])
    yield daemon
    daemon.end()


def page_pid(daemon: Daemon) -> int:
    return int(json.loads((daemon.paths.root / "web.json").read_text())["pid"])


def status(daemon: Daemon) -> str:
    """What `dartrl status` prints."""
    process = daemon.run("status")
    return process.communicate(timeout=DEADLINE_S)[0]


def asked(address: str, form: dict[str, str] | None = None, token: str = "") -> tuple[int, str]:
    """The status of a GET, or a POST of a form, and its text."""
    body = urllib.parse.urlencode(form).encode() if form is not None else None
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(address, body, headers), timeout=DEADLINE_S
        ) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.long
def test_the_page_of_a_daemon_needs_nobody_and_nobody_needs_it(daemon: Daemon, taken: socket.socket) -> None:
    waiting = daemon.sidecar("web")
    assert not waiting.is_well
    assert "Address already in use" in waiting.text
    assert "Address already in use" in " ".join(status(daemon).split())
    daemon.plays_on()

    address = f"http://127.0.0.1:{taken.getsockname()[1]}/"
    taken.close()
    daemon.wait_until(lambda: daemon.sidecar("web").text == address, "the page at its port")
    assert address in status(daemon)
    assert asked(address)[0] == 200

    killed = page_pid(daemon)
    os.kill(killed, signal.SIGKILL)
    daemon.wait_until(lambda: daemon.sidecar("web").is_well and page_pid(daemon) != killed, "a new page")
    daemon.plays_on()
    priority = psutil.Process(daemon.process.pid).nice()
    assert psutil.Process(page_pid(daemon)).nice() == min(19, priority + NICENESS)

    token = (daemon.paths.root / "web.token").read_text().strip()
    assert asked(f"{address}do", {"do": "pause"})[0] == 401
    code, text = asked(f"{address}do", {"do": "pause"}, token)
    assert (code in (200, 202), token in text) == (True, False)
    assert daemon.ask(Pause(wait_ms=30_000)).outcome is ControlOutcome.DONE
    assert "paused by an operator" in status(daemon)

    os.kill(daemon.row("root").pid, signal.SIGSTOP)
    assert asked(f"{address}tree")[0] == 200
    page = psutil.Process(page_pid(daemon))
    daemon.process.send_signal(signal.SIGKILL)
    assert daemon.process.wait(DEADLINE_S) == -signal.SIGKILL
    page.wait(DEADLINE_S)
    logs = [file for file in daemon.paths.logs.iterdir() if token in file.read_text(errors="replace")]
    assert logs == []


@pytest.mark.long
def test_a_second_signal_ends_the_tree_before_anybody_waits_for_the_page(daemon: Daemon) -> None:
    daemon.sidecar("web")
    page, root = psutil.Process(page_pid(daemon)), psutil.Process(daemon.row("root").pid)
    for stands_still in (page, root):
        stands_still.suspend()

    daemon.process.send_signal(signal.SIGTERM)
    daemon.await_taken()
    daemon.process.send_signal(signal.SIGTERM)
    ended: list[int] = []
    psutil.wait_procs([page, root], timeout=DEADLINE_S, callback=lambda process: ended.append(process.pid))

    assert ended == [root.pid, page.pid]
    assert daemon.ended()[0] == 128 + signal.SIGTERM
