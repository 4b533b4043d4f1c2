"""What the pages show: each page as parts, each part a function from a run to HTML. All of it blocks.

A part is rendered every `every_s` seconds while a browser shows it, and sent when it has changed. Tree and
actors are read from the board alone, so they tell the truth while the record is locked or an actor hangs.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dart.core.errors import UsageError
from dart.core.records import STALENESS_BOUND, EvaluationPhase, Event
from dart.inspect.evaluation_scores import scores
from dart.inspect.event_history import event_of, fields_of, is_news
from dart.inspect.exit_reports import all_reports
from dart.inspect.logs import message
from dart.inspect.report import EvaluationResult
from dart.inspect.task_reports import (
    DECISIONS_MAX,
    TaskReport,
    decision_text,
    state,
    task_reports,
)
from dart.inspect.utilisation import ACTIVITIES, sizes_of
from dart.store.browse_queries import PAGE, TrajectoryFilter
from dart.telemetry.events import KINDS, POOLS_SIZED, USER_VISIBLE
from dart.telemetry.load_meter import LOAD
from dart.web import charts, series
from dart.web.charts import ChartView, Dot, Series
from dart.web.render import render
from dart.web.run_view import RunView
from dart.web.series import Bins, EpisodeCounts, Slots
from dart.web.tree_rows import row_of, tree_rows

BINS = 96
BIN_S = 4.0
"""Shortest bin, so that a rate covers more than one episode."""

STRETCH_MIN_S = 60.0
SPARK_BINS = 24
NEWEST = 12
"""Rows of a short list."""

TASK_TRAJECTORIES = 30

NEWS_READ = 200
NEWS_S = 86_400.0
"""Age of the oldest death on the overview; the page of an actor has older ones."""

WINDOWS: Mapping[str, float | None] = {"15m": 900.0, "1h": 3600.0, "6h": 21600.0, "1d": 86400.0, "all": None}
"""Stretches of time the overview can show, in seconds; None is the whole run."""


@dataclass(frozen=True, slots=True)
class PagePart:
    """A piece of a page."""

    name: str
    every_s: float
    render: Callable[[RunView], str]


@dataclass(frozen=True, slots=True)
class WebPage:
    """A page that follows the run."""

    title: str
    place: str
    """The entry of the menu it belongs to."""
    parts: tuple[PagePart, ...]


def head(run: RunView) -> str:
    """The line above every page: the run and its health."""
    snapshot = run.snapshot
    tone, word = "idle", "ended"
    if run.pid is not None:
        tone, word = ("good", snapshot.health) if snapshot.is_healthy else ("warn", "degraded")
    return render("_head.html", run=run, snapshot=snapshot, tone=tone, word=word)


HEAD = PagePart("head", 1.0, head)


# ---- overview ----


def overview(window: str) -> WebPage:
    """How the run is now and was over time. Raises UsageError for a window that is not in `WINDOWS`."""
    if window not in WINDOWS:
        raise UsageError(f"there is no window {window!r}; there are {', '.join(WINDOWS)}")
    return WebPage(
        "Overview",
        "overview",
        (
            HEAD,
            PagePart(
                "now", 1.0, lambda run: render("_now.html", snapshot=run.snapshot, is_running=bool(run.pid))
            ),
            PagePart("charts", 5.0, lambda run: _charts(run, window)),
            PagePart("newest", 3.0, _newest),
        ),
    )


def _charts(run: RunView, window: str) -> str:
    bins = _bins(run, WINDOWS[window])
    played = _played(run, bins)
    is_whole = WINDOWS[window] is None
    drawn = (
        _success(played, bins, dots=_measured(run, bins) if is_whole else ()),
        _utilisation(run, bins),
        _throughput(played, bins),
        _staleness(run, bins),
        _faults(run, bins),
    )
    return render("_charts.html", charts=drawn, window=window, windows=tuple(WINDOWS))


def _bins(run: RunView, window_s: float | None, most: int = BINS) -> Bins:
    """The time that is drawn: up to now, or to the end of a run that has ended."""
    last = run.store.last_unix_s()
    ends = time.time() if run.pid is not None or last is None else last
    began = run.store.began_unix_s()
    begins = ends if began is None else began
    if window_s is not None:
        begins = max(begins, ends - window_s)
    begins = min(begins, ends - STRETCH_MIN_S)
    return Bins(begins_unix_s=begins, ends_unix_s=ends, count=min(most, int((ends - begins) / BIN_S)))


def _span(bins: Bins) -> tuple[float, float]:
    return bins.begins_unix_s, bins.ends_unix_s


def _played(run: RunView, bins: Bins, task_id: str | None = None) -> dict[int, EpisodeCounts]:
    success_above = run.config.curation.success_above
    counted = run.store.played_over_time(*_span(bins), bins.width_s, success_above, task_id)
    found: dict[int, EpisodeCounts] = {}
    for place, (episodes, successes, steps) in counted.items():
        index = min(place, bins.count - 1)  # the last moment lies at the end of the last bin
        known = found.get(index, series.NOTHING)
        found[index] = EpisodeCounts(
            known.episodes + episodes, known.successes + successes, known.steps + steps
        )
    return found


def _success(played: Mapping[int, EpisodeCounts], bins: Bins, dots: Sequence[Dot] = ()) -> ChartView:
    scores = series.success_over_time(played, bins)
    line = Series(
        "success",
        tuple((end, score.rate) for end, score in scores),
        low_high=tuple((end, score.interval.low, score.interval.high) for end, score in scores),
    )
    behind = f"of the newest episodes, about {scores[-1][1].episodes}; " if scores else ""
    measured = ", dots: held-out seeds" if dots else ""
    return charts.chart(
        "Success while training",
        [line],
        _span(bins),
        about=f"{behind}band: 95 % interval{measured}",
        dots=dots,
        is_percent=True,
    )


def _measured(run: RunView, bins: Bins) -> list[Dot]:
    """The measurements on held-out seeds, at both ends."""
    found = []
    for at, phase in zip(_span(bins), EvaluationPhase, strict=True):
        mean = EvaluationResult(scores(run.store, run.config, phase)).mean
        if mean is not None:
            low_high = mean.interval.low, mean.interval.high
            found.append(Dot(at, mean.rate, *low_high, f"{phase}: {100 * mean.rate:.0f} %"))
    return found


def _utilisation(run: RunView, bins: Bins) -> ChartView:
    sizes = sizes_of(run.store.find_events(kinds=(POOLS_SIZED,)), run.config)
    actors = sum(of_kind.most() for of_kind in sizes.values())
    load = run.store.sampled_events(LOAD, *_span(bins), actors)
    lines = [
        Series(kind, series.utilisation_over_time(load, bins, Slots(*named, sizes[kind])), f"c{number}")
        for number, (kind, named) in enumerate(ACTIVITIES.items(), start=1)
    ]
    return charts.chart(
        "Utilisation",
        lines,
        _span(bins),
        about="share of time: in an episode, answering, in an update",
        is_percent=True,
    )


def _staleness(run: RunView, bins: Bins) -> ChartView:
    made = [one for one in run.store.versions_between(*_span(bins)) if "staleness_mean" in one.metrics]

    def line(name: str, key: str, colour: str, *, is_thin: bool = False) -> Series:
        points = tuple((one.created_unix_s, one.metrics.get(key)) for one in made)
        return Series(name, points, colour, is_thin=is_thin)

    lines = [line("mean", "staleness_mean", "c1"), line("p95", "staleness_p95", "c2")]
    lines.append(line("bound", STALENESS_BOUND, "c5", is_thin=True))
    return charts.chart("Staleness", lines, _span(bins), about="of trained steps, in policy versions")


def _throughput(played: Mapping[int, EpisodeCounts], bins: Bins) -> ChartView:
    steps = series.per_minute({index: one.steps for index, one in played.items()}, bins)
    episodes = series.per_minute({index: one.episodes for index, one in played.items()}, bins)
    lines = [Series("environment steps", steps, "c1"), Series("episodes", episodes, "c2")]
    return charts.chart("Throughput", lines, _span(bins), about="stored, per minute")


def _faults(run: RunView, bins: Bins) -> ChartView:
    counted = run.store.faults_over_time(*_span(bins), bins.width_s)
    colours = {"infrastructure": "c4", "system": "c2", "policy": "c3", "evaluator": "c1", "task": "c5"}
    lines = [
        Series(kind, series.per_minute(places, bins), colours.get(kind, "c6"))
        for kind, places in sorted(counted.items())
    ]
    return charts.chart("Faults", lines, _span(bins), about="attempts spent without a reward, per minute")


def _newest(run: RunView) -> str:
    return render(
        "_newest.html",
        attempts=run.store.newest_attempts(NEWEST),
        events=_news(run)[:NEWEST],
        words=event_text,
    )


def _news(run: RunView) -> list[Event]:
    """Events worth reading and the supervisors' reports, newest first."""
    news = [event for event in run.store.events_of(USER_VISIBLE, limit=NEWS_READ) if is_news(event)]
    news += [event_of(report) for report in all_reports(run.paths.root, time.time() - NEWS_S)]
    return sorted(news, key=lambda event: -event.unix_s)


