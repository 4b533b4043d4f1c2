"""The installed MiniWoB++ pages: their folder, task ids and addresses, and the scripts that read them.

Reads the installed files and nothing else. `dart.environments.miniwob.environment` plays the pages.
"""

import importlib.util
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from dart.environments.faults import PagesMissing, UnknownTask

NO_PAGES: Mapping[str, Path] = MappingProxyType({})

PAGES_PACKAGE = "miniwob==1.1.0"
"""The distribution that has the pages, as pip names it. Only its HTML is used, so it is installed without its
dependencies (selenium, gymnasium)."""

WIDTH, HEIGHT = 160, 210
"""Size in pixels of the frame in which every task is drawn."""

INSTRUCTION_HEIGHT = 50
"""Number of rows at the top of the frame in which a page shows its instruction."""

START_SCRIPT = (Path(__file__).parent / "start.js").read_text()
"""JavaScript that starts the episode of a page that was loaded with a seed."""

READ_STATE = """
typeof dartEpisode === 'undefined' ? [true, 0, null, null]
    : [WOB_DONE_GLOBAL, WOB_RAW_REWARD_GLOBAL,
       window.length || document.querySelector(':is(select, input):open') ? null : dartInputCounts,
       window.dartClicked ?? null]
"""
"""JavaScript that returns a list: whether the episode is over, the raw reward, the counts of input events,
and the box of the newest click.

An episode that leaves the page (by a submitted form) is over with reward 0. The counts are null where events
cannot be counted: in another document, and when some events go to iframes or to the list of an open menu."""

GO_ON = "core.endEpisode = () => {}"
"""JavaScript after which no action ends the episode. Otherwise, most pages end it at a wrong action."""


def miniwob_html_dir() -> Path:
    """Return the folder ``html/miniwob`` of the installed package, without importing it (it needs selenium).

    Raises PagesMissing.
    """
    spec = importlib.util.find_spec("miniwob")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    for folder in folders:
        html = Path(folder) / "html" / "miniwob"
        if html.is_dir():
            return html
    raise PagesMissing("the package miniwob with its folder html/miniwob")


@cache
def task_ids() -> tuple[str, ...]:
    """Return the ids of all installed tasks, sorted, such as ``miniwob/click-test``. Raises PagesMissing."""
    return tuple(sorted(f"miniwob/{page.stem}" for page in miniwob_html_dir().glob("*.html")))


def page_url(task_id: str, seed: int, own_pages: Mapping[str, Path] = NO_PAGES) -> str:
    """Return the URL of the page of ``task_id`` with its ``seed``; raises `UnknownTask`.

    own_pages   files of pages that are not installed, by task id
    """
    if task_id not in own_pages and task_id not in task_ids():
        raise UnknownTask(task_id, (*task_ids(), *own_pages))
    page = own_pages.get(task_id) or miniwob_html_dir() / f"{task_id.removeprefix('miniwob/')}.html"
    return f"{page.as_uri()}?seed={seed}"
