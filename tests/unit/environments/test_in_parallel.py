"""One function for many episodes: what a fault of an environment costs."""

from pathlib import Path
from typing import Any

import pytest

from dart.environments.browser.in_parallel import in_parallel
from dart.environments.faults import EvaluatorFailed, PageHung

EPISODES = [("click-test", seed) for seed in range(6)]


class Browser:
    """An environment of which only the end counts."""

    def __init__(self, folder: Path) -> None:
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True


class Faulty:
    """Work that fails at seed 3 with each of these errors in turn, and then no more."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.browsers: list[Browser] = []

    def make(self, folder: Path) -> Any:
        self.browsers.append(Browser(folder))
        return self.browsers[-1]

    async def work(self, browser: Any, task_id: str, seed: int) -> int:
        if seed == 3 and self._errors:
            raise self._errors.pop(0)
        return seed

    async def results(self) -> list[int]:
        return [result async for result in in_parallel(self.make, self.work, EPISODES, environments=2)]


async def test_an_episode_is_tried_once_more_after_a_fault_of_its_environment() -> None:
    assert sorted(await Faulty(PageHung("step", 10.0)).results()) == list(range(6))


async def test_a_second_fault_of_one_episode_ends_the_work_as_itself() -> None:
    faulty = Faulty(PageHung("step", 10.0), PageHung("reset", 10.0))
    with pytest.raises(PageHung, match="reset"):
        await faulty.results()
    assert [one.is_closed for one in faulty.browsers] == [True, True]


async def test_an_error_that_no_reset_repairs_ends_the_work_at_once() -> None:
    with pytest.raises(EvaluatorFailed):
        await Faulty(EvaluatorFailed("click-test", "no score")).results()
