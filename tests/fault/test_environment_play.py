"""Episodes in a real browser: what is seen, what an action does, how it ends, what it is worth."""

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageChops

from dart.config.config import load_config
from dart.core.actions import (
    Click,
    Drag,
    Finished,
    Hotkey,
    Hover,
    KeyDown,
    KeyUp,
    LeftDouble,
    RightSingle,
    Scroll,
    ScrollHere,
    Type,
    Wait,
)
from dart.core.run_directory import RunPaths
from dart.environments.browser.cdp import CdpSession, Result
from dart.environments.browser.demonstrations import play
from dart.environments.browser.dom_queries import click
from dart.environments.faults import EnvironmentTimeout, ResetFailed
from dart.environments.miniwob.environment import MiniWobEnvironment, make
from dart.environments.miniwob.oracles import ORACLES
from dart.environments.protocol import Environment, Observation

pytestmark = pytest.mark.browser

DEADLINE_S = 20.0

OWN_PAGES = Path(__file__).resolve().parents[2] / "examples" / "own_pages"

BOX_OF_CLOSE = """(({left, top, right, bottom}) => [left, top, right, bottom])(
    document.querySelector('.ui-dialog-titlebar-close').getBoundingClientRect())"""

LINK_OVER_THE_PAGE = (
    """document.body.innerHTML = '<a href="#" style="position:fixed; inset:0">a link</a>', 1"""
)

TEN_MS_A_KEY = """(document.addEventListener('keydown', () => {
    for (const began = performance.now(); performance.now() < began + 10;);
}), 1)"""


@pytest.fixture
async def environment(tmp_path: Path) -> AsyncIterator[MiniWobEnvironment]:
    environment = MiniWobEnvironment(tmp_path)
    yield environment
    await environment.close()


def picture(observation: Observation) -> Image.Image:
    return Image.open(io.BytesIO(observation.screenshot)).convert("RGB")


async def test_the_start_shows_the_task_frame_and_its_instruction(environment: MiniWobEnvironment) -> None:
    playing: Environment = environment
    start = await playing.reset("miniwob/enter-text", 5, deadline_s=DEADLINE_S)
    assert picture(start).size == (160, 210)
    assert picture(start).getpixel((150, 40)) == (255, 255, 0)
    assert start.instruction.startswith("Enter ")


async def test_a_seed_is_the_same_task_in_every_time_zone_and_language(
    environment: MiniWobEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LANG", "LANGUAGE", "LC_ALL"):
        monkeypatch.setenv(name, "de_DE.UTF-8")
    monkeypatch.setenv("TZ", "America/New_York")

    start = await environment.reset("miniwob/enter-time", 2, deadline_s=DEADLINE_S)

    assert start.instruction == "Enter 11:34 AM as the time and press submit."


async def test_a_page_of_ones_own_is_played_from_its_folder_and_worth_what_it_says(tmp_path: Path) -> None:
    config = load_config(None, [f"environments.miniwob.pages={OWN_PAGES}", 'tasks.train=["miniwob/shop"]'])
    environment = make(config, "env-000", RunPaths(tmp_path))
    worth = {}
    for name in ("Buy", "Cancel"):
        start = await environment.reset("miniwob/shop", 3, deadline_s=DEADLINE_S)
        result = await environment.step(await click(environment, "button", name), deadline_s=DEADLINE_S)
        worth[name] = result.terminated, await environment.evaluate(deadline_s=DEADLINE_S)
    await environment.close()

    assert start.instruction == 'Click on the "Buy" button.'
    assert worth == {"Buy": (True, 1.0), "Cancel": (True, 0.0)}


OWN_PAGE = """<!DOCTYPE html><html><head><script src="../core/core.js"></script><script>
function genProblem() {{ {script} }}
window.onload = function () {{ core.startEpisode(); }};
</script></head><body><div id="wrap"><div id="query">Do it.</div><div id="area"></div></div></body></html>"""


@pytest.fixture
async def own_page(tmp_path: Path) -> AsyncIterator[Callable[[str], MiniWobEnvironment]]:
    """Function that returns an environment whose task miniwob/own runs a script to draw its problem."""
    made: list[MiniWobEnvironment] = []

    def environment_of(script: str) -> MiniWobEnvironment:
        pages = tmp_path / "pages"
        pages.mkdir()
        (pages / "own.html").write_text(OWN_PAGE.format(script=script))
        config = load_config(None, [f"environments.miniwob.pages={pages}", 'tasks.train=["miniwob/own"]'])
        made.append(make(config, "env-000", RunPaths(tmp_path)))
        return made[-1]

    yield environment_of
    for one in made:
        await one.close()


async def test_an_error_in_the_script_of_a_page_fails_the_reset_with_that_error(
    own_page: Callable[[str], MiniWobEnvironment],
) -> None:
    with pytest.raises(ResetFailed, match="no word left"):
        await own_page("throw new Error('no word left')").reset("miniwob/own", 1, deadline_s=DEADLINE_S)


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("word = ;", "SyntaxError"),
        ("WOB_TASK_READY = false; setTimeout(() => { throw new Error('no word left') }, 1)", "no word left"),
        ("WOB_TASK_READY = false; Promise.reject('no word left')", "no word left"),
    ],
)
async def test_a_reset_that_does_not_end_names_the_first_error_of_the_page(
    own_page: Callable[[str], MiniWobEnvironment], tmp_path: Path, script: str, error: str
) -> None:
    environment = own_page("")
    await environment.reset("miniwob/own", 1, deadline_s=DEADLINE_S)  # starts the browser
    (tmp_path / "pages" / "own.html").write_text(OWN_PAGE.format(script=script))
    with pytest.raises(EnvironmentTimeout, match=f"after the error .*{error}.* in its script"):
        await environment.reset("miniwob/own", 1, deadline_s=4.0)


