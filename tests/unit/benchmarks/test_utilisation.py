"""Utilisation, throughput, staleness and bias over a window, against figures worked out by hand."""

import pytest

from benchmarks.utilisation import FinishedEpisode, quantile, utilisation
from dart.core.records import Event
from dart.inspect.utilisation import TimeWindow, spent, worked

WINDOW = TimeWindow(begins_unix_s=100.0, ends_unix_s=160.0)


def point(actor: str, unix_s: float, wall_s: float, **totals: float) -> Event:
    data = {"wall_s": wall_s, **totals}
    return Event(event_id=0, unix_s=unix_s, kind="load", subject=actor, data=data)


@pytest.mark.parametrize(
    ("begins", "ends", "share"),
    [
        (100, 160, 1.0),
        (90, 110, 0.5),
        (150, 170, 0.5),
        (40, 220, 1 / 3),
        (40, 100, 0.0),
        (160, 170, 0.0),
        (120, 120, 1.0),
        (100, 100, 0.0),
    ],
)
def test_a_window_takes_its_share_of_an_interval(begins: float, ends: float, share: float) -> None:
    assert WINDOW.share(begins, ends) == pytest.approx(share)


def test_a_window_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ValueError, match="too few updates"):
        TimeWindow(begins_unix_s=5.0, ends_unix_s=5.0)


def test_what_was_counted_before_the_window_and_after_it_is_left_out() -> None:
    points = [
        point("env-000", 90, 50, in_episode_s=40),
        point("env-000", 110, 70, in_episode_s=50),  # half of these 10 s lie in the window
        point("env-000", 150, 110, in_episode_s=80),
        point("env-000", 170, 130, in_episode_s=100),  # and half of these 20 s
    ]
    assert spent(points, WINDOW)["env-000"] == pytest.approx({"wall_s": 60, "in_episode_s": 5 + 30 + 10})


def test_the_order_of_the_points_does_not_matter() -> None:
    points = [point("a", 100, 10, busy_s=1), point("b", 120, 10, busy_s=3), point("a", 130, 40, busy_s=21)]
    assert spent(reversed(points), WINDOW) == spent(points, WINDOW)
    assert spent(points, WINDOW)["a"]["busy_s"] == pytest.approx(20)


@pytest.mark.parametrize(
    ("points", "parts"),
    [
        ([], [(100, 160)]),
        ([point("a", 200, 150)], [(100, 160)]),
        ([point("a", 110, 30), point("a", 150, 10)], [(100, 110), (140, 150)]),
        ([point("a", 110, 30), point("a", 150, 10), point("b", 140, 35)], [(100, 150)]),
        ([point("b", 130, 5), point("a", 170, 60)], [(110, 160)]),
        ([point("b", 90, 50), point("a", 200, 10)], [(100, 160)]),
    ],
)
def test_a_run_worked_while_one_of_its_actors_ran(
    points: list[Event], parts: list[tuple[float, float]]
) -> None:
    assert [(one.begins_unix_s, one.ends_unix_s) for one in worked(points, WINDOW)] == parts


@pytest.mark.parametrize(
    ("second", "in_window"),
    [
        # It counted 8 s by 110; the next one started at 120 and says at 130 that it counted 10 s.
        (point("env-000", 130, 10, in_episode_s=10), 8 + 10),
        # The same with a longer life than the first had, which alone does not show that it is another.
        (point("env-000", 150, 30, in_episode_s=25), 8 + 25),
        # The same incarnation goes on.
        (point("env-000", 130, 30, in_episode_s=28), 8 + 20),
    ],
)
def test_an_actor_that_was_started_again_counts_from_zero(second: Event, in_window: float) -> None:
    first = point("env-000", 110, 10, in_episode_s=8)
    assert spent([first, second], WINDOW)["env-000"]["in_episode_s"] == pytest.approx(in_window)


