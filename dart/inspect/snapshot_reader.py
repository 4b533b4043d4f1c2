"""Read the state of a run from the board and the record. Actors, which may hang, are not asked."""

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Self

from actors.board import ActorState, Vitals, rows_of
from dart.config.alarm_names import LearningAlarm
from dart.config.config import Config, kept_config
from dart.core.errors import NotRunningError
from dart.core.records import NO_EVENTS, EvaluationPhase, EventCounts, RunPhase
from dart.core.run_directory import RunPaths, holder
from dart.core.statistics import Score, mean_rate
from dart.curation.alarm_monitor import raised_alarms
from dart.curation.run_phases import RunPlan, phase_now
from dart.inference.engine_state import state_of
from dart.inspect.actor_table import actor_rows, is_shown, serving, windows_s
from dart.inspect.evaluation_scores import scores, still_missing
from dart.inspect.notices import notices
from dart.inspect.processes import state_of_main
from dart.inspect.report import EvaluationResult, SuccessReport
from dart.inspect.sidecar_status import read_sidecars
from dart.inspect.snapshot import EngineRow, RunSnapshot, TaskRow
from dart.inspect.success_windows import SuccessWindow, spans, without_empty_end
from dart.inspect.task_reports import TaskReport, state, task_reports
from dart.inspect.time_budget import read_session
from dart.store.browse_queries import RunBrowser
from dart.telemetry.board_gauges import Gauge
from dart.telemetry.events import USER_VISIBLE

RECENT = 200
"""Number of newest trajectories from which the success rate of the whole run is computed."""


WINDOW_EPISODES_MOST = 2000
"""Largest number of trajectories from which the success rate of a success window is computed: the newest ones
of the window. With this many, the 95 % interval of a rate is at most 2.2 percentage points to each side."""

SETTLED_S = 5.0
"""Seconds after which the count of a success window is final: no trajectory of that window arrives later."""


class SnapshotReader:
    """Reads snapshots of one run. Open one reader and call `read` as often as needed."""

    def __init__(self, paths: RunPaths, config: Config, known_events: EventCounts = NO_EVENTS) -> None:
        """Open the record of the run.

        known_events   the attribute `events` of an earlier reader of the run. With it, this reader only has
                       to count newer events.
        raises         StoreUnavailable if the record cannot be opened
        """
        self.paths = paths
        self.events = known_events
        self.store = RunBrowser(paths.record)
        self._config = config
        self._windows_s = windows_s(config.model_dump(mode="json"))
        self._settled: dict[tuple[float, float], SuccessWindow] = {}
        """The success windows whose counts are final, by begin and end in unix seconds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    def read(self) -> RunSnapshot:
        """Read a snapshot of the run as it is now. All figures of the record are of the same moment."""
        with self.store.one_state():
            return self._read()

    def _read(self) -> RunSnapshot:
        session = read_session(self.paths)
        pid = _main_process(self.paths.root)
        vitals = rows_of(self.paths.board)
        totals = self.store.totals(last=RECENT, success_above=self._config.curation.success_above)
        newest = self.store.latest_version()
        version, metrics = (newest.version, newest.metrics) if newest is not None else (0, {})
        phase, done, total = self._progress(session, version, totals.steps)
        reports = task_reports(self.store, self._config)
        base = scores(self.store, self._config, EvaluationPhase.BEFORE)
        is_done = phase is RunPhase.DONE
        final = scores(self.store, self._config, EvaluationPhase.AFTER) if is_done else {}
        has_played = bool(totals.trajectories or self.store.evaluations())
        parkings, parked_now = self.store.parkings()
        pool = self.store.demonstrations()
        raised = raised_alarms(self.store)
        self.events = self.store.event_counts(USER_VISIBLE, self.events)
        return RunSnapshot(
            run_dir=self.paths.title,
            taken_unix_s=time.time(),
            is_running=pid is not None,
            main_is=state_of_main(self.paths.root, pid or 0),
            phase=phase,
            elapsed_s=session["elapsed_s"],
            budget_s=session["budget_s"],
            used_before_s=session["used_before_s"],
            updates=version,
            updates_max=self._config.training.updates,
            policy_version=version,
            serving_versions=tuple(serving(vitals, self.paths.root).values()),
            success_rate=totals.recent_success,
            recent=min(totals.trajectories, RECENT),
            base_success_rate=_of_all_tasks(base, len(reports)),
            final_success_rate=_of_all_tasks(final, len(reports)),
            final_verdict=_verdict(base, final),
            success_windows=self._success_windows(session),
            trajectories=totals.trajectories,
            steps=totals.steps,
            outcomes=totals.outcomes,
            update=metrics,
            actions_per_minute=totals.steps_per_minute,
            staleness_mean=metrics.get("staleness_mean"),
            staleness_p50=metrics.get("staleness_p50"),
            staleness_p95=metrics.get("staleness_p95"),
            staleness_max=int(metrics["staleness_max"]) if "staleness_max" in metrics else None,
            rollouts_mean=fmean(report.rollouts for report in reports),
            step_cap_mean=fmean(report.step_cap for report in reports),
            steps_mean=totals.steps / totals.trajectories if totals.trajectories else None,
            restarts=_restarts(vitals),
            faults=totals.faults,
            drops=totals.drops,
            pool_size=sum(not one.dropped for one in pool),
            pool_uses=sum(one.uses for one in pool),
            pool_without_thought=sum(one.lacks_thought and not one.dropped for one in pool),
            pool_self_rolled=sum(one.is_self_rolled and not one.dropped for one in pool),
            parkings=parkings,
            parked_now=parked_now,
            events=self.events.of_kind,
            notices=tuple(
                notices(
                    self.paths,
                    self.store,
                    vitals,
                    is_running=pid is not None,
                    is_done=is_done,
                    has_played=has_played,
                )
            ),
            alarms={alarm.value: alarm in raised for alarm in LearningAlarm},
            sidecars=read_sidecars(self.paths),
            engines=() if is_done else engine_rows(vitals),
            conservation=self.store.conservation(),
            evaluation_done=done,
            evaluation_total=total,
            tasks=tuple(_task_row(report, base.get(report.task_id)) for report in reports),
            actors=actor_rows(self.paths.root, vitals, self._windows_s),
        )

    def _success_windows(self, session: dict[str, float]) -> tuple[SuccessWindow, ...]:
        """Read the success of training episodes over time, since the run was started or continued."""
        elapsed_s, since_s = session["elapsed_s"], session["used_before_s"]
        start_unix_s = session["started_unix_s"] - since_s
        found = [
            self._success_window(begins_s, ends_s, start_unix_s, elapsed_s)
            for begins_s, ends_s in spans(elapsed_s, session["budget_s"], since_s)
        ]
        return without_empty_end(found)

    def _success_window(
        self, begins_s: float, ends_s: float, start_unix_s: float, elapsed_s: float
    ) -> SuccessWindow:
        between = start_unix_s + begins_s, start_unix_s + ends_s
        if between in self._settled:
            return self._settled[between]
        above = self._config.curation.success_above
        successes, episodes = self.store.success_within(*between, WINDOW_EPISODES_MOST, above)
        window = SuccessWindow(begins_s=begins_s, ends_s=ends_s, successes=successes, episodes=episodes)
        if ends_s + SETTLED_S < elapsed_s:
            self._settled[between] = window
        return window

    def _progress(self, session: dict[str, float], updates: int, actions: int) -> tuple[RunPhase, int, int]:
        """Return the phase of the run, and how many of its evaluation's episodes are done and planned.

        Outside evaluations both numbers are 0. A run that has ended keeps the phase in which it ended.
        """
        training_s = session["training_ends_unix_s"] - session["started_unix_s"]
        plan = RunPlan(config=self._config, training_ends_s=training_s)
        before, after = (still_missing(self.store, plan, phase) for phase in EvaluationPhase)
        now = phase_now(
            plan,
            updates=updates,
            actions=actions,
            now_s=session["elapsed_s"] - session["used_before_s"],
            missing_before=before,
            missing_after=after,
        )
        left = {RunPhase.BASE_EVALUATION: before, RunPhase.FINAL_EVALUATION: after}.get(now)
        total = len(plan.episodes)
        return (now, 0, 0) if left is None else (now, total - left, total)


def _main_process(run_dir: Path) -> int | None:
    """Return the pid of a run's main process, 0 while it starts. None if the run is not running."""
    try:
        return holder(run_dir)
    except NotRunningError:  # a directory without a lock, such as a copy of a run's files
        return None


