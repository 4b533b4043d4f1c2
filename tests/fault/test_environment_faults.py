"""Every fault of a real browser ends in the right exception in time, and the next reset repairs it."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from dart.core.actions import Click, Wait
from dart.core.png import png_size
from dart.core.types import FaultKind
from dart.environments.browser import cdp
from dart.environments.browser.cdp import CdpSession
from dart.environments.faults import (
    BrowserDied,
    BrowserHung,
    EnvironmentFault,
    EnvironmentTimeout,
    PageCrashed,
    PageHung,
    ResetFailed,
)
from dart.environments.miniwob.environment import MiniWobEnvironment
from tests.patience import slowness

pytestmark = pytest.mark.browser

TASK = "miniwob/click-test"
LOADED = "miniwob/choose-date"
"""A task whose page is loaded for every episode."""

HANG_S = 1.2
"""Deadline of what is expected to hang."""
DEADLINE_S = 10.0
"""Deadline of what is expected to work, on a busy machine."""
ELSEWHERE = Click(5, 60)
"""A click that hits nothing."""


@pytest.fixture
async def environment(tmp_path: Path) -> AsyncIterator[MiniWobEnvironment]:
    environment = MiniWobEnvironment(tmp_path)
    await environment.reset(TASK, 1, deadline_s=DEADLINE_S)
    yield environment
    await environment.close()


def page(environment: MiniWobEnvironment) -> CdpSession:
    assert environment._page is not None
    return environment._page


def browser(environment: MiniWobEnvironment) -> psutil.Process:
    assert environment._browser is not None
    return psutil.Process(environment._browser.pid)


def renderer(environment: MiniWobEnvironment) -> psutil.Process:
    """The renderer of the page; the newest one, a browser may keep a spare."""
    helpers = browser(environment).children(recursive=True)
    renderers = [helper for helper in helpers if "--type=renderer" in helper.cmdline()]
    return max(renderers, key=lambda process: process.create_time())


async def fails_in_time(doing: Awaitable[object], fault: type[EnvironmentFault]) -> EnvironmentFault:
    started = time.monotonic()
    with pytest.raises(fault) as caught:
        await doing
    assert time.monotonic() - started < HANG_S + 0.5 * slowness()
    assert caught.value.kind is FaultKind.INFRASTRUCTURE
    return caught.value


async def recovers(environment: MiniWobEnvironment) -> None:
    started = await environment.reset(TASK, 2, deadline_s=DEADLINE_S)
    assert png_size(started.screenshot) == (160, 210)
    assert await environment.healthy(deadline_s=DEADLINE_S)
    assert not (await environment.step(ELSEWHERE, deadline_s=DEADLINE_S)).terminated


async def test_a_script_that_never_returns_hangs_its_page_only(environment: MiniWobEnvironment) -> None:
    page(environment).post("Runtime.evaluate", {"expression": "while (true) {}"})
    await asyncio.sleep(0.2)
    assert not await environment.healthy(deadline_s=0.5)
    before = browser(environment)
    await fails_in_time(environment.step(ELSEWHERE, deadline_s=HANG_S), PageHung)
    await recovers(environment)
    assert browser(environment) == before


async def test_a_screenshot_of_a_hung_page_ends_too(environment: MiniWobEnvironment) -> None:
    page(environment).post("Runtime.evaluate", {"expression": "while (true) {}"})
    await asyncio.sleep(0.2)
    await fails_in_time(environment.observe(deadline_s=HANG_S), PageHung)
    await recovers(environment)


async def test_a_crashing_page_fails_what_waits_for_it(environment: MiniWobEnvironment) -> None:
    forever = page(environment).post(
        "Runtime.evaluate", {"expression": "new Promise(() => 0)", "awaitPromise": True}
    )
    crash = page(environment).post("Page.crash")  # neither is ever answered by the browser
    for never_answered in (forever, crash):
        await fails_in_time(asyncio.wait_for(never_answered, DEADLINE_S), PageCrashed)
    await fails_in_time(environment.step(ELSEWHERE, deadline_s=DEADLINE_S), PageCrashed)
    await recovers(environment)


async def test_a_killed_renderer_is_a_crashed_page(environment: MiniWobEnvironment) -> None:
    acting = asyncio.ensure_future(environment.inspect("new Promise(() => 0)"))
    await asyncio.sleep(0.1)
    renderer(environment).kill()
    await fails_in_time(acting, PageCrashed)
    assert not await environment.healthy(deadline_s=1.0)
    await recovers(environment)


async def test_a_renderer_killed_between_two_episodes_is_replaced_by_the_reset(
    environment: MiniWobEnvironment,
) -> None:
    lost = page(environment)
    renderer(environment).kill()
    while lost.fault is None:  # noqa: ASYNC110 - the test's own timeout is the deadline
        await asyncio.sleep(0.01)
    await environment.reset(TASK, 2, deadline_s=DEADLINE_S)


async def test_a_stopped_renderer_is_a_hung_page(environment: MiniWobEnvironment) -> None:
    renderer(environment).suspend()
    await fails_in_time(environment.step(ELSEWHERE, deadline_s=HANG_S), PageHung)
    await recovers(environment)


@pytest.mark.parametrize("dialog", ["alert('x')", "confirm('x')", "prompt('x')"])
async def test_a_modal_dialog_is_dismissed(environment: MiniWobEnvironment, dialog: str) -> None:
    assert await environment.inspect(f"{dialog} ?? null") in (None, False)
    assert not (await environment.step(ELSEWHERE, deadline_s=DEADLINE_S)).terminated
    await environment.observe(deadline_s=DEADLINE_S)


async def test_a_page_that_does_not_want_to_be_left_is_left(environment: MiniWobEnvironment) -> None:
    await environment.inspect("addEventListener('beforeunload', (event) => event.preventDefault()), 1")
    await environment.step(ELSEWHERE, deadline_s=DEADLINE_S)
    asked_before = page(environment).dialogs
    await environment.reset(TASK, 2, deadline_s=DEADLINE_S)
    assert page(environment).dialogs == asked_before + 1
    assert await environment.inspect("location.search") == "?seed=2"


async def test_a_stopped_browser_is_hung_and_replaced(environment: MiniWobEnvironment) -> None:
    stopped = browser(environment)
    stopped.suspend()
    await fails_in_time(environment.step(ELSEWHERE, deadline_s=HANG_S), BrowserHung)
    await recovers(environment)
    assert not stopped.is_running()


async def test_a_page_that_returns_more_than_a_message_may_have_fills_no_memory(
    environment: MiniWobEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cdp, "MESSAGE_BYTES_MOST", 4 << 20)
    flood = "'x'.repeat(8 << 20)"
    fault = await fails_in_time(asyncio.ensure_future(environment.inspect(flood)), BrowserDied)
    assert "exit code -9, killed because a message had more than 4194304 bytes" in str(fault)
    await recovers(environment)


async def test_a_browser_that_stops_during_a_reset_is_hung(environment: MiniWobEnvironment) -> None:
    browser(environment).suspend()
    await fails_in_time(environment.reset(TASK, 2, deadline_s=HANG_S), BrowserHung)
    await recovers(environment)


async def test_a_killed_browser_fails_everything_at_once(environment: MiniWobEnvironment) -> None:
    acting = asyncio.ensure_future(environment.inspect("new Promise(() => 0)"))
    await asyncio.sleep(0.1)
    browser(environment).kill()
    started = time.monotonic()
    fault = await fails_in_time(acting, BrowserDied)
    assert time.monotonic() - started < 1.0 * slowness()
    assert "exit code -9" in str(fault)
    await recovers(environment)


async def test_a_process_of_a_dead_browser_that_cannot_end_by_itself_is_killed(
    environment: MiniWobEnvironment,
) -> None:
    stopped = renderer(environment)
    stopped.suspend()
    browser(environment).kill()
    await fails_in_time(environment.step(ELSEWHERE, deadline_s=DEADLINE_S), BrowserDied)
    assert psutil.wait_procs([stopped], timeout=5)[1] == []
    await recovers(environment)


async def test_a_browser_killed_between_two_episodes_is_replaced_by_the_reset(
    environment: MiniWobEnvironment,
) -> None:
    browser(environment).kill()
    while environment._browser is not None and environment._browser.alive:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await environment.reset(TASK, 2, deadline_s=DEADLINE_S)


async def test_a_browser_that_cannot_start_is_reported_with_its_last_words(tmp_path: Path) -> None:
    broken = tmp_path / "browser"
    broken.write_text("#!/bin/sh\necho no display >&2\nexit 3\n")
    broken.chmod(0o755)
    environment = MiniWobEnvironment(tmp_path / "scratch", executable=str(broken))
    with pytest.raises(BrowserDied, match=r"exit code 3.*no display"):
        await environment.reset(TASK, 1, deadline_s=DEADLINE_S)
    await environment.close()


async def test_a_browser_that_never_answers_is_hung(tmp_path: Path) -> None:
    silent = tmp_path / "browser"
    silent.write_text("#!/bin/sh\nexec sleep 60\n")
    silent.chmod(0o755)
    environment = MiniWobEnvironment(tmp_path / "scratch", executable=str(silent))
    await fails_in_time(environment.reset(TASK, 1, deadline_s=HANG_S), BrowserHung)
    await environment.close()


async def test_a_start_that_never_comes_is_a_timeout_that_says_so(
    environment: MiniWobEnvironment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "no-start.html").write_text("<html></html>")
    monkeypatch.setattr(
        "dart.environments.miniwob.environment.page_url", lambda *_: f"file://{tmp_path}/no-start.html"
    )
    await fails_in_time(environment.reset(LOADED, 1, deadline_s=HANG_S), EnvironmentTimeout)


async def test_a_page_whose_script_fails_is_a_failed_reset(
    environment: MiniWobEnvironment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "broken.html").write_text("<script>var core = {cover_div: 1}</script>")
    url = f"file://{tmp_path}/broken.html?seed=1"
    monkeypatch.setattr("dart.environments.miniwob.environment.page_url", lambda *_: url)
    await fails_in_time(environment.reset(LOADED, 1, deadline_s=DEADLINE_S), ResetFailed)


async def test_closing_twice_leaves_neither_process_nor_profile(tmp_path: Path) -> None:
    environment = MiniWobEnvironment(tmp_path)
    await environment.reset(TASK, 1, deadline_s=DEADLINE_S)
    leader = browser(environment)
    family = [leader, *leader.children(recursive=True)]
    await environment.close()
    await environment.close()
    assert psutil.wait_procs(family, timeout=5)[1] == []
    assert not list(tmp_path.iterdir())  # noqa: ASYNC240 - nothing else runs in this loop


async def test_closing_a_stopped_browser_does_not_wait_for_it(environment: MiniWobEnvironment) -> None:
    browser(environment).suspend()
    started = time.monotonic()
    await environment.close()
    assert time.monotonic() - started < min(2.0 * slowness(), 4.5)  # a wait for it would take KILL_DEADLINE_S


async def test_waiting_past_the_deadline_is_a_timeout(environment: MiniWobEnvironment) -> None:
    with pytest.raises(EnvironmentTimeout, match=r"step did not end within 0\.2 s"):
        await environment.step(Wait(), deadline_s=0.2)


CLIENT = """
import asyncio, sys
from pathlib import Path
from dart.environments.miniwob.environment import MiniWobEnvironment

async def main():
    environment = MiniWobEnvironment(Path(sys.argv[1]))
    await environment.reset("miniwob/click-test", 1, deadline_s=30)
    print(environment._browser.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.parametrize("prepare", [lambda pid: None, lambda pid: os.kill(pid, signal.SIGSTOP)])
def test_a_client_killed_by_sigkill_leaves_no_orphans(tmp_path: Path, prepare: Callable[[int], None]) -> None:
    """A stopped browser would never see the end of its pipe: only the parent-death signal ends it."""
    command = [sys.executable, "-c", CLIENT, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        leader = psutil.Process(int(client.stdout.readline()))
        family = [leader, *leader.children(recursive=True)]
        prepare(leader.pid)
        client.kill()
    assert psutil.wait_procs(family, timeout=5)[1] == []
