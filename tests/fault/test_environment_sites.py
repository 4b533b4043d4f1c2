"""Sites in a real browser: oracles solve their tasks, and a dead browser is a fault."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dart.core.actions import Click
from dart.environments.faults import BrowserDied
from dart.environments.sites.catalogue import SITES
from dart.environments.sites.environment import SIZE, SitesEnvironment
from dart.environments.sites.oracles import solution

pytestmark = [pytest.mark.browser, pytest.mark.slow]

DEADLINE_S = 60.0


@pytest.fixture
async def environment(tmp_path: Path) -> AsyncIterator[SitesEnvironment]:
    environment = SitesEnvironment(tmp_path)
    yield environment
    await environment.close()


async def solve(environment: SitesEnvironment, task_id: str, seed: int) -> float:
    """Let the oracle play a task; return its score, or fail when the episode does not end with its last
    action."""
    start = await environment.reset(task_id, seed, deadline_s=DEADLINE_S)
    ends = []
    async for action in solution(environment, start.instruction):
        ends.append((await environment.step(action, deadline_s=DEADLINE_S)).terminated)
        await environment.observe(deadline_s=DEADLINE_S)
    assert ends == [False] * (environment.task.num_actions - 1) + [True]
    return await environment.evaluate(deadline_s=DEADLINE_S)


@pytest.mark.parametrize("name", SITES)
async def test_the_oracle_solves_its_tasks(environment: SitesEnvironment, name: str) -> None:
    tasks = [(f"sites/{name}{kind}", seed) for kind in ("/reach", "/change", "/hard") for seed in (1, 2)]
    assert [await solve(environment, *task) for task in tasks] == [1.0] * len(tasks)


async def test_the_same_seed_starts_from_the_same_pixels_whatever_was_played_before(
    environment: SitesEnvironment,
) -> None:
    first = await environment.reset("sites/shop/change", 5, deadline_s=DEADLINE_S)
    await solve(environment, "sites/shop/hard", 6)
    assert await environment.reset("sites/shop/change", 5, deadline_s=DEADLINE_S) == first


async def test_a_click_on_nothing_changes_nothing_and_an_exploring_episode_does_not_end(
    environment: SitesEnvironment,
) -> None:
    before = await environment.reset("sites/shop/explore", 5, deadline_s=DEADLINE_S)
    state = environment.true_state
    result = await environment.step(Click(SIZE[0] - 20, SIZE[1] - 20), deadline_s=DEADLINE_S)
    assert (await environment.observe(deadline_s=DEADLINE_S), result.terminated) == (before, False)
    assert environment.true_state == state
    assert await environment.evaluate(deadline_s=DEADLINE_S) == 0.0


async def test_a_browser_that_is_killed_in_an_episode_is_a_fault_and_the_next_reset_repairs_it(
    environment: SitesEnvironment,
) -> None:
    await environment.reset("sites/mail", 5, deadline_s=DEADLINE_S)
    assert environment._browser is not None
    environment._browser.kill()
    with pytest.raises(BrowserDied):
        await environment.step(Click(10, 10), deadline_s=DEADLINE_S)
    assert await solve(environment, "sites/mail", 5) == 1.0
