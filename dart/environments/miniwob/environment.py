"""MiniWoB++ in a real browser: 130 small web tasks, seen as pixels, played with mouse and keys.

The pages (Shi et al. 2017, Liu et al. 2018; Farama's MiniWoB++ 1.0) come with the PyPI
package ``miniwob`` and are loaded from disk. One environment is one browser with one
page. What the policy gets is the task's 160x210 pixels and the instruction; the line of
earlier rewards and the wall clock that the page draws below are outside of the viewport.

The reward is the page's *raw* reward, clamped to [0, 1]: the other one decays with the
time that passes on the wall, which would make it depend on the machine.
"""

import asyncio
import base64
import binascii
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dart.config.config import Config
from dart.config.injected_faults import Injected
from dart.core.actions import Action, Scroll, Wait, format_action
from dart.core.png import png_size
from dart.core.run_directory import RunPaths
from dart.environments.browser_inputs import Call, input_calls
from dart.environments.faults import (
    ActionNotConfirmed,
    BrowserDied,
    BrowserHung,
    CallRefused,
    CorruptFrame,
    EnvironmentTimeout,
    FrozenFrame,
    InfrastructureFault,
    PageHung,
    ResetFailed,
)
from dart.environments.input_audit import Receipts, differences, receipts_of
from dart.environments.miniwob.cdp import Answer, Browser, CdpSession
from dart.environments.miniwob.pages import (
    HEIGHT,
    HIDE_MARK,
    READ_STATE,
    SHOW_MARK,
    START_CLOCK,
    START_SCRIPT,
    STOP_CLOCK,
    WIDTH,
    miniwob_html_dir,
    page_url,
    task_ids,
)
from dart.environments.protocol import UNNAMED, EpisodeKey, Observation, StepResult
from dart.environments.scoring import clamped_score
from dart.environments.screen_io import ScreenIO
from dart.environments.screenshot_checks import FrameWatch, frame_size

__all__ = ["CHROMIUM", "MiniWobEnvironment", "miniwob_html_dir", "task_ids"]

CHROMIUM = "/usr/lib/chromium/chromium-headless-shell"
"""Debian's; the full browser's new headless mode works too and is three times slower."""

WAIT_S = 0.25
"""How long the action `Wait` waits."""

PROBE_S = 0.5
"""When a deadline has passed: how long browser and page have to show which of them still answers.

Taken out of the operation's deadline, at most a quarter of it."""

RECEIPT_READS = 5
"""An event may be counted some frames after the browser said it was taken: so often it is looked again."""

INSPECT_DEADLINE_S = 5.0

PAGES_LEFT = 200
"""After so many episodes the browser is told to collect what their pages left behind. By itself it hardly
does: a renderer grew by 43 KiB an episode, and after 1,500 of them 62 of its 120 MiB were of this kind."""

NEXT_FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"

SCREENSHOT = {"format": "png", "optimizeForSpeed": True}


@dataclass(slots=True)
class _Episode:
    task_id: str
    instruction: str
    terminated: bool = False
    raw_reward: Any = 0
    arrived: Receipts | None = field(default_factory=Receipts)
    """Input events the page has counted; None where it cannot."""
    frames: FrameWatch = field(default_factory=FrameWatch)


