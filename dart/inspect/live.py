"""A run while it runs: one live view on a terminal, plain lines anywhere else.

Everything here turns a `RunSnapshot` into text. Nothing reads the run or decides anything.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Protocol, Self

from rich.cells import cell_len
from rich.columns import Columns
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from dart.inspect.sidecar_status import Sidecar
from dart.inspect.snapshot import ActorRow, EngineRow, Phase, RunSnapshot, TaskRow
from dart.inspect.terminal_safe import Printable, one_line
from dart.telemetry.liveness import ACTOR_SILENT_S

LINE_EVERY_S = 10.0
"""Time between plain lines: a run of 20 minutes is 120 of them."""

ROWS_MAX = 24
"""Actors in the live view; the unwell ones come first, the rest is counted."""

STATE_STYLES = {
    "running": "green",
    "starting": "cyan",
    "backoff": "yellow",
    "failed": "bold red",
    "quarantined": "bold magenta",
}


class View(Protocol):
    """Shows a run's snapshots as they come."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def show(self, snapshot: RunSnapshot) -> None: ...


def open_view(console: Console, *, clock: Callable[[], float] = time.monotonic) -> View:
    """The live view on a terminal, plain lines elsewhere."""
    return LiveView(console) if console.is_terminal else PlainLines(console, clock=clock)


class PlainLines:
    """One line every `LINE_EVERY_S` seconds, and at every change of phase."""

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._printed_s = float("-inf")
        self._phase: Phase | None = None
        self._notices: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None

    def show(self, snapshot: RunSnapshot) -> None:
        """Print the snapshot when it is time."""
        now_s = self._clock()
        self._say(snapshot.notices)
        if snapshot.phase is self._phase and now_s - self._printed_s < LINE_EVERY_S:
            return
        self._phase, self._printed_s = snapshot.phase, now_s
        self._print(line(snapshot))

    def _say(self, notices: tuple[str, ...]) -> None:
        """A notice when it is new, and that there is none any more."""
        for notice in notices:
            if notice not in self._notices:
                self._print(f"  {notice}")
        if self._notices and not notices:
            self._print("  nobody starves any more")
        self._notices = notices

    def _print(self, text: str) -> None:
        """A disk that is full, where the output of a run is kept, or whoever read it and left, must not end
        the run."""
        with suppress(OSError):
            self._console.file.write(f"{one_line(text)}\n")
            self._console.file.flush()