def _news_of(run: RunView, subject: str) -> list[Event]:
    """The newest about one actor."""
    events = run.store.events_of(USER_VISIBLE, subject, NEWS_READ)
    return [event for event in events if is_news(event)][:PAGE]


def event_text(event: Event) -> str:
    """The data of an event on one line: its text where it has one, else its fields."""
    text = event.data.get("text")
    return text if isinstance(text, str) else ", ".join(map(" ".join, fields_of(event)))


# ---- actors ----


def tree() -> WebPage:
    """The supervision tree."""

    def rows(run: RunView) -> str:
        found = tree_rows(run.actors, is_running=run.pid is not None)
        return render("_tree.html", rows=found, is_running=run.pid is not None)

    return WebPage("Supervision tree", "tree", (HEAD, PagePart("tree", 0.5, rows)))


def actor(name: str) -> WebPage:
    """One actor: its vitals, what happened to it, the end of its log."""

    def vitals(run: RunView) -> str:
        row = row_of(run.actor(name), is_running=run.pid is not None)
        engine = next((one for one in run.engines if one.name == name), None)
        children = [one.name for one in run.actors if one.parent == name]
        return render("_vitals.html", row=row, actor=row.actor, engine=engine, children=children)

    def happened(run: RunView) -> str:
        found = run.actor(name)
        load = run.store.newest_event_about(LOAD, name)
        fields = KINDS[LOAD].fields
        return render(
            "_happened.html",
            ends=run.ends(found),
            events=_news_of(run, name),
            words=event_text,
            load=load,
            about=fields,
        )

    def log(run: RunView) -> str:
        return render("_log.html", lines=run.log(run.actor(name)), words=message)

    parts = (
        HEAD,
        PagePart("vitals", 1.0, vitals),
        PagePart("happened", 3.0, happened),
        PagePart("log", 2.0, log),
    )
    return WebPage(name, "tree", parts)


