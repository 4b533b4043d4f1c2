import dataclasses
from collections.abc import Callable

import pytest

from dart.core.types import Demonstration, Group
from dart.training.staleness import staleness_figures, staleness_of


def test_the_age_of_a_step_is_counted_in_versions_and_demonstrations_have_none(
    group_of: Callable[..., Group], demonstration_of: Callable[..., Demonstration]
) -> None:
    group = group_of(rewards=[1.0, 0.0], lengths=[1, 2], policy_version=5)
    helped = dataclasses.replace(group, demonstrations=(demonstration_of(steps=2),))
    assert staleness_of([helped], 7) == [2, 2, 2]


@pytest.mark.parametrize(
    ("ages", "mean", "median", "p95", "most"),
    [
        ([0], 0, 0, 0, 0),
        ([2, 0], 1, 0, 2, 2),
        ([3, 1, 2], 2, 2, 3, 3),
        ([0] * 19 + [4], 0.2, 0, 0, 4),
        ([0] * 18 + [4, 4], 0.4, 0, 4, 4),
    ],
)
def test_percentiles_are_ages_that_occur(
    ages: list[int], mean: float, median: int, p95: int, most: int
) -> None:
    assert staleness_figures(ages) == {
        "staleness_mean": mean,
        "staleness_p50": median,
        "staleness_p95": p95,
        "staleness_max": most,
    }