async def test_an_episode_starts_without_what_an_earlier_one_has_stored(
    own_page: Callable[[str], MiniWobEnvironment],
) -> None:
    environment = own_page(
        "area.textContent = [localStorage.n, sessionStorage.n]; localStorage.n = sessionStorage.n = 'x'"
    )
    starts = [await environment.reset("miniwob/own", 1, deadline_s=DEADLINE_S) for _ in range(2)]

    assert starts[0].screenshot == starts[1].screenshot


async def test_a_drag_drops_what_a_page_lets_drag_as_html_does(
    own_page: Callable[[str], MiniWobEnvironment],
) -> None:
    environment = own_page(
        """area.innerHTML = '<div draggable="true" style="height: 40px">x</div>'
            + '<div id="t" style="height: 60px">t</div>';
        t.ondragover = (event) => event.preventDefault();
        t.ondrop = () => core.endEpisode(1);"""
    )
    await environment.reset("miniwob/own", 1, deadline_s=DEADLINE_S)
    left, top = await environment.inspect(
        "(({left, bottom}) => [left, bottom])(area.getBoundingClientRect())"
    )
    result = await environment.step(
        Drag(int(left) + 10, int(top) - 80, int(left) + 20, int(top) - 30), deadline_s=DEADLINE_S
    )

    assert result.terminated
    assert await environment.evaluate(deadline_s=DEADLINE_S) == 1.0


async def test_a_page_that_shows_an_element_in_full_screen_can_be_judged(
    own_page: Callable[[str], MiniWobEnvironment],
) -> None:
    environment = own_page(
        """area.innerHTML = '<button>Go</button><style>[popover] { transition: opacity 9s; }'
            + '@starting-style { [popover] { opacity: 0; } }</style>';
        area.firstChild.onclick = () => area.requestFullscreen();"""
    )
    await environment.reset("miniwob/own", 1, deadline_s=DEADLINE_S)
    await environment.step(await click(environment, "button"), deadline_s=DEADLINE_S)
    await environment.inspect(
        """document.fullscreenElement ? 1
            : new Promise((done) => { document.onfullscreenchange = () => done(1); })"""
    )
    for _ in range(3):  # a screen that does not change is suspected to be frozen
        await environment.observe(deadline_s=DEADLINE_S)
        await environment.step(Click(5, 200), deadline_s=DEADLINE_S)

    assert await environment.evaluate(deadline_s=DEADLINE_S) == 0.0


async def test_the_same_seed_starts_from_the_same_pixels_whatever_was_played_before(
    environment: MiniWobEnvironment,
) -> None:
    first = await environment.reset("miniwob/login-user", 11, deadline_s=DEADLINE_S)
    await play(environment, ORACLES["miniwob/login-user"], "miniwob/login-user", 12)
    await environment.reset("miniwob/use-spinner", 11, deadline_s=DEADLINE_S)
    await environment.step(await click(environment, ".ui-spinner-up"), deadline_s=DEADLINE_S)
    again = await environment.reset("miniwob/login-user", 11, deadline_s=DEADLINE_S)
    assert again == first


