"""How long a process that reads the ages of others' beats was itself suspended. Pure.

A container that is paused, a machine that sleeps and a frozen cgroup suspend readers and writers alike. After
that every beat is old, and no actor hangs. So a reader that wakes late does not count the time that it lost:
neither as silence, nor as time of a handler, a start or a stop.

A machine that is always busy makes each wake a little late. That must only lengthen deadlines: a reader that
took nothing but the last wake in time for the truth would never find an actor that hangs.
"""

import math
from collections import deque
from dataclasses import dataclass, field

LATE_S = 1.0
"""How many seconds late a reader may wake before it counts as suspended; a busy machine takes less."""

MOST_KEPT = 1000
"""How many late wakes are remembered: enough for deadlines of a quarter of an hour."""


@dataclass(slots=True)
class Lateness:
    """The times that a reader of beats lost; all times are seconds on one monotonic clock."""

    _lost: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=MOST_KEPT))
    """From when until when, the oldest first; none overlap."""

    def note(self, awake_s: float, due_s: float, now_s: float) -> float:
        """Note that the reader went to sleep at ``awake_s``, was due at ``due_s`` and woke at ``now_s``.

        Returns the seconds lost, 0 if it woke in time. A suspension may have begun at any moment of the
        sleep, so the whole sleep is lost. If the wake before was late as well, only the time since ``due_s``
        is: where every wake is late, some of each sleep counts.
        """
        before_s = self._lost[-1][1] if self._lost else -math.inf
        due_s = max(due_s, before_s)
        if now_s - due_s <= LATE_S:
            return 0.0
        is_late_again = awake_s - before_s <= LATE_S
        from_s = due_s if is_late_again else min(awake_s, due_s)
        self._lost.append((from_s, now_s))
        return now_s - from_s

    def counted_s(self, age_s: float, now_s: float) -> float:
        """The seconds of the last ``age_s`` seconds that were not lost."""
        since_s = now_s - age_s
        for from_s, to_s in reversed(self._lost):
            if to_s <= since_s:
                break
            age_s -= to_s - max(from_s, since_s)
        return max(0.0, age_s)