# ---- tasks ----


def tasks() -> WebPage:
    """Every task in one table."""

    def table(run: RunView) -> str:
        bins = _bins(run, None, SPARK_BINS)
        reports = task_reports(run.store, run.config)
        sparks = {report.task_id: _spark(run, bins, report.task_id) for report in reports}
        return render("_tasks.html", reports=reports, sparks=sparks, state=state)

    return WebPage("Tasks", "tasks", (HEAD, PagePart("tasks", 5.0, table)))


def _spark(run: RunView, bins: Bins, task_id: str) -> str:
    scores = series.success_over_time(_played(run, bins, task_id), bins, episodes=20)
    return charts.sparkline([(end, score.rate) for end, score in scores], _span(bins))


def task(task_id: str) -> WebPage:
    """One task: what is known and was decided about it."""

    def facts(run: RunView) -> str:
        report = _report(run, task_id)
        demonstrations = run.store.demonstrations(task_id)
        return render("_task.html", report=report, state=state(report), demonstrations=demonstrations)

    def curve(run: RunView) -> str:
        bins = _bins(run, None)
        drawn = _success(_played(run, bins, task_id), bins)
        return render("_charts.html", charts=(drawn,), windows=(), window="")

    def decisions(run: RunView) -> str:
        made = run.store.decisions(task_id, limit=DECISIONS_MAX)
        return render("_decisions.html", decisions=list(reversed(made)), words=decision_text)

    def played(run: RunView) -> str:
        found = run.store.trajectory_page(TrajectoryFilter(task_id=task_id), TASK_TRAJECTORIES)
        return render(
            "_trajectories.html", rows=found, success=run.config.curation.success_above, with_task=False
        )

    parts = (
        HEAD,
        PagePart("facts", 2.0, facts),
        PagePart("charts", 5.0, curve),
        PagePart("decisions", 3.0, decisions),
        PagePart("played", 3.0, played),
    )
    return WebPage(task_id, "tasks", parts)


def _report(run: RunView, task_id: str) -> TaskReport:
    found = next((one for one in task_reports(run.store, run.config) if one.task_id == task_id), None)
    if found is None:
        raise UsageError(f"the run has no task {task_id!r}")
    return found


# ---- which page ----


def page_of(name: str, values: Mapping[str, str]) -> WebPage:
    """The page of an address. Raises UsageError for one that does not exist."""
    match name:
        case "head":
            return WebPage("", "", (HEAD,))
        case "overview":
            return overview(values.get("window", "all"))
        case "tree":
            return tree()
        case "actor":
            return actor(values.get("name", ""))
        case "tasks":
            return tasks()
        case "task":
            return task(values.get("id", ""))
    raise UsageError(f"there is no page {name!r} that follows the run")
