"""Read the actors of a run from the board, the process table and the supervisors' reports.

No actor is asked, so this works while all actors hang. To keep `dartrl tree`, `dartrl actors` and shell
completion fast, this module does not read the record and does not import the Pydantic models of the
configuration.
"""

import json
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from actors.board import LAUNCHER, LIVING, WAITING, ActorState, Vitals, rows_of
from actors.process import start_ticks
from dart.core.errors import ConfigurationError, NotRunningError, UsageError
from dart.core.run_directory import RunPaths
from dart.inspect.exit_reports import ancestors_of, restarts_by_child
from dart.inspect.processes import GONE, Process, ProcessState, ProcessTable, process_at, table_of
from dart.inspect.snapshot import ActorRow
from dart.telemetry.board_gauges import Gauge


def read_actors(run_dir: Path) -> tuple[ActorRow, ...]:
    """Read every actor of the run in a directory, in the order in which the actors were started.

    raises    NotRunningError if the directory has no config.toml or no board, ConfigurationError if its
              config.toml is damaged
    """
    paths = RunPaths(run_dir)
    if not paths.board.exists():
        raise NotRunningError(
            f"the run in {run_dir} has no board of its actors: the run ended before it started any actor"
        )
    return actor_rows(run_dir, rows_of(paths.board), windows_s(written_config(run_dir)))


def is_of_earlier_part(paths: RunPaths, pid: int | None) -> bool:
    """Whether an earlier start of the run wrote the board, so that no actor of the present start is on it.

    A start takes the lock, creates its board, and names its launcher in processes.json once the root is up.
    The file is deleted when the actors have ended. So it names the holder of the lock while actors are up.
    Without the file the run is starting or ending, and the start time of the root decides. No wall clock is
    read, because a clock may be set back.

    pid   the holder of the lock; 0 if it has not written its pid yet, None if the run is not running
    """
    if pid is None or not paths.board.exists():
        return False
    holder_ticks = 0 if paths.mirror_of.exists() else start_ticks(pid)
    launcher = _launcher(paths)
    if launcher is not None:
        launcher_pid, ticks = launcher
        is_reused_pid = 0 not in (ticks, holder_ticks) and ticks != holder_ticks
        return launcher_pid != pid or is_reused_pid
    root = next((row for row in rows_of(paths.board) if row.parent == LAUNCHER), None)
    return pid == 0 or root is None or root.pid_start_ticks < holder_ticks


def starting(paths: RunPaths, pid: int | None) -> str:
    """Return a text which says that the run is starting; empty if its board is not `is_of_earlier_part`.

    pid   the holder of the lock; 0 if it has not written its pid yet, None if the run is not running
    """
    if not is_of_earlier_part(paths, pid):
        return ""
    who = f" as process {pid}" if pid else ""
    return f"the run in {paths.title} is starting{who}; none of its actors is up yet"


def _launcher(paths: RunPaths) -> tuple[int, int] | None:
    """Return pid and start time in ticks of the launcher in processes.json; None if no actors are up."""
    try:
        pid, ticks = json.loads((paths.root / "processes.json").read_bytes())["launcher"]
    except (FileNotFoundError, KeyError, TypeError, ValueError):  # none, or not written to its end
        return None
    return int(pid), int(ticks)


def written_config(run_dir: Path) -> Mapping[str, Any]:
    """Read the resolved configuration of a run. It is not validated, because validation takes 0.1 s.

    raises    NotRunningError if the directory has no config.toml, ConfigurationError if the file is damaged
    """
    path = RunPaths(run_dir).config
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigurationError(f"{path} is damaged: {error}; restore it from a copy") from error
    except FileNotFoundError:
        raise NotRunningError(
            f"there is no run in {run_dir}, because it has no config.toml; "
            "name the directory of a run with --run-dir"
        ) from None


def windows_s(config: Mapping[str, Any]) -> Mapping[str, float]:
    """Return the window of each supervisor's restart budget in seconds, by the supervisor's name."""
    limits: Mapping[str, Any] = config.get("supervision", {})
    return {name: each["max_seconds"] for name, each in limits.items() if "max_seconds" in each}


def actor_rows(
    run_dir: Path,
    vitals: Sequence[Vitals],
    windows: Mapping[str, float],
    now_unix_s: float | None = None,
) -> tuple[ActorRow, ...]:
    """Combine what the board, the kernel and the supervisors' reports say of each actor.

    windows      for each supervisor, the window of its restart budget in seconds
    now_unix_s   the present time; None for the time of the system's clock
    """
    now_s = time.time() if now_unix_s is None else now_unix_s
    shown = [row for row in vitals if is_shown(row)]
    recent: Counter[str] = Counter()
    table = table_of(run_dir)
    # Reports of earlier starts of the run are kept, but each start begins with the whole budget.
    began_s = min((row.started_unix_s for row in shown if row.parent == LAUNCHER), default=0.0)
    for supervisor in {row.parent for row in shown} & windows.keys():
        recent += restarts_by_child(run_dir, supervisor, max(began_s, now_s - windows[supervisor]))
    return tuple(
        _row(row, process_of(row, table), recent[row.name], windows.get(row.parent, 0.0), now_s)
        for row in shown
    )


