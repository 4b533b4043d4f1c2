"""Grounding samples from real MiniWoB++ pages and from screens of sites, in ScreenSpot's format.

    python -m dart.grounding.pages OUT --pages 200 --split train
    python -m dart.grounding.pages OUT --pages 200 --tasks sites/shop sites/mail

Each page of a task and a seed is loaded in headless Chromium; its screenshot, the boxes of its elements from
the DOM and the instructions of `dart.grounding.queries` become samples. Elements that a click would not reach
are left out (`elements.js`). Training pages have training seeds and held-out pages held-out seeds, so no page
is in both. For a site, the seed determines its texts, its style, and the random walk that ends at the screen.
"""

import argparse
import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dart.core.boxes import Box
from dart.core.module_main import errors_as_messages
from dart.core.screenspot import GroundingSample, save_image, write_screenspot
from dart.core.seeds import HELD_OUT_SEEDS, TRAINING_SEEDS
from dart.environments.browser.environment import BrowserEnvironment
from dart.environments.browser.in_parallel import in_parallel
from dart.environments.faults import UnknownTask
from dart.environments.miniwob.environment import MiniWobEnvironment
from dart.environments.miniwob.pages import task_ids
from dart.environments.protocol import Observation
from dart.environments.sites.catalogue import SITES as SITE_NAMES
from dart.environments.sites.environment import SitesEnvironment
from dart.environments.sites.machine import Machine, SiteState
from dart.grounding.queries import LabelledElement, queries
from dart.grounding.words import READ_WORDS, Word, word_of, write_words

READ_ELEMENTS = (Path(__file__).parent / "elements.js").read_text(encoding="utf-8")

DEADLINE_S = 60.0
"""Deadline of loading one page or showing one screen."""

TASKS = tuple(
    f"miniwob/{name}"
    for name in (
        *("click-button", "click-button-sequence", "click-checkboxes", "click-collapsible", "click-color"),
        *("click-link", "click-option", "click-shape", "click-tab", "click-widget", "count-shape"),
        *("enter-date", "focus-text-2", "grid-coordinate", "identify-shape", "login-user", "choose-list"),
    )
)
"""Tasks whose pages are used unless others are named."""

UNSEEN_TASKS = tuple(
    f"miniwob/{name}" for name in ("click-checkboxes-soft", "click-tab-2", "visual-addition")
)
"""Tasks whose pages have other layouts; for evaluation only."""

SITES = "sites/"
"""Prefix by which the names of sites differ from those of tasks."""

WALK_MOST = 12
"""Steps of the longest random walk through a site."""

Split = Literal["train", "held-out"]

SEEDS = {"train": TRAINING_SEEDS, "held-out": HELD_OUT_SEEDS}


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a task, or a screen of a site, with its screenshot and its elements."""

    task_id: str
    seed: int
    screenshot: bytes
    size: tuple[int, int]
    """Width and height in pixels."""
    elements: tuple[LabelledElement, ...]
    words: tuple[Word, ...] = ()


def element_of(read: dict[str, Any]) -> LabelledElement:
    """Convert an element that `elements.js` has returned."""
    left, top, right, bottom = read["box"]
    return LabelledElement(
        box=Box(left, top, right, bottom),
        kind=read["kind"],
        text=read["text"],
        shows_text=read["shows_text"],
        colour=read["colour"],
        shape=read["shape"],
    )


async def load_page(environment: MiniWobEnvironment, task_id: str, seed: int) -> Page:
    """Load a page and read its elements. Raises EnvironmentFault."""
    observation = await environment.reset(task_id, seed, deadline_s=DEADLINE_S)
    return await page_shown(environment, observation, task_id, seed)


async def load_site_page(environment: SitesEnvironment, site: str, seed: int) -> Page:
    """Show a screen of a site and read its elements. Raises EnvironmentFault."""
    await environment.reset(f"{site}/explore", seed, deadline_s=DEADLINE_S)
    state = walked(environment.task.site.machine, random.Random(seed))
    observation = await environment.show(state, deadline_s=DEADLINE_S)
    return await page_shown(environment, observation, site, seed)


def walked(machine: Machine, choose: random.Random) -> SiteState:
    """Return the state to which a random walk of at most WALK_MOST steps from the start leads."""
    state = machine.start
    for _ in range(choose.randrange(WALK_MOST + 1)):
        state = choose.choice([after for _, after in machine.successors(state)])
    return state


async def page_shown(
    environment: BrowserEnvironment[Any], observation: Observation, task_id: str, seed: int
) -> Page:
    """Read the elements and the words of the page that an observation shows. Raises EnvironmentFault."""
    width, height = environment.size
    elements = await environment.inspect(f"{READ_ELEMENTS}({width}, {height})")
    words = await environment.inspect(f"{READ_WORDS}({width}, {height})")
    return Page(
        task_id,
        seed,
        observation.screenshot,
        (width, height),
        tuple(map(element_of, elements)),
        tuple(map(word_of, words)),
    )


def samples_of(page: Page, folder: Path) -> list[GroundingSample]:
    """Write the screenshot of a page into the folder of a data set, and return the page's samples."""
    found = list(queries(page.elements))
    if not found:
        return []
    image = save_image(folder, page.screenshot)
    return [
        GroundingSample(
            image=image,
            width_px=page.size[0],
            height_px=page.size[1],
            instruction=query.instruction,
            box=query.element.box,
            element_type="text" if query.element.shows_text else "icon",
            source=page.task_id,
            kind=query.element.kind,
            query=query.kind,
            elements=tuple(element.box for element in page.elements),
            provenance={"task_id": page.task_id, "seed": page.seed},
        )
        for query in found
    ]


