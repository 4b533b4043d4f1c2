"""The page of a recorded run in a real browser: every page, no word on the console, keys and charts work."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from dart.core.run_directory import RunPaths
from dart.environments.browser.cdp import Browser, CdpSession
from dart.environments.browser.environment import CHROMIUM
from dart.web.app import STREAMS_MOST
from dart.web.trajectory_pages import write_trajectory
from tests.recorded_run import record_run

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = (
    "",
    "tree",
    "actor?name=env-001",
    "tasks",
    "task?id=miniwob/click-test-2",
    "trajectories",
    "trajectory?id=2",
    "trajectory?id=3",
    "trajectory?id=8",
    "compare?a=1&b=2",
)
FOLLOWS = "document.querySelector('[data-link]').classList.contains('open')"
NOTICE = "document.querySelector('[data-unfollowed]').textContent"
LEAVE = "dispatchEvent(new Event('pagehide'))"
"""Closes the stream, which would bring a changed part again."""
TABS_MOST = 50
HEAR = """
window.heard = [];
document.addEventListener("submit", () => heard.push("submit"), true);
document.addEventListener("change", () => heard.push("change")); 0
"""
"""Notes each change of a choice, after the page has handled it, and each form that is submitted then."""
HEAR_SPOKEN = """
window.heard = [];
const spoken = document.querySelector("[role=status][data-spoken]");
new MutationObserver(() => heard.push(spoken.textContent)).observe(spoken, { childList: true }); 0
"""
"""Notes what the page tells a screen reader."""
STATUS = "performance.getEntriesByType('navigation')[0].responseStatus"
PICTURES = (
    "performance.getEntriesByType('resource')"
    ".filter(one => one.name.includes('/blobs/')).map(one => one.responseStatus)"
)
CURRENT = "document.querySelector('.step.current').dataset.step"
MARKED = "[...document.querySelectorAll('[aria-current=step]')].map(button => button.textContent)"

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RunPaths:
    return record_run(tmp_path_factory.mktemp("web") / "run")


@contextmanager
def served_page(recorded: RunPaths, ends: int = 0) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process of `dartrl web`, which must end with the code `ends`, and where it says the page is."""
    command = [sys.executable, "-m", "dart", "web", "--run-dir", str(recorded.root), "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as served:
        assert served.stdout is not None
        said = re.match(r"(http://127\.0\.0\.1:\d+/) shows", served.stdout.readline())
        assert said is not None
        try:
            yield served, said[1]
            served.send_signal(signal.SIGINT)
            _, complaints = served.communicate(timeout=20)
        finally:
            served.kill()
        assert (served.returncode, complaints) == (ends, "")


@pytest.fixture(scope="module")
def address(recorded: RunPaths) -> Iterator[str]:
    with served_page(recorded) as (_, where):
        yield where


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[tuple[CdpSession, list[str]]]:
    """A page, and everything its console was told."""
    browser = await Browser.launch(CHROMIUM, tmp_path / "profile")
    session = await browser.open_page()
    told: list[str] = []
    heard = session.on_event

    def hear(method: str, params: dict[str, Any]) -> None:
        if method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            told.append(str(params))
        heard(method, params)

    session.on_event = hear  # type: ignore[method-assign]
    await session.post("Log.enable")
    yield session, told
    await browser.close()


async def until(session: CdpSession, condition: str) -> None:
    """Wait in the page for a condition, at most 20 s."""
    await session.evaluate(
        f"""new Promise((keep, give_up) => {{
            const look = (left) => ({condition}) ? keep() : left ? setTimeout(look, 50, left - 1) : give_up();
            look(400);
        }})"""
    )


async def opened(session: CdpSession, address: str) -> None:
    await session.post("Page.navigate", {"url": address})
    await until(session, f"location.href.startsWith({address!r}) && document.readyState === 'complete'")


async def press(session: CdpSession, key: str, code: int = 0) -> None:
    """Press a key; `code` is its number on Windows, which a page's own controls need."""
    down = {"type": "rawKeyDown", "key": key, "windowsVirtualKeyCode": code}
    await session.post("Input.dispatchKeyEvent", down)
    await session.post("Input.dispatchKeyEvent", {**down, "type": "keyUp"})


async def test_every_page_opens_and_follows_the_run_without_a_word_on_the_console(
    address: str, page: tuple[CdpSession, list[str]]
) -> None:
    session, told = page
    for place in PAGES:
        await opened(session, address + place)
        await until(session, FOLLOWS)
        assert await session.evaluate(STATUS) == 200
        assert "alert(1)" not in await session.evaluate("[...document.scripts].map(s => s.text).join()")
    assert told == []


async def test_keys_go_from_step_to_step_in_the_page_and_in_its_export(
    address: str, recorded: RunPaths, page: tuple[CdpSession, list[str]], tmp_path: Path
) -> None:
    session, told = page
    write_trajectory(recorded, "2", tmp_path / "two.html")
    await opened(session, f"{address}trajectory?id=2")
    await until(session, f"{PICTURES}.length >= 2")  # that of the first step and the next
    assert set(await session.evaluate(PICTURES)) == {200}
    for place in (f"{address}trajectory?id=2", (tmp_path / "two.html").as_uri()):
        await opened(session, place)
        steps = [await session.evaluate(CURRENT)]
        assert await session.evaluate(MARKED) == ["1"]
        for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft", "Home"):
            await press(session, key)
            steps.append(await session.evaluate(CURRENT))
        assert steps == ["1", "2", "3", "3", "2", "1"]
    assert told == []


async def test_a_chart_says_its_figures_at_the_pointer(
    address: str, page: tuple[CdpSession, list[str]]
) -> None:
    session, told = page
    await opened(session, address)

    await point_at_a_chart(session)
    await until(session, "document.querySelector('[data-moment]').textContent !== ''")

    assert told == []


async def test_a_chart_without_figures_says_nothing_at_the_pointer(
    address: str, page: tuple[CdpSession, list[str]]
) -> None:
    session, told = page
    await opened(session, address)
    await session.evaluate(LEAVE)
    await session.evaluate("document.querySelector('.chart').removeAttribute('data-readout')")

    await point_at_a_chart(session)

    assert await session.evaluate("document.querySelector('[data-moment]').textContent") == ""
    assert told == []


async def point_at_a_chart(session: CdpSession) -> None:
    box = await session.evaluate(
        "(b => [b.x, b.y, b.width, b.height])(document.querySelector('.plot').getBoundingClientRect())"
    )
    await session.post(
        "Input.dispatchMouseEvent", {"type": "mouseMoved", "x": box[0] + box[2] / 2, "y": box[1] + box[3] / 2}
    )


async def test_a_click_is_no_less_one_because_the_page_changed_while_the_button_was_down(
    address: str, page: tuple[CdpSession, list[str]]
) -> None:
    session, told = page
    await opened(session, f"{address}tree")
    link = "document.querySelector('#part-tree a[href$=env-001]')"
    part = "document.getElementById('part-tree').innerHTML"
    await session.evaluate(LEAVE)
    x, y = await session.evaluate(f"(b => [b.x + 5, b.y + 5])({link}.getBoundingClientRect())")
    click = {"x": x, "y": y, "button": "left", "clickCount": 1}
    await session.evaluate(
        "addEventListener('click', event => { event.preventDefault(); window.clicked = event.target.text; })"
    )

    await session.post("Input.dispatchMouseEvent", {"type": "mousePressed", **click})
    await session.evaluate(f"offer({{name: 'tree', html: {part} + '<p>changed</p>'}})")
    await session.post("Input.dispatchMouseEvent", {"type": "mouseReleased", **click})
    await until(session, f"{part}.includes('<p>changed</p>')")

    assert await session.evaluate("window.clicked") == "env-001"
    assert await session.evaluate(f"document.activeElement === {link}"), "it has the focus still"
    assert told == []


@asynccontextmanager
async def all_streams_taken(address: str) -> AsyncIterator[None]:
    """While the block lasts, the server refuses every further stream with 503."""
    writers: list[asyncio.StreamWriter] = []
    try:
        for _ in range(STREAMS_MOST):
            reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(address).port)
            writers.append(writer)
            writer.write(
                f"GET /stream?page=head HTTP/1.1\r\nHost: {urlsplit(address).netloc}\r\n\r\n".encode()
            )
            await reader.readuntil(b"\r\n\r\n")
        yield
    finally:
        for writer in writers:
            writer.close()


