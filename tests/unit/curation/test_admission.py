"""AReaL's capacity rule in groups, and earliest deadline first."""

import math
from collections import Counter

import pytest

from dart.curation.admission import can_all_be_fresh, groups_admissible, most_groups


@pytest.mark.parametrize(
    ("serving", "trainer", "live", "groups_per_update", "bound", "admissible"),
    [
        (0, 0, 0, 4, 0, 4),  # on-policy: exactly the next batch
        (0, 0, 4, 4, 0, 0),
        (0, 0, 4, 4, 2, 8),  # two batches ahead
        (5, 5, 12, 4, 2, 0),
        (4, 5, 4, 4, 2, 4),  # engines lag by one version: one batch less
        (4, 5, 0, 4, 0, 0),  # on-policy and lagging: nothing until they caught up
        (3, 5, 0, 1, 1, 0),
        (2, 5, 0, 1, 1, -1),
    ],
)
def test_how_many_groups_may_be_opened(
    serving: int, trainer: int, live: int, groups_per_update: int, bound: int, admissible: int
) -> None:
    assert admissible == groups_admissible(
        serving_version=serving,
        trainer_version=trainer,
        live_groups=live,
        groups_per_update=groups_per_update,
        staleness_bound=bound,
    )


@pytest.mark.parametrize("bound", range(4))
@pytest.mark.parametrize("groups_per_update", [1, 3])
def test_the_capacity_rule_is_areals_with_consumed_and_live_taken_off(
    groups_per_update: int, bound: int
) -> None:
    for version in range(5):
        submitted = version * groups_per_update  # all consumed, none live
        while groups_admissible(
            serving_version=version,
            trainer_version=version,
            live_groups=submitted - version * groups_per_update,
            groups_per_update=groups_per_update,
            staleness_bound=bound,
        ):
            submitted += 1
        assert submitted == (version + bound + 1) * groups_per_update


@pytest.mark.parametrize("serving", range(4))
@pytest.mark.parametrize("live", range(12))
def test_a_group_is_admissible_exactly_when_it_can_be_trained_last_and_in_time(
    serving: int, live: int
) -> None:
    rule = {"trainer_version": 3, "groups_per_update": 3, "staleness_bound": 2}
    in_time = 3 + live // 3 <= serving + 2
    assert (groups_admissible(serving_version=serving, live_groups=live, **rule) > 0) == in_time


@pytest.mark.parametrize(
    ("floors", "fresh"),
    [
        ([], True),
        ([5, 5], True),
        ([4, 5], True),  # the older one is trained first
        ([5, 4], True),
        ([5, 5, 5, 4], True),
        ([4, 4], True),  # two to an update
        ([4, 4, 4], False),  # the third is trained at 6, floor 4, bound 1
        ([4, 4, 5], True),
        ([3], False),
    ],
)
def test_groups_can_be_fresh_when_the_oldest_go_first(floors: list[int], fresh: bool) -> None:
    assert fresh is can_all_be_fresh(
        Counter(floors), trainer_version=5, groups_per_update=2, staleness_bound=1
    )


@pytest.mark.parametrize(
    ("over_provision", "most"),
    [(0.0, math.inf), (0.5, 4), (1.0, 4), (1.1, 5), (1.5, 6), (2.0, 8)],  # never less than a batch
)
def test_over_provisioning_bounds_what_is_in_flight_or_ready(over_provision: float, most: float) -> None:
    assert most_groups(over_provision, groups_per_update=4) == most


def test_a_rounding_error_of_the_product_allows_no_group_more() -> None:
    assert 1.1 * 50 > 55
    assert most_groups(1.1, groups_per_update=50) == 55
