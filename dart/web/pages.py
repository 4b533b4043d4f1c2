"""What the pages show: each page as parts, each part a function from a run to HTML.

A part is rendered every `every_s` seconds while a browser shows it, and sent when it has changed. The tree
and the vitals of an actor are read from the board alone, so they are right while the record is locked or an
actor hangs. The functions block, so the event loop runs them in threads (`dart.web.blocking`).
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dart.core.errors import DartError, UsageError
from dart.core.records import STALENESS_BOUND, EvaluationPhase, Event
from dart.inspect.actor_table import by_urgency, in_tree_order
from dart.inspect.evaluation_scores import scores
from dart.inspect.event_history import event_of, fields_of, read_news
from dart.inspect.exit_reports import all_reports
from dart.inspect.formatting import percent
from dart.inspect.logs import message
from dart.inspect.report import EvaluationResult
from dart.inspect.snapshot import updating
from dart.inspect.task_reports import DECISIONS_MAX, decision_text, state, task_reports
from dart.inspect.utilisation import ACTIVITIES, sizes_of
from dart.store.browse_queries import PAGE, TrajectoryFilter
from dart.telemetry.events import KINDS, POOLS_SIZED
from dart.telemetry.liveness import ACTOR_SILENT_S
from dart.telemetry.load_interval import load_every_s
from dart.telemetry.load_meter import LOAD
from dart.web import charts, exploration_pages, trajectory_pages
from dart.web.actor_view import view_of
from dart.web.charts import Bins, Chart, Dot, EpisodeCounts, Series
from dart.web.render import render
from dart.web.run_view import RunView

BINS = 96
BIN_S = 4.0
"""Shortest bin of the charts over time, in seconds. A shorter bin would often have a single episode."""

STRETCH_MIN_S = 60.0
SPARK_BINS = 24
NEWEST = 12
"""How many of the newest faults, and of the newest events, the overview lists."""

TASK_TRAJECTORIES = 30

NEWS_S = 86_400.0
"""Largest age, in seconds, of a supervisor's report on the overview. The page of an actor also shows older
ones."""

WINDOWS: Mapping[str, float | None] = {"15m": 900.0, "1h": 3600.0, "6h": 21600.0, "1d": 86400.0, "all": None}
"""Spans of time that the charts can show: seconds by name, None for the whole run."""


STILL = math.inf
"""The value of `every_s` for a part that is rendered only once, when its page is opened."""


class Values(dict[str, str]):
    """The names and values in an address such as `/actor?name=env-003`; a missing name has an empty value."""

    def __missing__(self, _: str) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class PagePart:
    """A part of a page. It is rendered every `every_s` seconds, independently of other parts."""

    name: str
    every_s: float
    render: Callable[[RunView, Values], str]


@dataclass(frozen=True, slots=True)
class WebPage:
    """A page of the run: its title and its parts."""

    title: str
    """Title of the page. Names in braces, as in `Rollout {id}`, are replaced by values of the address."""
    place: str
    """The entry of the menu that is marked while the page is shown; empty for no entry."""
    parts: tuple[PagePart, ...]


def head(run: RunView, _: Values) -> str:
    """Render the line at the top of every page, which shows the run, its health and its phase."""
    snapshot = run.snapshot
    tone, word = "idle", "ended"
    if run.pid is not None:
        tone = "good" if snapshot.is_healthy else "warn"
        word = f"main process {snapshot.main_is}" if snapshot.main_is else snapshot.health
    return render("_head.html", run=run, snapshot=snapshot, tone=tone, word=word)


# ---- overview ----


def _notices(run: RunView, _: Values) -> str:
    """Render the notices. While the run cannot be read, there are none: the parts around them say why."""
    try:
        snapshot = run.snapshot
    except DartError:
        return ""
    return render("_notices.html", snapshot=snapshot, is_running=bool(run.pid))


def _now(run: RunView, _: Values) -> str:
    return render("_now.html", snapshot=run.snapshot, is_running=bool(run.pid))


def _charts(run: RunView, values: Values) -> str:
    window = values.get("window", "all")
    if window not in WINDOWS:
        raise UsageError(f"expected one of {', '.join(WINDOWS)} as the time of the charts, got {window!r}")
    bins = _bins(run, WINDOWS[window])
    played = _played(run, bins)
    drawn = (
        _success(played, bins, dots=_measured(run, bins) if WINDOWS[window] is None else ()),
        _utilisation(run, bins),
        _throughput(played, bins),
        _staleness(run, bins),
        _faults(run, bins),
    )
    return render("_charts.html", charts=drawn, window=window, windows=tuple(WINDOWS))


def _bins(run: RunView, window_s: float | None, most: int = BINS) -> Bins:
    """Cut the time that the charts show into at most `most` bins. It ends now or at the end of the run.

    window_s   how much of the newest time is shown; None for the whole run
    """
    last = run.store.last_unix_s()
    ends = time.time() if run.pid is not None or last is None else last
    began = run.store.began_unix_s()
    begins = ends if began is None else began
    if window_s is not None:
        begins = max(begins, ends - window_s)
    begins = min(begins, ends - STRETCH_MIN_S)
    return Bins(begins_unix_s=begins, ends_unix_s=ends, count=min(most, int((ends - begins) / BIN_S)))


def _played(run: RunView, bins: Bins, task_id: str | None = None) -> dict[int, EpisodeCounts]:
    counted = run.store.played_over_time(*_counted(run, bins), task_id)
    return {index: EpisodeCounts(*counts) for index, counts in counted.items()}


def _played_by_task(run: RunView, bins: Bins) -> dict[str, dict[int, EpisodeCounts]]:
    """Count the episodes of every task in one query: a query per task would read all trajectories each."""
    return {
        task_id: {index: EpisodeCounts(*counts) for index, counts in counted.items()}
        for task_id, counted in run.store.played_by_task(*_counted(run, bins)).items()
    }


def _counted(run: RunView, bins: Bins) -> tuple[float, float, float, float]:
    """Return begin, end, width of a bin and `success_above`, as the store counts episodes by them."""
    width_s = bins.width_s * (1 + 1e-9)  # so that the last moment does not begin another bin
    return (*bins.span, width_s, run.config.curation.success_above)


def _success(played: Mapping[int, EpisodeCounts], bins: Bins, dots: Sequence[Dot] = ()) -> Chart:
    scores = charts.success_over_time(played, bins)
    line = Series(
        "success",
        tuple((end, score.rate) for end, score in scores),
        low_high=tuple((end, score.interval.low, score.interval.high) for end, score in scores),
    )
    behind = f"of the newest episodes, about {scores[-1][1].episodes}; " if scores else ""
    measured = f", dots: held-out seeds, {', '.join(dot.name for dot in dots)}" if dots else ""
    return Chart(
        "Success while training",
        [line],
        bins.span,
        about=f"{behind}band: 95 % interval of as many independent episodes{measured}",
        empty="not enough episodes in this time",
        dots=dots,
        is_percent=True,
    )


def _measured(run: RunView, bins: Bins) -> list[Dot]:
    """Return the evaluations before and after training, as dots at the left and right end of the chart."""
    found = []
    for at, phase in zip(bins.span, EvaluationPhase, strict=True):
        mean = EvaluationResult(scores(run.store, run.config, phase)).mean
        if mean is not None:
            low_high = mean.interval.low, mean.interval.high
            found.append(Dot(at, mean.rate, *low_high, f"{phase} {percent(mean.rate)}"))
    return found


def _utilisation(run: RunView, bins: Bins) -> Chart:
    sizes = sizes_of(run.store.find_events(kinds=(POOLS_SIZED,)), run.config)
    actors = sum(one.most() for one in sizes.values())
    load = run.store.sampled_events(LOAD, *bins.span, actors)
    silent_s = max(ACTOR_SILENT_S, 2 * load_every_s(run.config))

    def line(kind: str, prefix: str, activity: str) -> charts.Points:
        return charts.utilisation_over_time(
            load.events, bins, prefix, activity, sizes[kind], load.apart_s, silent_s
        )

    lines = [
        Series(kind, line(kind, *activity), f"c{number}")
        for number, (kind, activity) in enumerate(ACTIVITIES.items(), start=1)
    ]
    return Chart(
        "Utilisation",
        lines,
        bins.span,
        about="share of time: in an episode, answering, in an update",
        empty="no load was reported in this time",
        is_percent=True,
    )


def _staleness(run: RunView, bins: Bins) -> Chart:
    made = [one for one in run.store.versions_between(*bins.span) if "staleness_mean" in one.metrics]

    def line(name: str, key: str, colour: str, *, is_thin: bool = False) -> Series:
        points = tuple((one.created_unix_s, one.metrics.get(key)) for one in made)
        return Series(name, points, colour, is_thin=is_thin)

    lines = [line("mean", "staleness_mean", "c1"), line("p95", "staleness_p95", "c2")]
    lines.append(line("bound", STALENESS_BOUND, "c5", is_thin=True))
    return Chart(
        "Staleness",
        lines,
        bins.span,
        about="of trained steps, in policy versions",
        empty="no update in this time",
    )


def _throughput(played: Mapping[int, EpisodeCounts], bins: Bins) -> Chart:
    steps = charts.per_minute({index: one.steps for index, one in played.items()}, bins)
    episodes = charts.per_minute({index: one.episodes for index, one in played.items()}, bins)
    lines = [Series("environment steps", steps, "c1"), Series("episodes", episodes, "c2")]
    return Chart("Throughput", lines, bins.span, about="stored, per minute")


def _faults(run: RunView, bins: Bins) -> Chart:
    counted = run.store.faults_over_time(*bins.span, bins.width_s)
    colours = {"infrastructure": "c4", "system": "c2", "policy": "c3", "evaluator": "c1", "task": "c5"}
    lines = [
        Series(kind, charts.per_minute(places, bins), colours.get(kind, "c6"))
        for kind, places in sorted(counted.items())
    ]
    return Chart(
        "Faults",
        lines,
        bins.span,
        about="attempts spent without a reward, per minute",
        empty="no failed attempt in this time",
    )


def _newest(run: RunView, _: Values) -> str:
    return render(
        "_newest.html",
        attempts=run.store.newest_attempts(NEWEST),
        events=_news(run)[:NEWEST],
        words=event_text,
    )


def _news(run: RunView) -> list[Event]:
    """Read the newest events that are shown by default, and supervisors' reports up to `NEWS_S` old.

    Both are returned together as events, newest first.
    """
    news = read_news(run.store, limit=NEWEST)
    news += [event_of(report) for report in all_reports(run.paths.root, time.time() - NEWS_S)]
    return sorted(news, key=lambda event: -event.unix_s)


def event_text(event: Event) -> str:
    """Return the data of an event on one line: its field `text` if there is one, else all fields."""
    text = event.data.get("text")
    return text if isinstance(text, str) else ", ".join(map(" ".join, fields_of(event)))


# ---- actors ----


def _tree(run: RunView, _: Values) -> str:
    is_running = run.pid is not None
    rows = [(depth, view_of(actor, is_running=is_running)) for actor, depth in in_tree_order(run.actors)]
    well = updating(run.engines) | {actor.name for actor in run.actors if actor.is_well}
    unwell = [actor.name for actor in by_urgency(run.actors) if is_running and actor.name not in well]
    return render("_tree.html", rows=rows, is_running=is_running, unwell=unwell)


def _vitals(run: RunView, values: Values) -> str:
    actor = run.actor(values["name"])
    row = view_of(actor, is_running=run.pid is not None)
    engine = next((one for one in run.engines if one.name == actor.name), None)
    children = [one.name for one in run.actors if one.parent == actor.name]
    return render("_vitals.html", row=row, actor=actor, engine=engine, children=children)


def _happened(run: RunView, values: Values) -> str:
    actor = run.actor(values["name"])
    events = read_news(run.store, subject=actor.name, limit=PAGE)
    return render(
        "_happened.html",
        ends=run.ends(actor),
        events=events[::-1],
        words=event_text,
        load=run.store.newest_event_about(LOAD, actor.name),
        about=KINDS[LOAD].fields,
    )


def _log(run: RunView, values: Values) -> str:
    return render("_log.html", lines=run.log(run.actor(values["name"])), words=message)


# ---- tasks ----


def _tasks(run: RunView, _: Values) -> str:
    bins = _bins(run, None, SPARK_BINS)
    reports = task_reports(run.store, run.config)
    played = _played_by_task(run, bins)
    sparks = {report.task_id: _spark(played.get(report.task_id, {}), bins) for report in reports}
    return render("_tasks.html", reports=reports, sparks=sparks, state=state, family=run.family)


def _spark(played: Mapping[int, EpisodeCounts], bins: Bins) -> tuple[str, str]:
    """Return success over the run as an SVG path and as text; both are empty without episodes."""
    points = [(end, score.rate) for end, score in charts.success_over_time(played, bins, episodes=20)]
    words = f"from {percent(points[0][1])} to {percent(points[-1][1])}" if points else ""
    return charts.sparkline(points, bins.span), words


def _task(run: RunView, values: Values) -> str:
    task_id = values["id"]
    report = next((one for one in task_reports(run.store, run.config) if one.task_id == task_id), None)
    if report is None:
        raise UsageError(f"the run has no task {task_id!r}")
    demonstrations = run.store.demonstrations(task_id)
    return render("_task.html", report=report, state=state(report), demonstrations=demonstrations)


def _task_curve(run: RunView, values: Values) -> str:
    bins = _bins(run, None)
    chart = _success(_played(run, bins, values["id"]), bins)
    return render("_charts.html", charts=(chart,), windows=(), window="")


def _task_decisions(run: RunView, values: Values) -> str:
    made = run.store.decisions(values["id"], limit=DECISIONS_MAX)
    return render("_decisions.html", decisions=list(reversed(made)), words=decision_text)


def _task_trajectories(run: RunView, values: Values) -> str:
    rows = run.store.trajectory_page(TrajectoryFilter(task_id=values["id"]), TASK_TRAJECTORIES)
    success = run.config.curation.success_above
    return render("_trajectories.html", rows=rows, success=success, with_task=False)


# ---- which page ----

HEAD = PagePart("head", 1.0, head)
"""The part at the top of every page."""

PAGES: Mapping[str, WebPage] = {
    "head": WebPage("", "", ()),
    "overview": WebPage(
        "Overview",
        "overview",
        (
            PagePart("notices", 3.0, _notices),
            PagePart("now", 1.0, _now),
            PagePart("charts", 5.0, _charts),
            PagePart("newest", 3.0, _newest),
        ),
    ),
    "tree": WebPage("Supervision tree", "tree", (PagePart("tree", 0.5, _tree),)),
    "actor": WebPage(
        "{name}",
        "tree",
        (
            PagePart("vitals", 1.0, _vitals),
            PagePart("happened", 3.0, _happened),
            PagePart("log", 2.0, _log),
        ),
    ),
    "tasks": WebPage("Tasks", "tasks", (PagePart("tasks", 5.0, _tasks),)),
    "task": WebPage(
        "{id}",
        "tasks",
        (
            PagePart("facts", 2.0, _task),
            PagePart("charts", 5.0, _task_curve),
            PagePart("decisions", 3.0, _task_decisions),
            PagePart("played", 3.0, _task_trajectories),
        ),
    ),
    "exploration": WebPage(
        "Exploration", "exploration", (PagePart("graph", 3.0, exploration_pages.exploration),)
    ),
    "trajectories": WebPage(
        "Trajectories", "trajectories", (PagePart("list", STILL, trajectory_pages.trajectories),)
    ),
    "trajectory": WebPage(
        "Episode {id}", "trajectories", (PagePart("episode", STILL, trajectory_pages.trajectory),)
    ),
    "compare": WebPage(
        "Episodes {a} and {b}", "trajectories", (PagePart("pair", STILL, trajectory_pages.compare),)
    ),
}


def page_of(name: str, values: Values) -> WebPage:
    """Return the page with this name, with the part `HEAD` and the values of the address in its title.

    Raises UsageError if there is no such page.
    """
    page = PAGES.get(name)
    if page is None:
        raise UsageError(f"there is no page {name!r}; the pages are {', '.join(PAGES)}")
    return replace(page, title=page.title.format_map(values), parts=(HEAD, *page.parts))
