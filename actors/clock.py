"""Clocks: time is passed in, so that a test of minutes runs in milliseconds."""

import time
from typing import Protocol


class Clock(Protocol):
    """The kinds of time that actors read."""

    def monotonic_s(self) -> float:
        """Seconds that never go back; all processes of a machine read the same clock."""
        ...

    def boot_s(self) -> float:
        """Seconds since the machine started, those included in which it was suspended.

        Setting the wall clock does not change them. All processes of a machine read the same clock.
        """
        ...

    def unix_s(self) -> float:
        """Wall-clock seconds, for moments that must mean the same after a restart."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def monotonic_s(self) -> float:
        return time.monotonic()

    def boot_s(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def unix_s(self) -> float:
        return time.time()


class ManualClock:
    """A clock that moves only by `advance`."""

    def __init__(self, now_s: float = 0.0, unix_offset_s: float = 1_700_000_000.0) -> None:
        self._now_s = now_s
        self._unix_offset_s = unix_offset_s

    def monotonic_s(self) -> float:
        return self._now_s

    def boot_s(self) -> float:
        return self._now_s

    def unix_s(self) -> float:
        return self._now_s + self._unix_offset_s

    def advance(self, seconds: float) -> None:
        """Move time forward. Raises ValueError for a negative number of seconds."""
        if seconds < 0:
            raise ValueError(f"a monotonic clock cannot go back, got advance({seconds!r})")
        self._now_s += seconds

    def set_unix_ahead(self, seconds: float) -> None:
        """Set the wall clock alone ahead, or back by a negative number, as an operator does.

        A suspended machine looks the same, except in `boot_s`.
        """
        self._unix_offset_s += seconds
