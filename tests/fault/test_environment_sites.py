"""Sites in a real browser: oracles solve their tasks, and a dead browser is a fault."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dart.core.actions import Click, Hover
from dart.core.screenspot import read_screenspot
from dart.environments.browser.cdp import CdpSession
from dart.environments.faults import BrowserDied, InfrastructureFault
from dart.environments.sites.catalogue import SITES
from dart.environments.sites.environment import SIZE, SitesEnvironment
from dart.environments.sites.oracles import solution
from dart.grounding.pages import collect_pages

pytestmark = [pytest.mark.browser, pytest.mark.slow]

DEADLINE_S = 60.0
SILENT_S = 4.0
AFTERWARDS_MS = 300
"""How long a page has to connect after its requests were refused."""


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
    task = environment.task
    assert ends == [False] * (task.site.machine.num_actions(task.solution) - 1) + [True]
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


async def test_the_pointer_of_an_earlier_episode_is_on_no_element(environment: SitesEnvironment) -> None:
    width, height = environment.size
    await environment.reset("sites/shop/change", 5, deadline_s=DEADLINE_S)
    await environment.step(Hover(width // 2, height // 2), deadline_s=DEADLINE_S)
    await environment.reset("sites/shop/change", 5, deadline_s=DEADLINE_S)
    assert await environment.inspect("document.querySelectorAll(':hover').length") == 0


async def test_any_state_can_be_shown_and_is_the_state_then(environment: SitesEnvironment) -> None:
    await environment.reset("sites/mail/explore", 3, deadline_s=DEADLINE_S)
    act, after = next(environment.task.site.machine.successors(environment.true_state))
    shown = await environment.show(after, deadline_s=DEADLINE_S)
    assert environment.true_state == after

    await environment.reset("sites/mail/explore", 3, deadline_s=DEADLINE_S)
    box = await environment.inspect(
        f"document.querySelector('[data-element=\"{act.element}\"]').getBoundingClientRect().toJSON()"
    )
    centre = round(box["x"] + box["width"] / 2), round(box["y"] + box["height"] / 2)
    await environment.step(Click(*centre), deadline_s=DEADLINE_S)
    played = await environment.observe(deadline_s=DEADLINE_S)
    assert environment.true_state == after
    assert played.screenshot == shown.screenshot


async def test_pages_of_sites_become_samples_with_their_boxes(tmp_path: Path) -> None:
    tasks = ("sites/shop", "sites/mail", "miniwob/click-tab")
    count = await asyncio.to_thread(collect_pages, tasks, 6, "train", tmp_path)
    samples = read_screenspot(tmp_path)
    assert len(samples) == count
    assert {sample.source for sample in samples} == set(tasks)
    sizes = {sample.source: (sample.width_px, sample.height_px) for sample in samples}
    assert sizes == {"sites/shop": SIZE, "sites/mail": SIZE, "miniwob/click-tab": (160, 210)}


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


HOSTILE = """
new Promise((done) => {
  const port = %d, tried = [];
  for (const host of ['127.0.0.1', 'localhost', 'example.org', '203.0.113.7']) {
    tried.push(fetch(`http://${host}:${port}/fetch`, {mode: 'no-cors'}));
    tried.push(new Promise((ok, no) => {
      const image = new Image(); image.onload = ok; image.onerror = no; image.src = `http://${host}:${port}/image`;
    }));
    tried.push(new Promise((ok, no) => {
      const socket = new WebSocket(`ws://${host}:${port}/`); socket.onopen = ok; socket.onerror = no;
    }));
    navigator.sendBeacon(`http://${host}:${port}/beacon`, 'x');
    open(`http://${host}:${port}/window`);
  }
  Promise.allSettled(tried).then((all) => done(all.map((one) => one.status)));
})
"""
"""A page that tries every way out: to this machine, to names and to an outside address."""


async def test_no_request_of_a_page_leaves_the_browser(environment: SitesEnvironment) -> None:
    connections: list[object] = []
    server = await asyncio.start_server(lambda reader, writer: connections.append(writer), "127.0.0.1", 0)
    async with server:
        await environment.reset("sites/forum/explore", 1, deadline_s=DEADLINE_S)
        port = server.sockets[0].getsockname()[1]
        tried = await environment.inspect(HOSTILE % port)
        assert tried == ["rejected"] * 12
        await environment.inspect(f"new Promise((done) => setTimeout(() => done(1), {AFTERWARDS_MS}))")
    assert connections == []
    await environment.observe(deadline_s=DEADLINE_S)


async def test_a_site_that_does_not_answer_is_a_fault_and_never_a_reward(
    environment: SitesEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CdpSession, "_answer", lambda *_: None)
    with pytest.raises(InfrastructureFault, match="reset"):
        await environment.reset("sites/forum", 1, deadline_s=SILENT_S)
    monkeypatch.undo()
    assert await solve(environment, "sites/forum", 1) == 1.0
