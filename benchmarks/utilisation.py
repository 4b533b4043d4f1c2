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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dart.core.records import Event
from dart.core.statistics import nearest_rank
from dart.inspect.utilisation import TimeWindow, spent, total


def quantile(in_order: Sequence[float], share: float) -> float | None:
    """Return a quantile (nearest rank) of values in ascending order; None without values."""
    return nearest_rank(in_order, share) if in_order else None


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


def utilisation(
    load: Iterable[Event],
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
    counted = spent(load, window)
    episodes = list(finished)
    trained = [episode for episode in episodes if window.holds(episode.trained_unix_s)]
    stored = [episode for episode in episodes if window.holds(episode.stored_unix_s)]
    staleness = sorted(value for episode in trained for value in episode.staleness())
    actions = sum(episode.num_steps for episode in trained)
    answers = total(counted, "rollout-", "requests")
    env_s, engine_s = environments * window.seconds, engines * window.seconds
    return Utilisation(
        seconds=window.seconds,
        env_util=total(counted, "env-", "in_episode_s") / env_s,
        env_util_strict=total(counted, "env-", "strict_s") / env_s,
        env_engine_wait=total(counted, "env-", "engine_wait_s") / env_s,
        rollout_util=total(counted, "rollout-", "busy_s") / engine_s,
        rollout_weighted=total(counted, "rollout-", "weighted_s") / engine_s,
        trainer_util=total(counted, trainer, "update_s") / window.seconds,
        trainer_starved=total(counted, trainer, "starved_s") / window.seconds,
        trainer_blocked=total(counted, trainer, "blocked_s") / window.seconds,
        actions_per_min=60.0 * actions / window.seconds,
        raw_actions_per_min=60.0 * answers / window.seconds,
        goodput=actions / answers if answers else None,
        staleness_p50=quantile(staleness, 0.5),
        staleness_p95=quantile(staleness, 0.95),
        staleness_max=quantile(staleness, 1.0),
        tokens_per_s=sum(episode.tokens for episode in trained) / window.seconds,
        raw_tokens_per_s=total(counted, "rollout-", "tokens") / window.seconds,
        trained_length=_mean_length(trained),
        sampled_length=_mean_length(stored),
    )


def _mean_length(episodes: Sequence[FinishedEpisode]) -> float | None:
    return sum(episode.num_steps for episode in episodes) / len(episodes) if episodes else None