class LiveView:
    """The whole run on one screen, drawn in place; the last picture stays."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with suppress(OSError):
            self._live.stop()

    def show(self, snapshot: RunSnapshot) -> None:
        """Draw the snapshot. A terminal that was closed costs the picture; the run is told by its SIGHUP."""
        with suppress(OSError):
            self._live.update(Printable(screen(snapshot)), refresh=True)


def line(snapshot: RunSnapshot) -> str:
    """One run in one line, for logs."""
    parts = [f"{_clock_text(snapshot)}  {_phase(snapshot)}", *_figures(snapshot)]
    return "  ".join([*parts, f"alive {snapshot.well}/{len(snapshot.actors)}", _restarts(snapshot)])


def screen(snapshot: RunSnapshot) -> RenderableType:
    """One run on one screen."""
    tables = [task_table(snapshot.tasks), actor_table(snapshot.actors)]
    return Group(head(snapshot), "", Columns(tables, padding=(0, 4)))  # one below the other when narrow


def head(snapshot: RunSnapshot) -> RenderableType:
    """What the run is at, its figures, and what is wrong."""
    head = Table.grid(padding=(0, 2))
    head.add_row(Text(f"{_phase(snapshot)}", style="bold"), _progress(snapshot), Text(_clock_text(snapshot)))
    lines = [Flow(figures) for figures in (_figures(snapshot), _curation(snapshot)) if figures]
    engines = [_engine_text(engine) for engine in snapshot.engines if engine.reason]
    notices = [Text(notice, style="bold yellow") for notice in snapshot.notices]
    beside = [_sidecar_text(sidecar) for sidecar in snapshot.sidecars]
    return Group(head, *lines, Flow(_health(snapshot)), *beside, *engines, *notices)


class Flow:
    """Figures beside one another; a line ends between two of them, where it can."""

    def __init__(self, figures: Sequence[str]) -> None:
        self._figures = figures

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        line = ""
        for figure in self._figures:
            longer = f"{line}  {figure}" if line else figure
            if line and cell_len(longer) > options.max_width:
                yield Text(line)
                longer = figure
            line = longer
        yield Text(line)


def _sidecar_text(sidecar: Sidecar) -> Text:
    """Where the page is to be found, or why not."""
    return Text(f"{sidecar.name}  {sidecar.text}", style="" if sidecar.is_well else "yellow")


def _engine_text(engine: EngineRow) -> Text:
    """An engine that does not answer as it should."""
    return Text(f"{engine.name} is {engine.state}: {engine.reason}", style="yellow")


def _curation(snapshot: RunSnapshot) -> list[str]:
    """What curation does: averages over tasks, what was dropped and why, the pool, who rests."""
    figures = []
    if snapshot.rollouts_mean is not None and snapshot.step_cap_mean is not None:
        figures.append(f"N {snapshot.rollouts_mean:.1f}  step cap {snapshot.step_cap_mean:.1f}")
    if snapshot.steps_mean is not None:
        figures.append(f"steps/episode {snapshot.steps_mean:.1f}")
    if snapshot.drops:
        figures.append(f"dropped {in_words(snapshot.drops)}")
    if snapshot.pool_size:
        lacking = snapshot.pool_without_thought
        thoughts = f", {lacking} without a thought" if lacking else ""
        figures.append(f"pool {snapshot.pool_size}, used {snapshot.pool_uses}x{thoughts}")
    if snapshot.parkings:
        figures.append(f"parked {snapshot.parkings}x, {snapshot.parked_now} now")
    quarantined = sum(bool(task.quarantined) for task in snapshot.tasks)
    return (
        [*figures, f"in quarantine {quarantined} of {len(snapshot.tasks)} tasks"] if quarantined else figures
    )


def in_words(counts: Mapping[str, int]) -> str:
    """`21 no_spread, 1 too_few`, the most first."""
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda one: -one[1]))


def _progress(snapshot: RunSnapshot) -> RenderableType:
    if snapshot.budget_s <= 0:
        return Text("")
    return ProgressBar(
        total=snapshot.budget_s, completed=min(snapshot.elapsed_s, snapshot.budget_s), width=30
    )


def _clock_text(snapshot: RunSnapshot) -> str:
    budget = f"/{duration(snapshot.budget_s)}" if snapshot.budget_s > 0 else ""
    return duration(snapshot.elapsed_s) + budget


def _phase(snapshot: RunSnapshot) -> str:
    if snapshot.evaluation_total == 0:
        return snapshot.phase.value
    return f"{snapshot.phase.value} {snapshot.evaluation_done}/{snapshot.evaluation_total}"


def _figures(snapshot: RunSnapshot) -> list[str]:
    limit = f"/{snapshot.updates_max}" if snapshot.updates_max else ""
    recent = f" ({snapshot.recent} newest)" if snapshot.success_rate is not None else ""
    return [
        f"success {percent(snapshot.success_rate)}{recent}",
        f"updates {snapshot.updates}{limit}",
        f"version {snapshot.policy_version} (serving {_versions(snapshot.serving_versions)})",
        f"trajectories {snapshot.trajectories}",
        f"actions/min {snapshot.actions_per_minute:.0f}",
        f"staleness {_staleness(snapshot)}",
    ]


def _staleness(snapshot: RunSnapshot) -> str:
    """`0.8 (p50 1, p95 2, max 2)`, of the newest batch."""
    if snapshot.staleness_mean is None:
        return "–"
    figures = {"p50": snapshot.staleness_p50, "p95": snapshot.staleness_p95, "max": snapshot.staleness_max}
    known = ", ".join(f"{name} {value:.0f}" for name, value in figures.items() if value is not None)
    return f"{snapshot.staleness_mean:.1f} ({known})"


def _versions(versions: Iterable[int]) -> str:
    return ", ".join(str(version) for version in sorted(set(versions))) or "–"


def _health(snapshot: RunSnapshot) -> list[str]:
    return [f"alive {snapshot.well}/{len(snapshot.actors)}", _restarts(snapshot), str(snapshot.conservation)]


def _restarts(snapshot: RunSnapshot) -> str:
    faults = ", ".join(f"{kind} {count}" for kind, count in snapshot.faults.items() if count)
    return f"restarts {snapshot.restarts}  faults {faults or 0}"


def task_table(tasks: Iterable[TaskRow]) -> Table:
    """Success of each task among its newest trajectories."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("task", no_wrap=True)
    for name in ("base", "now", "played", "N", "cap"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, overflow="ellipsis", max_width=36)
    for task in tasks:
        now = Text(percent(task.success_rate), style=_rate_style(task))
        next_group = [str(number or "–") for number in (task.rollouts, task.step_cap)]
        rest = Text(task.quarantined, style="bold magenta")
        table.add_row(
            task.task_id, percent(task.base_success_rate), now, str(task.trajectories), *next_group, rest
        )
    return table