async def test_a_click_reports_the_box_of_its_control_and_none_for_background(
    environment: MiniWobEnvironment,
) -> None:
    await environment.reset("miniwob/click-dialog", 1, deadline_s=DEADLINE_S)
    background = await environment.step(Click(x=155, y=205), deadline_s=DEADLINE_S)
    wanted = await environment.inspect(BOX_OF_CLOSE)
    closing = await click(environment, ".ui-dialog-titlebar-close")
    closed = await environment.step(closing, deadline_s=DEADLINE_S)

    assert background.box is None
    assert closed.terminated
    assert closed.box == pytest.approx(wanted), "the button, not what is behind it once it has closed"


async def test_a_click_on_a_drawing_has_no_box_because_its_place_counts(
    environment: MiniWobEnvironment,
) -> None:
    await environment.reset("miniwob/circle-center", 1, deadline_s=DEADLINE_S)
    circle = await click(environment, "circle")
    hit = await environment.inspect(f"document.elementFromPoint({circle.x}, {circle.y}).tagName")
    result = await environment.step(circle, deadline_s=DEADLINE_S)
    assert hit == "circle"
    assert result.box is None


async def test_the_screenshot_after_a_step_shows_what_it_did(environment: MiniWobEnvironment) -> None:
    start = await environment.reset("miniwob/use-spinner", 3, deadline_s=DEADLINE_S)
    spinner = await click(environment, ".ui-spinner-up")
    await environment.step(spinner, deadline_s=DEADLINE_S)
    after = await environment.observe(deadline_s=DEADLINE_S)
    value = (8, 62, 120, 95)
    assert ImageChops.difference(picture(start).crop(value), picture(after).crop(value)).getbbox()
    await environment.step(Wait(), deadline_s=DEADLINE_S)
    later = await environment.observe(deadline_s=DEADLINE_S)
    assert picture(later).tobytes() == picture(after).tobytes()


async def test_a_field_with_the_focus_shows_the_same_screen_for_as_long_as_no_action_comes(
    environment: MiniWobEnvironment,
) -> None:
    await environment.reset("miniwob/enter-text", 5, deadline_s=DEADLINE_S)
    await environment.step(await click(environment, "#tt"), deadline_s=DEADLINE_S)
    screens = set()
    for _ in range(6):  # a caret that blinks changes twice a second
        screens.add((await environment.observe(deadline_s=DEADLINE_S)).screenshot)
        await asyncio.sleep(0.2)

    assert len(screens) == 1


async def test_success_ends_the_episode_with_reward_one(environment: MiniWobEnvironment) -> None:
    await environment.reset("miniwob/click-test", 1, deadline_s=DEADLINE_S)
    assert await environment.evaluate(deadline_s=DEADLINE_S) == 0.0
    result = await environment.step(await click(environment, "#subbtn"), deadline_s=DEADLINE_S)
    assert result.terminated
    assert await environment.evaluate(deadline_s=DEADLINE_S) == 1.0


async def test_failure_ends_the_episode_with_reward_zero(environment: MiniWobEnvironment) -> None:
    await environment.reset("miniwob/enter-text", 1, deadline_s=DEADLINE_S)
    assert (await environment.step(await click(environment, "#subbtn"), deadline_s=DEADLINE_S)).terminated
    assert await environment.evaluate(deadline_s=DEADLINE_S) == 0.0


async def test_the_last_screen_is_not_covered_and_takes_no_more_steps(
    environment: MiniWobEnvironment,
) -> None:
    start = await environment.reset("miniwob/click-test", 1, deadline_s=DEADLINE_S)
    button = await click(environment, "#subbtn")
    await environment.step(button, deadline_s=DEADLINE_S)
    last = await environment.observe(deadline_s=DEADLINE_S)
    assert picture(last).crop((0, 0, 160, 50)).tobytes() == picture(start).crop((0, 0, 160, 50)).tobytes()
    with pytest.raises(RuntimeError, match="step after the end of the episode of miniwob/click-test"):
        await environment.step(button, deadline_s=DEADLINE_S)