def test_a_counter_that_appears_later_began_at_zero() -> None:
    points = [point("trainer", 120, 20), point("trainer", 140, 40, update_s=15)]
    assert spent(points, WINDOW)["trainer"]["update_s"] == pytest.approx(15)


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([], 0.5, None),
        ([7], 0.5, 7),
        ([0, 1, 2, 3], 0.5, 1),
        ([0, 0, 0, 1, 1, 1, 1, 2, 2, 3], 0.95, 3),
        (list(range(1, 101)), 0.95, 95),
        ([1, 5], 1.0, 5),
    ],
)
def test_quantiles_are_nearest_ranks(values: list[float], share: float, expected: float | None) -> None:
    assert quantile(values, share) == expected


def run() -> tuple[list[Event], list[FinishedEpisode]]:
    """A minute of two environments, one engine and a trainer."""
    points = [
        point("env-000", 100, 30, in_episode_s=0, strict_s=0, engine_wait_s=0),
        point("env-000", 160, 90, in_episode_s=60, strict_s=36, engine_wait_s=24),
        point("env-001", 100, 30, in_episode_s=0),
        point("env-001", 160, 90, in_episode_s=48, strict_s=24, engine_wait_s=24),
        point("rollout-0", 100, 30, busy_s=5, weighted_s=1, requests=10, tokens=100),
        point("rollout-0", 160, 90, busy_s=50, weighted_s=31, requests=60, tokens=1300),
        point("trainer", 100, 30, update_s=0),
        point("trainer", 160, 90, update_s=12, starved_s=45, blocked_s=3),
        point("store", 160, 90, in_episode_s=1000),  # nobody's utilisation
    ]
    finished = [
        FinishedEpisode(
            step_versions=(0, 0, 1), tokens=90, stored_unix_s=101, trained_unix_s=110, trained_version=2
        ),
        FinishedEpisode(
            step_versions=(1,), tokens=30, stored_unix_s=120, trained_unix_s=150, trained_version=4
        ),
        FinishedEpisode(step_versions=(3,) * 6, tokens=180, stored_unix_s=140),
        FinishedEpisode(
            step_versions=(0,) * 9, tokens=9, stored_unix_s=90, trained_unix_s=95, trained_version=1
        ),
        FinishedEpisode(
            step_versions=(4,) * 9, tokens=9, stored_unix_s=161, trained_unix_s=170, trained_version=5
        ),
    ]
    return points, finished


def test_a_minute_worked_out_by_hand() -> None:
    figures = utilisation(*run(), WINDOW, environments=2, engines=1)

    assert figures.seconds == 60
    assert figures.env_util == pytest.approx(108 / 120)
    assert figures.env_util_strict == pytest.approx(60 / 120)
    assert figures.env_engine_wait == pytest.approx(48 / 120)
    assert figures.rollout_util == pytest.approx(45 / 60)
    assert figures.rollout_weighted == pytest.approx(30 / 60)
    assert (figures.trainer_util, figures.trainer_starved, figures.trainer_blocked) == pytest.approx(
        (0.2, 0.75, 0.05)
    )
    assert figures.actions_per_min == pytest.approx(4)
    assert figures.raw_actions_per_min == pytest.approx(50)
    assert figures.goodput == pytest.approx(4 / 50)
    # Staleness: trained at 1: 1, 1, 0; trained at 3: 2.
    assert (figures.staleness_p50, figures.staleness_p95, figures.staleness_max) == (1, 2, 2)
    assert figures.tokens_per_s == pytest.approx(120 / 60)
    assert figures.raw_tokens_per_s == pytest.approx(1200 / 60)
    assert figures.trained_length == pytest.approx(2)
    assert figures.sampled_length == pytest.approx(10 / 3)


def test_a_slot_without_an_environment_counts_as_unused() -> None:
    figures = utilisation(*run(), WINDOW, environments=4, engines=3)
    assert figures.env_util == pytest.approx(108 / 240)
    assert figures.rollout_util == pytest.approx(45 / 180)


def test_a_run_in_which_nothing_happened_has_no_figures_rather_than_zeros() -> None:
    figures = utilisation([], [], WINDOW, environments=2, engines=1)
    assert (figures.goodput, figures.staleness_p50, figures.trained_length, figures.sampled_length) == (
        (None,) * 4
    )
    assert figures.env_util == figures.actions_per_min == 0.0
