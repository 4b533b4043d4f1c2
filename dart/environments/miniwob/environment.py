"""MiniWoB++ in a real browser: 130 small web tasks, seen as pixels, played with mouse and keys.

The pages (Shi et al. 2017, Liu et al. 2018; Farama's MiniWoB++ 1.0) come with the PyPI
package ``miniwob`` and are loaded from disk. One environment is one browser. The policy sees the task's
160x210 pixels and the instruction, but not the earlier rewards and the clock that the page draws elsewhere.

The score is the page's *raw* reward, clamped to [0, 1]. The page's other reward decays with
wall-clock time, so it would depend on the speed of the machine.

Loading a page takes 65 to 165 ms of processor time, several times as much as a step. The page of a task in
`RESTARTABLE` is therefore kept open. It draws the problem of the next seed itself, as it does for a person
who plays the task again.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
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
from dart.environments.browser.request_filter import OFFLINE
from dart.environments.browser_inputs import InputCounts
from dart.environments.faults import CallRefused, ResetFailed
from dart.environments.miniwob.own_pages import linked_pages
from dart.environments.miniwob.pages import (
    GO_ON,
    HEIGHT,
    NO_PAGES,
    READ_STATE,
    START_SCRIPT,
    WIDTH,
    page_url,
)
from dart.environments.miniwob.restartable import RESTARTABLE

RESTARTS_MOST = 100
"""Number of episodes that a page plays before it is loaded again."""

RESTART = "window.dartRestart?.({seed})"
"""JavaScript that starts the episode of a seed in a loaded page, and returns the instruction; null if the
page has to be loaded again."""


@dataclass(slots=True)
class LoadedTask:
    """The task for which a page was loaded, and the number of episodes that the page has played since."""

    task_id: str
    episodes: int = 1


@dataclass(frozen=True, slots=True)
class MiniWobStart:
    """The address of the page and the seed of an episode."""

    url: str
    seed: int


class MiniWobEnvironment(BrowserEnvironment[MiniWobStart]):
    """Plays episodes of MiniWoB++ in the pages of one browser.

    restartable   ids of the tasks whose pages play several episodes; other pages are loaded for each episode
    own_pages     files of pages that are not installed, by task id
    flags         more flags of the browser, after those that it always has
    """

    pages_kept = 8

    def __init__(
        self,
        scratch_dir: Path,
        executable: str = CHROMIUM,
        *,
        restartable: Collection[str] = RESTARTABLE,
        own_pages: Mapping[str, Path] = NO_PAGES,
        flags: Sequence[str] = (),
    ) -> None:
        super().__init__(
            scratch_dir,
            executable,
            size=(WIDTH, HEIGHT),
            script=START_SCRIPT,
            flags=flags,
            request_filter=OFFLINE,
        )
        self._restartable = restartable
        self._own_pages = own_pages
        self._loaded: dict[CdpSession, LoadedTask] = {}
        """The open pages that can start another episode without being loaded."""
        self.loads = 0
        """Number of page loads; for measurements."""

    def _start_of(self, task_id: str, seed: int) -> MiniWobStart:
        return MiniWobStart(page_url(task_id, seed, self._own_pages), seed)

    def _start_url(self, start: MiniWobStart) -> str:
        return start.url

    def _page_key(self, task_id: str) -> str:
        return task_id if task_id in self._restartable else ""

    async def _begin(self, page: CdpSession, task_id: str, start: MiniWobStart) -> str:
        instruction = await self._restart(page, task_id, start)
        return await self._load(page, task_id, start) if instruction is None else instruction

    async def _restart(self, page: CdpSession, task_id: str, start: MiniWobStart) -> str | None:
        """Start an episode in a page that has played the task before, and return the instruction.

        Returns None if the page has to be loaded instead."""
        loaded = self._loaded.get(page)
        if loaded is None or loaded.task_id != task_id or loaded.episodes >= RESTARTS_MOST:
            return None
        loaded.episodes += 1
        left = take_pointer_away(page)
        try:
            instruction: str | None = await page.evaluate(RESTART.format(seed=start.seed))
        except CallRefused:  # the page was being left, or its script met what the last episode did to it
            instruction = None
        await left
        return instruction

    async def _load(self, page: CdpSession, task_id: str, start: MiniWobStart) -> str:
        self._loaded.pop(page, None)
        self.loads += 1
        take_pointer_away(page)
        ready = page.next_binding_call()
        navigated = await page.post("Page.navigate", {"url": start.url})
        if "errorText" in navigated:
            raise ResetFailed(task_id, navigated["errorText"])
        reported = json.loads(await ready)
        if "error" in reported:
            raise ResetFailed(task_id, reported["error"])
        self._loaded = {one: task for one, task in self._loaded.items() if one.fault is None}
        if self._page_key(task_id):
            self._loaded[page] = LoadedTask(task_id)
        return str(reported["instruction"])

    async def explore(self) -> None:
        await self.inspect(GO_ON)

    async def inspect(self, expression: str) -> Any:
        """Like `BrowserEnvironment.inspect`. The expression may change the page, so the next episode
        loads the page again."""
        if self._page is not None:
            self._loaded.pop(self._page, None)
        return await super().inspect(expression)

    async def _read_state(self, page: CdpSession) -> PageState:
        try:
            terminated, raw_score, counted, clicked = await page.evaluate(READ_STATE)
        except CallRefused:  # the page was being left; the next document says that the episode is over
            terminated, raw_score, counted, clicked = await page.evaluate(READ_STATE)
        arrived = None if counted is None else InputCounts(counted)
        box = visible_box(clicked, self.size)
        return PageState(terminated=terminated, raw_score=raw_score, arrived=arrived, clicked=box)


def make(config: Config, name: str, paths: RunPaths) -> MiniWobEnvironment:
    """Create the environment of the actor ``name`` (`dart.config.environment_kinds`)."""
    scratch = paths.scratch / name
    pages = linked_pages(config, scratch / "pages")
    return MiniWobEnvironment(scratch, config.environments.executable or CHROMIUM, own_pages=pages)
