"""How often placed actors may fail, all of them together. Pure.

The supervisor on an actor's host gives up by its own limit, and the leader places the actor again under a
supervisor that has failed nothing yet. So only the leader sees how often an actor fails. It counts each start
that fails and each restart on a host.

The host with the most failures does not count while the equals of what failed there are up on other hosts.
So one broken machine does not end the work of the others, nor use up the failures that they may have.

As in `supervision.budget`, the moments are taken on the actor's own clock. That clock runs while the actor is
up, so failures of an actor that never gets ready are counted however far apart they are.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from supervision.child_spec import Budget

HasEqual = Callable[[str, str], bool]
"""Says of an actor and a host whether an actor that needs the same is up on another host."""


@dataclass(slots=True)
class PlacementBudget:
    """The failures of all placed actors. Not thread-safe; one owner."""

    limit: Budget
    _up_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """By name, the seconds for which an actor was up: its own clock."""
    _restarts: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By name, the number of the last placement that was up, and how often its host had restarted it."""
    _failures: dict[str, tuple[tuple[str, float], ...]] = field(default_factory=dict)
    """By host, the last failures in the window: name of the actor, and the moment on its clock."""

    def was_up(
        self,
        name: str,
        host: str,
        number: int,
        *,
        restarts: int,
        reason: str,
        for_s: float,
        has_equal: HasEqual,
    ) -> str:
        """Note that an actor was up for `for_s` more seconds. Returns what `failed` returns.

        number     the number of its placement
        restarts   how often its host has restarted it in this placement
        reason     why it ended the last time
        """
        known, before = self._restarts.get(name, (number, 0))
        self._restarts[name] = number, restarts
        self._up_s[name] += for_s
        whys = [
            self.failed(name, host, reason, has_equal=has_equal)
            for _ in range(restarts - (before if known == number else 0))
        ]
        return whys[-1] if whys else ""

    def failed(self, name: str, host: str, reason: str, *, has_equal: HasEqual) -> str:
        """Note a failure of an actor. Returns why it is one too many; an empty text if it is not."""
        most, within_s = self.limit.max_restarts, self.limit.max_seconds
        self._let_go()
        failures = (*self._failures.get(host, ()), (name, self._up_s[name]))
        self._failures[host] = failures[-most - 1 :]  # more of one host change no decision
        if not self._are_too_many(has_equal):
            return ""
        hosts = ", ".join(map(repr, sorted(self._failures)))
        where = f" on {hosts}" if len(self._failures) > 1 else ""
        return (
            f"placed actors failed more than {most} times in {within_s:g} s{where}; "
            f"the last was {name!r} on {host!r}: {reason}"
        )

    def forget(self, name: str) -> None:
        """Forget an actor that is placed no more."""
        self._up_s.pop(name, None)
        self._restarts.pop(name, None)
        for host, failures in self._failures.items():
            self._failures[host] = tuple(failure for failure in failures if failure[0] != name)

    def _let_go(self) -> None:
        """Forget the failures that have left the window."""
        for host, failures in list(self._failures.items()):
            kept = tuple(f for f in failures if self._up_s[f[0]] - f[1] <= self.limit.max_seconds)
            self._failures[host] = kept
            if not kept:
                del self._failures[host]

    def _are_too_many(self, has_equal: HasEqual) -> bool:
        most, total = self.limit.max_restarts, sum(map(len, self._failures.values()))
        worst, failures = max(self._failures.items(), key=lambda of_host: len(of_host[1]))
        if total - len(failures) > most:
            return True
        return total > most and not all(has_equal(name, worst) for name, _ in failures)
