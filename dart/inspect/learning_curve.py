"""The learning curve: success of training episodes over time, as a picture and in the terminal."""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from dart.config.config import Config
from dart.inspect.formatting import duration
from dart.inspect.report import SuccessReport
from dart.inspect.time_budget import TimeBudget
from dart.store.reader import StoreReader

WINDOW = 100
"""Number of trajectories for each point of the curve over all tasks. The 95 % interval of so many independent
episodes is about ±10 percentage points. Episodes of a group are alike, so the true one is about twice as
wide."""

TASK_WINDOW = 30
"""Number of trajectories for each point of the faint curve of one task."""

POINTS_MIN = 4
"""Smallest number of windows that fit into a run without overlap; a short run gets smaller windows."""

MINUTE_S = 60.0

BLOCKS = " ▁▂▃▄▅▆▇█"
BEGIN = "0:00"
PLOT_ROWS = 12
ROWS_PER_LABEL = 3
Y_AXIS_WIDTH = 4


@dataclass(frozen=True, slots=True)
class EpisodePoint:
    """One finished training episode."""

    elapsed_s: float
    """Running time of the run, all its starts together, until the end of the episode."""
    task_id: str
    success: bool


CurvePoints = list[tuple[float, float]]
"""Pairs of a running time, in seconds since the start of the run, and the success rate then, from 0 to 1."""


def training_episodes(store: StoreReader, config: Config, session: TimeBudget) -> list[EpisodePoint]:
    """Read every finished training episode, with the running time of the run until its end."""
    success_above = config.curation.success_above
    rewards = store.rewards_over_time()
    began_unix_s = store.versions(limit=1)[0].created_unix_s
    elapsed_s = _elapsed_s([stored_unix_s for *_, stored_unix_s in rewards], began_unix_s, session)
    return [
        EpisodePoint(elapsed_s=ended_s, task_id=task_id, success=reward > success_above)
        for (task_id, reward, _), ended_s in zip(rewards, elapsed_s, strict=True)
    ]


def _elapsed_s(stored_unix_s: Sequence[float], began_unix_s: float, session: TimeBudget) -> Iterator[float]:
    """Yield the running time of the run at each moment.

    The record does not say when earlier sessions began and ended. So their episodes are spread over the time
    that these sessions used, in proportion to the wall-clock time since the run began.
    """
    started_unix_s, used_s = session.started_unix_s, session.used_before_s
    earlier_unix_s = [began_unix_s, *(unix_s for unix_s in stored_unix_s if unix_s < started_unix_s)]
    first_unix_s, last_unix_s = min(earlier_unix_s), max(earlier_unix_s)
    for unix_s in stored_unix_s:
        if unix_s < started_unix_s:
            yield used_s * (unix_s - first_unix_s) / ((last_unix_s - first_unix_s) or 1.0)
        else:
            yield used_s + unix_s - started_unix_s


def learning_curve(episodes: Sequence[EpisodePoint], *, window: int = WINDOW) -> CurvePoints:
    """Compute the success rate over the last `window` episodes, from the first full window on."""
    window = window_for(len(episodes), window)
    newest: deque[bool] = deque(maxlen=window)
    points = []
    for episode in sorted(episodes, key=lambda episode: episode.elapsed_s):
        newest.append(episode.success)
        if len(newest) == window:
            points.append((episode.elapsed_s, sum(newest) / window))
    return points


def window_for(episodes: int, window: int) -> int:
    """Return how many episodes each point of the curve covers: `window`, or fewer if the run is short."""
    return max(1, min(window, episodes // POINTS_MIN))


def write_png(episodes: Sequence[EpisodePoint], report: SuccessReport, path: Path) -> None:
    """Draw the curve over all tasks, a faint curve for each task, and the two evaluations on held-out seeds.

    raises    ModuleNotFoundError if matplotlib is not installed (extra `train`)
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    of_task = attrgetter("task_id")
    for task, own in groupby(sorted(episodes, key=of_task), of_task):
        points = learning_curve([*own], window=TASK_WINDOW)
        axes.plot(*_minutes(points), linewidth=1, alpha=0.45, label=task)
    axes.plot(*_minutes(learning_curve(episodes)), color="black", linewidth=2.5, label="all tasks")
    minutes = [episode.elapsed_s / MINUTE_S for episode in episodes] or [0.0]
    for minute, mean in ((min(minutes), report.before.mean), (max(minutes), report.after.mean)):
        if mean is not None:
            error = [[mean.rate - mean.interval.low], [mean.interval.high - mean.rate]]
            axes.errorbar([minute], [mean.rate], yerr=error, color="black", fmt="o", capsize=5)
    axes.set(xlabel="minutes", ylabel="success", ylim=(-0.02, 1.02), title="Success while training")
    axes.text(0.01, 0.01, "dots: held-out seeds, 95 % intervals", transform=axes.transAxes, fontsize=8)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(path)


def _minutes(points: CurvePoints) -> tuple[list[float], list[float]]:
    return [elapsed_s / MINUTE_S for elapsed_s, _ in points], [rate for _, rate in points]


def render(episodes: Sequence[EpisodePoint], *, width: int = 80) -> str:
    """Draw the curve over all tasks as text, a column of blocks for each stretch of time.

    Returns an empty string while there are too few points for a curve.
    """
    points = learning_curve(episodes)
    if len(points) < POINTS_MIN:
        return ""
    rates = _resample(points, width - Y_AXIS_WIDTH)
    window = window_for(len(episodes), WINDOW)
    ends = duration(points[-1][0])
    return "\n".join(
        [
            f"success while training, %, over the last {window} episodes",
            *(_plot_row(rates, row) for row in reversed(range(PLOT_ROWS))),
            f"  0└{'─' * len(rates)}",
            f"{'':{Y_AXIS_WIDTH}}{BEGIN}{ends:>{len(rates) - len(BEGIN)}}",
        ]
    )


def _resample(points: CurvePoints, columns: int) -> list[float]:
    """Cut the time into `columns` equal spans, and return the newest rate at the end of each span.

    A span that ends before the first point has the rate 0.
    """
    times = [elapsed_s for elapsed_s, _ in points]
    places = (bisect_right(times, times[-1] * (column / columns)) for column in range(1, columns + 1))
    return [points[place - 1][1] if place else 0.0 for place in places]


def _plot_row(rates: Sequence[float], row: int) -> str:
    """Draw one row of the plot, one character for each rate; row 0 is at the bottom.

    A character can be filled in eighths.
    """
    is_labelled = (row + 1) % ROWS_PER_LABEL == 0
    label = f"{100 * (row + 1) / PLOT_ROWS:3.0f}┤" if is_labelled else "   │"
    eighths = (round(8 * (rate * PLOT_ROWS - row)) for rate in rates)
    return label + "".join(BLOCKS[min(8, max(0, count))] for count in eighths)