def _restarts(vitals: Sequence[Vitals]) -> int:
    """Return how often the actors were restarted."""
    return sum(row.restarts for row in vitals if is_shown(row))


def _of_all_tasks(measured: Mapping[str, Score], tasks: int) -> float | None:
    """Return the mean success of an evaluation over tasks; None if it has not measured every task."""
    return mean_rate(list(measured.values())) if len(measured) == tasks else None


def _verdict(base: Mapping[str, Score], final: Mapping[str, Score]) -> str:
    """Return whether two evaluations differ in their means; empty if they cannot be compared."""
    mean = SuccessReport(EvaluationResult(base), EvaluationResult(final)).mean
    return mean.verdict.value if mean.difference else ""


def _task_row(report: TaskReport, base: Score | None) -> TaskRow:
    return TaskRow(
        task_id=report.task_id,
        trajectories=report.finished,
        recent=report.recent,
        success_rate=report.success_rate,
        base_success_rate=base.rate if base else None,
        rollouts=report.rollouts,
        step_cap=report.step_cap,
        quarantined=state(report) if report.quarantine_reason else "",
    )


def engine_rows(vitals: Sequence[Vitals]) -> tuple[EngineRow, ...]:
    """Return the state of each engine, from the board's rows of rollout actors, trainer and weight_sync."""
    required = _gauge(vitals, "weight_sync", Gauge.REQUIRED_VERSION)
    newest = _gauge(vitals, "trainer", Gauge.TRAINED_VERSION)
    engines = (row for row in vitals if row.name.startswith("rollout-") and is_shown(row))
    return tuple(_engine_row(row, required, newest) for row in engines)


def _gauge(vitals: Sequence[Vitals], name: str, gauge: Gauge) -> int:
    return next((row.gauges[gauge] for row in vitals if row.name == name), 0)


def _engine_row(row: Vitals, required: int, newest: int) -> EngineRow:
    version = row.gauges[Gauge.SERVED_VERSION]
    state, reason = state_of(
        is_running=row.state is ActorState.RUNNING,
        silent_s=row.beat_age_s or 0.0,
        unready_s=0.0 if row.ready else math.inf,
        version=version,
        required=required,
        updating=newest if row.work == "load" else None,
        doubt="",
    )
    return EngineRow(name=row.name, state=state.value, version=version, reason=reason)


def read_snapshot(run_dir: Path) -> RunSnapshot:
    """Read a snapshot of the run in a directory. Works while every actor hangs."""
    paths = RunPaths(run_dir)
    with SnapshotReader(paths, kept_config(paths.config)) as reader:
        return reader.read()
