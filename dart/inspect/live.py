"""Show a run while it runs: as one live view on a terminal, as plain lines anywhere else.

Everything here turns a `RunSnapshot` into text. Nothing reads the run or decides anything.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

from rich.cells import cell_len
from rich.columns import Columns
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from actors.board import LIVING
from dart.core.records import RunPhase
from dart.inspect import success_windows
from dart.inspect.actor_table import by_urgency, in_tree_order
from dart.inspect.formatting import DASH, activity, age, counts, duration, percent, size, state_text
from dart.inspect.processes import UNREACHABLE
from dart.inspect.sidecar_status import Sidecar
from dart.inspect.snapshot import ActorRow, RunSnapshot, TaskRow
from dart.inspect.tables import ACTIVITY, ACTOR, RESTARTS, STATE, Column, styled_state, table
from dart.inspect.terminal_safe import Printable, one_line

LINE_EVERY_S = 10.0
"""Time between two plain lines: a run of 20 minutes prints 120 lines."""

ROWS_MAX = 24
"""How many actors, and how many tasks, the live view and `dartrl status` list at most. Unwell actors, and
tasks in quarantine, come first; the rest is only counted."""

DOING_MAX = 36
"""Width of the column that says what an actor does, so that both tables fit side by side."""

COLUMNS_APART = 4

NAMES_MAX = 3
"""How many starting actors the first line of `dartrl status` names at most."""


@contextmanager
def open_view(
    console: Console, *, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[RunSnapshot], None]]:
    """Yield a function that shows a run's snapshots as they come.

    On a terminal the function redraws one view, and the last view stays; elsewhere it prints lines.
    """
    if not console.is_terminal:
        yield PlainLines(console, clock=clock).show
        return
    view = Live(console=console, auto_refresh=False)
    view.start()
    try:
        yield partial(_draw, view)
    finally:
        with suppress(OSError):
            view.stop()


def _draw(view: Live, snapshot: RunSnapshot) -> None:
    """Draw the snapshot. If the terminal was closed, draw nothing: the run learns of this by SIGHUP."""
    with suppress(OSError):
        view.update(Printable(fitted_screen(snapshot, view.console)), refresh=True)


def _without_sizes(notice: str) -> str:
    return re.sub(r"\d[\d.]* ([KMG]i)?B\b", "", notice)


class PlainLines:
    """Prints a line every `LINE_EVERY_S` seconds, and at every change of phase."""

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._printed_s = float("-inf")
        self._phase: RunPhase | None = None
        self._notices: frozenset[str] = frozenset()
        """The notices of the last snapshot, without sizes."""
        self._windows = 0
        """How many success windows have been printed."""

    def show(self, snapshot: RunSnapshot) -> None:
        """Print new notices; print a line if the phase changed or the last line is `LINE_EVERY_S` old."""
        now_s = self._clock()
        self._print_notices(snapshot.notices)
        self._print_windows(snapshot)
        if snapshot.phase is self._phase and now_s - self._printed_s < LINE_EVERY_S:
            return
        self._phase, self._printed_s = snapshot.phase, now_s
        self._print(summary_line(snapshot))

    def _print_notices(self, notices: tuple[str, ...]) -> None:
        """Print each notice when it is new, and a line when the last notice is over.

        A notice of which only a size has changed, such as that of the free space, is not new.
        """
        for notice in notices:
            if _without_sizes(notice) not in self._notices:
                self._print(f"  {notice}")
        if self._notices and not notices:
            self._print("  all notices are over")
        self._notices = frozenset(map(_without_sizes, notices))

    def _print_windows(self, snapshot: RunSnapshot) -> None:
        """Print the success over time whenever another success window has ended."""
        over = [one for one in snapshot.success_windows if one.ends_s <= snapshot.elapsed_s]
        if len(over) > self._windows:
            self._print(f"  {success_windows.text(over, snapshot.base_success_rate)}")
        self._windows = len(over)

    def _print(self, text: str) -> None:
        """Print one line. A full disk or a closed pipe is ignored, because it must not end the run."""
        with suppress(OSError):
            self._console.file.write(f"{one_line(text)}\n")
            self._console.file.flush()


def summary_line(snapshot: RunSnapshot) -> str:
    """Describe a run in one line, for logs."""
    return "  ".join([_elapsed(snapshot), _phase(snapshot), *_figures(snapshot), *_health(snapshot)])


def status(snapshot: RunSnapshot, *, pid: int | None, is_wide: bool = False) -> Group:
    """Draw a run for `dartrl status`: its directory, health and process, and below them its `screen`.

    is_wide   whether every actor is listed and no text is shortened, if there is the width for it
    """
    state = _health_word(snapshot)
    if pid is None:
        is_done = snapshot.phase is RunPhase.DONE and snapshot.conservation.holds and not snapshot.notices
        state = "DONE" if is_done else "NOT RUNNING"
    if snapshot.main_is == UNREACHABLE:
        state = "CANNOT TELL: its control node does not answer"
    elif snapshot.main_is:
        state = f"DEGRADED: its main process is {snapshot.main_is}"
    where = Text.assemble((f"{snapshot.run_dir}  ", "bold"), state, f"  pid {pid}" if pid else "")
    # Of a run that has ended, engines that do not run are no news.
    return Group(where, screen(snapshot if pid else replace(snapshot, engines=()), is_wide=is_wide))


def _health_word(snapshot: RunSnapshot) -> str:
    """Return the word for the health of a run, with the actors that a run waits for which is starting."""
    if snapshot.health != "starting":
        return snapshot.health if snapshot.is_healthy else snapshot.health.upper()
    names = [one.name for one in snapshot.unwell]
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return f"STARTING: {', '.join(names[:NAMES_MAX]) or 'the root supervisor'}{more}"


def screen(snapshot: RunSnapshot, *, is_wide: bool = False) -> RenderableType:
    """Draw a run on one screen: the header, the tasks and the actors.

    is_wide   whether every actor is listed, the tables are one below the other, and no text is shortened
    """
    if is_wide:
        tasks = task_table(snapshot.tasks, rows_max=len(snapshot.tasks), is_wide=True)
        actors = actor_table(snapshot.actors, rows_max=len(snapshot.actors), is_wide=True)
        return Group(header(snapshot), "", tasks, actors)
    return Group(header(snapshot), "", _tables(snapshot, ROWS_MAX, ROWS_MAX))


def _tables(snapshot: RunSnapshot, tasks_max: int, actors_max: int) -> Columns:
    """Draw the tasks and the actors beside each other, or one below the other on a narrow screen."""
    tables = task_table(snapshot.tasks, tasks_max), actor_table(snapshot.actors, rows_max=actors_max)
    return Columns(tables, padding=(0, COLUMNS_APART))


def fitted_screen(snapshot: RunSnapshot, console: Console) -> RenderableType:
    """Draw a run on one screen of a terminal: as many tasks and actors as have room below the header."""
    head = fitted_header(snapshot, console)
    room = max(2, console.height - lines_of(head, console) - 3)  # an empty line, the headings, the rests
    beside = _tables(snapshot, *(min(ROWS_MAX, room),) * 2)
    if lines_of(beside, console) <= room + 2:
        return Group(head, "", beside)
    tasks_max = min(ROWS_MAX, max((room - 2) // 2, room - 2 - len(snapshot.actors), 1))
    actors_max = min(ROWS_MAX, max(room - 2 - min(tasks_max, len(snapshot.tasks)), 1))
    return Group(head, "", _tables(snapshot, tasks_max, actors_max))


def lines_of(drawn: RenderableType, console: Console) -> int:
    """Count the lines that this takes on a terminal."""
    return len(console.render_lines(Printable(drawn), pad=False))


# ---- the header ----


def fitted_header(snapshot: RunSnapshot, console: Console) -> RenderableType:
    """Draw the header for a terminal. If it takes more than half of the lines, remarks become a line each.

    If that is not enough, success over time and the figures of curation are left out, too.
    """
    for drawn in (header(snapshot), header(snapshot, is_short=True)):
        if lines_of(drawn, console) <= console.height // 2:
            return drawn
    return header(snapshot, is_short=True, has_details=False)


def header(snapshot: RunSnapshot, *, is_short: bool = False, has_details: bool = True) -> RenderableType:
    """Draw the phase of the run, its figures, and what is wrong with it.

    is_short      whether each remark on what is wrong is cut to one line; `dartrl status` shows them whole
    has_details   whether success over time and the figures of curation are among the figures
    """
    first = Table.grid(padding=(0, 2))
    first.add_row(Text(_phase(snapshot), style="bold"), _progress(snapshot), Text(_elapsed(snapshot)))
    health = [*_health(snapshot), str(snapshot.conservation)]
    over_time = [text] if (text := success_over_time(snapshot)) else []
    details = [over_time, list(_curation(snapshot))] if has_details else []
    figures = [_figures(snapshot), *details, health]
    remarks = list(_remarks(snapshot))
    for remark in remarks if is_short else ():
        remark.no_wrap, remark.overflow = True, "ellipsis"
    return Group(first, *(Flow(line) for line in figures if line), *remarks)


class Flow:
    """Figures side by side. Lines break between figures; only a figure wider than the screen is split."""

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


def _remarks(snapshot: RunSnapshot) -> Iterator[Text]:
    """Yield a line for each sidecar, each engine that is not healthy, and each notice."""
    yield from map(_sidecar_text, snapshot.sidecars)
    for engine in snapshot.engines:
        if engine.reason:
            yield Text(f"{engine.name} is {engine.state}: {engine.reason}", style="yellow")
    for notice in snapshot.notices:
        yield Text(notice, style="bold yellow")


def _progress(snapshot: RunSnapshot) -> RenderableType:
    if snapshot.budget_s <= 0:
        return Text("")
    completed = min(snapshot.elapsed_s, snapshot.budget_s)
    return ProgressBar(total=snapshot.budget_s, completed=completed, width=30)


def _elapsed(snapshot: RunSnapshot) -> str:
    budget = f"/{duration(snapshot.budget_s)}" if snapshot.budget_s > 0 else ""
    return duration(snapshot.elapsed_s) + budget


def _phase(snapshot: RunSnapshot) -> str:
    if snapshot.evaluation_total == 0:
        return snapshot.phase.value
    return f"{snapshot.phase.value} {snapshot.evaluation_done}/{snapshot.evaluation_total}"


def _figures(snapshot: RunSnapshot) -> list[str]:
    limit = f"/{snapshot.updates_max}" if snapshot.updates_max else ""
    recent = f" ({snapshot.recent} newest)" if snapshot.success_rate is not None else ""
    serving = ", ".join(str(version) for version in sorted(set(snapshot.serving_versions)))
    return [
        f"success {percent(snapshot.success_rate)}{recent}",
        f"updates {snapshot.updates}{limit}",
        f"version {snapshot.policy_version} (serving {serving or DASH})",
        f"trajectories {snapshot.trajectories}",
        f"actions/min {snapshot.actions_per_minute:.0f}",
        f"staleness {_staleness(snapshot)}",
    ]


def success_over_time(snapshot: RunSnapshot) -> str:
    """Return the line about success before, while and after training; empty without training episodes."""
    return success_windows.text(
        snapshot.success_windows,
        snapshot.base_success_rate,
        snapshot.final_success_rate,
        snapshot.final_verdict,
    )


def _staleness(snapshot: RunSnapshot) -> str:
    """Staleness of the newest batch: `0.8 (p50 1, p95 2, max 2)`."""
    if snapshot.staleness_mean is None:
        return DASH
    figures = {"p50": snapshot.staleness_p50, "p95": snapshot.staleness_p95, "max": snapshot.staleness_max}
    known = ", ".join(f"{name} {value:.0f}" for name, value in figures.items() if value is not None)
    return f"{snapshot.staleness_mean:.1f} ({known})"


def _curation(snapshot: RunSnapshot) -> Iterator[str]:
    """Yield averages over tasks, drops by reason, use of the experience pool, and tasks in quarantine."""
    if snapshot.rollouts_mean is not None and snapshot.step_cap_mean is not None:
        yield f"N {snapshot.rollouts_mean:.1f}  step cap {snapshot.step_cap_mean:.1f}"
    if snapshot.steps_mean is not None:
        yield f"steps/episode {snapshot.steps_mean:.1f}"
    if snapshot.drops:
        yield f"dropped {counts(snapshot.drops)}"
    if snapshot.pool_size:
        lacking = snapshot.pool_without_thought
        thoughts = f", {lacking} without a thought" if lacking else ""
        yield f"pool {snapshot.pool_size}, used {snapshot.pool_uses}x{thoughts}"
    if snapshot.parkings:
        yield f"parked {snapshot.parkings}x, {snapshot.parked_now} now"
    if quarantined := sum(bool(task.quarantined) for task in snapshot.tasks):
        yield f"in quarantine {quarantined} of {len(snapshot.tasks)} tasks"


def _health(snapshot: RunSnapshot) -> list[str]:
    faults = ", ".join(f"{kind} {count}" for kind, count in snapshot.faults.items() if count)
    return [f"alive {snapshot.well}/{len(snapshot.actors)}", f"{restarts(snapshot)}  faults {faults or 0}"]


def restarts(snapshot: RunSnapshot) -> str:
    """Say how often actors were restarted; in a run that was continued also since when: `2 since 7:31`."""
    since = f" since {duration(snapshot.used_before_s)}" if snapshot.used_before_s else ""
    return f"restarts {snapshot.restarts}{since}"


# ---- tables ----


def _success(task: TaskRow) -> Text:
    """Format the success rate of a task, in green if it is above the rate of the base policy."""
    rate, base = task.success_rate, task.base_success_rate
    is_better = rate is not None and base is not None and rate > base
    return Text(percent(rate), style="green" if is_better else "")


TASK_COLUMNS: tuple[Column[TaskRow], ...] = (
    Column("task", lambda task: task.task_id),
    Column("base", lambda task: percent(task.base_success_rate), is_number=True),
    Column("now", _success, is_number=True),
    Column("played", lambda task: task.trajectories, is_number=True),
    Column("N", lambda task: task.rollouts or None, is_number=True),
    Column("cap", lambda task: task.step_cap or None, is_number=True),
    Column("", lambda task: Text(task.quarantined, style="bold magenta"), width_max=36),
)


def task_table(tasks: Sequence[TaskRow], rows_max: int, *, is_wide: bool = False) -> Table:
    """Draw a table of tasks, in order. Of more than `rows_max`, those in quarantine come first."""
    if len(tasks) <= rows_max:
        return table(tasks, TASK_COLUMNS, is_wide=is_wide)
    drawn = table(sorted(tasks, key=lambda task: not task.quarantined)[:rows_max], TASK_COLUMNS)
    drawn.add_row(_rest(f"… and {len(tasks) - rows_max} more"))
    return drawn


def actor_table(actors: Iterable[ActorRow], *, rows_max: int = ROWS_MAX, is_wide: bool = False) -> Table:
    """Draw a table of actors, unwell actors first. After `rows_max` rows, count the other actors by state."""
    ordered = by_urgency(actors)
    columns = (ACTOR, STATE, RESTARTS, replace(ACTIVITY, width_max=DOING_MAX))
    drawn = table(ordered[:rows_max], columns, is_wide=is_wide)
    if len(ordered) > rows_max:
        rest = Counter(actor.state for actor in ordered[rows_max:])
        drawn.add_row("…", _rest(counts(rest)), "", "")
    return drawn


def _rest(text: str) -> Text:
    """Make the cell about the rows that are left out. It is one line, as `fitted_screen` assumes."""
    return Text(text, no_wrap=True, overflow="ellipsis")


# ---- the supervision tree, and one actor ----


def _sidecar_text(sidecar: Sidecar) -> Text:
    return Text(f"{sidecar.name}  {sidecar.text}", style="" if sidecar.is_well else "yellow")


def tree(actors: Iterable[ActorRow], sidecars: Sequence[Sidecar] = ()) -> Tree:
    """Draw the supervision tree and, under a node `main process`, the sidecars."""
    branches = [Tree("", hide_root=True, guide_style="dim")]
    for actor, depth in in_tree_order(actors):
        del branches[depth + 1 :]
        branches.append(branches[-1].add(_tree_line(actor)))
    if sidecars:
        main = branches[0].add("main process")
        for sidecar in sidecars:
            main.add(_sidecar_text(sidecar))
    return branches[0]


def _tree_line(actor: ActorRow) -> Text:
    text = Text.assemble(f"{actor.name}  ", styled_state(actor), *(f"  {part}" for part in _vitals(actor)))
    if actor.last_reason:
        text.append(f"  last: {actor.last_reason}", style="dim")
    busy = activity(actor) if actor.state == "running" else ""
    return text.append(f"  {busy}") if busy else text


def _vitals(actor: ActorRow) -> Iterator[str]:
    if actor.retry_in_s is not None:
        yield f"again in {actor.retry_in_s:.0f} s"
    elif actor.pid and actor.state in LIVING:  # of an ended process, another one may have the pid now
        yield f"pid {actor.pid}"
    if actor.age_s is not None:
        yield f"for {age(actor.age_s)}"
    if actor.restarts:
        window = f"{actor.restarts_in_window} in {actor.window_s:.0f} s, " if actor.window_s else ""
        yield f"restarts {window}{actor.restarts} in all"


def vitals(actor: ActorRow) -> list[str]:
    """Describe one actor in a few lines: its state, work, memory, and why it ended the last time."""
    has_process = actor.state in LIVING and actor.process != "gone"
    now = f"now {activity(actor) or 'idle'}; " if has_process else ""
    beat = "no beat yet" if actor.beat_age_s is None else f"last beat {age(actor.beat_age_s)} ago"
    lines = [
        "  ".join([actor.name, state_text(actor), *_vitals(actor)]),
        f"supervisor {actor.parent or 'none: it is the root'}, incarnation {actor.incarnation}",
        f"{now}{beat}; {actor.messages} messages handled, "
        f"{actor.refused} refused, {actor.unsent} could not be sent",
    ]
    if actor.rss_bytes:
        lines.append(f"memory {size(actor.rss_bytes)}, processor time {actor.cpu_s:.1f} s")
    if actor.last_reason:
        lines.append(f"last ended: {actor.last_reason}")
    return lines
