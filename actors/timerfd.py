"""One alarm as a file descriptor (Linux timerfd), so that timers and mail wait in the same select.

Thespian's own wake-ups are not used: a remaining time under a microsecond
rounds to zero, is taken for "no timer", and the actor sleeps for ever.
"""

import contextlib
import ctypes
import os

_CLOCK_MONOTONIC = 1
_TFD_TIMER_ABSTIME = 1
_libc = ctypes.CDLL(None, use_errno=True)


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("it_interval", _Timespec), ("it_value", _Timespec))


class Alarm:
    """A descriptor that becomes readable at one moment of the monotonic clock."""

    def __init__(self) -> None:
        self.fd: int = _libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        self._at_s = float("inf")

    def set_no_later_than(self, monotonic_s: float) -> None:
        """Ring at this moment, unless an earlier one is set; a moment in the past rings at once."""
        if monotonic_s >= self._at_s:
            return
        self._at_s = monotonic_s
        at_ns = max(1, int(monotonic_s * 1e9))
        value = _Itimerspec(_Timespec(0, 0), _Timespec(at_ns // 1_000_000_000, at_ns % 1_000_000_000))
        if _libc.timerfd_settime(self.fd, _TFD_TIMER_ABSTIME, ctypes.byref(value), None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime failed")

    def acknowledge(self) -> None:
        """Silence the alarm after it rang, until it is set again."""
        self._at_s = float("inf")
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 8)

    def close(self) -> None:
        os.close(self.fd)
