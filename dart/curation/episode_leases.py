"""Leases of evaluation and guided episodes. The curator alone keeps them, so they are void when it restarts.

An episode is leased again only after its lease has ended: the environment died, failed or took longer than a
lease lasts. Only the environment that holds the lease may send a result.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from dart.core.types import FaultKind
from dart.curation.lease_deadline import is_overdue
from dart.curation.stall_diagnosis import Playing

FENCES_PER_INCARNATION = 2**32

LOOKS_PER_REQUEST = 64
"""Number of leases whose holders are checked at each request for work, in turn. So the time of a request does
not grow with the number of leases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeLease:
    """Which environment plays an episode, and until when."""

    environment: str
    incarnation: int | None
    """Incarnation of the environment; None if it was not known when the environment asked."""
    fence: int
    """Number of the lease, which no other lease of this kind has. The environment sends it back with its
    report."""
    began_unix_s: float
    deadline_unix_s: float
    what: str
    """The episode in words."""


L = TypeVar("L", bound=EpisodeLease)


class EpisodeLeases(ABC, Generic[L]):
    """The leases of one kind of episode.

    lease_s       length of a lease
    incarnation   incarnation of the curator; leases of an earlier curator are void
    """

    def __init__(self, *, lease_s: float, incarnation: int) -> None:
        self._lease_s = lease_s
        self._next_fence = incarnation * FENCES_PER_INCARNATION
        self._leases: dict[int, L] = {}
        """The leases that have not ended, by fence, the oldest first."""
        self._fences_of: dict[str, set[int]] = {}
        """The fences of each environment's leases."""
        self._to_look_at: deque[int] = deque()
        """The fences of the leases, in the order in which their holders are checked next."""
        self._being_recorded: set[int] = set()
        """Fences of leases whose result is being written to the record."""

    @abstractmethod
    def failed(self, lease: L, kind: FaultKind, detail: str) -> None:
        """End a lease and spend an attempt of its episode."""

    def interrupted(self, lease: L, detail: str) -> None:
        """End the lease of an environment that was asked to stop; no attempt is spent."""
        self.end(lease.fence)

    def end(self, fence: int) -> L | None:
        """End a lease and return it; None if it has ended already."""
        lease = self._leases.pop(fence, None)
        if lease is not None:
            fences = self._fences_of[lease.environment]
            fences.discard(fence)
            if not fences:
                del self._fences_of[lease.environment]
        return lease

    def holder(self, fence: int) -> L | None:
        """Return the lease with this fence; None if this lease has ended."""
        return self._leases.get(fence)

    def give_up_overdue(self, now_unix_s: float, waited_unix_s: Callable[[str], float]) -> None:
        """End the leases whose deadlines have passed; each spends an attempt of its episode.

        waited_unix_s   function that returns when an environment last could not store what it played
        """
        for lease in self._open(list(self._leases)):
            waited_s = waited_unix_s(lease.environment)
            if is_overdue(lease.deadline_unix_s, waited_s, self._lease_s, now_unix_s):
                detail = f"{lease.environment} did not report within {self._lease_s:g} s (curation.lease_s)"
                self.failed(lease, FaultKind.INFRASTRUCTURE, detail)

    @property
    def num_playing(self) -> int:
        """The number of episodes that are leased."""
        return len(self._leases)

    def playing(self, now_unix_s: float) -> Iterator[Playing]:
        """Yield a description of each episode that is leased."""
        for lease in self._leases.values():
            for_s = now_unix_s - lease.began_unix_s
            yield Playing(environment=lease.environment, what=lease.what, for_s=for_s)

    def _asks(self, environment: str, incarnation_of: Callable[[str], int | None]) -> None:
        """End the leases of an environment that asks for work, and fail those of processes that have ended.

        incarnation_of   function that returns the incarnation of an environment; None if it does not run
        """
        for held in self._open(sorted(self._fences_of.get(environment, ()))):
            self._fail_if_ended(held, incarnation_of)
            self.end(held.fence)  # it asks, so it plays nothing: the reply with this lease got lost
        for _ in range(min(LOOKS_PER_REQUEST, len(self._to_look_at))):
            fence = self._to_look_at.popleft()
            for held in self._open((fence,)):
                self._fail_if_ended(held, incarnation_of)
            if fence in self._leases:
                self._to_look_at.append(fence)

    def _fail_if_ended(self, held: L, incarnation_of: Callable[[str], int | None]) -> None:
        """Fail a lease if the process that got it has ended."""
        if held.incarnation is not None and incarnation_of(held.environment) != held.incarnation:
            self.failed(held, FaultKind.INFRASTRUCTURE, f"{held.environment} ended while it played")

    def _begin(
        self, make: Callable[..., L], environment: str, incarnation: int | None, now_unix_s: float
    ) -> L:
        """Return a new lease; `make` makes it from what this table knows of it."""
        fence = self._next_fence = self._next_fence + 1
        self._fences_of.setdefault(environment, set()).add(fence)
        self._to_look_at.append(fence)
        lease = self._leases[fence] = make(
            environment=environment,
            incarnation=incarnation,
            fence=fence,
            began_unix_s=now_unix_s,
            deadline_unix_s=now_unix_s + self._lease_s,
        )
        return lease

    def _open(self, fences: Iterable[int]) -> list[L]:
        """Return the leases with these fences that have not ended and whose result is not being recorded."""
        return [
            self._leases[one] for one in fences if one in self._leases and one not in self._being_recorded
        ]
