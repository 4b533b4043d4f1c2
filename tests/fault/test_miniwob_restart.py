"""Pages of MiniWoB++ that play another episode without being loaded again, in a real browser."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dart.core.actions import Click, Hotkey, Hover, Type
from dart.environments.faults import PageCrashed
from dart.environments.miniwob.environment import MiniWobEnvironment

pytestmark = [pytest.mark.browser, pytest.mark.slow]

DEADLINE_S = 30.0
TASKS = tuple(f"miniwob/{name}" for name in ("click-dialog", "click-tab", "enter-text"))


@pytest.fixture
async def environment(tmp_path: Path) -> AsyncIterator[MiniWobEnvironment]:
    made = MiniWobEnvironment(tmp_path / "restarting")
    yield made
    await made.close()


@pytest.fixture
async def loading(tmp_path: Path) -> AsyncIterator[MiniWobEnvironment]:
    made = MiniWobEnvironment(tmp_path / "loading", restartable=())
    yield made
    await made.close()


async def centre_of(environment: MiniWobEnvironment, selector: str) -> Click:
    box = await environment.inspect(f"document.querySelector('{selector}').getBoundingClientRect().toJSON()")
    return Click(round(box["x"] + box["width"] / 2), round(box["y"] + box["height"] / 2))


async def reset(environment: MiniWobEnvironment, task_id: str, seed: int) -> tuple[str, bytes]:
    seen = await environment.reset(task_id, seed, deadline_s=DEADLINE_S)
    return seen.instruction, seen.screenshot


@pytest.mark.parametrize("task_id", TASKS)
async def test_an_episode_in_a_used_page_is_that_of_a_loaded_page(
    environment: MiniWobEnvironment, loading: MiniWobEnvironment, task_id: str
) -> None:
    traces = (Click(60, 90), Type("left"), Hotkey(("tab",)), Click(30, 64))
    await reset(environment, task_id, 5)
    for action in traces:
        if (await environment.step(action, deadline_s=DEADLINE_S)).terminated:
            break

    assert await reset(environment, task_id, 6) == await reset(loading, task_id, 6)
    assert (environment.loads, loading.loads) == (1, 1)
    for action in traces:
        ends = [(await one.step(action, deadline_s=DEADLINE_S)).terminated for one in (environment, loading)]
        screens = [(await one.observe(deadline_s=DEADLINE_S)).screenshot for one in (environment, loading)]
        scores = [await one.evaluate(deadline_s=DEADLINE_S) for one in (environment, loading)]
        assert len(set(ends)) == len(set(screens)) == len(set(scores)) == 1
        if ends[0]:
            break


@pytest.mark.parametrize("keys", [("tab",), ("shift", "tab"), ("ctrl", "z")])
async def test_keys_do_in_a_used_page_what_they_do_in_a_loaded_page(
    environment: MiniWobEnvironment, loading: MiniWobEnvironment, keys: tuple[str, ...]
) -> None:
    task_id, seed = "miniwob/enter-text", 6
    await reset(loading, task_id, seed)
    field = await centre_of(loading, "#tt")
    await reset(environment, task_id, seed)
    for action in (field, Type("left")):
        await environment.step(action, deadline_s=DEADLINE_S)

    assert await reset(environment, task_id, seed) == await reset(loading, task_id, seed)
    assert environment.loads == 1
    for pressed in (Hotkey(keys), field, Hotkey(keys)):
        for one in (environment, loading):
            await one.step(pressed, deadline_s=DEADLINE_S)
        screens = [(await one.observe(deadline_s=DEADLINE_S)).screenshot for one in (environment, loading)]
        assert screens[0] == screens[1]


async def test_the_pointer_of_an_earlier_episode_is_on_no_element_of_a_loaded_page(
    environment: MiniWobEnvironment, loading: MiniWobEnvironment
) -> None:
    task_id, second_tab = "miniwob/click-tab-2-hard", Hover(41, 75)
    expected = await reset(environment, task_id, 3)
    untouched = await reset(loading, task_id, 3)
    await loading.step(second_tab, deadline_s=DEADLINE_S)
    hovered = await loading.observe(deadline_s=DEADLINE_S)
    assert hovered.screenshot != untouched[1]
    assert await reset(loading, task_id, 3) == expected == untouched
    assert loading.loads == 2


async def test_tasks_that_take_turns_keep_a_page_each(environment: MiniWobEnvironment) -> None:
    first = [await reset(environment, task, 1) for task in TASKS]
    again = [await reset(environment, task, 1) for task in TASKS]
    assert first == again
    assert environment.loads == len(TASKS)


async def test_the_page_that_was_not_used_for_longest_is_closed_for_another(
    environment: MiniWobEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "pages_kept", 2)
    for task in (*TASKS, TASKS[2], TASKS[1], TASKS[0]):
        await reset(environment, task, 1)
    assert environment.loads == 4
    assert list(environment._pages) == [TASKS[1], TASKS[0]]


async def test_the_clock_of_a_page_that_does_not_play_stands_still(environment: MiniWobEnvironment) -> None:
    await reset(environment, TASKS[0], 1)
    idle = environment._page
    assert idle is not None
    await reset(environment, TASKS[1], 1)
    stopped_ms = await idle.evaluate("performance.now()")
    assert await environment.inspect("new Promise((done) => setTimeout(() => done(1), 50))") == 1
    assert await idle.evaluate("performance.now()") == stopped_ms
    await reset(environment, TASKS[0], 2)
    assert await environment.inspect("new Promise((done) => setTimeout(() => done(1), 50))") == 1
    assert environment.loads == 2


async def test_a_page_that_was_looked_into_is_loaded_again(environment: MiniWobEnvironment) -> None:
    await reset(environment, TASKS[2], 1)
    await environment.inspect("document.title = 'changed'")
    await reset(environment, TASKS[2], 2)
    assert environment.loads == 2


async def test_a_page_that_was_left_is_loaded_again(environment: MiniWobEnvironment) -> None:
    await reset(environment, TASKS[2], 1)
    assert environment._page is not None
    await environment._page.evaluate("(document.body.onmousedown = () => { location.search = '' }, 1)")
    while not (await environment.step(Click(10, 180), deadline_s=DEADLINE_S)).terminated:
        pass  # the browser leaves when it gets to it
    await reset(environment, TASKS[2], 2)
    assert environment.loads == 2


async def test_a_page_that_cannot_draw_its_next_problem_is_loaded_again(
    environment: MiniWobEnvironment,
) -> None:
    await reset(environment, TASKS[2], 1)
    assert environment._page is not None
    await environment._page.evaluate("(genProblem = () => { throw new Error('broken') }, 1)")
    await reset(environment, TASKS[2], 2)
    assert environment.loads == 2


async def test_a_page_is_loaded_again_after_many_episodes(
    environment: MiniWobEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dart.environments.miniwob.environment.RESTARTS_MOST", 3)
    for seed in range(6):
        await reset(environment, TASKS[2], seed)
    assert environment.loads == 2


async def test_a_solution_in_a_used_page_has_its_reward(environment: MiniWobEnvironment) -> None:
    await reset(environment, TASKS[2], 1)
    instruction, _ = await reset(environment, TASKS[2], 2)
    assert environment.loads == 1
    await environment.step(await centre_of(environment, "#tt"), deadline_s=DEADLINE_S)
    await environment.step(Type(instruction.split('"')[1]), deadline_s=DEADLINE_S)
    ended = await environment.step(await centre_of(environment, "#subbtn"), deadline_s=DEADLINE_S)
    assert ended.terminated
    assert await environment.evaluate(deadline_s=DEADLINE_S) == 1.0


async def test_a_dead_browser_takes_its_pages_along(environment: MiniWobEnvironment) -> None:
    for task in TASKS[:2]:
        await reset(environment, task, 1)
    assert environment._browser is not None
    environment._browser.kill()
    before = await reset(environment, TASKS[0], 3)
    assert environment.loads == 3
    assert await reset(environment, TASKS[0], 3) == before
    assert environment.loads == 3


async def test_a_page_that_crashed_while_another_played_leaves_no_browser_context_behind(
    environment: MiniWobEnvironment,
) -> None:
    await reset(environment, TASKS[0], 1)
    lost = environment._page
    assert lost is not None
    await reset(environment, TASKS[1], 1)
    crash = lost.post("Page.crash")
    with pytest.raises(PageCrashed):
        await crash
    await reset(environment, TASKS[0], 2)
    assert environment._browser is not None
    contexts = await environment._browser.post("Target.getBrowserContexts")
    assert len(contexts["browserContextIds"]) == 2
