"""Read how a run stands from the board and the record, never from the actors, which may hang."""

import json
import math
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Self

from actors.board import ActorState, Board, Vitals, rows_of
from dart.config.config import Config, load_config
from dart.core import records
from dart.core.errors import DiskError
from dart.core.records import RunPhase
from dart.core.run_directory import RunPaths
from dart.core.statistics import Score
from dart.curation.run_phases import EvaluationEpisode, RunPlan, missing, phase_now, that_count
from dart.curation.settings import plan_of
from dart.curation.stall_diagnosis import Stage
from dart.inference import worker_state
from dart.inspect import signals
from dart.inspect.actor_table import actor_rows, is_shown, serving, windows_s
from dart.inspect.formatting import clock, size
from dart.inspect.sidecar_status import read_sidecars
from dart.inspect.snapshot import EngineRow, RunSnapshot, TaskRow
from dart.inspect.task_reports import TaskReport, state, task_reports
from dart.store.reader import StoreReader
from dart.telemetry.events import (
    CHECKPOINT_RESTORED,
    EVALUATION_FAILED,
    LOG_CUT,
    STARVED,
    USER_VISIBLE,
    WORK_HELD,
)
from dart.telemetry.gauges import Gauge

if TYPE_CHECKING:
    from dart.inspect.learning_curve import EpisodePoint
    from dart.inspect.report import LeftOut, RunReport, SuccessReport
    from dart.inspect.time_budget import TimeBudget

RECENT = 200
"""Trajectories behind the success rate of the live view."""

NOT_PLAYED = "not played"
"""Reason of an episode without a result in an evaluation that ended early."""

FAILURES_MAX = 100_000
"""Most failures of evaluation episodes that are read, the newest."""


class SnapshotReader:
    """Reads snapshots of one run; opened once, read many times."""

    def __init__(
        self,
        paths: RunPaths,
        config: Config,
        board: Board | None = None,
        known_events: records.EventCounts = records.NO_EVENTS,
    ) -> None:
        """known_events   the `events` of an earlier reader of the same run"""
        self.paths = paths
        self.events = known_events
        self.store = StoreReader(paths.store)
        self._config = config
        self._windows_s = windows_s(config.model_dump(mode="json"))
        self._rows = board.rows if board is not None else partial(rows_of, paths.board)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    def read(self) -> RunSnapshot:
        """How the run stands now."""
        session = read_session(self.paths)
        vitals = self._rows()
        totals = self.store.totals(last=RECENT, success_above=self._config.curation.success_above)
        newest = self.store.latest_version()
        phase, done, total = self._progress(session, newest.version if newest else 0, totals.steps)
        metrics = newest.metrics if newest is not None else {}
        reports = task_reports(self.store, self._config)
        base = scores(self.store, self._config, records.EvaluationPhase.BEFORE)
        parkings, parked_now = self.store.parkings()
        pool = self.store.demonstrations()
        self.events = self.store.event_counts(USER_VISIBLE, self.events)
        return RunSnapshot(
            run_dir=str(self.paths.root),
            taken_unix_s=time.time(),
            phase=phase,
            elapsed_s=session["elapsed_s"],
            budget_s=session["budget_s"],
            updates=0 if newest is None else newest.version,
            updates_max=self._config.training.updates,
            policy_version=0 if newest is None else newest.version,
            serving_versions=tuple(serving(vitals).values()),
            success_rate=totals.recent_success,
            recent=min(totals.trajectories, RECENT),
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
            restarts=sum(row.restarts for row in vitals),
            faults=totals.faults,
            drops=totals.drops,
            pool_size=sum(not one.dropped for one in pool),
            pool_uses=sum(one.uses for one in pool),
            pool_without_thought=sum(one.lacks_thought and not one.dropped for one in pool),
            pool_self_rolled=sum(one.is_self_rolled and not one.dropped for one in pool),
            parkings=parkings,
            parked_now=parked_now,
            events=self.events.of_kind,
            notices=tuple(self._notices(vitals)),
            sidecars=read_sidecars(self.paths),
            engines=() if phase is RunPhase.DONE else engine_rows(vitals),
            conservation=self.store.conservation(),
            evaluation_done=done,
            evaluation_total=total,
            tasks=tuple(_task_row(report, base.get(report.task_id)) for report in reports),
            actors=actor_rows(self.paths.root, vitals, self._windows_s),
        )

    def _progress(self, session: dict[str, Any], updates: int, actions: int) -> tuple[RunPhase, int, int]:
        """The phase, and of its evaluation the episodes done and planned."""
        plan = plan_of(self._config, session["training_ends_unix_s"])
        left = {phase: self._still_missing(phase, plan, updates) for phase in records.EvaluationPhase}
        now = phase_now(
            plan,
            updates=updates,
            actions=actions,
            now_unix_s=_last_moment(session),
            missing_before=len(left[records.EvaluationPhase.BEFORE]),
            missing_after=len(left[records.EvaluationPhase.AFTER]),
        )
        total = len(plan.episodes)
        if now is RunPhase.BASE_EVALUATION:
            return now, total - len(left[records.EvaluationPhase.BEFORE]), total
        if now is RunPhase.FINAL_EVALUATION:
            return now, total - len(left[records.EvaluationPhase.AFTER]), total
        return now, 0, 0

    def _still_missing(
        self, phase: records.EvaluationPhase, plan: RunPlan, version: int
    ) -> list[EvaluationEpisode]:
        """Episodes that are still to be played; those that failed too often are not."""
        left = missing(plan, that_count(self.store.evaluations(phase), phase, version))
        given_up = {one for one, why in _failures(self.store, phase).items() if why["is_left_out"]}
        return [one for one in left if one not in given_up]

    def _notices(self, vitals: Sequence[Vitals]) -> Iterator[str]:
        """Problems beyond single actors."""
        if (ends := signals.read(self.paths)) is not None:
            yield (
                f"ends since {clock(ends.since_unix_s)}, by {signal.Signals(ends.signal).name}: episodes and "
                "updates continue to their end; `dartrl down --now` does not wait for them"
            )
        held = self.store.newest_event(WORK_HELD)
        if held is not None and held.data["is_held"]:
            yield (
                f"paused by an operator since {clock(held.unix_s)}: no episode and no update begins "
                "until `dartrl resume`"
            )
        stall = self.store.newest_event(STARVED)
        if stall is not None and stall.data["stage"] != Stage.ENDED:
            yield f"since {clock(stall.unix_s - float(str(stall.data['lasted_s'])))}: {stall.data['text']}"
        yield from self._restored_checkpoint()
        yield from self._cut_log()
        yield from self._full_disk({row.name for row in vitals if _is_waiting(row)})

    def _restored_checkpoint(self) -> Iterator[str]:
        """A notice that lasts until a person removes the damaged folder."""
        event = self.store.newest_event(CHECKPOINT_RESTORED)
        if event is None:
            return
        what, folder = event.data, self.paths.root / str(event.data["damaged_folder"])
        if folder.exists():
            yield (
                f"version {what['version']} is a copy of version {what['from_version']}, and what was "
                f"learned between them is lost: its checkpoint was damaged ({what['damage']}) and lies in "
                f"{folder}; remove that folder to end this notice"
            )

    def _cut_log(self) -> Iterator[str]:
        """A notice that lasts until a person removes the copy of the damaged log."""
        event = self.store.newest_event(LOG_CUT)
        if event is not None and (copy := self.paths.root / str(event.data["copy"])).exists():
            yield (
                f"the write-ahead log of the record was damaged ({event.data['damage']}), and the run went "
                f"on without them; the log as it was is {copy}, remove it to end this notice"
            )

    def _full_disk(self, waiting: Set[str]) -> Iterator[str]:
        """Notices of the store and the trainer while they wait for room on the disk."""
        free = f"{size(shutil.disk_usage(self.paths.root).free)} are free at {self.paths.root}"
        if "store" in waiting:
            yield (
                "the store takes no writes now: the disk is full, or another process has locked the record "
                f"({free}); it continues by itself when that ends"
            )
        if "trainer" in waiting:
            yield (
                f"the trainer cannot write its checkpoint now: the disk is full ({free}); "
                "it continues by itself when there is room"
            )


