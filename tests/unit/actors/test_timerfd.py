"""The alarm: a moment of the monotonic clock as a readable descriptor."""

import os
import select
import time
from collections.abc import Iterator

import pytest

from actors.timerfd import Alarm

PATIENCE_S = 5.0


@pytest.fixture
def alarm() -> Iterator[Alarm]:
    alarm = Alarm()
    yield alarm
    os.close(alarm.fd)


def rings(alarm: Alarm, within_s: float = 0.0) -> bool:
    return bool(select.select([alarm.fd], [], [], within_s)[0])


def test_an_alarm_that_is_not_set_is_silent(alarm: Alarm) -> None:
    assert not rings(alarm)


def test_it_rings_not_before_its_moment(alarm: Alarm) -> None:
    at_s = time.monotonic() + 0.03
    alarm.set_no_later_than(at_s)
    assert rings(alarm, PATIENCE_S)
    assert time.monotonic() >= at_s


@pytest.mark.parametrize("ahead_s", [0.0, 1e-9, 1e-7, 1e-6, 1e-5])
def test_a_moment_less_than_a_microsecond_ahead_rings_too(alarm: Alarm, ahead_s: float) -> None:
    """Thespian's own wake-up rounds it to zero, takes that for no timer and sleeps for ever."""
    alarm.set_no_later_than(time.monotonic() + ahead_s)
    assert rings(alarm, PATIENCE_S)


@pytest.mark.parametrize("moment_s", [0.0, 1.0, -5.0])
def test_a_moment_in_the_past_rings_at_once(alarm: Alarm, moment_s: float) -> None:
    alarm.set_no_later_than(moment_s)
    assert rings(alarm, PATIENCE_S)


def test_a_later_moment_does_not_put_it_off(alarm: Alarm) -> None:
    alarm.set_no_later_than(time.monotonic() + 0.01)
    alarm.set_no_later_than(time.monotonic() + 3600)
    assert rings(alarm, PATIENCE_S)


def test_an_earlier_moment_brings_it_forward(alarm: Alarm) -> None:
    alarm.set_no_later_than(time.monotonic() + 3600)
    alarm.set_no_later_than(time.monotonic() + 0.01)
    assert rings(alarm, PATIENCE_S)


def test_once_acknowledged_it_is_silent_until_set_again(alarm: Alarm) -> None:
    alarm.set_no_later_than(0.0)
    assert rings(alarm, PATIENCE_S)
    alarm.acknowledge()
    assert not rings(alarm)
    alarm.set_no_later_than(time.monotonic())
    assert rings(alarm, PATIENCE_S)


def test_acknowledging_a_silent_alarm_harms_nothing(alarm: Alarm) -> None:
    alarm.acknowledge()
    assert not rings(alarm)