class MiniWobEnvironment:
    """An `dart.environments.protocol.Environment` of one browser with one page.

    The browser starts with the first ``reset``. Every reset loads the page anew; only the
    clipboard outlives an episode. A fault costs the page, a fault of the browser or during
    a reset costs the browser; the next reset starts what is missing.
    """

    def __init__(self, scratch_dir: Path, executable: str = CHROMIUM) -> None:
        self.wire = ScreenIO()
        self._profile_dir = scratch_dir / "profile"
        self._executable = executable
        self._browser: Browser | None = None
        self._page: CdpSession | None = None
        self._episode: _Episode | None = None
        self._is_parked = False
        self._pages_left = 0
        self._frame: Answer | None = None
        """The screenshot asked for together with the last action; `observe` picks it up."""

    @property
    def browser_pid(self) -> int | None:
        """Process id of the running browser, which leads its own process group."""
        return self._browser.pid if self._browser is not None else None

    async def reset(
        self, task_id: str, seed: int, *, deadline_s: float, episode: EpisodeKey = UNNAMED
    ) -> Observation:
        url = page_url(task_id, seed)
        self._episode = None
        async with self._operation("reset", deadline_s):
            page = await self._ready_page()
            await self._clear_away(page)
            await self.wire.started()
            ready = page.next_binding_call("dartReady")
            navigated = await page.post("Page.navigate", {"url": url})
            if "errorText" in navigated:
                raise ResetFailed(task_id, navigated["errorText"])
            start = json.loads(await ready)
            if "error" in start:
                raise ResetFailed(task_id, start["error"])
            screenshot = await _screenshot(page.post("Page.captureScreenshot", SCREENSHOT))
        self._episode = _Episode(task_id, start["instruction"])
        return self._see(self._episode, screenshot)

    async def observe(self, *, deadline_s: float) -> Observation:
        page, episode = self._playing("observe")
        async with self._operation("observe", deadline_s):
            frame, self._frame = self._frame, None
            screenshot = await _screenshot(frame or page.post("Page.captureScreenshot", SCREENSHOT))
            return self._see(episode, screenshot)

    async def step(self, action: Action, *, deadline_s: float) -> StepResult:
        page, episode = self._playing("step")
        if episode.terminated:
            raise RuntimeError(f"step after the end of the episode of {episode.task_id}: call reset first")
        async with self._operation("step", deadline_s):
            dialogs = page.dialogs
            await self._act(page, action)
            await self._confirm(page, episode, action, dialogs)
        episode.frames.acted()
        return StepResult(terminated=episode.terminated)

    async def evaluate(self, *, deadline_s: float) -> float:
        page, episode = self._playing("evaluate")
        async with self._operation("evaluate", deadline_s):
            if not episode.terminated:
                episode.terminated, episode.raw_reward, _ = await _read_state(page)
            if episode.frames.is_suspicious:
                await self._refuse_frozen(page, episode)
        return clamped_score(episode.task_id, self.wire.scored(episode.raw_reward))

    def pays_infeasible(self, task_id: str) -> bool:
        """Every MiniWoB++ task can be done."""
        return False

    async def park(self, *, deadline_s: float) -> None:
        """The page's clocks stand still, and its timers keep what was left of them.

        Of the page itself, not of frames in it or of animations of its style sheets: those run no code
        meanwhile and then jump ahead. Chromium's virtual time would stop all of them, but cannot be ended:
        after its first pause the clock of a page either stands or runs ahead of the wall."""
        page, _ = self._playing("park")
        async with self._operation("park", deadline_s):
            await _freeze(page)
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
                if self._is_parked:  # a picture would wake it
                    await page.evaluate("1")
                else:
                    await _screenshot(page.post("Page.captureScreenshot", SCREENSHOT))
        except (TimeoutError, InfrastructureFault):
            return False
        return True

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the browser's process, if there is one (`dart.environments.fault_injection`)."""
        if self._browser is not None and self._browser.alive:
            os.kill(self._browser.pid, number)

    async def disturb(self, kind: Injected) -> None:
        """A page has neither windows nor applications."""
        raise ValueError(f"a page in a browser cannot have {kind.value}")

    async def inspect(self, expression: str) -> Any:
        """The JSON value of a JavaScript expression in the page: for oracles and tests, not for policies."""
        page, _ = self._playing("inspect")
        async with self._operation("inspect", INSPECT_DEADLINE_S):
            return await page.evaluate(expression)

    async def close(self) -> None:
        browser, self._browser, self._page, self._episode = self._browser, None, None, None
        if browser is not None:
            await browser.close()

    async def _act(self, page: CdpSession, action: Action) -> None:
        """Send the whole action and the screenshot after it at once, then wait until the page took it.

        The browser keeps the order. Waiting for each event alone would cost a frame (17 ms) each;
        the screenshot needs a new frame, and that frame shows what the action did.
        """
        if isinstance(action, Wait):
            await asyncio.sleep(WAIT_S)
        calls = self.wire.sent(input_calls(action))
        taken = [page.post(method, params) for method, params in calls]
        follows = bool(calls) and not isinstance(action, Scroll)
        self._frame = page.post("Page.captureScreenshot", SCREENSHOT) if follows else None
        await asyncio.gather(*taken)
        if isinstance(action, Scroll):  # the wheel is acknowledged at once and moves the page a frame later
            await page.evaluate(NEXT_FRAMES)

    async def _confirm(self, page: CdpSession, episode: _Episode, action: Action, dialogs: int) -> None:
        """Read how the episode stands, and whether the page got exactly the events of ``action``.

        Where the page cannot tell, nothing is concluded: it was left, a dialog swallowed what followed, the
        pointer was outside of the frame.
        """
        calls = input_calls(action)
        before = episode.arrived
        for read in range(RECEIPT_READS):
            episode.terminated, episode.raw_reward, episode.arrived = await _read_state(page)
            if before is None or episode.arrived is None or page.dialogs != dialogs or not _inside(calls):
                return
            unconfirmed = differences(receipts_of(calls), episode.arrived - before)
            if not unconfirmed:
                return
            if read == RECEIPT_READS - 1:
                raise ActionNotConfirmed(format_action(action), unconfirmed)
            with contextlib.suppress(CallRefused):  # the page is being left, as the next look will show
                await page.evaluate(NEXT_FRAMES)

    async def _refuse_frozen(self, page: CdpSession, episode: _Episode) -> None:
        """Draw on the page and look whether the picture shows it."""
        plain = await self._picture(page)
        await page.evaluate(SHOW_MARK)
        marked = await self._picture(page)
        await page.evaluate(HIDE_MARK)
        if marked == plain:
            raise FrozenFrame(episode.task_id)

    async def _picture(self, page: CdpSession) -> bytes:
        return self.wire.seen(await _screenshot(page.post("Page.captureScreenshot", SCREENSHOT)))

    def _see(self, episode: _Episode, screenshot: bytes) -> Observation:
        """Raises CorruptFrame."""
        png = self.wire.seen(screenshot)
        frame_size(png)
        episode.frames.saw(png)
        return _observation(png, episode.instruction)

    def _playing(self, operation: str) -> tuple[CdpSession, _Episode]:
        if self._page is None or self._episode is None:
            raise RuntimeError(f"{operation} without an episode: call reset first")
        return self._page, self._episode

    async def _ready_page(self) -> CdpSession:
        """The page, with everything started that is not there or broken."""
        self._frame = None
        if self._browser is not None and not self._browser.alive:
            await self._browser.close()
            self._browser = self._page = None
        if self._browser is None:
            self._browser = await Browser.launch(self._executable, self._profile_dir)
        if self._page is None or self._page.fault is not None:
            self._page = await self._browser.open_page()
            await _prepare(self._page)
        elif self._is_parked:
            await _thaw(self._page)
        self._is_parked = False
        return self._page

    async def _clear_away(self, page: CdpSession) -> None:
        self._pages_left += 1
        if self._pages_left >= PAGES_LEFT:
            self._pages_left = 0
            await page.post("HeapProfiler.collectGarbage")

    @contextlib.asynccontextmanager
    async def _operation(self, name: str, deadline_s: float) -> AsyncIterator[None]:
        """Ends ``name`` within ``deadline_s``, and gives up what a fault has shown to be broken."""
        probe_s = min(PROBE_S, deadline_s / 4)
        try:
            async with asyncio.timeout(deadline_s - probe_s):
                yield
        except TimeoutError:
            fault = await self._diagnose(name, deadline_s, probe_s)
            self._give_up(name, fault)
            raise fault from None
        except InfrastructureFault as fault:
            self._give_up(name, fault)
            raise

    async def _diagnose(self, name: str, deadline_s: float, probe_s: float) -> InfrastructureFault:
        """Who does not answer: the browser, its page, or neither of them alone."""
        if self._browser is None:
            return EnvironmentTimeout(name, deadline_s, "the browser to start")
        probes = [self._browser.post("Browser.getVersion")]
        if self._page is not None:
            probes.append(self._page.post("Runtime.evaluate", {"expression": "1"}))
        await asyncio.wait(probes, timeout=probe_s)
        answered = [probe.done() and probe.exception() is None for probe in probes]
        gone = self._browser.fault or (self._page.fault if self._page is not None else None)
        if gone is not None:
            return gone
        if not answered[0]:
            return BrowserHung(name, deadline_s)
        if not all(answered):
            return PageHung(name, deadline_s)
        return EnvironmentTimeout(name, deadline_s, "the page, which answers, to come this far")

    def _give_up(self, operation: str, fault: InfrastructureFault) -> None:
        page, self._page, self._frame, self._episode = self._page, None, None, None
        if self._browser is None:
            return
        if operation == "reset" or isinstance(fault, BrowserDied | BrowserHung):
            self._browser.kill()
        elif page is not None:
            self._browser.drop_page(page)


