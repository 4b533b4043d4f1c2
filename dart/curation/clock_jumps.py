"""Notices that the wall clock jumped ahead: it was set, or the machine was suspended.

The deadlines of leases are in unix seconds, because they must mean the same after a restart of the curator.
So a jump of the wall clock takes time from every lease that the environments did not have.
"""

from actors.clock import Clock

JUMP_S = 5.0
"""Advance of the wall clock beyond the monotonic clock, between two checks, that counts as a jump. A clock
that is only corrected by degrees advances by less."""


class ClockJumps:
    """Compares the wall clock of a machine with its monotonic clock, which cannot be set."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_s = self._read_offset_s()

    def has_jumped_ahead(self) -> bool:
        """Whether the wall clock has jumped ahead since the last call of this method."""
        before_s, self._offset_s = self._offset_s, self._read_offset_s()
        return self._offset_s - before_s > JUMP_S

    def _read_offset_s(self) -> float:
        return self._clock.unix_s() - self._clock.monotonic_s()
