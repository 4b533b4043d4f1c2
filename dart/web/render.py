"""Render the HTML templates. Values are escaped, and a template that uses a missing value raises an error."""

import hashlib
import math
import time
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined

from dart.core.types import Outcome
from dart.curation.groups import DropReason
from dart.inspect.formatting import age, clock, counted, counts, duration, number, percent, size
from dart.inspect.report import short_id

STATIC = {"style.css": "text/css", "app.js": "text/javascript", "icon.svg": "image/svg+xml"}
"""The files that are served unchanged: media type by file name."""


MEANINGS = {
    Outcome.TERMINATED: "the environment ended the episode; the reward says whether it was a success",
    Outcome.FINISHED: "the policy declared the task done",
    Outcome.STEP_CAP: "the episode reached its step cap",
    Outcome.PARSE_ERROR: "the answer of the policy was no action",
    Outcome.INFEASIBLE: "the policy declared that the task cannot be done",
    DropReason.NO_SPREAD: "all rollouts of the group have the same reward: nothing to learn from",
    DropReason.TOO_FEW: "fewer than two rollouts of the group were played to their end: nothing to compare",
    DropReason.TASK_QUARANTINED: "the task was in quarantine because of faults",
    DropReason.STALE: "a step is older than the staleness bound allows",
}
"""What outcomes and reasons of drops mean. The page of an episode shows it, and lists show it when the
pointer is over the word."""


@cache
def static(name: str) -> bytes:
    """Return the content of a file that `STATIC` names."""
    return (files("dart.web") / "static" / name).read_bytes()


@cache
def static_address(name: str) -> str:
    """Return the address of a file that `STATIC` names. A changed file has another address."""
    return f"/static/{name}?{hashlib.sha256(static(name)).hexdigest()[:12]}"


@cache
def _templates() -> Environment:
    templates = Environment(
        loader=PackageLoader("dart.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(
        percent=percent,
        duration=duration,
        age=age,
        clock=clock,
        ago=ago,
        moment=moment,
        counts=counts,
        counted=counted,
        figure=number,
        size=size,
        meaning=lambda word: MEANINGS.get(word, ""),
        share=lambda thousandths: f"{thousandths / 10:g}%",
        static=static_address,
        short=lambda name: str(name).rpartition("/")[2],
        short_id=short_id,
    )
    return templates


def render(template: str, **values: object) -> str:
    """Render a template with these values, and return the HTML."""
    return _templates().get_template(template).render(**values)


def moment(unix_s: float) -> str:
    """Format a moment for a file, which is read on other days and in other time zones than it was written."""
    return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(unix_s))


def ago(unix_s: float) -> str:
    """Say how long ago a moment was: `12 s ago`, `3 min ago`, `5 h ago`, `2 d ago`."""
    seconds = max(0.0, time.time() - unix_s)
    for size_s, unit, most in ((1, "s", 90), (60, "min", 90), (3600, "h", 48), (86400, "d", math.inf)):
        if seconds / size_s < most:
            return f"{seconds / size_s:.0f} {unit} ago"
    raise AssertionError("unreachable: the last unit, days, has no upper limit")
