"""What is counted over a run, as shares and rates over time."""

from types import SimpleNamespace
from typing import Any

import pytest

from dart.core.records import Event
from dart.inspect.formatting import parse_span
from dart.inspect.utilisation import Sizes
from dart.web import pages
from dart.web.charts import Bins, EpisodeCounts, per_minute, success_over_time, utilisation_over_time

BINS = Bins(begins_unix_s=1000.0, ends_unix_s=1040.0, count=4)
ENVIRONMENTS = ("env-", "in_episode_s", Sizes(((0.0, 2),)))


def load(actor: str, unix_s: float, wall_s: float, busy_s: float) -> Event:
    data = {"wall_s": wall_s, "in_episode_s": busy_s}
    return Event(event_id=0, unix_s=unix_s, kind="load", subject=actor, data=data)


def shares(*points: Event) -> list[float | None]:
    return [share for _, share in utilisation_over_time(points, BINS, *ENVIRONMENTS)]


def test_a_slot_is_used_as_much_as_its_actors_counted() -> None:
    one = [load("env-000", 1000.0, 10.0, 5.0), load("env-000", 1010.0, 20.0, 10.0)]
    other = [load("env-001", 1000.0, 10.0, 5.0), load("env-001", 1010.0, 20.0, 15.0)]

    assert shares(*one, *other)[0] == pytest.approx((5.0 + 10.0) / 20.0)


def test_what_was_counted_between_two_words_is_spread_over_their_bins() -> None:
    points = [load("env-000", 1005.0, 5.0, 0.0), load("env-000", 1025.0, 25.0, 10.0)]

    found = shares(*points)

    assert found == [pytest.approx(2.5 / 20), pytest.approx(5 / 20), pytest.approx(2.5 / 10), None]


def test_the_end_of_the_curve_is_of_the_time_that_was_told_by_all_who_still_tell() -> None:
    """Each tells every few seconds: the last bin is never told to its end."""
    points = [
        load(actor, 1000.0 + wall_s, wall_s, wall_s)
        for actor, last_s in (("env-000", 35.0), ("env-001", 33.0))
        for wall_s in (0.0, 10.0, 20.0, 30.0, last_s)
    ]

    assert shares(*points) == [pytest.approx(1.0)] * 4
    assert shares(*(one for one in points if one.unix_s <= 1030.0)) == [*[pytest.approx(1.0)] * 3, None]


def test_the_time_that_an_actor_has_not_told_yet_is_not_unused_if_actors_tell_it_less_often() -> None:
    points = [
        load(actor, 1000.0 + wall_s, wall_s, wall_s)
        for actor, last_s in (("env-000", 35.0), ("env-001", 8.0))
        for wall_s in (0.0, last_s)
    ]

    def at(silent_s: float) -> list[float | None]:
        found = utilisation_over_time(points, BINS, *ENVIRONMENTS, silent_s=silent_s)
        return [share for _, share in found]

    assert at(20.0) == [pytest.approx(0.9), *[pytest.approx(0.5)] * 3], "the other one is down"
    assert at(30.0) == [pytest.approx(1.0), None, None, None]


def test_the_time_of_one_that_is_down_is_unused() -> None:
    points = [load("env-000", 1000.0 + wall_s, wall_s, wall_s) for wall_s in (0.0, 10.0, 20.0, 30.0, 40.0)]

    assert shares(*points, load("env-001", 1010.0, 10.0, 10.0)) == [
        pytest.approx(share) for share in (1.0, 0.5, 0.5, 0.5)
    ]


def test_what_was_is_a_share_of_the_slots_there_were_then() -> None:
    points = [load("env-000", 1000.0 + wall_s, wall_s, wall_s) for wall_s in (0.0, 10.0, 20.0, 30.0, 40.0)]
    grown = Sizes(((1000.0, 1), (1015.0, 2), (1020.0, 4)))

    found = [share for _, share in utilisation_over_time(points, BINS, *ENVIRONMENTS[:2], grown)]

    assert found == [pytest.approx(share) for share in (1.0, 1 / 1.5, 1 / 4, 1 / 4)]


