"""OSWorld's own evaluators in their sandbox: faults during judgements of many kinds, and a real browser.

They need `make osworld-score`. `benchmarks.osworld_evaluators` compares their scores with direct calls.
"""

import asyncio
import contextlib
import dataclasses
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from dart.config.machine_address import MachineAddress
from dart.environments.deadlines import counting_down
from dart.environments.faults import (
    EnvironmentFault,
    EvaluatorFailed,
    InfrastructureFault,
    MachineHung,
    TaskUnsupported,
)
from dart.environments.osworld import judging
from dart.environments.osworld.guest import Guest
from dart.environments.osworld.judgements import Judged, JudgementLog, RecordedAnswers, read_judgements
from dart.environments.osworld.judging import judge, judged
from dart.environments.osworld.providers import free_port
from dart.environments.osworld.scoring_environment import ScoringEnvironment, find_evaluators
from dart.environments.osworld.setup_steps import Setting
from dart.environments.osworld.tasks import OSWorldTask, parse_task
from dart.environments.protocol import NO_ROLLOUT
from tests.unit.environments.osworld.guest_server import FakeDesktop, guest_server

EVALUATORS = Path(__file__).parents[2] / ".venv-osworld-score"
CHROMIUM = "/usr/lib/chromium/chromium-headless-shell"
PAGE = "data:text/html,<title>One</title>"
DEADLINE_S = 300.0
HANGS_S = 20.0

pytestmark = [
    pytest.mark.desktop,
    pytest.mark.skipif(not EVALUATORS.exists(), reason="not installed (make osworld-score)"),
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="not installed: bubblewrap"),
]


def file(name: str) -> dict[str, Any]:
    return {"type": "vm_file", "path": f"/home/user/{name}", "dest": name}


def cloud(name: str) -> dict[str, Any]:
    return {"type": "cloud_file", "path": f"https://127.0.0.1/{name}", "dest": f"gold-{name}"}


def rule(**rules: Any) -> dict[str, Any]:
    return {"type": "rule", "rules": rules}


SHELL = {"type": "vm_command_line", "command": "cat said", "shell": True}
KINDS: dict[str, tuple[str, Any, Any]] = {
    "a command": ("exact_match", SHELL, rule(expected="x")),
    "words of a command": ("check_include_exclude", SHELL, rule(include=["x"])),
    "an error of a command": ("exact_match", SHELL | {"type": "vm_command_error"}, rule(expected="")),
    "a terminal": ("check_include_exclude", {"type": "vm_terminal_output"}, rule(include=["x"])),
    "a table": ("compare_table", file("a.xlsx"), cloud("a.xlsx")),
    "a document": ("compare_docx_files", file("a.docx"), cloud("a.docx")),
    "slides": ("compare_pptx_files", file("a.pptx"), cloud("a.pptx")),
    "a text": ("compare_text_file", file("a.txt"), cloud("a.txt")),
    "lines": ("check_list", file("a.out"), rule(expect=["x"])),
    "values": ("compare_csv", file("a.csv"), cloud("a.csv")),
    "a picture": ("compare_images", file("a.png"), cloud("a.png")),
    "an archive": ("compare_zip_files", file("a.zip"), cloud("a.zip")),
    "a page": ("compare_htmls", file("a.html"), cloud("a.html")),
    "settings": ("check_json_settings", file("settings.json"), rule(expected={"a": 1})),
    "mail settings": ("check_thunderbird_prefs", file("prefs.js"), rule(expect={})),
    "a database": ("run_sqlite3", file("a.sqlite"), rule(sql="SELECT 1")),
    "a player": ("check_qt_bgcone", {"type": "vlc_config", "dest": "vlcrc"}, rule(expected_qt_bgcone=0)),
    "a drawing program": (
        "check_config_status",
        {"type": "gimp_config_file", "file_name": "gimprc", "dest": "gimprc"},
        rule(type="key-value", key="theme", value="x"),
    ),
    "a browser's settings": ("exact_match", {"type": "profile_name"}, rule(expected="x")),
    "a browser's marks": (
        "is_expected_bookmarks",
        {"type": "bookmarks"},
        rule(type="bookmark_bar_folders_names", names=["x"]),
    ),
    "a tree": ("check_accessibility_tree", {"type": "accessibility_tree"}, rule()),
    "a folder": ("check_moved_jpgs", {"type": "list_directory", "path": "/home/user"}, rule(expected=[])),
    "a wallpaper": ("compare_images", {"type": "vm_wallpaper", "dest": "w.png"}, file("a.png")),
}
"""Function, result and expected value of each kind, as published tasks have them."""


