"""The MiniWoB++ pages as they lie on disk: where, which, at which address, and what their numbers mean.

Pure but for looking at the installed files. `dart.environments.miniwob.environment` plays them.
"""

import importlib.util
from functools import cache
from pathlib import Path

from dart.config.config import Config
from dart.environments.faults import PagesMissing, UnknownTask

WIDTH, HEIGHT = 160, 210
"""Every task is drawn in this frame, the instruction in its top 50 pixels."""

START_SCRIPT = "".join((Path(__file__).parent / name).read_text() for name in ("clock.js", "start.js"))
"""Runs first in every document."""

STOP_CLOCK = "window.dartClock?.stop()"
START_CLOCK = "window.dartClock?.go()"
"""What the page sees of time, its timers too, stands still in between."""

READ_STATE = """
typeof dartEpisode === 'undefined' ? [true, 0, null]
    : [WOB_DONE_GLOBAL, WOB_RAW_REWARD_GLOBAL,
       window.length || document.querySelector(':is(select, input):open') ? null : dartReceipts]
"""
"""Whether the episode is over, the raw reward, and which input events arrived so far.

Who leaves the page (a submitted form) has lost. The events are null where they cannot be counted: in another
document, and when some go to frames inside the page or to the list of an open menu."""

SHOW_MARK = """
(() => {
  const mark = document.createElement('div');
  mark.id = 'dart-mark';
  mark.style = 'position:fixed; left:0; top:0; width:100%; height:100%; z-index:2147483647; background:#f0f';
  document.documentElement.append(mark);
})()
"""
HIDE_MARK = "document.getElementById('dart-mark').remove()"
"""A picture of the page with the mark is not the picture without it, or pictures do not show the page."""


def miniwob_html_dir() -> Path:
    """The folder ``html/miniwob`` of the installed package, which is not imported (it wants selenium)."""
    spec = importlib.util.find_spec("miniwob")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    for folder in folders:
        html = Path(folder) / "html" / "miniwob"
        if html.is_dir():
            return html
    raise PagesMissing("the package miniwob with its folder html/miniwob")


@cache
def task_ids() -> tuple[str, ...]:
    """Every installed task, sorted: ``miniwob/click-test`` and so on."""
    return tuple(sorted(f"miniwob/{page.stem}" for page in miniwob_html_dir().glob("*.html")))


def page_url(task_id: str, seed: int) -> str:
    """The address that plays ``task_id`` from ``seed``; raises `UnknownTask`."""
    if task_id not in task_ids():
        raise UnknownTask(task_id, task_ids())
    page = miniwob_html_dir() / f"{task_id.removeprefix('miniwob/')}.html"
    return f"{page.as_uri()}?seed={seed}"


def tasks_of(config: Config) -> tuple[str, ...]:
    """Every installed task; none where the pages are missing, which is said elsewhere."""
    try:
        return task_ids()
    except PagesMissing:
        return ()
