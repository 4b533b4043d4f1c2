"""Outages: when most of a pool fails at once, that is one event with one cause. Pure.

Something that the children have in common has failed: the computer they run on, the network, the server that
provides them. To restart all of them again and again would report one cause a hundred times, and put load on
a server that is just coming up. So only one child, the canary, is restarted, with its backoff. The others
wait until the canary, or any child that failed, stays up. Meanwhile no budget is spent and no child is
quarantined.

A child may be ready at once although the machine that it uses takes minutes to come up. So a child counts as
staying up when it has been used, or has run for `healthy_s` of its breaker.

Children that fail one after the other, each after some work, are not an outage: a child that stays up again
does not count as failed, and what ran before an outage does not end it. Failures before an outage stay spent.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from supervision.actions import Child, Report, Status

WITHIN_S = 60.0
"""Failures this close together are counted as one event."""

FEWEST = 3
"""The fewest failures that count as one event."""

STAYS_UP_S = 20.0
"""How long a child without a breaker must run to count as staying up, which ends the outage."""


@dataclass(slots=True)
class Outage:
    """The recent failures of a supervisor's children, and the canary of an outage."""

    failed: dict[str, tuple[float, str]] = field(default_factory=dict)
    """When and why each child failed last. Without an outage only failures within `WITHIN_S` are kept."""
    canary: str = ""
    """The child that is tried; empty when there is no outage."""
    began_s: float = 0.0

    @property
    def is_on(self) -> bool:
        return bool(self.canary)

    def note(self, id_: str, reason: str, now_s: float) -> None:
        """Note one more failure."""
        self.failed[id_] = (now_s, reason)
        if not self.is_on:
            self.failed = {
                child: (at_s, why) for child, (at_s, why) in self.failed.items() if now_s - at_s <= WITHIN_S
            }

    def begins(self, children: Mapping[str, Child], share: float, now_s: float) -> bool:
        """Whether an outage begins while none lasts: more than ``share`` of the children are failing.

        Those that are gone, or stay up again, are no longer counted.
        """
        self.failed = {
            id_: noted
            for id_, noted in self.failed.items()
            if id_ in children and now_s < _stays_up_at_s(children[id_], -math.inf)
        }
        return len(self.failed) >= FEWEST and len(self.failed) > share * len(children)

    def begin(self, canary: str, num_children: int, now_s: float) -> Report:
        """Begin the outage: from now on ``canary`` is tried for the others. Returns the report."""
        self.canary, self.began_s = canary, now_s
        why = (
            f"{len(self.failed)} of {num_children} children failed within {WITHIN_S:g} s: "
            f"{cause_of(self.failed)}; {canary} is restarted until it stays up, the others wait"
        )
        return Report("outage", why, canary)

    def survivor(self, children: Mapping[str, Child], now_s: float) -> str:
        """The id of a child that has failed in the outage and has stayed up since; empty if there is none."""
        return next((id_ for id_, at_s in self._stay_up_at_s(children).items() if now_s >= at_s), "")

    def wake_s(self, children: Mapping[str, Child]) -> float:
        """The moment at which `survivor` may find a child, even if nothing happens."""
        return min(self._stay_up_at_s(children).values(), default=math.inf)

    def _stay_up_at_s(self, children: Mapping[str, Child]) -> dict[str, float]:
        """The moments from which the children that failed show that the outage is over; empty without one."""
        failed = (id_ for id_ in self.failed if self.is_on and id_ in children)
        return {id_: _stays_up_at_s(children[id_], self.began_s) for id_ in failed}

    def end(self, survivor: str, now_s: float) -> Report:
        """End the outage: every child is tried again. Without a survivor, outages have been switched off."""
        lasted_s, canary = now_s - self.began_s, self.canary
        self.failed, self.canary = {}, ""
        if not survivor:
            return Report("outage_over", f"after {lasted_s:.0f} s, because max_failing was set to 1", canary)
        return Report("outage_over", f"{survivor} stays up again after {lasted_s:.0f} s", survivor)


def cause_of(failed: Mapping[str, tuple[float, str]]) -> str:
    """The most frequent reason, in the words of its first failure; reasons may differ in numbers."""
    alike = Counter(_without_numbers(why) for _, why in failed.values())
    most, count = alike.most_common(1)[0]
    first = next(why for _, why in failed.values() if _without_numbers(why) == most)
    return f"{count} of them ended with: {first}" if count < len(failed) else f"all ended with: {first}"


def _without_numbers(reason: str) -> str:
    return re.sub(r"\d+", "#", reason)


def _stays_up_at_s(child: Child, from_s: float) -> float:
    """The moment from which a child counts as staying up; infinity for a child that does not run.

    from_s   what a process did before this moment does not count
    """
    if child.status is not Status.RUNNING:
        return math.inf
    if child.uses and child.since_s >= from_s:
        return child.since_s
    breaker = child.spec.breaker
    return max(child.since_s, from_s) + (STAYS_UP_S if breaker is None else breaker.healthy_s)
