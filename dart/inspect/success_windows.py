"""Success of training episodes in windows of time, such as 6 windows of 2 minutes in a run of 12 minutes.

Training episodes have sampled answers and the seeds of training. So these rates cannot be compared with those
of the evaluations, which play held-out seeds before and after training.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dart.inspect.formatting import duration, percent

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86_400.0

WIDTHS_S = (
    *(10.0, 20.0, 30.0, MINUTE_S, 2 * MINUTE_S, 5 * MINUTE_S, 10 * MINUTE_S, 30 * MINUTE_S),
    *(HOUR_S, 2 * HOUR_S, 6 * HOUR_S, 12 * HOUR_S, DAY_S),
)
"""Widths that a window may have, in seconds. In a longer run a window has a whole number of days."""

WINDOWS_MOST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SuccessWindow:
    """The training episodes that ended in one window of a run's time."""

    begins_s: float
    """Begin of the window, in seconds of running time since the start of the run."""
    ends_s: float
    successes: int
    episodes: int
    """Number of episodes that were counted: the newest ones of the window, if it has very many."""

    @property
    def rate(self) -> float | None:
        """Share of successes, 0 to 1; None for a window without episodes."""
        return self.successes / self.episodes if self.episodes else None


def width_for(span_s: float) -> float:
    """Return the smallest width, in seconds, of which at most `WINDOWS_MOST` windows cover `span_s`."""
    days = max(1, -(-span_s // (WINDOWS_MOST * DAY_S)))
    return next((width_s for width_s in WIDTHS_S if span_s <= WINDOWS_MOST * width_s), days * DAY_S)


def spans(elapsed_s: float, budget_s: float, since_s: float = 0.0) -> Iterator[tuple[float, float]]:
    """Yield begin and end of each window that has begun, in seconds since the start of the run.

    elapsed_s   how long the run has run
    budget_s    how long the run may run; 0 for no limit
    since_s     when the run was continued the last time. Earlier windows are left out, because the wall-clock
                times of earlier starts are not known.
    """
    width_s = width_for(max(elapsed_s, budget_s))
    place = since_s // width_s
    while place * width_s < elapsed_s:
        yield max(since_s, place * width_s), (place + 1) * width_s
        place += 1


def without_empty_end(windows: Sequence[SuccessWindow]) -> tuple[SuccessWindow, ...]:
    """Leave out all windows after the last one that has an episode. Returns () if no window has one."""
    last = max((place for place, window in enumerate(windows, start=1) if window.episodes), default=0)
    return tuple(windows[:last])


def text(
    windows: Sequence[SuccessWindow],
    base_rate: float | None = None,
    final_rate: float | None = None,
    verdict: str = "",
) -> str:
    """Describe the windows in one line; empty if there are no windows.

    base_rate    success of the base policy on held-out seeds; None if it was not measured
    final_rate   the same of the policy that the run has trained
    verdict      whether these two differ; empty if they were not compared
    """
    if not windows:
        return ""
    unit_s, unit = _unit(windows)
    parts = [
        f"{_begin(window.begins_s, unit_s)}–{window.ends_s / unit_s:.3g} {unit} {percent(window.rate)}"
        for window in windows
    ]
    rates = {"before training": base_rate, "after it": final_rate}
    measured = ", ".join(f"{when} {percent(rate)}" for when, rate in rates.items() if rate is not None)
    about = f"held-out seeds; {verdict}" if verdict else "held-out seeds"
    held_out = f"{measured} ({about}); " if measured else ""
    return f"success: {held_out}while training (sampled) {', '.join(parts)}"


def _begin(begins_s: float, unit_s: float) -> str:
    """Return the begin of a window: a number of units, or a time as `0:44` for the window in which a run was
    continued."""
    is_whole = unit_s == 1 or not begins_s % unit_s
    return f"{begins_s / unit_s:.3g}" if is_whole else duration(begins_s)


def _unit(windows: Sequence[SuccessWindow]) -> tuple[float, str]:
    """Return seconds and name of the largest unit of time in which every window ends at a whole number."""
    units = ((DAY_S, "days"), (HOUR_S, "h"), (MINUTE_S, "min"))
    return next((unit for unit in units if not any(one.ends_s % unit[0] for one in windows)), (1.0, "s"))
