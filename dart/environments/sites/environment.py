"""Sites in a real browser: web applications of many screens, generated from finite state machines.

The environment serves the pages itself: it intercepts the browser's requests and blocks all that are not for
a page of the site, so no request leaves the browser. The page (``page.js``) notes each click and each sent
form, the site's machine makes the transition, and the page shows the next state. The state of the machine,
not the look of the page, decides the score.
"""

import json
from pathlib import Path
from typing import Any

from dart.config.config import Config
from dart.core.run_directory import RunPaths
from dart.environments.browser.cdp import CdpSession
from dart.environments.browser.environment import (
    CHROMIUM,
    BrowserEnvironment,
    PageState,
    take_pointer_away,
    visible_box,
)
from dart.environments.browser.request_filter import OFFLINE, RequestFilter
from dart.environments.browser_inputs import InputCounts
from dart.environments.faults import ResetFailed
from dart.environments.protocol import Observation, require_episode
from dart.environments.sites.html import body_html, document_html
from dart.environments.sites.machine import Act, SiteState
from dart.environments.sites.tasks import Task, task_of

SIZE = (504, 392)
"""Default width and height of a page in pixels: 18 by 14 whole patches of 28 pixels."""

PAGE_SCRIPT = (Path(__file__).parent / "page.js").read_text()

TAKE_USE = "dartTakeUse()"


class SitesEnvironment(BrowserEnvironment[Task]):
    """Plays episodes on sites in one page of one browser.

    size   width and height of the page in pixels
    look   seed of the sites' texts and styles; None to take them from the seed of the episode
    """

    def __init__(
        self,
        scratch_dir: Path,
        executable: str = CHROMIUM,
        *,
        size: tuple[int, int] = SIZE,
        look: int | None = None,
    ) -> None:
        super().__init__(scratch_dir, executable, size=size, script=PAGE_SCRIPT, request_filter=OFFLINE)
        self._look = look
        self._task: Task | None = None
        self._state: SiteState | None = None

    @property
    def task(self) -> Task:
        """The task of the episode with its site; for oracles, tests and measurements, not for policies."""
        return require_episode(self._task, "task")

    @property
    def true_state(self) -> SiteState:
        """The present state of the site's machine; for oracles, tests and measurements such as true coverage,
        not for policies."""
        return require_episode(self._state, "true_state")

    async def show(self, state: SiteState, *, deadline_s: float) -> Observation:
        """Show a state of the site directly, without actions; for data and measurements, not for policies."""
        page, episode = self._playing("show")
        async with self._operation("show", deadline_s):
            await self._show(page, state)
            return self._observation(episode, await self._capture(page))

    def _start_of(self, task_id: str, seed: int) -> Task:
        return task_of(task_id, seed, self._look)

    def _start_url(self, start: Task) -> str:
        return f"http://{start.site.name}.localhost/"

    def _filter_of(self, start: Task) -> RequestFilter:
        return OFFLINE  # even to its own address: the pages do not come from a network

    async def _prepare(self, page: CdpSession) -> None:
        await super()._prepare(page)
        await page.post("Fetch.enable", {"patterns": [{"urlPattern": "*"}]})

    async def _begin(self, page: CdpSession, task_id: str, start: Task) -> str:
        self._task, self._state = start, start.site.machine.start
        url = self._start_url(start)
        page.documents = {url: document_html(start.site, start.style, self._state)}
        take_pointer_away(page)
        ready = page.next_binding_call()
        navigated = await page.post("Page.navigate", {"url": url})
        if "errorText" in navigated:
            raise ResetFailed(task_id, f"the browser could not load {url}: {navigated['errorText']}")
        await ready
        return start.instruction

    async def _read_state(self, page: CdpSession) -> PageState:
        used, counted, clicked = await page.evaluate(TAKE_USE)
        if used is not None:
            await self._use(page, used)
        task, state = self.task, self.true_state
        reached = task.goal is not None and task.site.machine.is_reached(task.goal, state)
        return PageState(
            terminated=reached,
            raw_score=float(reached),
            arrived=InputCounts(counted),
            clicked=visible_box(clicked, self.size),
        )

    async def _use(self, page: CdpSession, used: dict[str, Any]) -> None:
        """Make the transition of the element that the user clicked or sent, and show the state after it.

        used   the index of the element (``element``) and the pairs of field name and text (``texts``)
        """
        texts = tuple((name, text) for name, text in used["texts"])
        act = Act(self.true_state.screen, used["element"], texts)
        await self._show(page, self.task.site.machine.fire(self.true_state, act))

    async def _show(self, page: CdpSession, state: SiteState) -> None:
        self._state = state
        await page.evaluate(f"dartShow({json.dumps(body_html(self.task.site, state))})")


def make(config: Config, name: str, paths: RunPaths) -> SitesEnvironment:
    """Create the environment of the actor ``name`` (`dart.config.environment_kinds`)."""
    settings = config.environments.sites
    return SitesEnvironment(
        paths.scratch / name,
        config.environments.executable or CHROMIUM,
        size=(settings.width, settings.height),
        look=None if settings.look_seed < 0 else settings.look_seed,
    )
