"""Whether a process that reads the ages of others' beats was itself suspended meanwhile. Pure.

A container that is paused, a machine that sleeps and a frozen cgroup suspend readers and writers alike. After
that every beat is old, and no actor hangs. So a reader that wakes late counts no silence before that moment,
and a supervisor neither a start nor a stop.
"""

import math
from dataclasses import dataclass

LATE_S = 1.0
"""How many seconds late a reader may wake before it counts as suspended; a busy machine takes less."""


@dataclass(slots=True)
class Lateness:
    """When a reader of beats last woke too late; times are seconds on one monotonic clock."""

    noticed_s: float = -math.inf

    def note(self, due_s: float, now_s: float) -> bool:
        """Note that the reader woke at ``now_s`` and was due at ``due_s``. Returns whether it was late."""
        is_late = now_s - due_s > LATE_S
        if is_late:
            self.noticed_s = now_s
        return is_late

    def since_s(self, now_s: float) -> float:
        """The seconds that the reader has woken on time; infinity if it was never late."""
        return now_s - self.noticed_s
