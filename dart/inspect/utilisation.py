"""How well a run used its environments, engines and trainer, and what came of it. Pure.

The sources are the load events (`dart.telemetry.load_meter`: totals since an actor started, every few
seconds) and the record: which trajectories were stored when, and which update trained them. A window cuts off
the warm-up; inside a reporting interval an actor counts as evenly busy.

Definitions, of slots by time:

    env_util           time inside an episode / (environments * wall); strict: resets, steps and the like
    rollout_util       time with at least one request in flight / (engines * wall)
    rollout_weighted   the same, weighted by requests in flight / capacity, at most 1
    trainer_util       time in updates / wall; starved: waiting for a batch; blocked: for anything else
    actions_per_min    environment steps that entered an update, per minute; raw: answers sampled by engines
    goodput            actions that entered an update / answers sampled
    staleness          the trainer's version when it trained a step, less the version that sampled it
    tokens_per_s       answer tokens that entered an update, per second; raw: tokens sampled by engines

An environment that is down is a slot like any other: its time counts as unused.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from dart.core.records import Event
from dart.core.statistics import quantile


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindow:
    """The part of a run that is measured, in unix seconds."""

    begins_unix_s: float
    ends_unix_s: float

    def __post_init__(self) -> None:
        if self.seconds <= 0:
            raise ValueError(
                f"a window must end after it begins, got {self.begins_unix_s} to {self.ends_unix_s}: "
                "the run made too few updates after its warm-up"
            )

    @property
    def seconds(self) -> float:
        return self.ends_unix_s - self.begins_unix_s

    def holds(self, unix_s: float | None) -> bool:
        """Whether a moment lies in it; its begin does not, so that windows in a row count nothing twice."""
        return unix_s is not None and self.begins_unix_s < unix_s <= self.ends_unix_s

    def share(self, begins_unix_s: float, ends_unix_s: float) -> float:
        """Which share of an interval lies in it."""
        if ends_unix_s <= begins_unix_s:
            return float(self.holds(ends_unix_s))
        begins, ends = max(begins_unix_s, self.begins_unix_s), min(ends_unix_s, self.ends_unix_s)
        return max(0.0, ends - begins) / (ends_unix_s - begins_unix_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """What one actor had counted at one moment since it started; `wall_s` among it."""

    actor: str
    unix_s: float
    totals: Mapping[str, float]

    @property
    def started_unix_s(self) -> float:
        return self.unix_s - self.totals["wall_s"]


def load_points(events: Sequence[Event]) -> list[LoadPoint]:
    """What load events say, as figures."""
    return [
        LoadPoint(
            actor=event.subject,
            unix_s=event.unix_s,
            totals={name: float(str(value)) for name, value in event.data.items()},
        )
        for event in events
        if "wall_s" in event.data
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedEpisode:
    """One stored trajectory."""

    step_versions: tuple[int, ...]
    """The policy version that sampled each step."""
    tokens: int
    """Of all its answers."""
    stored_unix_s: float
    trained_unix_s: float | None = None
    """When the update that trained it was committed; None if none did."""
    trained_version: int | None = None
    """The version that update made."""

    @property
    def num_steps(self) -> int:
        return len(self.step_versions)

    def staleness(self) -> Iterator[int]:
        """Of each step, in versions; the trainer was one below the version it made. Nothing if untrained."""
        if self.trained_version is not None:
            yield from (self.trained_version - 1 - version for version in self.step_versions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilisation:
    """The figures of one window; the module's docstring defines them. None where nothing was counted."""

    seconds: float
    env_util: float
    env_util_strict: float
    env_engine_wait: float
    """Share of the environments' time spent in an episode, waiting for an answer."""
    rollout_util: float
    rollout_weighted: float
    trainer_util: float
    trainer_starved: float
    trainer_blocked: float
    actions_per_min: float
    raw_actions_per_min: float
    goodput: float | None
    staleness_p50: float | None
    staleness_p95: float | None
    staleness_max: float | None
    tokens_per_s: float
    raw_tokens_per_s: float
    trained_length: float | None
    """Mean steps of the trajectories trained in the window."""
    sampled_length: float | None
    """Mean steps of the trajectories stored in the window, trained or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilisationInterval:
    """What one actor counted from one moment to the next."""

    actor: str
    begins_unix_s: float
    ends_unix_s: float
    amounts: Mapping[str, float]


def intervals(points: Iterable[LoadPoint]) -> Iterator[UtilisationInterval]:
    """From each of an actor's points to its next, and from its start to the first, in every incarnation."""
    in_order = sorted(points, key=lambda point: (point.actor, point.unix_s))
    for actor, own in groupby(in_order, key=lambda point: point.actor):
        before: LoadPoint | None = None
        for point in own:
            earlier = before if before is not None and _is_same_life(before, point) else None
            counted = {} if earlier is None else earlier.totals
            yield UtilisationInterval(
                actor=actor,
                begins_unix_s=point.started_unix_s if earlier is None else earlier.unix_s,
                ends_unix_s=point.unix_s,
                amounts={name: total - counted.get(name, 0.0) for name, total in point.totals.items()},
            )
            before = point


