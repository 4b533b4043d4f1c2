"""When a task is quarantined, for how long, and what releases it."""

import pytest

from dart.curation.task_quarantine import (
    HEALTHY,
    TaskHealth,
    TaskQuarantine,
    TaskQuarantineSettings,
    after_demonstration,
    after_episode,
    after_fault,
    after_group_without_success,
    is_unplayable,
    judge,
)

NOW = 1000.0
LIMITS = TaskQuarantineSettings(
    groups_without_success=2, failed_attempts=4, lost_environments=3, duration_s=100.0
)
FAULTS_ALONE = TaskQuarantineSettings(
    groups_without_success=0, failed_attempts=4, lost_environments=3, duration_s=100.0
)


def health_after(
    events: str, limits: TaskQuarantineSettings = LIMITS, health: TaskHealth = HEALTHY, opened: float = NOW
) -> TaskHealth:
    """f: fault told, l: environment lost, e: episode failed, s: success, g: group failed, n: group of which
    nothing was played, p: a demonstration was added.

    opened   when the groups were opened
    """
    for event in events:
        match event:
            case "f" | "l":
                health = after_fault(health, environment_lost=event == "l")
            case "e" | "s":
                health = after_episode(health, limits, succeeded=event == "s")
            case "g" | "n":
                health = after_group_without_success(health, opened, any_finished=event == "g")
            case "p":
                health = after_demonstration(health)
    return health


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ("", ""),
        ("ll", ""),
        ("lll", "3 environments in a row died while playing it"),
        ("llell", ""),
        ("llfll", "5 attempts in a row ended by a fault"),
        ("fff", ""),
        ("ffff", "4 attempts in a row ended by a fault"),
        ("fffefff", ""),
        ("g", ""),
        ("gg", "2 groups in a row had no success"),
        ("gsg", ""),
        ("gpg", ""),  # the pool counts as a success
        ("nnn", ""),  # nothing was played: nothing is known of the task
        ("geg", "2 groups in a row had no success"),
    ],
)
def test_a_task_quarantined_after_too_much_in_a_row_and_says_of_what(events: str, reason: str) -> None:
    verdict = judge(health_after(events), LIMITS, NOW)
    begun = TaskQuarantine(until_unix_s=NOW + 100, length_s=100.0)
    assert verdict == ((begun, reason) if reason else None)


def test_groups_without_success_are_no_reason_where_they_do_not_count() -> None:
    assert judge(health_after("g" * 50, FAULTS_ALONE), FAULTS_ALONE, NOW) is None


@pytest.mark.parametrize(("events", "unplayable"), [("lll", True), ("ffff", True), ("gg", False)])
def test_faults_make_what_is_live_of_it_unplayable(events: str, unplayable: bool) -> None:
    assert is_unplayable(health_after(events), LIMITS) is unplayable


QUARANTINED = TaskHealth(quarantine=TaskQuarantine(until_unix_s=NOW, length_s=100.0))


@pytest.mark.parametrize("events", ["g", "fn", "ln", "lll", "ffff"])
def test_a_trial_without_success_doubles_the_rest(events: str) -> None:
    verdict = judge(health_after(events, LIMITS, QUARANTINED), LIMITS, NOW)
    assert verdict is not None
    quarantine, _ = verdict
    assert quarantine == TaskQuarantine(until_unix_s=NOW + 200, length_s=200.0)


def test_a_trial_of_which_nothing_was_played_for_no_fault_of_the_task_is_repeated() -> None:
    assert judge(health_after("n", LIMITS, QUARANTINED), LIMITS, NOW) is None


@pytest.mark.parametrize("events", ["g", "gg"])
def test_groups_that_were_on_their_way_when_the_rest_began_are_no_trial(events: str) -> None:
    assert judge(health_after(events, LIMITS, QUARANTINED, opened=NOW - 1), LIMITS, NOW) is None


@pytest.mark.parametrize(
    ("limits", "events", "is_released"),
    [
        (LIMITS, "s", True),
        (LIMITS, "p", True),
        (LIMITS, "e", False),
        (FAULTS_ALONE, "e", True),  # it could be played
        (LIMITS, "l", False),
    ],
)
def test_a_success_releases_a_task_or_any_end_where_only_faults_count(
    limits: TaskQuarantineSettings, events: str, is_released: bool
) -> None:
    verdict = judge(health_after(events, limits, QUARANTINED), limits, NOW)
    assert (verdict is not None) is is_released
    if verdict is not None:
        what = "an episode was played to its end" if limits is FAULTS_ALONE else "a group had a success"
        assert verdict == (None, f"{what} after 100 s of quarantine")
