"""Time that is handed in."""

import pytest

from actors.clock import ManualClock, SystemClock


def test_a_manual_clock_moves_only_when_told_to() -> None:
    clock = ManualClock(now_s=5.0, unix_offset_s=1000.0)
    assert (clock.monotonic_s(), clock.unix_s()) == (5.0, 1005.0)
    clock.advance(2.5)
    assert (clock.monotonic_s(), clock.boot_s(), clock.unix_s()) == (7.5, 7.5, 1007.5)


def test_the_wall_clock_of_a_manual_clock_can_be_set_ahead_alone() -> None:
    clock = ManualClock(now_s=5.0, unix_offset_s=1000.0)
    clock.set_unix_ahead(60.0)
    assert (clock.monotonic_s(), clock.boot_s(), clock.unix_s()) == (5.0, 5.0, 1065.0)


def test_a_manual_clock_does_not_go_back() -> None:
    with pytest.raises(ValueError, match=r"advance\(-0.1\)"):
        ManualClock().advance(-0.1)


def test_the_system_clock_never_goes_back() -> None:
    clock = SystemClock()
    moments = [clock.monotonic_s() for _ in range(100)]
    assert moments == sorted(moments)
    assert clock.boot_s() >= moments[-1], "it counts the time in which the machine was suspended, too"
    assert clock.unix_s() > 1_700_000_000