def _is_waiting(row: Vitals) -> bool:
    """The store and the trainer are not ready only while the disk refuses what they write."""
    return row.state is ActorState.RUNNING and not row.ready


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
    """The state of each engine, from the board's rows of the rollout actors and of weight_sync."""
    required = _gauge(vitals, "weight_sync", Gauge.REQUIRED_VERSION)
    newest = _gauge(vitals, "trainer", Gauge.TRAINED_VERSION)
    return tuple(
        _engine_row(row, required, newest)
        for row in vitals
        if row.name.startswith("rollout-") and is_shown(row)
    )


def _gauge(vitals: Sequence[Vitals], name: str, gauge: Gauge) -> int:
    return next((row.gauges[gauge] for row in vitals if row.name == name), 0)


def _engine_row(row: Vitals, required: int, newest: int) -> EngineRow:
    version = row.gauges[Gauge.SERVED_VERSION]
    facts = worker_state.WorkerFacts(
        is_running=row.state is ActorState.RUNNING,
        silent_s=row.beat_age_s or 0.0,
        unready_s=0.0 if row.ready else math.inf,
        version=version,
        required=required,
        updating=newest if row.work == "load" else None,
        doubt="",
    )
    state, reason = worker_state.state_of(facts)
    return EngineRow(name=row.name, state=state.value, version=version, reason=reason)


def read_snapshot(run_dir: Path) -> RunSnapshot:
    """Read a snapshot of the run in a directory. Works while every actor hangs."""
    paths = RunPaths(run_dir)
    with SnapshotReader(paths, load_config(paths.config)) as reader:
        return reader.read()


