"""Notices a call of an environment that does not return, and one in which something was late.

An environment keeps the deadline of each call itself (`dart.environments.protocol`). One that does not, for
instance because it waits for a socket without a limit, would hold its actor for ever: the lease is revoked,
but the actor never plays again. So the actor ends when a call has lasted longer than a lease, after which
nothing that it returns counts, and its supervisor starts it again.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from actors.errors import WorkOverdue
from actors.lateness import Lateness
from dart.config.failing_time import RESET_FACTOR
from dart.environments.faults import InfrastructureFault

CHECK_S = 5.0
"""How often an actor checks the call of its environment that is in progress."""


class CallWatch:
    """Knows which call of an environment is in progress, and since when.

    kind      kind of the environment, for the error
    lease_s   length of a lease (`curation.lease_s`)
    now_s     function that returns the time of a monotonic clock
    """

    def __init__(self, kind: str, lease_s: float, now_s: Callable[[], float]) -> None:
        self._kind = kind
        self._limit_s = RESET_FACTOR * lease_s
        self._now_s = now_s
        self._call = ""
        """Name of the method that is called; empty between two calls."""
        self._since_s = 0.0
        self._checked_s = now_s()
        self._lateness = Lateness()

    @contextmanager
    def during(self, call: str) -> Iterator[None]:
        """Watch the `with` block as a call of the method of this name. Blocks must not nest.

        Raises InfrastructureFault for a TimeoutError: something that the environment waited for was late.
        """
        self._call, self._since_s = call, self._now_s()
        try:
            yield
        except TimeoutError as late:
            why = f": {late}" if str(late) else ""
            raise InfrastructureFault(f"{call} timed out inside the environment{why}") from late
        finally:
            self._call = ""

    def check(self) -> None:
        """Raise WorkOverdue if the call in progress has lasted longer than a lease.

        Call this method every `CHECK_S`: a check that comes late shows that the process was suspended, and
        this time does not count.
        """
        now_s = self._now_s()
        self._lateness.note(self._checked_s, self._checked_s + CHECK_S, now_s)
        self._checked_s = now_s
        if not self._call or self._lateness.counted_s(now_s - self._since_s, now_s) < self._limit_s:
            return
        raise WorkOverdue(
            f"{self._call} of an environment of kind {self._kind!r} has not returned for "
            f"{self._limit_s:g} s, longer than a lease (curation.lease_s): let it end within its deadline_s, "
            "and await what blocks in a thread (asyncio.to_thread)"
        )
