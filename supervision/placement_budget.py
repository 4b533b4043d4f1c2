"""How often placed actors may fail, all of them together, before the leader gives up. Pure.

The supervisor on an actor's host gives up by its own limit, and the leader places the actor again under a
supervisor that has failed nothing yet. So only the leader sees how often an actor fails. It counts each start
that fails and each restart on a host.

The failures of one host alone do not count as too many while its actors' equals are up on other hosts: one
broken machine does not end the work of the others.

As in `supervision.budget`, the moments are taken on the actor's own clock. That clock runs while the actor is
up, so failures of an actor that never gets ready are counted however far apart they are.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from supervision.budget import add_restart_of
from supervision.child_spec import Budget
from supervision.errors import PlacedActorsFail


@dataclass(slots=True)
class PlacementBudget:
    """The failures of all placed actors. Not thread-safe; one owner."""

    limit: Budget
    _up_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """By name, the seconds for which an actor was up: its own clock."""
    _restarts: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By name, the number of the last placement that was up, and how often its host had restarted it."""
    _failures: tuple[tuple[tuple[str, str], float], ...] = ()
    """Name and host of each failure, and its moment on the clock of the actor."""

    def was_up(
        self,
        name: str,
        host: str,
        number: int,
        *,
        restarts: int,
        reason: str,
        for_s: float,
        has_equal: bool = False,
    ) -> None:
        """Note that an actor was up for `for_s` more seconds. Raises PlacedActorsFail.

        number     the number of its placement
        restarts   how often its host has restarted it in this placement
        reason     why it ended the last time
        has_equal  as for `failed`
        """
        known, before = self._restarts.get(name, (number, 0))
        self._restarts[name] = number, restarts
        self._up_s[name] += for_s
        for _ in range(restarts - (before if known == number else 0)):
            self.failed(name, host, reason, has_equal=has_equal)

    def failed(self, name: str, host: str, reason: str, *, has_equal: bool = False) -> None:
        """Note a failure of an actor. Raises PlacedActorsFail if it is one too many.

        has_equal   whether an actor that needs the same is up on another host
        """
        most, within_s = self.limit.max_restarts, self.limit.max_seconds
        self._failures, holds = add_restart_of(
            (name, host),
            self._failures,
            lambda one: self._up_s[one[0]],
            max_restarts=most,
            max_seconds=within_s,
        )
        is_one_host = {of_host for (_, of_host), _ in self._failures} == {host}
        if not holds and not (is_one_host and has_equal):
            raise PlacedActorsFail(
                f"placed actors failed more than {most} times in {within_s:g} s; "
                f"the last was {name!r} on {host!r}: {reason}"
            )