async def test_only_a_screen_that_is_observed_costs_a_screenshot(
    environment: MiniWobEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    await environment.reset("miniwob/click-test", 1, deadline_s=DEADLINE_S)
    button = await click(environment, "#subbtn")
    called = []
    post = CdpSession.post

    def noted(page: CdpSession, method: str, params: dict[str, Any] | None = None) -> Result:
        called.append(method)
        return post(page, method, params)

    monkeypatch.setattr(CdpSession, "post", noted)
    await environment.step(Click(5, 205), deadline_s=DEADLINE_S)  # as the first of two actions in an answer
    assert (await environment.step(button, deadline_s=DEADLINE_S)).terminated
    await environment.evaluate(deadline_s=DEADLINE_S)
    assert "Input.dispatchMouseEvent" in called
    assert "Page.captureScreenshot" not in called
    await environment.observe(deadline_s=DEADLINE_S)
    assert called.count("Page.captureScreenshot") == 1


async def test_the_score_of_a_finished_episode_outlives_its_browser(environment: MiniWobEnvironment) -> None:
    await environment.reset("miniwob/click-test", 1, deadline_s=DEADLINE_S)
    await environment.step(await click(environment, "#subbtn"), deadline_s=DEADLINE_S)
    assert environment._browser is not None
    environment._browser.kill()
    assert await environment.evaluate(deadline_s=DEADLINE_S) == 1.0


async def test_finishing_early_changes_nothing_and_is_worth_nothing(environment: MiniWobEnvironment) -> None:
    await environment.reset("miniwob/click-test", 1, deadline_s=DEADLINE_S)
    assert not (await environment.step(Finished(), deadline_s=DEADLINE_S)).terminated
    assert await environment.evaluate(deadline_s=DEADLINE_S) == 0.0


async def test_leaving_the_page_loses_the_episode(environment: MiniWobEnvironment) -> None:
    await environment.reset("miniwob/enter-text", 1, deadline_s=DEADLINE_S)
    await environment.inspect("(document.body.onmousedown = () => { location.search = '' }, 1)")
    terminated = False
    while not terminated:  # the browser leaves when it gets to it
        terminated = (await environment.step(Click(10, 180), deadline_s=DEADLINE_S)).terminated
    assert await environment.evaluate(deadline_s=DEADLINE_S) == 0.0


async def test_typed_keys_are_trusted_events_with_all_their_parts(environment: MiniWobEnvironment) -> None:
    await environment.reset("miniwob/enter-text", 1, deadline_s=DEADLINE_S)
    kinds = ["keydown", "keypress", "input", "keyup"]
    await environment.inspect(f"""(window.seen = [], {kinds}.forEach((kind) =>
        document.querySelector('#tt').addEventListener(kind, (e) => seen.push([kind, e.isTrusted]))), 1)""")
    await environment.step(await click(environment, "#tt"), deadline_s=DEADLINE_S)
    await environment.step(Type("a"), deadline_s=DEADLINE_S)
    assert await environment.inspect("seen") == [[kind, True] for kind in kinds]
    await environment.step(Type("é'\\ Zürich 9!"), deadline_s=DEADLINE_S)
    assert await environment.inspect("document.querySelector('#tt').value") == "aé'\\ Zürich 9!"


async def test_a_long_text_is_typed_and_no_page_that_hangs(environment: MiniWobEnvironment) -> None:
    await environment.reset("miniwob/enter-text", 1, deadline_s=DEADLINE_S)
    await environment.inspect(TEN_MS_A_KEY)
    await environment.step(await click(environment, "#tt"), deadline_s=DEADLINE_S)
    await environment.step(Type("word " * 60), deadline_s=2.0)
    assert await environment.inspect("document.querySelector('#tt').value") == "word " * 60


async def test_hotkeys_edit_text(environment: MiniWobEnvironment) -> None:
    await environment.reset("miniwob/enter-text", 1, deadline_s=DEADLINE_S)
    await environment.step(await click(environment, "#tt"), deadline_s=DEADLINE_S)
    keys = [
        Type("abc"),
        Hotkey(("ctrl", "a")),
        Hotkey(("ctrl", "x")),
        Hotkey(("ctrl", "v")),
        Hotkey(("ctrl", "v")),
    ]
    for action in [
        *keys,
        Hotkey(("backspace",)),
        Hotkey(("home",)),
        Hotkey(("delete",)),
        Hotkey(("shift", "z")),
    ]:
        await environment.step(action, deadline_s=DEADLINE_S)
    assert await environment.inspect("document.querySelector('#tt').value") == "Zbcab"


async def test_a_held_key_and_the_pointer_outlive_their_action(environment: MiniWobEnvironment) -> None:
    await environment.reset("miniwob/enter-text", 1, deadline_s=DEADLINE_S)
    await environment.inspect("""(window.seen = [], ['click', 'wheel'].forEach((kind) =>
        document.addEventListener(kind, (e) => seen.push([kind, e.ctrlKey, e.clientX]))), 1)""")
    held = [KeyDown("ctrl"), Click(10, 180), KeyUp("ctrl"), Click(11, 180)]
    for action in [*held, Hover(12, 180), ScrollHere("down"), Hotkey(("ctrl", "-"))]:
        await environment.step(action, deadline_s=DEADLINE_S)
    assert await environment.inspect("seen") == [
        ["click", True, 10],
        ["click", False, 11],
        ["wheel", False, 12],
    ]


async def test_double_and_right_clicks_reach_the_page(environment: MiniWobEnvironment) -> None:
    await environment.reset("miniwob/enter-text", 1, deadline_s=DEADLINE_S)
    await environment.inspect("""(window.seen = [], ['dblclick', 'contextmenu'].forEach((kind) =>
        document.addEventListener(kind, (e) => seen.push(kind))), 1)""")
    await environment.step(LeftDouble(10, 180), deadline_s=DEADLINE_S)
    await environment.step(RightSingle(10, 180), deadline_s=DEADLINE_S)
    assert await environment.inspect("seen") == ["dblclick", "contextmenu"]


async def test_nothing_beside_the_task_can_be_scrolled_into_view(environment: MiniWobEnvironment) -> None:
    start = await environment.reset("miniwob/click-test", 1, deadline_s=DEADLINE_S)
    await environment.step(Scroll(80, 150, "right"), deadline_s=DEADLINE_S)
    after = await environment.observe(deadline_s=DEADLINE_S)
    assert picture(after).tobytes() == picture(start).tobytes()


async def test_a_click_outside_of_the_frame_hits_nothing(environment: MiniWobEnvironment) -> None:
    await environment.reset("miniwob/click-test", 1, deadline_s=DEADLINE_S)
    assert not (await environment.step(Click(5000, 90_000), deadline_s=DEADLINE_S)).terminated


@pytest.mark.parametrize(
    "task_id",
    [f"miniwob/{page}" for page in ("copy-paste", "drag-box", "login-user", "choose-list", "scroll-text-2")],
)
async def test_oracles_solve_tasks_of_every_kind_of_action(
    environment: MiniWobEnvironment, task_id: str
) -> None:
    for seed in (21, 22):
        assert (await play(environment, ORACLES[task_id], task_id, seed)).reward == 1.0


async def test_every_oracle_solves_a_first_seed(environment: MiniWobEnvironment) -> None:
    failed = [
        task for task, oracle in ORACLES.items() if (await play(environment, oracle, task, 0)).reward < 1
    ]
    assert failed == []


@pytest.mark.parametrize("held", ["ctrl", "shift"])
async def test_a_tab_or_window_that_a_click_opens_ends_with_its_episode(
    environment: MiniWobEnvironment, held: str
) -> None:
    await environment.reset("miniwob/search-engine", 0, deadline_s=DEADLINE_S)
    await environment.inspect(LINK_OVER_THE_PAGE)
    await environment.step(KeyDown(held), deadline_s=DEADLINE_S)
    await environment.step(Click(80, 100), deadline_s=DEADLINE_S)
    await open_pages(environment, 2)
    await environment.reset("miniwob/search-engine", 0, deadline_s=DEADLINE_S)
    await open_pages(environment, 1)
    assert await environment.inspect("document.querySelector('#search-text') !== null")


async def open_pages(environment: MiniWobEnvironment, wanted: int) -> None:
    """Wait until the browser has this number of pages; it opens and closes them when it gets to it."""
    assert environment._browser is not None
    async with asyncio.timeout(DEADLINE_S):
        while True:
            targets = (await environment._browser.post("Target.getTargets"))["targetInfos"]
            if sum(target["type"] == "page" for target in targets) == wanted:
                return
            await asyncio.sleep(0.05)


async def test_the_pages_of_earlier_episodes_are_collected(
    environment: MiniWobEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dart.environments.browser.environment.RESETS_PER_COLLECTION", 12)
    for seed in range(12):
        await environment.reset("miniwob/choose-date", seed, deadline_s=DEADLINE_S)

    assert await documents(environment) <= 3  # the one before the last reset, and the last one


async def documents(environment: MiniWobEnvironment) -> int:
    assert environment._page is not None
    counted = await environment._page.post("Memory.getDOMCounters")
    return int(counted["documents"])
