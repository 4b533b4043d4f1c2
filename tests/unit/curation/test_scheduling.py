"""What the three ways of scheduling wait for."""

import pytest

from dart.curation.admission import Scheduling, why_no_new_group


@pytest.mark.parametrize("scheduling", [Scheduling.ROLLOUT, Scheduling.TASK])
@pytest.mark.parametrize("live", [0, 3, 100])
def test_only_batches_make_a_new_group_wait(scheduling: Scheduling, live: int) -> None:
    reason = why_no_new_group(
        scheduling, serving_version=1, trainer_version=2, live_groups=live, groups_per_update=2
    )
    assert reason == ""


@pytest.mark.parametrize(
    ("serving", "live", "reason"),
    [
        (5, 0, ""),
        (5, 1, ""),  # the others of the batch, or one for a group that was dropped
        (5, 2, "the 2 groups of this batch have to be trained before new ones are opened"),
        (4, 0, "the next batch starts when every engine serves version 5"),
    ],
)
def test_a_batch_is_opened_for_one_version_and_as_large_as_an_update(
    serving: int, live: int, reason: str
) -> None:
    said = why_no_new_group(
        Scheduling.BATCH, serving_version=serving, trainer_version=5, live_groups=live, groups_per_update=2
    )
    assert said == reason


@pytest.mark.parametrize("scheduling", Scheduling)
def test_environments_stay_with_their_group_where_tasks_are_the_unit(scheduling: Scheduling) -> None:
    assert scheduling.keeps_environments_with_their_group is (scheduling is Scheduling.TASK)
