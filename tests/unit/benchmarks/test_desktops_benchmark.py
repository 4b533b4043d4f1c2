"""What the benchmark of desktops concludes: each kind of wrong is found, and nothing else is."""

import copy
from typing import Any

import pytest

from benchmarks.desktops import dirty_starts, parse, ratio_of, table, verdicts, wrong_rewards

BOOKS = {"lost": 0, "doubled": 0, "violations": []}
RUN = {
    "exit_code": 0,
    "audit": BOOKS,
    "episodes": 40,
    "steps": 160,
    "attempts_spent": {"infrastructure": 2},
    "wrong_rewards": [],
    "dirty_starts": [],
}
FOUND = {
    "hangs": [],
    "minutes": 30.0,
    "desktops": 8,
    "killed": {"SIGKILL": 3},
    "orphans": [],
    "faults": {"crash": 2},
    "faulted_and_stored": [],
    "struck": {**RUN, "steps": 150},
    "calm": {**RUN, "steps": 200},
}


def found(**changes: Any) -> dict[str, Any]:
    return copy.deepcopy(FOUND) | changes


def broken(outcome: dict[str, Any]) -> list[str]:
    return [verdict.what for verdict in verdicts(outcome) if not verdict.is_kept]


def test_when_all_holds_nothing_is_broken() -> None:
    assert broken(found()) == []
    assert "throughput beside the run without faults: 75.0%" in table(found(), verdicts(found()))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"hangs": ["struck"]}, "both runs finish"),
        ({"orphans": ["12 Xvfb"]}, "processes left behind: 0"),
        ({"faulted_and_stored": [(5, 1)]}, "faulted attempts stored: 0"),
        ({"struck": {**RUN, "exit_code": 1}}, "the run with faults ends with exit code: 0"),
        ({"struck": {**RUN, "wrong_rewards": ["x"]}}, "rewards no script makes, with faults: 0"),
        ({"calm": {**RUN, "dirty_starts": ["x"]}}, "dirty starts beside it: 0"),
        ({"calm": {**RUN, "audit": {**BOOKS, "lost": 1}}}, "rollouts lost or doubled beside it: 0"),
        (
            {"struck": {**RUN, "audit": {**BOOKS, "violations": ["v"]}}},
            "rollouts lost or doubled with faults: 0",
        ),
    ],
)
def test_whatever_does_not_hold_is_named(changes: dict[str, Any], what: str) -> None:
    assert what in broken(found(**changes))


def test_a_reward_no_script_makes_is_found() -> None:
    episodes = [
        ("desktop/a", 1, 1.0, "type(content='x')", "s"),
        ("desktop/a", 1, 0.0, "finished()", "s"),
        ("desktop/a", 2, 0.0, "type(content='x')", "t"),
        ("desktop/a", 3, 1.0, "finished()", "u"),
    ]
    assert wrong_rewards(episodes) == ["desktop/a seed 2: 0", "desktop/a seed 3: 1"]


def test_a_start_that_is_not_like_the_others_is_found() -> None:
    episodes = [
        ("a", 1, 1.0, "", "s"),
        ("a", 1, 1.0, "", "s"),
        ("a", 2, 1.0, "", "s"),
        ("a", 2, 1.0, "", "t"),
    ]
    assert dirty_starts(episodes) == ["a seed 2"]


def test_the_ratio_of_a_run_beside_nothing_is_finite() -> None:
    assert ratio_of(found(calm={**RUN, "steps": 0})) == 150.0


def test_it_runs_half_an_hour_by_default() -> None:
    options = parse([])
    assert (options.desktops, options.minutes) == (8, 30.0)
