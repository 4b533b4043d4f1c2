"""A daemon steered from its own page in a real browser: log in, pause, resume, restart an actor."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dart.environments.browser.cdp import CdpSession
from dart.environments.faults import CallRefused
from dart.run.control_protocol import ControlOutcome, Ping
from tests.e2e.test_web_page import opened, page
from tests.fault.daemons import DEADLINE_S, Daemon

__all__ = ["page"]

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path)
    yield daemon
    daemon.end()


async def holds(session: CdpSession, condition: str) -> None:
    """Wait until that is so in the page, whichever page that is by then."""
    give_up_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < give_up_s:
        with suppress(CallRefused):  # it went to another page meanwhile
            if await session.evaluate(f"document.readyState === 'complete' && !!({condition})"):
                return
        await asyncio.sleep(0.05)
    shown = await session.evaluate("document.body.textContent")
    raise AssertionError(f"{condition} did not come within {DEADLINE_S:g} s; the page shows {shown}")


async def shows(session: CdpSession, text: str) -> None:
    await holds(session, f"document.body.textContent.includes({text!r})")


async def click(session: CdpSession, selector: str) -> None:
    """What is there is clicked; an address is followed, a form sent."""
    await holds(session, f"document.querySelector({selector!r})")
    await session.evaluate(f"document.querySelector({selector!r}).click()")


@pytest.mark.long
async def test_a_run_is_steered_from_its_page_by_who_knows_the_token(
    daemon: Daemon, page: tuple[CdpSession, list[str]]
) -> None:
    session, told = page
    address = daemon.sidecar("web").text
    token = (daemon.paths.root / "web.token").read_text().strip()

    await opened(session, address)
    await click(session, "a[href='/confirm?do=pause']")
    await shows(session, "Log in with the token first")
    await click(session, "main a[href^='/login?']")
    await holds(session, "document.querySelector('#token')")
    await session.evaluate(f"document.querySelector('#token').value = {token!r}")
    await click(session, "main form button")
    await shows(session, "Log out")  # and it is the page of before again, which asks whether to pause
    await click(session, "main form button")
    await shows(session, "nothing new begins")
    await opened(session, address)
    await shows(session, "paused by an operator")
    await click(session, "a[href='/confirm?do=resume']")
    await click(session, "main form button")
    await shows(session, "episodes and updates begin again")
    daemon.plays_on()

    before = daemon.row("env-001").incarnation
    await opened(session, f"{address}actor?name=env-001")
    await click(session, "a[href='/confirm?do=restart&name=env-001']")
    await click(session, "main form button")
    await holds(session, "document.querySelector('.ask .notice')")
    daemon.wait_until(lambda: daemon.row("env-001").incarnation > before, "another env-001")

    assert daemon.ask(Ping(wait_ms=30_000)).outcome is ControlOutcome.DONE
    assert told == []
