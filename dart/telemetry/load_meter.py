"""The load of an actor: seconds spent in each activity, and counts.

Definitions (utilisation over time, not samples of a gauge):

    env_util          in_episode_s / wall          strict_s: in reset, step, observe and evaluate only
    rollout_util      busy_s / wall                at least one request in flight
    capacity_util     weighted_s / wall            sum of dt * min(capacity, in flight) / capacity
    trainer_util      update_s / wall              starved_s: waits for a batch; blocked_s: for anything else

Pure: a function provides the time.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

LOAD = "load"
"""Kind of the events with these figures; their subject is the actor."""


class LoadMeter:
    """Accumulates seconds by activity, and counts, since the actor started."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._started_s = now_s()
        self._totals: dict[str, float] = {}
        self._running: dict[str, tuple[float, float]] = {}
        """Start time and weight by running activity."""

    def weigh(self, activity: str, weight: float) -> None:
        """Count each second of this activity as `weight` seconds from now on; 0 ends the activity."""
        since_s, running = self._running.pop(activity, (0.0, 0.0))
        now_s = self._now_s()
        self.add(activity, running * (now_s - since_s))
        if weight > 0:
            self._running[activity] = now_s, weight

    def add(self, name: str, amount: float) -> None:
        """Add an amount to a count or to the seconds of an activity."""
        self._totals[name] = self._totals.get(name, 0.0) + amount

    @contextmanager
    def during(self, activity: str) -> Iterator[None]:
        """Count the time of the block; blocks of the same activity must not nest."""
        self.weigh(activity, 1.0)
        try:
            yield
        finally:
            self.weigh(activity, 0.0)

    def totals(self) -> Mapping[str, float]:
        """Return everything counted so far, running activities included, and `wall_s`."""
        now_s = self._now_s()
        totals = dict(self._totals)
        for activity, (since_s, weight) in self._running.items():
            totals[activity] = totals.get(activity, 0.0) + weight * (now_s - since_s)
        return totals | {"wall_s": now_s - self._started_s}
