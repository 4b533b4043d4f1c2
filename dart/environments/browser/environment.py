"""What the environments of browser pages share: the browser, its pages, deadlines, input and screenshots.

An environment is a subclass of `BrowserEnvironment`. It says how an episode begins and how its state is read.
One environment is one browser. An episode plays in one page; the policy sees only the pixels of the page.
"""

import asyncio
import base64
import binascii
import contextlib
import os
import signal
from abc import abstractmethod
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from dart.core.actions import (
    Action,
    Click,
    Drag,
    LeftDouble,
    RightSingle,
    Scroll,
    ScrollHere,
    Wait,
    format_action,
)
from dart.core.origins import AllowedOrigins
from dart.environments.browser.cdp import Browser, CdpSession, Result
from dart.environments.browser.request_filter import RequestFilter, filter_of
from dart.environments.browser_inputs import (
    NOTHING_LEFT,
    Call,
    InputCounts,
    LeftBehind,
    differences,
    expected_counts,
    input_calls,
    own_time_s,
)
from dart.environments.faults import (
    ActionNotConfirmed,
    BrowserDied,
    BrowserHung,
    CallRefused,
    CorruptFrame,
    EnvironmentTimeout,
    InfrastructureFault,
    PageHung,
)
from dart.environments.protocol import (
    NO_ROLLOUT,
    Box,
    EpisodeKey,
    Observation,
    StepResult,
    require_episode,
)
from dart.environments.scoring import clamped_score
from dart.environments.screen_io import Breakable, ScreenIO
from dart.environments.screenshot_checks import FrameWatch, frame_size, observation_of, refuse_frozen

CHROMIUM = "/usr/lib/chromium/chromium-headless-shell"
"""Program of the default browser: Debian's headless shell. The full browser works, too, but takes three times
as long."""

WAIT_S = 0.25
"""Duration of the action `Wait`."""

DIAGNOSIS_S = 0.5
"""Time to find out, once an operation has timed out, whether the browser and the page still respond.

This time is part of the operation's deadline, and at most a quarter of it."""

COUNT_READS = 5
"""Largest number of times that the page's event counts are read after an action. The page may count an event
some frames after the browser confirmed it."""

INSPECT_DEADLINE_S = 5.0

RESETS_PER_COLLECTION = 200
"""Number of resets after which a page is made to collect garbage. Without this, Chromium hardly collects any:
a renderer grew by 43 KiB an episode, and after 1,500 episodes 62 of its 120 MiB were garbage."""

NEXT_FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"

SCREENSHOT = {"format": "png", "optimizeForSpeed": True}


STOP_CLOCK = "window.dartClock?.stop()"
START_CLOCK = "window.dartClock?.go()"
"""`STOP_CLOCK` and `START_CLOCK` are JavaScript that stops and restarts the page's clocks and timers."""

SHOW_MARK = """
(() => {
  const mark = document.createElement('div');
  mark.id = 'dart-mark';
  mark.style = 'all:initial; position:fixed; inset:0; width:100%; height:100%; background:#f0f';
  mark.popover = 'manual';  // above all, also above an element in full screen
  document.documentElement.append(mark);
  mark.showPopover();
})()
"""
HIDE_MARK = "document.getElementById('dart-mark').remove()"
"""`SHOW_MARK` and `HIDE_MARK` are JavaScript that shows and hides a mark over the whole page.

A screenshot with the mark differs from a screenshot without it, unless the screenshots are frozen."""

FIRST_ERROR = "String(window.dartError ?? '')"
"""JavaScript for the first error of the page's scripts, if the environment's script notes it; else empty."""

BASE_SCRIPT = "".join(
    (Path(__file__).parent / name).read_text() for name in ("clock.js", "input_counts.js", "still_caret.js")
)
"""JavaScript that runs first in every document: a clock that can be stopped, counts of input events, and a
caret that does not blink."""


StartT = TypeVar("StartT")


@dataclass(slots=True)
class OpenPage:
    """A page of the browser, and the number of its resets."""

    session: CdpSession
    resets: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PageState:
    """What an environment reads from its page after an action."""

    terminated: bool
    raw_score: Any
    """The score as the page gives it, before it is checked and clamped to [0, 1]."""
    arrived: InputCounts | None
    """Input events that the page has counted; None while the page cannot count them."""
    clicked: Box | None = None
    """The box of the element that the newest press of the pointer hit; None for background."""