def scores(
    store: StoreReader, config: Config, phase: records.EvaluationPhase, *, is_greedy: bool = False
) -> dict[str, Score]:
    """Successes and episodes of one evaluation, by task."""
    episodes: Counter[str] = Counter()
    successes: Counter[str] = Counter()
    for evaluation in _measured(store, phase):
        if evaluation.is_greedy != is_greedy:
            continue
        episodes[evaluation.task_id] += 1
        successes[evaluation.task_id] += int(evaluation.reward > config.curation.success_above)
    return {task: Score(successes[task], count) for task, count in sorted(episodes.items())}


def final_report(store: StoreReader, config: Config) -> "RunReport":
    """Success before and after training on held-out seeds, with sampled and with greedy answers."""
    from dart.inspect.report import RunReport  # drawing at the end; `status` need not load it

    temperature = config.evaluation.temperature
    sampled = f"sampled at temperature {temperature:g}" if temperature > 0 else "greedy"
    return RunReport(
        sampled=_report(store, config, sampled, is_greedy=False),
        greedy=_report(store, config, "greedy", is_greedy=True),
    )


def _report(store: StoreReader, config: Config, answers: str, *, is_greedy: bool) -> "SuccessReport":
    from dart.inspect.report import SuccessReport

    before, after = records.EvaluationPhase.BEFORE, records.EvaluationPhase.AFTER
    return SuccessReport(
        before=scores(store, config, before, is_greedy=is_greedy),
        after=scores(store, config, after, is_greedy=is_greedy),
        left_out_before=left_out(store, config, before, is_greedy=is_greedy),
        left_out_after=left_out(store, config, after, is_greedy=is_greedy),
        answers=answers,
    )


def left_out(
    store: StoreReader, config: Config, phase: records.EvaluationPhase, *, is_greedy: bool
) -> "LeftOut":
    """Planned episodes of one evaluation that have no result, and why; none while it has not begun."""
    from dart.inspect.report import LeftOut

    plan = plan_of(config, math.inf)
    done = _measured(store, phase)
    failures = _failures(store, phase)
    gaps = [one for one in missing(plan, done) if one.is_greedy == is_greedy]
    has_begun = bool(failures) or any(one.is_greedy == is_greedy for one in done)
    if not plan.is_measured(phase) or not has_begun:
        return LeftOut()
    reasons = (str(failures[one]["kind"]) if one in failures else NOT_PLAYED for one in gaps)
    return LeftOut(
        tasks=Counter(one.task_id for one in gaps),
        reasons=Counter(reasons),
        played_again=sum(one.is_greedy == is_greedy for one in failures.keys() - set(gaps)),
    )


def _measured(store: StoreReader, phase: records.EvaluationPhase) -> tuple[records.Evaluation, ...]:
    """The episodes of an evaluation that count."""
    return that_count(store.evaluations(phase), phase, _newest(store))


def _newest(store: StoreReader) -> int | None:
    newest = store.latest_version()
    return None if newest is None else newest.version


def _failures(
    store: StoreReader, phase: records.EvaluationPhase
) -> dict[EvaluationEpisode, Mapping[str, Any]]:
    """The last failure of each episode that had any."""
    newest = _newest(store)
    return {
        EvaluationEpisode(one.subject, int(str(one.data["seed"])), bool(one.data["is_greedy"])): one.data
        for one in store.find_events(kinds=(EVALUATION_FAILED,), limit=FAILURES_MAX)
        if one.data["phase"] == phase
        and (phase is records.EvaluationPhase.BEFORE or one.data["version"] == newest)
    }


def training_episodes(store: StoreReader, config: Config, session: "TimeBudget") -> "list[EpisodePoint]":
    """Every training episode with the time since the start of the run, for the learning curve."""
    from dart.inspect.learning_curve import EpisodePoint

    start_unix_s = session.started_unix_s - session.used_before_s
    success_above = config.curation.success_above
    return [
        EpisodePoint(elapsed_s=stored_unix_s - start_unix_s, task_id=task_id, success=reward > success_above)
        for task_id, reward, stored_unix_s in store.rewards_over_time()
    ]


def _last_moment(session: Mapping[str, Any]) -> float:
    """The moment up to which the run has run: now, or the end of a run that has ended."""
    return float(session["started_unix_s"] + session["elapsed_s"] - session["used_before_s"])


SESSION = ("elapsed_s", "budget_s", "started_unix_s", "used_before_s", "training_ends_unix_s")
"""Keys in the file of a session; without a time limit the end of training is infinite."""


def read_session(paths: RunPaths) -> dict[str, float]:
    """Read the run's times from the file of the session. Raises DiskError where it is damaged."""
    path = paths.root / "session.json"
    try:
        found = json.loads(path.read_bytes())
        session = {name: float(found[name]) for name in SESSION}
        if any(map(math.isnan, session.values())) or math.inf in [abs(session[name]) for name in SESSION[:4]]:
            raise ValueError(f"not all of it are times: {session}")
        return session
    except (ValueError, TypeError, LookupError) as error:
        raise DiskError(
            f"{path} does not say how much time the run has used ({error}): restore a copy of it; "
            "--resume writes it anew and counts the time from 0"
        ) from error