def _rate_style(task: TaskRow) -> str:
    if task.success_rate is None or task.base_success_rate is None:
        return ""
    return "green" if task.success_rate > task.base_success_rate else ""


def actor_table(actors: Iterable[ActorRow], *, rows_max: int = ROWS_MAX) -> Table:
    """Who is alive and what it does; the unwell first."""
    ordered = sorted(actors, key=lambda actor: actor.is_well)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("actor", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("restarts", justify="right", no_wrap=True)
    table.add_column("doing", no_wrap=True, overflow="ellipsis", max_width=36)
    for actor in ordered[:rows_max]:
        table.add_row(actor.name, state_text(actor), str(actor.restarts), doing(actor))
    if len(ordered) > rows_max:
        rest = Counter(actor.state for actor in ordered[rows_max:])
        table.add_row("…", ", ".join(f"{count} {state}" for state, count in rest.items()), "", "")
    return table


def state_text(actor: ActorRow) -> Text:
    """The state in its colour; one that runs and cannot work says so."""
    if actor.state == "running" and actor.process != "alive":
        return Text(f"running, {actor.process}", style="bold red")
    waiting = actor.state == "running" and not actor.ready
    text = "running, not ready" if waiting else actor.state
    return Text(text, style="yellow" if waiting else STATE_STYLES.get(actor.state, ""))


def doing(actor: ActorRow) -> str:
    """What it is busy with and for how long; for one that is not up, why."""
    if actor.state not in ("running", "starting", "stopping"):
        return actor.last_reason
    if actor.process == "gone":
        return ""
    if actor.beat_age_s > ACTOR_SILENT_S:
        return f"no beat for {age(actor.beat_age_s)}" + (f", in {actor.handler}" if actor.handler else "")
    if actor.handler:
        return f"{actor.handler} {actor.busy_s:.1f} s"
    return f"{actor.work} {actor.work_s:.1f} s" if actor.work else ""


def restarts(actor: ActorRow) -> str:
    """`2/7`: in the window of its supervisor's budget, and in all; empty when there were none."""
    return f"{actor.restarts_in_window}/{actor.restarts}" if actor.restarts else ""


def tree(actors: Iterable[ActorRow]) -> Tree:
    """The supervision tree."""
    rows = list(actors)
    names = {actor.name for actor in rows}
    root = Tree("", hide_root=True, guide_style="dim")
    roots = [actor for actor in rows if actor.parent not in names or actor.parent == actor.name]
    for actor in roots:
        _grow(root, actor, rows)
    return root


def _grow(branch: Tree, actor: ActorRow, rows: list[ActorRow]) -> None:
    twig = branch.add(_tree_line(actor))
    for child in rows:
        if child.parent == actor.name and child is not actor:
            _grow(twig, child, rows)


def _tree_line(actor: ActorRow) -> Text:
    text = Text.assemble(f"{actor.name}  ", state_text(actor), *(f"  {part}" for part in _vitals(actor)))
    if actor.last_reason:
        text.append(f"  last: {actor.last_reason}", style="dim")
    if actor.mailbox_bytes is not None and mailbox(actor):
        text.append(f"  mailbox {mailbox(actor)}")
    busy = doing(actor) if actor.state == "running" else ""
    return text.append(f"  {busy}") if busy else text


def _vitals(actor: ActorRow) -> Iterator[str]:
    if actor.retry_in_s is not None:
        yield f"again in {actor.retry_in_s:.0f} s"
    elif actor.pid:
        yield f"pid {actor.pid}"
    if actor.age_s is not None:
        yield f"for {age(actor.age_s)}"
    if actor.restarts:
        window = f"{actor.restarts_in_window} in {actor.window_s:.0f} s, " if actor.window_s else ""
        yield f"restarts {window}{actor.restarts} in all"


def mailbox(actor: ActorRow) -> str:
    """What was sent to it and not read yet: `1.2 KiB`, `0 B and 2 new senders`; empty when nothing was."""
    if actor.mailbox_bytes is None:
        return "unknown" if actor.state == "running" else ""
    senders = actor.mailbox_senders or 0
    if not (actor.mailbox_bytes or senders):
        return ""
    waiting = size(actor.mailbox_bytes)
    return f"{waiting} and {senders} new sender{'s' * (senders > 1)}" if senders else waiting


def size(count_bytes: float) -> str:
    """`812 B`, `1.2 KiB`, `3.4 MiB`, `2.0 GiB`."""
    for unit, bytes_each in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count_bytes >= bytes_each:
            return f"{count_bytes / bytes_each:.1f} {unit}"
    return f"{count_bytes:.0f} B"


def vitals(actor: ActorRow) -> list[str]:
    """One actor in a few lines."""
    last = age(actor.beat_age_s)
    lines = [
        "  ".join([actor.name, state_text(actor).plain, *_vitals(actor)]),
        f"supervisor {actor.parent or 'none: it is the root'}, incarnation {actor.incarnation}",
        f"now {doing(actor) or 'idle'}; last beat {last} ago; {actor.messages} messages handled, "
        f"{actor.refused} refused, {actor.unsent} could not be sent; mailbox {mailbox(actor) or 'empty'}",
    ]
    if actor.rss_bytes:
        lines.append(f"memory {actor.rss_bytes / 2**20:.0f} MiB, processor time {actor.cpu_s:.1f} s")
    if actor.last_reason:
        lines.append(f"last ended: {actor.last_reason}")
    return lines


def status(snapshot: RunSnapshot, *, pid: int | None, main_is: str = "") -> Group:
    """One run for `dartrl status`: the same screen with where it is and whether it runs.

    main_is   what is wrong with its main process: suspended or gone
    """
    state = "NOT RUNNING" if pid is None else snapshot.health if snapshot.is_healthy else "DEGRADED"
    if main_is:
        state = f"DEGRADED: its main process is {main_is}"
    where = Text.assemble((f"{snapshot.run_dir}  ", "bold"), state, f"  pid {pid}" if pid else "")
    # Of a run that has ended, engines that do not run are no news.
    return Group(where, screen(snapshot if pid else replace(snapshot, engines=())))


def percent(rate: float | None) -> str:
    """A rate for people; a dash when there is none."""
    return "–" if rate is None else f"{100 * rate:.0f} %"


def age(seconds: float | None) -> str:
    """`12s`, `3m12s`, `2h04m`, `3d07h`; a dash when there is none."""
    if seconds is None:
        return "–"
    whole = int(seconds)
    for unit_s, unit, below_s, below in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= unit_s:
            return f"{whole // unit_s}{unit}{whole % unit_s // below_s:02d}{below}"
    return f"{whole}s"


def duration(seconds: float) -> str:
    """`3:07`, `1:03:07`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