@dataclass(slots=True)
class Episode:
    """The episode that an environment plays."""

    task_id: str
    instruction: str
    terminated: bool = False
    raw_score: Any = 0
    arrived: InputCounts | None = field(default_factory=InputCounts)
    clicked: Box | None = None
    left: LeftBehind = NOTHING_LEFT
    frames: FrameWatch = field(default_factory=FrameWatch)

    def update(self, state: PageState) -> None:
        self.terminated, self.raw_score, self.arrived = state.terminated, state.raw_score, state.arrived
        self.clicked = state.clicked


class BrowserEnvironment(Breakable, Generic[StartT]):
    """Plays episodes in the pages of one browser. ``StartT`` is what `_begin` needs to show a start screen.

    The first ``reset`` starts the browser. Only the clipboard outlives an episode. A tab or window that a
    page opens, for example after a click with Ctrl held, is not shown; the next reset closes it. A subclass
    may have several pages, of which one plays while the clocks of the others are stopped. A fault closes the
    page; a fault of the browser, or a fault during a reset, kills the browser. The next reset starts what is
    missing. A browser has one request filter as long as it runs, so a reset with another one starts another
    browser.

    scratch_dir      folder for the browser's profile
    executable       path of a Chromium
    size             width and height of the page in pixels
    script           JavaScript that runs in every document, after `BASE_SCRIPT`
    flags            more flags of the browser
    request_filter   what the pages may reach while they are not explored; None for everything
    """

    def __init__(
        self,
        scratch_dir: Path,
        executable: str,
        *,
        size: tuple[int, int],
        script: str,
        flags: Sequence[str] = (),
        request_filter: RequestFilter | None = None,
    ) -> None:
        self.screen_io = ScreenIO()
        self.size = size
        self._profile_dir = scratch_dir / "profile"
        self._executable = executable
        self._script = BASE_SCRIPT + script
        self._flags = flags
        self._usual_filter = request_filter
        self._explored: Collection[str] | None = None
        """Origins that may be opened besides that of the start page; None while nothing is explored."""
        self._browser: Browser | None = None
        self._page: CdpSession | None = None
        self._pages: dict[str, OpenPage] = {}
        """The open pages by their key (see `_page_key`), the most recently used page last."""
        self._episode: Episode | None = None
        self._is_parked = False

    # ---- what a subclass adds ----

    @abstractmethod
    def _start_of(self, task_id: str, seed: int) -> StartT:
        """Return what `_begin` needs for the start screen. Raises UnknownTask, before the browser starts."""

    @abstractmethod
    def _start_url(self, start: StartT) -> str:
        """Return the address of the start page."""

    pages_kept = 1
    """Largest number of open pages."""

    def _page_key(self, task_id: str) -> str:
        """Return the key of the page that plays a task. Tasks with the same key share one page."""
        return ""

    @abstractmethod
    async def _begin(self, page: CdpSession, task_id: str, start: StartT) -> str:
        """Show the start screen of an episode and return its instruction. Raises ResetFailed."""

    @abstractmethod
    async def _read_state(self, page: CdpSession) -> PageState:
        """Return the state of the episode. The newest events may not be counted yet."""

    async def _prepare(self, page: CdpSession) -> None:
        """Set the size of a new page, and the scripts that run in every document that it loads."""
        width, height = self.size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await asyncio.gather(
            page.post("Emulation.setDeviceMetricsOverride", metrics),
            page.post("Emulation.setFocusEmulationEnabled", {"enabled": True}),
            page.post("Runtime.addBinding", {"name": "dartReady"}),
            page.post("Page.addScriptToEvaluateOnNewDocument", {"source": self._script}),
        )

    def _filter_of(self, start: StartT) -> RequestFilter | None:
        """Return the request filter of an episode; None for none.

        Raises UsageError when the episode is explored and its start page is at an origin that is not allowed.
        """
        if self._explored is None:
            return self._usual_filter
        return filter_of(AllowedOrigins(self._start_url(start), self._explored).origins)

    # ---- the protocol ----

    async def reset(
        self, task_id: str, seed: int, *, deadline_s: float, episode: EpisodeKey = NO_ROLLOUT
    ) -> Observation:
        start = self._start_of(task_id, seed)
        request_filter = self._filter_of(start)
        self._episode = None
        async with self._operation("reset", deadline_s):
            opened = await self._ready_page(self._page_key(task_id), request_filter)
            page, opened.resets = opened.session, opened.resets + 1
            if opened.resets % RESETS_PER_COLLECTION == 0:
                await page.post("HeapProfiler.collectGarbage")
            await self.screen_io.on_start()
            instruction = await self._begin(page, task_id, start)
            screenshot = await _screenshot(page)
        self._episode = Episode(task_id, instruction)
        return self._observation(self._episode, screenshot)

    async def observe(self, *, deadline_s: float) -> Observation:
        page, episode = self._playing("observe")
        async with self._operation("observe", deadline_s):
            return self._observation(episode, await _screenshot(page))

    async def step(self, action: Action, *, deadline_s: float) -> StepResult:
        page, episode = self._playing("step")
        if episode.terminated:
            raise RuntimeError(f"step after the end of the episode of {episode.task_id}: call reset first")
        calls = input_calls(action, episode.left)
        async with self._operation("step", deadline_s + own_time_s(calls)):
            dialogs = page.dialogs
            await self._act(page, action, calls)
            is_counted = await self._confirm(page, episode, action, calls, dialogs)
        is_click = is_counted and isinstance(action, Click | LeftDouble | RightSingle)
        episode.left = episode.left.after(action)
        episode.frames.acted()
        return StepResult(terminated=episode.terminated, box=episode.clicked if is_click else None)

    async def evaluate(self, *, deadline_s: float) -> float:
        page, episode = self._playing("evaluate")
        async with self._operation("evaluate", deadline_s):
            if not episode.terminated:
                episode.update(await self._read_state(page))
            await refuse_frozen(
                episode.task_id,
                episode.frames,
                lambda: self._capture(page),
                lambda shown: page.evaluate(SHOW_MARK if shown else HIDE_MARK),
            )
        return clamped_score(episode.task_id, self.screen_io.filter_score(episode.raw_score))

    async def park(self, *, deadline_s: float) -> None:
        """Stop the page's clocks; its timers keep their remaining time.

        The clocks of iframes and CSS animations are not stopped. They run no code while the page is parked
        and jump ahead afterwards. Chromium's virtual time would stop them too, but cannot be switched off
        again: after its first pause the clock of a page either stands still or runs ahead of real time."""
        page, _ = self._playing("park")
        async with self._operation("park", deadline_s):
            await page.evaluate(STOP_CLOCK)
            await asyncio.gather(  # only a page in the background can be frozen
                page.post("Emulation.setFocusEmulationEnabled", {"enabled": False}),
                page.post("Page.setWebLifecycleState", {"state": "frozen"}),
            )
        self._is_parked = True

    async def unpark(self, *, deadline_s: float) -> None:
        page, _ = self._playing("unpark")
        async with self._operation("unpark", deadline_s):
            await _thaw(page)
        self._is_parked = False

    async def healthy(self, *, deadline_s: float) -> bool:
        page = self._page
        if page is None:
            return False
        try:
            async with asyncio.timeout(deadline_s):
                if self._is_parked:  # a screenshot would wake the page
                    await page.evaluate("1")
                else:
                    await _screenshot(page)
        except (TimeoutError, InfrastructureFault):
            return False
        return True

    def send_signal(self, number: signal.Signals) -> None:
        if self._browser is not None and self._browser.alive:
            os.kill(self._browser.pid, number)

    async def inspect(self, expression: str) -> Any:
        """Return the JSON value of a JavaScript expression in the page; for oracles and tests, not
        policies."""
        page, _ = self._playing("inspect")
        async with self._operation("inspect", INSPECT_DEADLINE_S):
            return await page.evaluate(expression)

    async def filter_requests(self, origins: Collection[str] | None) -> None:
        self._explored = origins

    async def close(self) -> None:
        browser, self._browser, self._page, self._episode = self._browser, None, None, None
        self._pages.clear()
        if browser is not None:
            await browser.close()

    async def _act(self, page: CdpSession, action: Action, wanted: list[Call]) -> None:
        """Send all events of the action at once, then wait for their results.

        The browser keeps the order. If each event were awaited before the next is sent, each could cost a
        frame (17 ms). The events of a drag are awaited all the same: a page that drags by HTML's own drag and
        drop gets no drop if the button is released before the browser has begun the drag.

        No screenshot is requested here: after an action that ends the episode it would not be seen.
        """
        if isinstance(action, Wait):
            await asyncio.sleep(WAIT_S)
        calls = self.screen_io.filter_input(wanted)
        results = []
        for method, params in calls:
            results.append(page.post(method, params))
            if isinstance(action, Drag):
                await results[-1]
        await asyncio.gather(*results)
        if isinstance(
            action, Scroll | ScrollHere
        ):  # the wheel is acknowledged a frame before it moves the page
            await page.evaluate(NEXT_FRAMES)

    async def _confirm(
        self, page: CdpSession, episode: Episode, action: Action, calls: list[Call], dialogs: int
    ) -> bool:
        """Read the state of the episode and check that the page received exactly the events of ``action``.

        Returns whether it was checked.

        The check is skipped when the page cannot count its events: because the browser left the page, because
        a dialog swallowed events, or because the pointer was outside the page. Raises ActionNotConfirmed.
        """
        before = episode.arrived
        for read in range(COUNT_READS):
            episode.update(await self._read_state(page))
            if (
                before is None
                or episode.arrived is None
                or page.dialogs != dialogs
                or not self._is_inside(calls)
            ):
                return False
            unconfirmed = differences(expected_counts(calls), episode.arrived - before)
            if not unconfirmed:
                return True
            if read < COUNT_READS - 1:
                with contextlib.suppress(CallRefused):  # the page is being left, as the next read will show
                    await page.evaluate(NEXT_FRAMES)
        raise ActionNotConfirmed(format_action(action), f"{unconfirmed} arrived")

    async def _capture(self, page: CdpSession) -> bytes:
        return self.screen_io.filter_screenshot(await _screenshot(page))

    def _observation(self, episode: Episode, screenshot: bytes) -> Observation:
        png = self.screen_io.filter_screenshot(screenshot)
        frame_size(png)
        return observation_of(png, episode.instruction, episode.frames)

    def _is_inside(self, calls: list[Call]) -> bool:
        """Return whether every pointer event is inside the page, which receives no other pointer events."""
        width, height = self.size
        points = [(event["x"], event["y"]) for _, event in calls if "x" in event]
        return all(x < width and y < height for x, y in points)

    def _playing(self, operation: str) -> tuple[CdpSession, Episode]:
        return require_episode(self._page, operation), require_episode(self._episode, operation)

    async def _ready_page(self, key: str, request_filter: RequestFilter | None) -> OpenPage:
        """Return the page of a key. Start a browser with the filter and open the page first, if necessary."""
        if self._browser is not None and not (
            self._browser.alive and self._browser.request_filter == request_filter
        ):
            await self._browser.close()
            self._browser = self._page = None
            self._pages.clear()
        if self._browser is None:
            self._browser = await Browser.launch(
                self._executable, self._profile_dir, self._flags, request_filter
            )
        await self._browser.close_opened_by_pages()
        if self._is_parked and self._page is not None and self._page.fault is None:
            await _thaw(self._page)
        self._is_parked = False
        opened = self._kept_page(key, self._browser) or await self._opened_page(self._browser)
        self._pages[key] = opened
        if self._page not in (None, opened.session):
            self._page.post("Runtime.evaluate", {"expression": STOP_CLOCK})
        self._page = opened.session
        return opened

    def _kept_page(self, key: str, browser: Browser) -> OpenPage | None:
        """Take the open page of a key out of `_pages`. Returns None if there is none, or if it has crashed.

        A crashed page is closed, because the browser keeps its context."""
        kept = self._pages.pop(key, None)
        if kept is None or kept.session.fault is None:
            return kept
        browser.drop_page(kept.session)
        return None

    async def _opened_page(self, browser: Browser) -> OpenPage:
        """Open a page. If `pages_kept` pages are open already, close the least recently used page first."""
        if len(self._pages) >= self.pages_kept:
            oldest = self._pages.pop(next(iter(self._pages)))
            browser.drop_page(oldest.session)
            self._page = None if self._page is oldest.session else self._page
        session = await browser.open_page()
        await self._prepare(session)
        return OpenPage(session)

    @contextlib.asynccontextmanager
    async def _operation(self, name: str, deadline_s: float) -> AsyncIterator[None]:
        """End the operation within ``deadline_s``; after a fault, close the page or kill the browser."""
        diagnosis_s = min(DIAGNOSIS_S, deadline_s / 4)
        try:
            async with asyncio.timeout(deadline_s - diagnosis_s):
                yield
        except TimeoutError:
            fault = await self._diagnose(name, deadline_s, diagnosis_s)
            self._give_up(name, fault)
            raise fault from None
        except InfrastructureFault as fault:
            self._give_up(name, fault)
            raise

    async def _diagnose(self, name: str, deadline_s: float, diagnosis_s: float) -> InfrastructureFault:
        """Find out why an operation did not end; return a fault of the browser, of the page, or a timeout."""
        if self._browser is None:
            return EnvironmentTimeout(name, deadline_s, "the browser to start")
        calls = [self._browser.post("Browser.getVersion")]
        if self._page is not None:
            calls.append(self._page.post("Runtime.evaluate", {"expression": FIRST_ERROR}))
        await asyncio.wait(calls, timeout=diagnosis_s)
        responded = [call.done() and call.exception() is None for call in calls]
        gone = self._browser.fault or (self._page.fault if self._page is not None else None)
        if gone is not None:
            return gone
        if not responded[0]:
            return BrowserHung(name, deadline_s)
        if not all(responded):
            return PageHung(name, deadline_s)
        error = calls[-1].result()["result"].get("value") if self._page is not None else ""
        after = f" after the error {error!r} in its script" if error else ""
        awaited = f"the page, which still responds, to finish the operation{after}"
        return EnvironmentTimeout(name, deadline_s, awaited)

    def _give_up(self, operation: str, fault: InfrastructureFault) -> None:
        page, self._page, self._episode = self._page, None, None
        self._pages = {key: one for key, one in self._pages.items() if one.session is not page}
        if self._browser is None:
            return
        if operation == "reset" or isinstance(fault, BrowserDied | BrowserHung):
            self._browser.kill()
        elif page is not None:
            self._browser.drop_page(page)