@pytest.fixture
def desktop(tmp_path: Path) -> FakeDesktop:
    (tmp_path / "home").mkdir()
    found = FakeDesktop(tmp_path / "home")
    found.add_window("Work")
    return found


class BesideABrowser(httpx2.AsyncBaseTransport):
    """A guest whose browser is a real one, at a port of this computer."""

    def __init__(self, guest: httpx2.AsyncBaseTransport, port: int) -> None:
        self._guest, self._port = guest, port

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.port != self._port:
            return await self._guest.handle_async_request(request)
        async with httpx2.AsyncHTTPTransport() as browser:
            response = await browser.handle_async_request(request)
            content = await response.aread()
        return httpx2.Response(response.status_code, stream=httpx2.ByteStream(content))


def setting_of(desktop: FakeDesktop, tmp_path: Path, transport: Any = None, chromium: int = 9222) -> Setting:
    address = MachineAddress(host="127.0.0.1", chromium=chromium)
    guest = transport or httpx2.ASGITransport(app=guest_server(desktop))
    return Setting(
        task_id="osworld/x/y",
        guest=Guest("vm", address, guest if chromium == 9222 else BesideABrowser(guest, chromium)),
        owner="",
        cache=tmp_path / "cache",
        scratch=tmp_path / "scratch",
        password="p",
        width=1920,
        height=1080,
    )


async def score(
    kind: tuple[str, Any, Any],
    setting: Setting,
    deadline_s: float = DEADLINE_S,
    scoring: ScoringEnvironment | None = None,
    **options: Any,
) -> float:
    left_s = counting_down(deadline_s)
    evaluators = scoring or find_evaluators(EVALUATORS)
    return (await judge(task_of(kind, options), setting, evaluators, left_s)).score


def task_of(kind: tuple[str, Any, Any], options: dict[str, Any] | None = None) -> OSWorldTask:
    evaluator = {"func": kind[0], "result": kind[1], "expected": kind[2], "options": options or {}}
    return parse_task("osworld/x/y", {"instruction": "Do it.", "evaluator": evaluator})


def cut_off(request: httpx2.Request) -> httpx2.Response:
    raise httpx2.RemoteProtocolError("peer closed connection without sending complete message body")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_fault_of_the_machine_during_a_judgement_is_never_a_number(
    desktop: FakeDesktop, tmp_path: Path, kind: str
) -> None:
    dead, hung = setting_of(desktop, tmp_path), setting_of(desktop, tmp_path)
    dead.guest.simulated_failure, hung.guest.simulated_failure = "died", "hung"
    refusing = FakeDesktop(desktop.home, faults={"http_500"})
    settings = {
        "dead": dead,
        "refusing": setting_of(refusing, tmp_path),
        "cut off": setting_of(desktop, tmp_path, httpx2.MockTransport(cut_off)),
    }
    found = {}
    for how, setting in settings.items():
        with pytest.raises(InfrastructureFault) as raised:
            await score(KINDS[kind], setting)
        found[how] = raised.type.__name__
    assert found == {"dead": "MachineDied", "refusing": "StatusNotOk", "cut off": "MachineDied"}
    with pytest.raises(InfrastructureFault):
        await score(KINDS[kind], hung, HANGS_S)


