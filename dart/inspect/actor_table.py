"""The actors of a run, from the board, the process table and the supervisors' reports: never from themselves.

Works while every one of them hangs, and needs neither the record nor the configuration's models, so that
`tree`, `top` and completion answer at once.
"""

import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from actors.board import LAUNCHER, ActorState, Vitals, rows_of
from dart.core.errors import NotRunningError, UsageError
from dart.core.run_directory import RunPaths, mail_dir
from dart.inspect.exit_reports import restarts_by_child
from dart.inspect.mailboxes import Mailbox, read_mailboxes
from dart.inspect.processes import GONE, Process, ProcessState, look
from dart.inspect.snapshot import ActorRow
from dart.telemetry.gauges import Gauge

NO_MAILBOXES: Mapping[tuple[int, int], Mailbox] = MappingProxyType({})

_WAITING = frozenset({ActorState.BACKOFF, ActorState.QUARANTINED})
_WITHOUT_PROCESS = _WAITING | {ActorState.STOPPED, ActorState.FAILED, ActorState.FREE}


def read_actors(run_dir: Path) -> tuple[ActorRow, ...]:
    """Every actor of the run in a directory, in the order they were started.

    raises    NotRunningError where no run has left a board
    """
    paths = RunPaths(run_dir)
    if not paths.board.exists():
        raise NotRunningError(f"the run in {run_dir} has no board of its actors: it never came to start any")
    return actor_rows(
        run_dir,
        rows_of(paths.board),
        windows_s(written_config(run_dir)),
        mailboxes=read_mailboxes(mail_dir(run_dir)),
    )


def is_of_earlier_part(paths: RunPaths) -> bool:
    """Whether the board was left there before the run was taken by who holds it: its tree is not up yet."""
    if not paths.board.exists():
        return False
    root = next((row for row in rows_of(paths.board) if row.parent == LAUNCHER), None)
    return root is None or root.started_unix_s < paths.lock.stat().st_mtime


def written_config(run_dir: Path) -> Mapping[str, Any]:
    """The resolved configuration as the run wrote it down, unchecked: its models cost a tenth of a second."""
    try:
        return tomllib.loads(RunPaths(run_dir).config.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotRunningError(
            f"there is no run in {run_dir}: it has no config.toml; name the directory of one with --run-dir"
        ) from None


def windows_s(config: Mapping[str, Any]) -> Mapping[str, float]:
    """The window of each supervisor's restart budget."""
    limits: Mapping[str, Any] = config.get("supervision", {})
    return {name: each["max_seconds"] for name, each in limits.items() if "max_seconds" in each}


def actor_rows(
    run_dir: Path,
    vitals: Sequence[Vitals],
    windows: Mapping[str, float],
    now_unix_s: float | None = None,
    mailboxes: Mapping[tuple[int, int], Mailbox] = NO_MAILBOXES,
) -> tuple[ActorRow, ...]:
    """What the board, the kernel and the reports say of each actor.

    windows     of the supervisors' restart budgets, in seconds
    mailboxes   by slot and incarnation, where they were looked at
    """
    now_s = time.time() if now_unix_s is None else now_unix_s
    shown = [row for row in vitals if is_shown(row)]
    recent: Counter[str] = Counter()
    for supervisor in {row.parent for row in shown} & windows.keys():
        recent += restarts_by_child(run_dir, supervisor, now_s - windows[supervisor])
    return tuple(
        _row(
            row,
            recent[row.name],
            windows.get(row.parent, 0.0),
            now_s,
            mailboxes.get((row.slot, row.incarnation)),
        )
        for row in shown
    )


def is_shown(row: Vitals) -> bool:
    """Not who only asks, nor who was forgotten; a child's second row while a process is in it."""
    is_unused_second = row.name.endswith("~") and row.state is ActorState.STOPPED
    return bool(row.parent) and row.state is not ActorState.FREE and not is_unused_second


def _row(row: Vitals, recent: int, window_s: float, now_s: float, mailbox: Mailbox | None) -> ActorRow:
    process = process_of(row)
    has_process = row.state not in _WITHOUT_PROCESS and process is not GONE
    return ActorRow(
        name=row.name,
        parent="" if row.parent == LAUNCHER else row.parent,
        state=row.state.value,
        pid=row.pid,
        incarnation=row.incarnation,
        ready=row.ready,
        beat_age_s=row.beat_age_s or 0.0,
        busy_s=row.busy_s or 0.0,
        handler=row.handler if row.busy_s else "",
        messages=row.messages,
        restarts=row.restarts,
        last_reason=row.last_reason,
        restarts_in_window=recent,
        window_s=window_s,
        age_s=max(0.0, now_s - row.started_unix_s) if has_process and row.started_unix_s else None,
        retry_in_s=max(0.0, row.retry_unix_s - now_s) if row.state in _WAITING else None,
        work=row.work if row.work_s else "",
        work_s=row.work_s or 0.0,
        unsent=row.unsent,
        refused=row.refused,
        mailbox_bytes=None if mailbox is None else mailbox.waiting_bytes,
        mailbox_senders=None if mailbox is None else mailbox.new_senders,
        last_error=row.last_error,
        process=process.state.value,
        rss_bytes=process.rss_bytes,
        cpu_s=process.cpu_s,
    )


def process_of(row: Vitals) -> Process:
    """The process in a row; one on another machine, or not forked yet, is taken for alive."""
    if row.state in _WITHOUT_PROCESS:
        return GONE
    if row.route or not row.pid:
        return Process(ProcessState.ALIVE)
    return look(row.pid, row.pid_start_ticks)


def serving(vitals: Iterable[Vitals]) -> Mapping[str, int]:
    """The engines that answer requests now, to the policy version they answer with."""
    return {
        row.name: row.gauges[Gauge.SERVED_VERSION]
        for row in vitals
        if row.name.startswith("rollout-")
        and (row.state, row.ready) == (ActorState.RUNNING, True)
        and process_of(row) is not GONE
    }


# ---- choosing ----


def under(actors: Iterable[ActorRow], name: str) -> list[ActorRow]:
    """An actor and everybody below it."""
    rows = list(actors)
    wanted = {name}
    while len(wider := wanted | {row.name for row in rows if row.parent in wanted}) > len(wanted):
        wanted = wider
    return [row for row in rows if row.name in wanted]


UNWELL = "unwell"
"""In no state in which it could work."""


def in_state(actors: Iterable[ActorRow], state: str) -> list[ActorRow]:
    """Those in one state, or all that are unwell.

    raises    UsageError for what is no state
    """
    known = [*(one.value for one in ActorState if one is not ActorState.FREE), UNWELL]
    if state not in known:
        raise UsageError(f"there is no state {state!r}; the states are {', '.join(known)}")
    return [row for row in actors if (not row.is_well if state == UNWELL else row.state == state)]


def find_actor(name: str, actors: Sequence[ActorRow]) -> ActorRow:
    """The actor of this name.

    raises    UsageError with the names that look like it
    """
    import difflib

    for row in actors:
        if row.name == name:
            return row
    similar = difflib.get_close_matches(name, [row.name for row in actors], n=2, cutoff=0.55)
    hint = f"; did you mean {' or '.join(similar)}?" if similar else "; 'dartrl actors list' shows them all"
    raise UsageError(f"the run has no actor {name!r}{hint}")


def is_running(actors: Iterable[ActorRow]) -> bool:
    """Whether any process of them is there."""
    return any(row.process != ProcessState.GONE for row in actors)