async def test_a_page_follows_again_after_its_stream_was_refused(
    address: str, page: tuple[CdpSession, list[str]]
) -> None:
    session, _ = page
    async with all_streams_taken(address):
        await opened(session, address)
        await until(session, f"{NOTICE}.includes('does not follow the run')")
        light_height_px = await session.evaluate("document.querySelector('[data-link]').offsetHeight")
        assert light_height_px < 40
    await until(session, FOLLOWS)
    assert await session.evaluate(NOTICE) == ""


LONG_TEXTS = """
    const long = "libreoffice_impress/38d048ec-8534-8963-5c39-c79d46d4ac7a";
    document.querySelectorAll("td.task a, select option").forEach((place) => { place.textContent = long; });
    document.querySelectorAll(".clip").forEach((place) => { place.textContent = long.repeat(4); });
    document.querySelectorAll("[class^=d] .pill").forEach((place) => { place.textContent = "quarantined"; });
    document.querySelectorAll("main h2, main p").forEach((place) => { place.textContent = "x".repeat(300); });
    document.documentElement.scrollWidth
"""


@pytest.mark.parametrize("width", [390, 1024])
@pytest.mark.parametrize(
    "place",
    ["tree", "actor?name=env-001", "tasks", "trajectories", "trajectories?of=evaluation", "trajectory?id=2"],
)
async def test_a_page_with_long_names_and_texts_is_as_wide_as_the_window(
    address: str, page: tuple[CdpSession, list[str]], place: str, width: int
) -> None:
    session, _ = page
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    await session.post("Emulation.setDeviceMetricsOverride", size)
    await opened(session, address + place)
    assert await session.evaluate(LONG_TEXTS) <= width


