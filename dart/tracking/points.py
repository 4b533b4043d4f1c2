"""The figures of one update: its own, and those of the run since the update before. Pure.

    update/…        figures of the update as the trainer recorded them: loss, kl, entropy and others
    staleness/…     mean, p50, p95 and max of the steps it trained, and the bound, in policy versions
    curve/success   share of successes among the newest episodes before it, at most 100
    utilisation/…   share of time environments were in an episode, engines answered, the trainer updated
    throughput/…    episodes and environment steps that were stored, per minute

The step of a point is the policy version the update made, its time the moment it was committed. The same
record gives the same points, whenever it is read.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from dart.core.records import Event, Version
from dart.inspect.utilisation import ACTIVITIES, TimeWindow, spent, total

STALENESS = "staleness_"
MINUTE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The figures of one update."""

    version: int
    unix_s: float
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """What the run did between the update before and this one."""

    successes: int
    """Successes among the newest episodes up to this update."""
    episodes: int
    """Number of those episodes."""
    stored_episodes: int
    stored_steps: int
    load: Iterable[Event]
    """Load events from a little before the update before to a little after this one."""
    actors: Mapping[str, float]
    """Mean number of actors of each kind (`dart.inspect.utilisation.ACTIVITIES`)."""


def point(before: Version, version: Version, between: Between) -> Point:
    """The point of an update.

    before   the version it started from
    """
    figures = dict(_figures(version.metrics))
    if between.episodes:
        figures["curve/success"] = between.successes / between.episodes
    if version.created_unix_s > before.created_unix_s:
        window = TimeWindow(begins_unix_s=before.created_unix_s, ends_unix_s=version.created_unix_s)
        figures |= dict(_pace(between, window))
    return Point(version=version.version, unix_s=version.created_unix_s, figures=figures)


def _figures(metrics: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    for name, value in metrics.items():
        is_staleness = name.startswith(STALENESS)
        yield f"staleness/{name.removeprefix(STALENESS)}" if is_staleness else f"update/{name}", value


def _pace(between: Between, window: TimeWindow) -> Iterator[tuple[str, float]]:
    counted = spent(between.load, window)
    for kind, (prefix, activity) in ACTIVITIES.items():
        yield (
            f"utilisation/{kind}",
            total(counted, prefix, activity) / (between.actors[kind] * window.seconds),
        )
    yield "throughput/episodes_per_minute", MINUTE_S * between.stored_episodes / window.seconds
    yield "throughput/steps_per_minute", MINUTE_S * between.stored_steps / window.seconds