def collect_pages(tasks: Sequence[str], pages: int, split: Split, folder: Path, browsers: int = 2) -> int:
    """Write the samples of `pages` pages, divided evenly among tasks and sites, to a folder.

    Returns the number of samples.

    Raises GroundingDataError when no page has a sample.
    """
    folder.mkdir(parents=True, exist_ok=True)
    seeds = SEEDS[split]
    wanted = [(tasks[number % len(tasks)], seeds[number // len(tasks)]) for number in range(pages)]
    return asyncio.run(_collected(wanted, folder, browsers))


async def _collected(wanted: Sequence[tuple[str, int]], folder: Path, browsers: int) -> int:
    of_sites = [one for one in wanted if one[0].startswith(SITES)]
    of_tasks = [one for one in wanted if not one[0].startswith(SITES)]

    async def pages() -> AsyncIterator[Page]:
        async for page in in_parallel(MiniWobEnvironment, load_page, of_tasks, browsers):
            yield page
        async for page in in_parallel(SitesEnvironment, load_site_page, of_sites, browsers):
            yield page

    return await write_pages(pages(), folder)


async def write_pages(pages: AsyncIterator[Page], folder: Path) -> int:
    """Write the samples and the words of pages into the folder of a data set, each screenshot as soon as its
    page is there. Returns the number of samples.

    A page without samples is left out.

    Raises GroundingDataError when no page has a sample.
    """
    samples: list[GroundingSample] = []
    words: dict[str, Sequence[Word]] = {}
    async for page in pages:
        if named := samples_of(page, folder):
            samples += named
            words[named[0].image.name] = page.words
    samples.sort(key=lambda one: (json.dumps(one.provenance, sort_keys=True), one.instruction))
    write_words(folder, words)
    return write_screenspot(folder, samples)


def main() -> None:
    """Run the command `python -m dart.grounding.pages`."""
    parser = argparse.ArgumentParser(description="Make grounding samples from MiniWoB++ pages and sites.")
    parser.add_argument("out", type=Path, help="folder to write the data set to")
    tasks = "tasks of MiniWoB++, and sites such as sites/shop"
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), metavar="TASK", help=tasks)
    parser.add_argument("--pages", type=int, default=200, help="number of pages, divided among the tasks")
    parser.add_argument("--split", choices=sorted(SEEDS), default="train", help="which seeds the pages have")
    parser.add_argument("--browsers", type=int, default=2, help="browsers at a time")
    options = parser.parse_args()
    known = (*task_ids(), *(SITES + name for name in SITE_NAMES))
    for unknown in (task for task in options.tasks if task not in known):
        parser.error(str(UnknownTask(unknown, known)))
    with errors_as_messages(parser):
        count = collect_pages(options.tasks, options.pages, options.split, options.out, options.browsers)
    print(f"{count} samples of {options.pages} pages in {options.out}")


if __name__ == "__main__":
    main()
