"""The load of an actor: seconds spent in each activity, and counts.

Utilisation is time spent divided by wall-clock time:

    env_util         in_episode_s / wall_s    in an episode (strict_s: only reset, step, observe, evaluate)
    rollout_util     busy_s / wall_s          at least one request is being answered
    capacity_util    weighted_s / wall_s      integral of min(1, requests being answered / max_batch)
    trainer_util     update_s / wall_s        in an update (starved_s: waiting for a batch; blocked_s: waiting
                                              for anything else)
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

LOAD = "load"
"""Kind of the events that record these figures; the subject of such an event is the actor."""


def is_new_incarnation(unix_s: float, wall_s: float, before_unix_s: float, before_wall_s: float) -> bool:
    """Whether a load event is of a later incarnation of its actor than the actor's event before it.

    unix_s, wall_s                 time of the event, and the field `wall_s` in it
    before_unix_s, before_wall_s   those of the event before it
    """
    return unix_s - wall_s >= before_unix_s or wall_s < before_wall_s


class LoadMeter:
    """Accumulates the seconds that an actor spends in each activity, and counts, since it started.

    now_s   function that returns the time of a monotonic clock
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._started_s = now_s()
        self._totals: dict[str, float] = {}
        self._running: dict[str, tuple[float, float]] = {}
        """Start time and weight of each activity that goes on."""

    def weigh(self, activity: str, weight: float) -> None:
        """From now on, count each second for this activity as `weight` seconds; 0 ends the activity."""
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
        """Count the time of the `with` block for this activity. Blocks of the same activity must not nest."""
        self.weigh(activity, 1.0)
        try:
            yield
        finally:
            self.weigh(activity, 0.0)

    def totals(self) -> Mapping[str, float]:
        """Return all seconds and counts so far, by name, including activities that go on. `wall_s` is the
        time since the meter was made."""
        now_s = self._now_s()
        totals = dict(self._totals)
        for activity, (since_s, weight) in self._running.items():
            totals[activity] = totals.get(activity, 0.0) + weight * (now_s - since_s)
        return totals | {"wall_s": now_s - self._started_s}