def is_shown(row: Vitals) -> bool:
    """Whether a row of the board shows an actor.

    A row that is free shows no actor, nor does the row of a client: a process that sends asks but is no
    actor.
    """
    return bool(row.parent) and row.state is not ActorState.FREE


def _row(row: Vitals, process: Process, recent: int, window_s: float, now_s: float) -> ActorRow:
    has_process = row.state in LIVING and process is not GONE
    # The board keeps what an actor did when it ended, and since when.
    busy_s, work_s = (row.busy_s or 0.0, row.work_s or 0.0) if has_process else (0.0, 0.0)
    is_dated = row.state in WAITING and row.retry_unix_s > 0  # it is 0 while an outage holds the actor back
    return ActorRow(
        name=row.name,
        parent="" if row.parent == LAUNCHER else row.parent,
        state=row.state.value,
        pid=row.pid,
        incarnation=row.incarnation,
        ready=row.ready,
        beat_age_s=row.beat_age_s,
        busy_s=busy_s,
        handler=row.handler if busy_s else "",
        messages=row.messages,
        restarts=row.restarts,
        last_reason=row.last_reason,
        restarts_in_window=recent,
        window_s=window_s,
        age_s=max(0.0, now_s - row.started_unix_s) if has_process and row.started_unix_s else None,
        retry_in_s=max(0.0, row.retry_unix_s - now_s) if is_dated else None,
        work=row.work if work_s else "",
        work_s=work_s,
        unsent=row.unsent,
        refused=row.refused,
        last_error=row.last_error,
        process=process.state.value,
        rss_bytes=process.rss_bytes,
        cpu_s=process.cpu_s,
    )


def process_of(row: Vitals, table: ProcessTable = process_at) -> Process:
    """Return the process of an actor; `GONE` if the actor has none in its present state.

    A process on another node, or one that is not forked yet, counts as alive.
    """
    if row.state not in LIVING:
        return GONE
    if row.route or not row.pid:
        return Process(ProcessState.ALIVE)
    return table(row.pid, row.pid_start_ticks)


def serving(vitals: Iterable[Vitals], run_dir: Path) -> Mapping[str, int]:
    """Return the policy version of each engine that takes requests now, by the engine's name."""
    table = table_of(run_dir)
    return {
        row.name: row.gauges[Gauge.SERVED_VERSION]
        for row in vitals
        if row.name.startswith("rollout-")
        and (row.state, row.ready) == (ActorState.RUNNING, True)
        and process_of(row, table) is not GONE
    }


# ---- choosing ----


def under(actors: Iterable[ActorRow], name: str) -> list[ActorRow]:
    """Choose an actor and all actors below it in the tree."""
    rows = list(actors)
    parents = {row.name: row.parent for row in rows}
    return [row for row in rows if name in (row.name, *ancestors_of(row.name, parents))]


def by_urgency(actors: Iterable[ActorRow]) -> list[ActorRow]:
    """Sort actors: those that cannot work first, and in both parts the environments last.

    A run has one trainer and hundreds of environments, so a list that is cut must not begin with them.
    """
    return sorted(actors, key=lambda actor: (actor.is_well, actor.name.startswith("env-")))


def in_tree_order(actors: Iterable[ActorRow]) -> list[tuple[ActorRow, int]]:
    """Return every actor and its depth in the tree: each below its supervisor, in start order.

    An actor whose supervisor is not among `actors` has depth 0, so that no actor is left out.
    """
    rows = list(actors)
    names = {actor.name for actor in rows}
    children: defaultdict[str, list[ActorRow]] = defaultdict(list)
    for actor in rows:
        children[actor.parent].append(actor)

    def below(actor: ActorRow, depth: int) -> Iterator[tuple[ActorRow, int]]:
        yield actor, depth
        for child in children[actor.name]:
            if child is not actor:
                yield from below(child, depth + 1)

    tops = [actor for actor in rows if actor.parent not in names or actor.parent == actor.name]
    return [pair for actor in tops for pair in below(actor, 0)]


UNWELL = "unwell"
"""A word that `in_state` takes in place of a state: it means every actor that is not `ActorRow.is_well`."""


def in_state(actors: Iterable[ActorRow], state: str) -> list[ActorRow]:
    """Choose the actors that are in one state; with the word `unwell`, all actors that cannot work.

    raises    UsageError for an unknown state
    """
    known = [*(one.value for one in ActorState if one is not ActorState.FREE), UNWELL]
    if state not in known:
        raise UsageError(f"there is no state {state!r}; the states are {', '.join(known)}")
    return [row for row in actors if (not row.is_well if state == UNWELL else row.state == state)]


def find_actor(name: str, actors: Sequence[ActorRow]) -> ActorRow:
    """Find the actor of this name.

    raises    UsageError if there is none; the message suggests similar names
    """
    from dart.core.suggestions import did_you_mean, near

    for row in actors:
        if row.name == name:
            return row
    hint = did_you_mean(near(name, [row.name for row in actors]))
    raise UsageError(f"the run has no actor {name!r}{hint or '; `dartrl actors list` shows them all'}")
