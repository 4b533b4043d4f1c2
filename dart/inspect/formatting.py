"""Figures, moments and states as text for people, on the terminal and on the page."""

import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dart.core.errors import UsageError
from dart.telemetry.liveness import ACTOR_SILENT_S

if TYPE_CHECKING:
    from dart.inspect.snapshot import ActorRow

DASH = "–"
"""Shown where there is no value."""

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


def percent(rate: float | None) -> str:
    """A rate from 0 to 1 as `43 %`; a dash for None."""
    return DASH if rate is None else f"{whole_percent(rate)} %"


def whole_percent(rate: float) -> str:
    """A rate from 0 to 1 in percent, rounded to a whole number.

    Only a rate of 0 is `0`, and only one of 1 is `100`: with a single success of 300 it is `<1`, and with a
    single failure `>99`.
    """
    rounded = f"{100 * rate:.0f}"
    if rounded == "0" and rate > 0:
        return "<1"
    return ">99" if rounded == "100" and rate < 1 else rounded


def number(value: float | None, digits: int = 1) -> str:
    """A number with `digits` decimals; a dash for None."""
    return DASH if value is None else f"{value:.{digits}f}"


def counts(by_name: Mapping[str, int]) -> str:
    """Counts by name as `21 no_spread, 1 too_few`, the largest first."""
    return ", ".join(f"{count} {name}" for name, count in sorted(by_name.items(), key=lambda one: -one[1]))


def counted(count: int, noun: str) -> str:
    """A count with its noun: `1 failure`, `2 failures`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def size(count_bytes: float) -> str:
    """Bytes as `812 B`, `1.2 KiB`, `3.4 MiB` or `2.0 GiB`."""
    for unit, bytes_each in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count_bytes >= bytes_each:
            return f"{count_bytes / bytes_each:.1f} {unit}"
    return f"{count_bytes:.0f} B"


# ---- time ----


def age(seconds: float | None) -> str:
    """A span of time as `12s`, `3m12s`, `2h04m` or `3d07h`; a dash for None."""
    if seconds is None:
        return DASH
    whole = int(seconds)
    for unit_s, unit, below_s, below in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= unit_s:
            return f"{whole // unit_s}{unit}{whole % unit_s // below_s:02d}{below}"
    return f"{whole}s"


def duration(seconds: float) -> str:
    """A span of time as on a stop watch: `3:07`, `1:03:07`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def clock(unix_s: float) -> str:
    """Format a moment as local time of day, with the date if it is not today."""
    moment = time.localtime(unix_s)
    is_today = moment[:3] == time.localtime()[:3]
    return time.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M:%S", moment)


def parse_span(text: str) -> float:
    """Return the seconds in a span such as `90s`, `10m`, `1h30m` or `2d`.

    raises    UsageError for any other text
    """
    parts = _PART.findall(text)
    if not parts or "".join(map("".join, parts)) != text:
        raise UsageError(f"expected a time such as 90s, 10m, 1h30m or 2d, got {text!r}")
    return sum(float(count) * _UNITS_S[unit] for count, unit in parts)


# ---- actors ----


def state_text(actor: "ActorRow") -> str:
    """Return the state of an actor; if the state is `running` but the actor cannot work, also why."""
    if actor.state != "running":
        return actor.state
    if actor.process != "alive":
        return f"running, {actor.process}"
    return "running" if actor.ready else "running, not ready"


def activity(actor: "ActorRow") -> str:
    """Say what an actor is busy with and for how long; empty for an idle actor.

    For an actor that does not beat, say for how long it has not; for an actor that is not up, why it ended.
    """
    if actor.state not in ("running", "starting", "stopping"):
        return actor.last_reason
    if actor.process == "gone":
        return ""
    if (actor.beat_age_s or 0.0) > ACTOR_SILENT_S:
        return f"no beat for {age(actor.beat_age_s)}" + (f", in {actor.handler}" if actor.handler else "")
    if actor.handler:
        return f"{actor.handler} {actor.busy_s:.1f} s"
    return f"{actor.work} {actor.work_s:.1f} s" if actor.work else ""
