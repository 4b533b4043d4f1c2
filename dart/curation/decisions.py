"""What the curator decides; a group to open and a demonstration to add are calls of the record.

Carrying a decision out and writing it down is the caller's.
"""

from dataclasses import dataclass

from dart.core.types import FaultKind
from dart.curation.groups import DropReason


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLease:
    """Lease the next new rollout of a group."""

    group_id: int
    deadline_unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignLease:
    """Lease a rollout that awaits another attempt."""

    rollout_id: int
    deadline_unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeLease:
    """Take a lease away: its attempt is spent."""

    rollout_id: int
    fence: int
    fault_kind: FaultKind
    detail: str
    max_attempts: int
    environment_lost: bool = False
    """Its environment died or hung; otherwise it lives and reported a fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoWork:
    """Nothing may be played now."""

    retry_after_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardGroup:
    """Drop a group that is not to be trained."""

    group_id: int
    reason: DropReason


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveBatch:
    """Lease these groups to the trainer for one update."""

    group_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoBatch:
    """No batch can be trained now."""

    retry_after_s: float
    reason: str