class BreaksLater(httpx2.AsyncBaseTransport):
    """A guest that answers some requests and is gone then."""

    def __init__(self, desktop: FakeDesktop, answers: int) -> None:
        self._guest = httpx2.ASGITransport(app=guest_server(desktop))
        self._left = answers
        self.asked = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked += 1
        if self.asked > self._left:
            raise httpx2.ConnectError("connection refused")
        return await self._guest.handle_async_request(request)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_machine_that_dies_after_any_of_its_answers_gives_no_number(
    desktop: FakeDesktop, tmp_path: Path, kind: str
) -> None:
    await dies_after_any_answer(KINDS[kind], desktop, tmp_path)


async def dies_after_any_answer(
    kind: tuple[str, Any, Any], desktop: FakeDesktop, tmp_path: Path, **options: Any
) -> int:
    """Count the answers of a whole judgement; then let the machine die after one of them, two of them, ...

    Returns the number of answers."""
    whole = BreaksLater(desktop, answers=1_000)
    with contextlib.suppress(EvaluatorFailed, TaskUnsupported):
        await score(kind, setting_of(desktop, tmp_path, whole, **options))
    assert whole.asked >= 1
    for answers in range(1, whole.asked):
        with pytest.raises((InfrastructureFault, TaskUnsupported)):
            await score(kind, setting_of(desktop, tmp_path, BreaksLater(desktop, answers), **options))
    return whole.asked


