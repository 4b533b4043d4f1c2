"""How many environments and engines a run had at each time. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from dart.core.records import Event

if TYPE_CHECKING:
    from dart.config.config import Config

ENVIRONMENTS, ENGINES = "environments", "engines"
"""Fields of the event `pools_sized`."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of one pool over time."""

    changes: tuple[tuple[float, int], ...]
    """(unix seconds, size), oldest first; the first size also holds for the time before."""

    def mean(self, begins_unix_s: float, ends_unix_s: float) -> float:
        """The mean size between two moments."""
        if ends_unix_s <= begins_unix_s:
            return float(self._at(begins_unix_s))
        inside = [at for at, _ in self.changes if begins_unix_s < at < ends_unix_s]
        parts = pairwise([begins_unix_s, *inside, ends_unix_s])
        return sum(self._at(low) * (high - low) for low, high in parts) / (ends_unix_s - begins_unix_s)

    def most(self) -> int:
        """The largest size."""
        return max(count for _, count in self.changes)

    def _at(self, unix_s: float) -> int:
        return next((count for at, count in reversed(self.changes) if at <= unix_s), self.changes[0][1])


def sizes_in(config: "Config") -> dict[str, int]:
    """The sizes in a configuration, as the fields of an event `pools_sized`."""
    return {ENVIRONMENTS: config.environments.count, ENGINES: config.rollout.count}


ONE = Sizes(((0.0, 1),))


def sizes_of(events: Iterable[Event], pool: str, now: int) -> Sizes:
    """The sizes of a pool from events `pools_sized`, oldest first.

    now   the size now, for a record without such events
    """
    changes = tuple((event.unix_s, int(str(event.data[pool]))) for event in events)
    return Sizes(changes or ((0.0, now),))