HASTE = """
    const wait = setTimeout;
    window.setTimeout = (then, ms, ...rest) => wait(then, ms === 40000 ? 8000 : ms, ...rest);
"""


async def test_a_page_whose_server_hangs_says_that_it_does_not_follow_the_run_until_the_server_goes_on(
    recorded: RunPaths, page: tuple[CdpSession, list[str]]
) -> None:
    session, _ = page
    await session.post("Page.addScriptToEvaluateOnNewDocument", {"source": HASTE})
    with served_page(recorded) as (served, address):
        await opened(session, address)
        await until(session, FOLLOWS)
        served.send_signal(signal.SIGSTOP)
        try:
            await until(session, f"{NOTICE} !== ''")
        finally:
            served.send_signal(signal.SIGCONT)
        await until(session, f"{FOLLOWS} && {NOTICE} === ''")


NOTE_NOTICES = """
    const place = document.querySelector("[data-unfollowed]");
    window.notices = [];
    new MutationObserver(() => window.notices.push(place.textContent)).observe(place, {childList: true});
    const Source = EventSource;
    window.losses = 0;
    window.EventSource = class extends Source {
        constructor(...all) { super(...all); this.addEventListener("error", () => { window.losses += 1; }); }
    };
"""


async def test_the_notice_of_a_page_stays_when_a_server_that_hung_is_killed(
    recorded: RunPaths, page: tuple[CdpSession, list[str]]
) -> None:
    session, _ = page
    await session.post("Page.addScriptToEvaluateOnNewDocument", {"source": HASTE})
    with served_page(recorded, ends=-signal.SIGKILL) as (served, address):
        await opened(session, address)
        await until(session, FOLLOWS)
        await session.evaluate(NOTE_NOTICES)
        served.send_signal(signal.SIGSTOP)
        await until(session, f"{NOTICE} !== ''")
        served.kill()
        await until(session, "window.losses > 0")
        assert "" not in await session.evaluate("window.notices")


def test_the_end_of_the_page_is_silent_also_while_a_browser_follows_the_run(recorded: RunPaths) -> None:
    with served_page(recorded) as (_, where):
        follows = urlopen(f"{where}stream?page=overview")
        assert follows.readline() == b"retry: 2000\n"
    follows.close()


