"""What counts as a difference between a loaded page and a page that plays its next episode."""

from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import miniwob_restarts
from benchmarks.miniwob_restarts import ACTIONS, Acted, TaskResult, try_task
from dart.core.actions import Action

EARLY, SETTLED, WRONG = b"early", b"settled", b"wrong"


class ShownPage:
    """Shows ``settled``, but at once after an action the next screen of ``at_once``, while there is one."""

    def __init__(self, *at_once: bytes, settled: bytes = SETTLED, score: float = 0.0) -> None:
        self.environment = SimpleNamespace(loads=0)
        self._at_once = iter(at_once)
        self._settled = settled
        self._score = score

    async def reset(self, task_id: str, seed: int) -> tuple[tuple[str, bytes], float]:
        return (task_id, b"start"), 1.0

    async def act(self, action: Action) -> Acted:
        return False, next(self._at_once, self._settled), self._score

    async def look(self) -> bytes:
        return self._settled


async def compared(restarting: Any, monkeypatch: pytest.MonkeyPatch) -> TaskResult:
    monkeypatch.setattr(miniwob_restarts, "SETTLE_S", 0.0)
    loading: Any = ShownPage()
    return await try_task("miniwob/click-tab-2", 1, loading, restarting)


async def test_a_screen_that_only_a_timer_made_differ_is_late_and_the_task_is_equal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    traces = [SETTLED] * ACTIONS
    result = await compared(ShownPage(*traces, SETTLED, EARLY), monkeypatch)
    assert (result.late_steps, result.unequal_steps) == ([0], [])
    assert result.passes


@pytest.mark.parametrize("restarting", [ShownPage(settled=WRONG), ShownPage(score=1.0)])
async def test_a_screen_or_a_score_that_stays_another_is_a_difference(
    restarting: ShownPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = await compared(restarting, monkeypatch)
    assert (result.late_steps, result.unequal_steps) == ([], [0])
    assert not result.passes