async def _prepare(page: CdpSession) -> None:
    """Frame and start script for every document this page will load."""
    metrics = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
    await asyncio.gather(
        page.post("Emulation.setDeviceMetricsOverride", metrics),
        page.post("Emulation.setFocusEmulationEnabled", {"enabled": True}),
        page.post("Runtime.addBinding", {"name": "dartReady"}),
        page.post("Page.addScriptToEvaluateOnNewDocument", {"source": START_SCRIPT}),
    )


async def _freeze(page: CdpSession) -> None:
    """The clock first: it is set to the last moment the page saw. Only a background page can be frozen."""
    await page.evaluate(STOP_CLOCK)
    await asyncio.gather(
        page.post("Emulation.setFocusEmulationEnabled", {"enabled": False}),
        page.post("Page.setWebLifecycleState", {"state": "frozen"}),
    )


async def _thaw(page: CdpSession) -> None:
    """Back into the foreground too: in the background a page draws no frames."""
    await asyncio.gather(
        page.post("Page.setWebLifecycleState", {"state": "active"}),
        page.post("Emulation.setFocusEmulationEnabled", {"enabled": True}),
    )
    await page.evaluate(START_CLOCK)


async def _read_state(page: CdpSession) -> tuple[bool, Any, Receipts | None]:
    """Whether the episode is over, the raw reward, and the input events counted so far, if they can be."""
    try:
        terminated, raw_reward, counted = await page.evaluate(READ_STATE)
    except CallRefused:  # the document was just being left; its successor answers, without the episode
        terminated, raw_reward, counted = await page.evaluate(READ_STATE)
    return terminated, raw_reward, None if counted is None else Receipts(counted)


def _inside(calls: list[Call]) -> bool:
    """Whether every event of the pointer is in the frame; the page hears nothing of the others."""
    points = [(event["x"], event["y"]) for _, event in calls if "x" in event]
    return all(x < WIDTH and y < HEIGHT for x, y in points)


async def _screenshot(answer: Answer) -> bytes:
    """The PNG of a capture; a corrupt one is the browser's fault."""
    try:
        png = base64.b64decode((await answer)["data"], validate=True)
        png_size(png)
    except (binascii.Error, ValueError) as error:
        raise CorruptFrame(str(error)) from error
    return png


def _observation(png: bytes, instruction: str) -> Observation:
    width, height = png_size(png)
    return Observation(screenshot=png, width=width, height=height, instruction=instruction)


def make(config: Config, name: str, paths: RunPaths) -> MiniWobEnvironment:
    """The environment of the actor ``name`` (`dart.config.environment_kinds`)."""
    return MiniWobEnvironment(paths.scratch / name, config.environments.executable or CHROMIUM)