async def _thaw(page: CdpSession) -> None:
    """Let a parked page go on: activate it, focus it and start its clock.

    A page without the focus draws no frames."""
    await asyncio.gather(
        page.post("Page.setWebLifecycleState", {"state": "active"}),
        page.post("Emulation.setFocusEmulationEnabled", {"enabled": True}),
    )
    await page.evaluate(START_CLOCK)


def take_pointer_away(page: CdpSession) -> Result:
    """Move the pointer to where no element is. Its place outlives the load of another document, which would
    draw the element there as one under the pointer."""
    return page.post("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": -1, "y": -1})


async def _screenshot(page: CdpSession) -> bytes:
    """Take a screenshot and return it as PNG. It needs a new frame, which shows the effect of all actions
    before.

    Raises CorruptFrame when it is not valid base64."""
    captured = await page.post("Page.captureScreenshot", SCREENSHOT)
    try:
        return base64.b64decode(captured["data"], validate=True)
    except binascii.Error as error:
        raise CorruptFrame(str(error)) from error


def visible_box(found: Sequence[float] | None, size: tuple[int, int]) -> Box | None:
    """Return the visible part of a box that a page reports; None if it reports none, or nothing is visible.

    found   [left, top, right, bottom] in pixels of the screenshot
    size    width and height of the page in pixels
    """
    if found is None:
        return None
    left, top, right, bottom = map(float, found)
    box = max(left, 0.0), max(top, 0.0), min(right, float(size[0])), min(bottom, float(size[1]))
    return box if box[0] < box[2] and box[1] < box[3] else None
