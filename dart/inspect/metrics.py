"""Every metric of a run: declared in one table, read from the board and the record at each scrape.

Nothing is counted here: supervisors count on the board, and the store counts in the record. So the metrics
agree with `dartrl status`, and they stay right while actors hang and after the page is restarted.
docs/reference/metrics.md is generated from the table. A test compares the table with the dashboard.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from actors.board import ActorState
from dart.core.types import FaultKind, Outcome, RolloutState
from dart.curation.groups import DropReason
from dart.inspect.snapshot import ActorRow, RunSnapshot, TaskRow
from dart.telemetry.events import USER_VISIBLE


class MetricKind(StrEnum):
    """Prometheus's type of a metric, which says how its numbers may change."""

    COUNTER = "counter"
    """Only grows; begins again at 0 when the run or the process that it counts for is started again."""
    GAUGE = "gauge"


Read = Callable[[RunSnapshot], float | Mapping[str, float | None] | None]
"""Reads the metric from a snapshot: a number, or a number for each value of the label.

A number that is None is left out of the scrape.
"""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric."""

    name: str
    """Name of the metric, including its unit, but without the suffix `_total` of counters."""
    kind: MetricKind
    about: str
    """What the metric counts or measures."""
    read: Read
    labels: Mapping[str, str]
    """Meaning of the label, by its name; a metric has at most one label."""

    @property
    def exposed(self) -> str:
        """The full name of the metric, as queries use it."""
        return f"{self.name}_total" if self.kind is MetricKind.COUNTER else self.name


def _gauge(name: str, about: str, read: Read, **labels: str) -> Metric:
    return Metric(f"dartrl_{name}", MetricKind.GAUGE, about, read, labels)


def _counter(name: str, about: str, read: Read, **labels: str) -> Metric:
    return Metric(f"dartrl_{name}", MetricKind.COUNTER, about, read, labels)


def _of_tasks(name: str, about: str, read: Callable[[TaskRow], float | None]) -> Metric:
    return _gauge(
        name, about, lambda run: {row.task_id: read(row) for row in run.tasks}, task="id of the task"
    )


def _of_actors(
    name: str, about: str, read: Callable[[ActorRow], float | None], make: Callable[..., Metric] = _gauge
) -> Metric:
    return make(
        name, about, lambda run: {row.name: read(row) for row in run.actors}, actor="name of the actor"
    )


def _from_zero(names: Iterable[str], counts: Mapping[str, int]) -> dict[str, int]:
    """Return counts with 0 for names that have none yet. Prometheus's `increase` leaves out the first value
    of a series, so the first fault of a kind would not be seen if its series began with it."""
    return {str(name): 0 for name in names} | dict(counts)


STATES = tuple(state.value for state in ActorState if state is not ActorState.FREE)
ENGINE = {"engine": "name of the rollout actor"}

METRICS: tuple[Metric, ...] = (
    # the run
    _gauge(
        "run_healthy",
        "1 when the run is running, its main process is well, every actor is up and ready, every rollout has "
        "one fate and there are no notices, else 0.",
        lambda run: run.is_healthy,
    ),
    _gauge(
        "run_elapsed_seconds",
        "How long the run has run, interruptions not counted.",
        lambda run: run.elapsed_s,
    ),
    _gauge(
        "run_budget_seconds",
        "Time that the run may take from its start to the final table; 0 for no limit.",
        lambda run: run.budget_s,
    ),
    _gauge(
        "run_phase",
        "1 for the current phase of the run; other phases are left out.",
        lambda run: {run.phase.value: 1.0},
        phase="base evaluation, training, final evaluation or done",
    ),
    _gauge(
        "notices",
        "Number of problems of the run as a whole, such as a starved trainer or a full disk.",
        lambda run: len(run.notices),
    ),
    # learning
    _gauge(
        "alarm",
        "1 while the alarm for learning is raised, else 0 (docs/alarms.md).",
        lambda run: run.alarms,
        alarm="name of the alarm",
    ),
    _counter("updates", "Updates of the policy.", lambda run: run.updates),
    _gauge("policy_version", "The newest policy version the trainer made.", lambda run: run.policy_version),
    _gauge(
        "engine_policy_version",
        "The policy version each engine serves.",
        lambda run: {one.name: one.version for one in run.engines},
        **ENGINE,
    ),
    _gauge(
        "engine_healthy",
        "1 when the engine is healthy or updating, 0 when it is stale, suspect or dead.",
        lambda run: {one.name: one.state in ("healthy", "updating") for one in run.engines},
        **ENGINE,
    ),
    _gauge(
        "success_ratio",
        "Share of successes among the newest trajectories of all tasks, 0 to 1.",
        lambda run: run.success_rate,
    ),
    _of_tasks(
        "task_success_ratio",
        "Share of successes among the newest trajectories of the task, 0 to 1.",
        lambda row: row.success_rate,
    ),
    _of_tasks("task_rollouts", "N: rollouts of the task's next group.", lambda row: row.rollouts),
    _of_tasks(
        "task_step_cap_steps",
        "Largest number of steps of an episode of the task's next group.",
        lambda row: row.step_cap,
    ),
    _gauge(
        "tasks_quarantined",
        "Tasks in quarantine.",
        lambda run: sum(bool(one.quarantined) for one in run.tasks),
    ),
    _gauge(
        "update_figure",
        "The figures of the newest update, in the units of the trainer's log: loss, kl, entropy, grad_norm "
        "and others.",
        lambda run: run.update,
        figure="name of the figure",
    ),
    _gauge(
        "staleness_versions",
        "How old the steps of the newest batch were when they were trained, in policy versions.",
        lambda run: {name: getattr(run, f"staleness_{name}") for name in ("mean", "p50", "p95", "max")},
        statistic="mean, p50, p95 or max over the steps of the batch",
    ),
    # data
    _counter("trajectories", "Trajectories ever stored.", lambda run: run.trajectories),
    _counter(
        "environment_steps", "Environment steps of all trajectories ever stored.", lambda run: run.steps
    ),
    _counter(
        "outcomes",
        "Trajectories by how they ended.",
        lambda run: _from_zero(Outcome, run.outcomes),
        outcome="terminated, finished, step_cap, parse_error or infeasible",
    ),
    _counter(
        "faults",
        "Attempts that ended without a reward, by what is to blame.",
        lambda run: _from_zero(FaultKind, run.faults),
        kind="infrastructure, system, policy, evaluator or task",
    ),
    _counter(
        "dropped_rollouts",
        "Rollouts that were dropped instead of trained, by reason.",
        lambda run: _from_zero(DropReason, run.drops),
        reason="why the rollouts were dropped",
    ),
    _gauge(
        "rollouts",
        "Rollouts by their state now; the states together hold every rollout that was ever issued.",
        lambda run: {state.value: getattr(run.conservation, state.value) for state in RolloutState},
        state="leased, stored, trained or dropped",
    ),
    _counter(
        "issued_rollouts",
        "Rollouts ever issued, counted at their first lease; should equal the sum of `dartrl_rollouts`.",
        lambda run: run.conservation.issued,
    ),
    _gauge(
        "conservation_holds",
        "1 when every issued rollout has exactly one state, else 0.",
        lambda run: run.conservation.holds,
    ),
    _counter("parkings", "How often an episode was parked.", lambda run: run.parkings),
    _gauge("parked_episodes", "Parked episodes that wait to be continued.", lambda run: run.parked_now),
    _gauge("pool_demonstrations", "Demonstrations of the experience pool in use.", lambda run: run.pool_size),
    _counter("pool_uses", "How often a demonstration was added to a group.", lambda run: run.pool_uses),
    _counter(
        "events",
        "Events of the record, by kind (docs/reference/events.md); `load` comes every few seconds and is not "
        "counted.",
        lambda run: _from_zero(USER_VISIBLE, run.events),
        kind="kind of the event",
    ),
    # actors
    _gauge(
        "actors",
        "Actors by state, as their supervisors see them.",
        lambda run: dict.fromkeys(STATES, 0) | Counter(actor.state for actor in run.actors),
        state=", ".join(STATES),
    ),
    _of_actors(
        "actor_well",
        "1 when the actor is up and ready and its process runs, else 0.",
        lambda row: row.is_well,
    ),
    _of_actors(
        "actor_restarts",
        "Restarts of the actor since the run was started or continued last.",
        lambda row: row.restarts,
        _counter,
    ),
    _of_actors(
        "actor_busy_seconds",
        "How long the actor has been in its current handler; 0 when idle or without a process.",
        lambda row: row.busy_s,
    ),
    _of_actors(
        "actor_beat_age_seconds",
        "Time since the actor's last sign of life; at most 15 while its loop runs.",
        lambda row: row.beat_age_s,
    ),
    _of_actors(
        "actor_memory_bytes", "Resident memory of the actor's process.", lambda row: row.rss_bytes or None
    ),
    _of_actors(
        "actor_cpu_seconds", "Processor time of the actor's process.", lambda row: row.cpu_s or None, _counter
    ),
)


def exposition(snapshot: RunSnapshot) -> str:
    """Return the metrics of one snapshot in Prometheus's text format 0.0.4.

    Prometheus's client library is not used because it takes three times as long. With a thousand actors that
    would be most of the time of a scrape.
    """
    return "".join(line for metric in METRICS for line in _lines(metric, snapshot))


def _lines(metric: Metric, snapshot: RunSnapshot) -> Iterator[str]:
    exposed = metric.exposed
    yield f"# HELP {exposed} {metric.about}\n# TYPE {exposed} {metric.kind}\n"
    found = metric.read(snapshot)
    if isinstance(found, Mapping):
        (label,) = metric.labels
        for value, number in found.items():
            if number is not None:
                yield f'{exposed}{{{label}="{_escaped(value)}"}} {_written(number)}\n'
    elif found is not None:
        yield f"{exposed} {_written(found)}\n"


@lru_cache(maxsize=8192)
def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)


_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def _written(number: float) -> str:
    value = float(number)
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