def test_the_time_in_which_a_sample_misses_the_end_of_an_incarnation_counts_as_busy_as_those_around_it() -> (
    None
):
    points = [load("env-000", 1010.0, 10.0, 10.0), load("env-000", 1030.0, 5.0, 5.0)]
    alone = Sizes(((0.0, 1),))

    def at(apart_s: float) -> list[float | None]:
        found = utilisation_over_time(points, BINS, *ENVIRONMENTS[:2], alone, apart_s)
        return [share for _, share in found]

    assert at(20.0) == [*[pytest.approx(1.0)] * 3, None]
    assert at(14.0) == [pytest.approx(1.0), None, pytest.approx(0.5), None], "it was down"


def test_a_new_incarnation_counts_from_zero() -> None:
    points = [load("env-000", 1010.0, 10.0, 10.0), load("env-000", 1020.0, 4.0, 4.0)]

    assert shares(*points)[:2] == [pytest.approx(10 / 20), pytest.approx(4 / 20)]


def test_nobody_of_another_kind_is_counted() -> None:
    assert shares(load("rollout-0", 1010.0, 10.0, 10.0)) == [None] * 4


@pytest.mark.parametrize(
    ("unix_s", "index"), [(0.0, 0), (1000.0, 0), (1009.9, 0), (1010.0, 1), (1040.0, 3), (9e9, 3)]
)
def test_every_moment_has_a_bin(unix_s: float, index: int) -> None:
    assert BINS.index(unix_s) == index


def test_a_point_of_the_success_curve_has_enough_episodes_behind_it() -> None:
    played = {
        0: EpisodeCounts(50, 0, 50),
        1: EpisodeCounts(50, 50, 50),
        3: EpisodeCounts(100, 100, 100),
    }

    found = success_over_time(played, BINS, episodes=50)

    assert [(end, score.rate, score.episodes) for end, score in found] == [
        (1010.0, 0.0, 50),
        (1020.0, 1.0, 50),
        (1040.0, 1.0, 100),
    ]


def test_a_short_run_has_a_curve_too() -> None:
    played = {index: EpisodeCounts(1, index % 2, 1) for index in range(4)}

    assert [score.rate for _, score in success_over_time(played, BINS)] == [0.0, 1.0, 0.0, 1.0]
    assert success_over_time({}, BINS) == []


def test_counts_become_rates() -> None:
    assert [rate for _, rate in per_minute({1: 5.0}, BINS)] == [0.0, 30.0, 0.0, 0.0]


def test_the_chart_of_throughput_has_steps_and_episodes_a_minute() -> None:
    chart = pages._throughput({1: EpisodeCounts(4, 1, 20)}, BINS)

    shown = [(one.name, [rate for _, rate in one.points]) for one in chart.series]
    assert shown == [("environment steps", [0.0, 120.0, 0.0, 0.0]), ("episodes", [0.0, 24.0, 0.0, 0.0])]


@pytest.mark.parametrize(
    ("began", "last", "window_s", "expected"),
    [
        (1000.0, 5000.0, None, (1000.0, 5000.0, 96)),
        (1000.0, 5000.0, 900.0, (4100.0, 5000.0, 96)),
        (1000.0, 1200.0, 900.0, (1000.0, 1200.0, 50)),
        (1000.0, 1010.0, None, (950.0, 1010.0, 15)),
    ],
    ids=["whole", "newest", "shorter than the window", "shorter than a minute"],
)
def test_the_charts_of_a_run_that_has_ended_end_with_it(
    began: float, last: float, window_s: float | None, expected: tuple[float, float, int]
) -> None:
    run: Any = SimpleNamespace(
        pid=None, store=SimpleNamespace(began_unix_s=lambda: began, last_unix_s=lambda: last)
    )

    bins = pages._bins(run, window_s)

    assert (*bins.span, bins.count) == expected


def test_a_time_that_the_charts_can_show_is_as_long_as_its_name_says() -> None:
    named = {name: parse_span(name) for name in pages.WINDOWS if name != "all"}

    assert {**pages.WINDOWS, **named} == pages.WINDOWS
    assert pages.WINDOWS["all"] is None
