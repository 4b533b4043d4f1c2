"""The MiniWoB++ pages as they lie on disk: where, which, at which address, and what their numbers mean.

Pure but for looking at the installed files. `dart.environments.miniwob` plays them.
"""

import importlib.util
import math
from functools import cache
from pathlib import Path
from typing import Any

from dart.environments.faults import EvaluatorFailed, PagesMissing, UnknownTask

WIDTH, HEIGHT = 160, 210
"""Every task is drawn in this frame, the instruction in its top 50 pixels."""

START_SCRIPT = (Path(__file__).parent / "miniwob_start.js").read_text()
"""Runs first in every document."""

READ_STATE = """
typeof dartEpisode === 'undefined' ? [true, 0] : [WOB_DONE_GLOBAL, WOB_RAW_REWARD_GLOBAL]
"""
"""Whether the episode is over, and the raw reward. Who leaves the page (a submitted form) has lost."""


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


def clamped_reward(task_id: str, raw: Any) -> float:
    """The page's raw reward in [0, 1]; raises `EvaluatorFailed` when it is not a number."""
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not math.isfinite(raw):
        raise EvaluatorFailed(task_id, f"expected the page's raw reward to be a number, got: {raw!r}")
    return min(1.0, max(0.0, float(raw)))
