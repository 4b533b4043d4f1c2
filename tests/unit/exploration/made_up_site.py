"""A site without a browser: pages with buttons that lead to other pages."""

from collections.abc import Collection, Mapping
from typing import Any

from dart.core.actions import Action, Click
from dart.environments.faults import ResetFailed
from dart.environments.protocol import NO_ROLLOUT, Environment, EpisodeKey, Observation, StepResult
from tests.pictures import png
from tests.unit.exploration.screens import button

PAGES: Mapping[str, tuple[str, ...]] = {
    "home": ("cart", "help", "home"),
    "cart": ("home", "order"),
    "help": ("home", "topic"),
    "order": ("home", "away"),
    "topic": ("help",),
}
"""Each page with the names of its buttons, which are those of the pages that they lead to."""

AWAY = "https://elsewhere.example/"

OVER = "over"
"""Name of a button that ends the episode."""


class MadeUpSite(Environment):
    """Shows one page at a time. The button `away` leaves the site, and `over` ends the episode.

    start    page that a reset shows
    """

    start = "home"

    def __init__(self, pages: Mapping[str, tuple[str, ...]] = PAGES) -> None:
        self._pages = pages
        self._page = ""
        self.resets = 0
        self.shown: list[str] = []
        self.origins: Collection[str] | None = None
        self.origins_at_resets: list[Collection[str] | None] = []

    async def reset(
        self, task_id: str, seed: int, *, deadline_s: float, episode: EpisodeKey = NO_ROLLOUT
    ) -> Observation:
        self.resets += 1
        self.origins_at_resets.append(self.origins)
        if not self._pages:
            raise ResetFailed(task_id, "the site does not answer")
        self._page = self.start
        return self._observation()

    async def observe(self, *, deadline_s: float) -> Observation:
        return self._observation()

    def _observation(self) -> Observation:
        level = 20 + 40 * [*self._pages, "away"].index(self._page)
        return Observation(screenshot=png(100, 100, level), instruction="Explore the site.")

    async def step(self, action: Action, *, deadline_s: float) -> StepResult:
        assert isinstance(action, Click)
        for row, name in enumerate(self._pages[self._page]):
            left, top, right, bottom = button(name, row).box
            if left <= action.x < right and top <= action.y < bottom:
                self._page = name
                self.shown.append(name)
                break
        return StepResult(terminated=self._page == OVER)

    async def evaluate(self, *, deadline_s: float) -> float:
        return 0.0

    async def healthy(self, *, deadline_s: float) -> bool:
        return True

    async def filter_requests(self, origins: Collection[str] | None) -> None:
        self.origins = origins

    async def inspect(self, expression: str) -> Any:
        names = self._pages.get(self._page, ())
        return {
            "url": AWAY if self._page == "away" else f"http://made-up.localhost/{self._page}",
            "title": self._page,
            "width": 100,
            "height": 100,
            "nodes": [[1, "h1", self._page, [0, 0, 50, 10], self._page, ""]],
            "elements": [_button(name, row) for row, name in enumerate(names)],
            "is_above": False,
            "is_below": False,
        }


def _button(name: str, row: int) -> dict[str, Any]:
    return {
        "role": "button",
        "text": name,
        "has_text": True,
        "box": list(button(name, row).box),
        "acts": True,
        "is_enabled": True,
        "is_clear": True,
        "is_field": False,
        "opens": False,
        "leads_to": "",
        "sends_to": "",
    }