@pytest.fixture
async def truncating() -> AsyncIterator[int]:
    """The port of a server that announces more bytes than it sends, whatever it is asked."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4096\r\n\r\nPK")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_body_that_ends_too_early_gives_no_number(
    tmp_path: Path, truncating: int, desktop: FakeDesktop, kind: str
) -> None:
    setting = setting_of(desktop, tmp_path)
    guest = Guest("vm", MachineAddress(host="127.0.0.1", server=truncating))
    with pytest.raises(InfrastructureFault):
        await score(KINDS[kind], dataclasses.replace(setting, guest=guest))
    await guest.close()


@pytest.mark.parametrize("kind", [kind for kind, row in KINDS.items() if row[2]["type"] == "cloud_file"])
async def test_a_file_of_the_network_that_cannot_be_had_is_never_a_number(
    desktop: FakeDesktop, tmp_path: Path, kind: str
) -> None:
    for name in ("a.xlsx", "a.docx", "a.pptx", "a.txt", "a.csv", "a.png", "a.zip", "a.html"):
        (desktop.home / name).write_bytes(b"x")
    with pytest.raises(TaskUnsupported, match="cannot be downloaded"):
        await score(KINDS[kind], setting_of(desktop, tmp_path))


@pytest.mark.parametrize(
    "code", ["__import__('os').system('touch {}') or ['a']", "[0] * 10**12", "'a' * 10**11"]
)
async def test_code_that_a_machine_prints_reaches_nothing_of_this_computer(
    desktop: FakeDesktop, tmp_path: Path, code: str
) -> None:
    reached = EVALUATORS / "reached"  # the one place of this computer that the sandbox shows
    (desktop.home / "said").write_text(code.format(reached))
    kind = ("check_gnome_favorite_apps", SHELL, rule(expected=["a", "b"]))
    with contextlib.suppress(EvaluatorFailed):
        assert await score(kind, setting_of(desktop, tmp_path)) == 0.0
    assert not reached.exists()


@dataclasses.dataclass(frozen=True)
class Browser:
    """A real Chromium."""

    port: int
    process: subprocess.Popen[bytes]


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    port = free_port()
    options = [
        "--headless",
        "--no-sandbox",
        f"--remote-debugging-port={port}",
        f"--user-data-dir={tmp_path}/b",
    ]
    process = subprocess.Popen([CHROMIUM, *options, PAGE], stderr=subprocess.DEVNULL)
    await_browser(port)
    yield Browser(port, process)
    process.kill()
    process.wait()


def await_browser(port: int) -> None:
    gives_up_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < gives_up_s:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/json/version"):
            return
        time.sleep(0.1)
    raise TimeoutError(f"no browser answers at port {port}")


@pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="not installed: chromium-headless-shell")
async def test_pages_are_read_through_the_relayed_port_of_the_browser(
    desktop: FakeDesktop, tmp_path: Path, browser: Browser
) -> None:
    setting = setting_of(desktop, tmp_path, chromium=browser.port)
    for url, expected in ((PAGE, 1.0), ("https://other.example", 0.0)):
        kind = ("is_expected_tabs", {"type": "open_tabs_info"}, rule(type="url", urls=[url]))
        try:
            assert await score(kind, setting) == expected
        except EnvironmentFault as error:
            pytest.fail(str(error))


@pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="not installed: chromium-headless-shell")
async def test_a_machine_that_dies_while_its_pages_are_read_gives_no_number(
    desktop: FakeDesktop, tmp_path: Path, browser: Browser
) -> None:
    kind = ("is_expected_tabs", {"type": "open_tabs_info"}, rule(type="url", urls=[PAGE]))

    answers = await dies_after_any_answer(kind, desktop, tmp_path, chromium=browser.port)
    assert answers >= 4, "a look after each of two getters, after the metric, and at the end"


@pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="not installed: chromium-headless-shell")
async def test_a_browser_that_hangs_gives_no_number_and_one_that_was_closed_has_no_pages(
    desktop: FakeDesktop, tmp_path: Path, browser: Browser
) -> None:
    kind = ("is_expected_tabs", {"type": "open_tabs_info"}, rule(type="url", urls=[PAGE]))
    setting = setting_of(desktop, tmp_path, chromium=browser.port)
    browser.process.send_signal(signal.SIGSTOP)
    with pytest.raises(MachineHung, match="json/version"):
        await score(kind, setting)

    browser.process.kill()
    browser.process.wait()
    assert await score(kind, setting) == 0.0


@pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="not installed: chromium-headless-shell")
async def test_a_score_of_pages_is_given_again_without_the_guest_by_what_the_getter_returned(
    desktop: FakeDesktop, tmp_path: Path, browser: Browser
) -> None:
    scoring, left_s = find_evaluators(EVALUATORS), counting_down(DEADLINE_S)
    task, other = (
        task_of(("is_expected_tabs", {"type": "open_tabs_info"}, rule(type="url", urls=[url])))
        for url in (PAGE, "https://other.example")
    )
    first = await judge(task, setting_of(desktop, tmp_path, chromium=browser.port), scoring, left_s)
    JudgementLog(tmp_path / "run", "env-000").add(Judged(first, task.task_id, 0, NO_ROLLOUT))
    browser.process.kill()

    (kept,) = read_judgements(tmp_path / "run")
    again, other_again = [
        await judged(one, scoring, RecordedAnswers(tmp_path / "run", kept), left_s) for one in (task, other)
    ]
    assert (first.score, again.score, other_again.score) == (1.0, 1.0, 0.0)
    assert again.by_values == ("get_open_tabs_info",)


async def test_a_getter_that_hangs_in_playwright_is_ended_at_its_own_limit_with_every_process(
    desktop: FakeDesktop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "page_call_s", lambda within_s: 0.02 * within_s)
    before = psutil.Process().children(recursive=True)
    kind = ("is_expected_tabs", {"type": "open_tabs_info"}, rule(type="url", urls=[PAGE]))
    with socket.create_server(("127.0.0.1", 0)) as never_answers:
        setting = setting_of(desktop, tmp_path)
        address = MachineAddress(host="127.0.0.1", chromium=never_answers.getsockname()[1])
        guest = Guest("vm", address, httpx2.ASGITransport(app=guest_server(desktop)))
        with pytest.raises(EvaluatorFailed, match=r"get_open_tabs_info did not return within 5\.9 s"):
            await score(kind, dataclasses.replace(setting, guest=guest))
    assert set(psutil.Process().children(recursive=True)) <= set(before)
