"""MiniWoB++ in a real browser: 130 small web tasks, seen as pixels, played with mouse and keys.

The pages (Shi et al. 2017, Liu et al. 2018; Farama's MiniWoB++ 1.0) come with the PyPI
package ``miniwob`` and are loaded from disk. One environment is one browser with one
page. The policy sees the task's 160x210 pixels and the instruction; the earlier rewards
and the clock that the page draws below are outside the viewport.

The score is the page's *raw* reward, clamped to [0, 1]. The page's other reward decays with
wall-clock time, so it would depend on the speed of the machine.
"""

import json
from pathlib import Path

from dart.config.config import Config
from dart.core.run_directory import RunPaths
from dart.environments.browser.cdp import CdpSession
from dart.environments.browser.environment import CHROMIUM, BrowserEnvironment, PageState
from dart.environments.browser_inputs import InputCounts
from dart.environments.faults import CallRefused, ResetFailed
from dart.environments.miniwob.pages import GO_ON, HEIGHT, READ_STATE, START_SCRIPT, WIDTH, page_url


class MiniWobEnvironment(BrowserEnvironment[str]):
    """Plays episodes of MiniWoB++ in one page of one browser."""

    def __init__(self, scratch_dir: Path, executable: str = CHROMIUM) -> None:
        super().__init__(scratch_dir, executable, size=(WIDTH, HEIGHT), script=START_SCRIPT)

    def _start_of(self, task_id: str, seed: int) -> str:
        return page_url(task_id, seed)

    async def _begin(self, page: CdpSession, task_id: str, start: str) -> str:
        ready = page.next_binding_call()
        navigated = await page.post("Page.navigate", {"url": start})
        if "errorText" in navigated:
            raise ResetFailed(task_id, navigated["errorText"])
        reported = json.loads(await ready)
        if "error" in reported:
            raise ResetFailed(task_id, reported["error"])
        return str(reported["instruction"])

    async def explore(self) -> None:
        await self.inspect(GO_ON)

    async def _read_state(self, page: CdpSession) -> PageState:
        try:
            terminated, raw_score, counted = await page.evaluate(READ_STATE)
        except CallRefused:  # the page was being left; the next document says that the episode is over
            terminated, raw_score, counted = await page.evaluate(READ_STATE)
        arrived = None if counted is None else InputCounts(counted)
        return PageState(terminated=terminated, raw_score=raw_score, arrived=arrived)


def make(config: Config, name: str, paths: RunPaths) -> MiniWobEnvironment:
    """Create the environment of the actor ``name`` (`dart.config.environment_kinds`)."""
    return MiniWobEnvironment(paths.scratch / name, config.environments.executable or CHROMIUM)