async def test_the_keyboard_stays_at_its_link_when_rows_come_above_it(
    address: str, page: tuple[CdpSession, list[str]]
) -> None:
    session, told = page
    await opened(session, f"{address}tree")
    await session.evaluate(LEAVE)
    link = "document.querySelector('#part-tree td a[href$=env-001]')"
    above = "'<p><a href=\"/actor?name=trainer\">trainer</a></p>'"
    await session.evaluate(f"{link}.focus(); window.first = {link}; 0")

    await session.evaluate(
        f"offer({{name: 'tree', html: {above} + document.getElementById('part-tree').innerHTML}}); 0"
    )

    assert await session.evaluate("document.activeElement.textContent") == "env-001"
    assert await session.evaluate("document.activeElement === window.first"), "the place of a screen reader"
    assert told == []


async def test_a_key_that_goes_through_the_choices_of_a_filter_loads_no_other_page(
    address: str, page: tuple[CdpSession, list[str]]
) -> None:
    session, told = page
    await opened(session, f"{address}trajectories")
    await until(session, FOLLOWS)
    for _ in range(TABS_MOST):
        await press(session, "Tab", 9)
        if await session.evaluate("document.activeElement.name") == "task":
            break
    before = await session.evaluate("document.activeElement.value")
    await session.evaluate(HEAR)

    await press(session, "ArrowDown", 40)
    await until(session, "heard.includes('change')")

    assert await session.evaluate("heard.join()") == "change", "the form of the choice is not submitted"
    assert await session.evaluate("document.activeElement.value") != before
    assert await session.evaluate("location.search") == ""
    assert await session.evaluate("document.activeElement.name") == "task"
    assert told == []


async def test_a_chart_says_its_figures_to_the_keys(address: str, page: tuple[CdpSession, list[str]]) -> None:
    session, told = page
    await opened(session, address)
    await session.evaluate(LEAVE)
    plot = "document.querySelector('[aria-label^=Throughput]')"
    moment = f"{plot}.closest('figure').querySelector('[data-moment]').textContent"
    await session.evaluate(f"{plot}.focus()")

    moments = []
    for key in ("Home", "End", "ArrowLeft"):
        await press(session, key)
        moments.append(await session.evaluate(moment))
    first, last, before = moments

    assert "" < first < before < last
    words = await session.evaluate(f"{plot}.getAttribute('aria-valuetext')")
    assert words.startswith(f"{before}: environment steps ")
    await press(session, "Escape")
    assert await session.evaluate(moment) == ""
    assert told == []


async def test_a_screen_reader_hears_a_notice_when_it_comes_and_not_again_when_its_figures_change(
    address: str, page: tuple[CdpSession, list[str]]
) -> None:
    session, told = page
    await opened(session, address)
    await session.evaluate(LEAVE)
    await session.evaluate(HEAR_SPOKEN)

    for shown in (
        "<p>the store waits (1.2 GiB are free)</p>",
        "<p>the store waits (998.7 MiB are free)</p>",
        "<p>the store waits (12 B are free)</p>\n<p>the trainer waits</p>",
        "<p>env-003 is down</p>",
        "<p>env-004 is down</p>",
        "",
    ):
        await session.evaluate(f"offer({{name: 'notices', html: {shown!r}}}); 0")
        inside = await session.evaluate("document.getElementById('part-notices').innerHTML")
        assert inside == shown

    assert await session.evaluate("heard") == [
        "the store waits (1.2 GiB are free)",
        "the store waits (12 B are free) the trainer waits",
        "env-003 is down",
        "env-004 is down",
        "",
    ]
    assert told == []


async def test_a_screen_reader_hears_once_why_parts_cannot_be_read(
    address: str, page: tuple[CdpSession, list[str]]
) -> None:
    session, told = page
    await opened(session, address)
    await session.evaluate(LEAVE)
    await session.evaluate("offer({name: 'notices', html: ''}); 0")
    await session.evaluate(HEAR_SPOKEN)

    for name in ("now", "charts", "newest"):
        locked = "<p data-trouble>the record is locked</p>"
        await session.evaluate(f"offer({{name: '{name}', html: {locked!r}}}); 0")

    assert await session.evaluate("heard") == ["the record is locked"]
    assert told == []