def spent(points: Iterable[LoadPoint], window: TimeWindow) -> dict[str, dict[str, float]]:
    """What each actor counted within the window: actor to name to amount, over all its incarnations."""
    found: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for interval in intervals(points):
        share = window.share(interval.begins_unix_s, interval.ends_unix_s)
        for name, amount in interval.amounts.items():
            found[interval.actor][name] += share * amount
    return {actor: dict(amounts) for actor, amounts in found.items()}


def _is_same_life(before: LoadPoint, point: LoadPoint) -> bool:
    """A new incarnation counts from zero, and started after the last word of the one before."""
    return point.totals["wall_s"] >= before.totals["wall_s"] and point.started_unix_s < before.unix_s


def utilisation(
    points: Iterable[LoadPoint],
    finished: Iterable[FinishedEpisode],
    window: TimeWindow,
    *,
    environments: float,
    engines: float,
    trainer: str = "trainer",
) -> Utilisation:
    """The figures of one window.

    environments, engines   how many there are to be used; actors `env-*` and `rollout-*`
    """
    counted = spent(points, window)
    episodes = list(finished)
    trained = [episode for episode in episodes if window.holds(episode.trained_unix_s)]
    stored = [episode for episode in episodes if window.holds(episode.stored_unix_s)]
    staleness = sorted(value for episode in trained for value in episode.staleness())
    actions = sum(episode.num_steps for episode in trained)
    answers = _total(counted, "rollout-", "requests")
    env_s, engine_s = environments * window.seconds, engines * window.seconds
    return Utilisation(
        seconds=window.seconds,
        env_util=_total(counted, "env-", "in_episode_s") / env_s,
        env_util_strict=_total(counted, "env-", "strict_s") / env_s,
        env_engine_wait=_total(counted, "env-", "engine_wait_s") / env_s,
        rollout_util=_total(counted, "rollout-", "busy_s") / engine_s,
        rollout_weighted=_total(counted, "rollout-", "weighted_s") / engine_s,
        trainer_util=_total(counted, trainer, "update_s") / window.seconds,
        trainer_starved=_total(counted, trainer, "starved_s") / window.seconds,
        trainer_blocked=_total(counted, trainer, "blocked_s") / window.seconds,
        actions_per_min=60.0 * actions / window.seconds,
        raw_actions_per_min=60.0 * answers / window.seconds,
        goodput=actions / answers if answers else None,
        staleness_p50=quantile(staleness, 0.5),
        staleness_p95=quantile(staleness, 0.95),
        staleness_max=quantile(staleness, 1.0),
        tokens_per_s=sum(episode.tokens for episode in trained) / window.seconds,
        raw_tokens_per_s=_total(counted, "rollout-", "tokens") / window.seconds,
        trained_length=_mean_length(trained),
        sampled_length=_mean_length(stored),
    )


def _total(counted: Mapping[str, Mapping[str, float]], actors: str, name: str) -> float:
    return sum(amounts.get(name, 0.0) for actor, amounts in counted.items() if actor.startswith(actors))


def _mean_length(episodes: Sequence[FinishedEpisode]) -> float | None:
    return sum(episode.num_steps for episode in episodes) / len(episodes) if episodes else None
