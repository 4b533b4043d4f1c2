"""The experience pool in the record: added once, used by whole groups, counted, dropped and brought back."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from dart.core import messages as m
from dart.core.records import Guided
from dart.core.types import Demonstration, Step
from dart.store.errors import StoreConflict
from dart.store.serialization import pack_steps
from dart.store.store import Store
from dart.testing.trajectories import demonstration_of, step_at, trajectory_for


def demonstration(seed: int = 7, task_id: str = "click-test") -> Demonstration:
    steps = tuple(replace(step_at(0, number), logprobs=(), entropies=()) for number in range(3))
    return demonstration_of(task_id, seed, steps)


def failed_group(record: Store, task_id: str = "click-test") -> int:
    group_id = record.open_group(task_id, 7, 2, 10, 0)
    for _ in range(2):
        lease = record.lease_rollout(group_id, "env-000", 60.0)
        record.finish_rollout(lease.rollout_id, 1, trajectory_for(lease, 0.0))
    return group_id


def test_a_demonstration_comes_back_as_it_was(record: Store) -> None:
    assert record.add_demonstrations([demonstration()]) == 1
    (summary,) = record.demonstrations()
    assert (summary.task_id, summary.num_steps, summary.uses, summary.dropped) == ("click-test", 3, 0, False)
    assert record.demonstration(summary.pool_id) == replace(demonstration(), pool_id=summary.pool_id)
    assert not record.demonstration(summary.pool_id).steps[0].has_behaviour


def test_behaviour_log_probs_are_kept_where_they_are_known(record: Store) -> None:
    sampled = replace(demonstration(), steps=(step_at(3),))
    record.add_demonstrations([sampled])
    assert record.demonstration(1).steps == sampled.steps


def test_log_probs_that_an_importer_knew_are_kept_without_entropies(record: Store) -> None:
    sampled = replace(demonstration(), steps=(replace(step_at(3), entropies=()),))
    record.add_demonstrations([sampled])
    assert record.demonstration(1).steps == sampled.steps
    assert record.integrity(0) == ()


def test_the_same_content_is_added_once_whoever_played_it(record: Store) -> None:
    other = replace(demonstration(), origin="another policy")
    assert record.add_demonstrations([demonstration(), other, demonstration(8)]) == 2
    assert record.add_demonstrations([demonstration()]) == 0
    assert [one.seed for one in record.demonstrations("click-test")] == [7, 8]
    assert record.demonstrations("login-user") == ()


def test_a_dropped_one_comes_back_when_it_is_added_again(record: Store) -> None:
    record.add_demonstrations([demonstration()])
    record.drop_demonstration(1)
    assert [one.dropped for one in record.demonstrations()] == [True]
    assert record.add_demonstrations([demonstration()]) == 1
    assert [one.dropped for one in record.demonstrations()] == [False]


def test_a_dropped_one_stays_dropped_when_it_is_only_to_be_there(record: Store) -> None:
    record.add_demonstrations([demonstration()])
    record.drop_demonstration(1)
    assert record.add_demonstrations([demonstration(), demonstration(8)], revive=False) == 1
    assert [one.dropped for one in record.demonstrations()] == [True, False]


@pytest.mark.parametrize("revive", [False, True])
def test_a_known_one_with_other_prompts_gets_these_and_is_not_added_again(
    record: Store, revive: bool
) -> None:
    record.add_demonstrations([demonstration(), demonstration(8)])
    record.use_demonstration(failed_group(record), 1)
    record.drop_demonstration(1)
    steps = tuple(replace(step, prompt_ids=(*step.prompt_ids, 9)) for step in demonstration().steps)

    assert record.add_demonstrations([replace(demonstration(), steps=steps)], revive=revive) == revive

    first, other = record.demonstrations()
    assert (first.dropped, first.uses, other.dropped) == (not revive, 1, False)
    assert record.demonstration(1).steps == steps
    assert record.damaged_rows(full=True) == []
    assert record.add_demonstrations([replace(demonstration(), steps=steps)], revive=False) == 0


def test_one_with_other_answers_to_the_same_screenshots_is_another_one(record: Store) -> None:
    steps = tuple(replace(step, token_ids=(*step.token_ids, 9)) for step in demonstration().steps)
    assert record.add_demonstrations([demonstration(), replace(demonstration(), steps=steps)]) == 2


def test_a_known_one_that_is_added_again_has_its_steps_again(record: Store) -> None:
    record.add_demonstrations([demonstration()])
    record._steps.delete(record._steps.put(pack_steps(demonstration().steps)))
    record.drop_demonstration(1)

    assert record.add_demonstrations([demonstration()]) == 1

    assert record.demonstration(1).steps == demonstration().steps


def test_a_known_one_that_is_added_with_other_log_probs_has_these(record: Store) -> None:
    record.add_demonstrations([demonstration()])
    sampled = replace(demonstration(), steps=tuple(step_at(0, number) for number in range(3)))

    assert record.add_demonstrations([sampled]) == 0

    assert record.demonstration(1).steps == sampled.steps
    assert record.damaged_rows(full=True) == []


def test_a_group_has_its_demonstration_once_and_that_is_a_use(record: Store) -> None:
    record.add_demonstrations([demonstration()])
    first, second = failed_group(record), failed_group(record)
    for group_id in (first, first, second):
        record.use_demonstration(group_id, 1)
    assert [one.uses for one in record.demonstrations()] == [2]
    assert record.group(first).demonstrations == (1,)
    assert [group.demonstrations for group in record.snapshot().groups] == [(1,), (1,)]
    (group,) = record.groups_to_trajectories([first])
    assert [one.pool_id for one in group.demonstrations] == [1]
    assert len(group.trajectories) == 2
    assert record.integrity(0) == ()


def test_a_task_shows_its_demonstrations_before_it_had_a_group(record: Store) -> None:
    record.add_demonstrations([demonstration()])
    (statistics,) = record.task_statistics()
    assert (statistics.groups_opened, len(statistics.demonstrations)) == (0, 1)


@pytest.mark.parametrize(
    ("group_of", "why"),
    [
        (lambda record: failed_group(record, "login-user"), "which is of task login-user"),
        (
            lambda record: record.open_group("click-test", 7, 2, 10, 0),
            "2 of its 2 rollouts are not finished yet",
        ),
        (lambda record: dropped(record, failed_group(record)), "it is dropped"),
        (lambda record: 99, "has no group 99"),
    ],
)
def test_a_group_that_may_not_have_it_is_named(
    record: Store, group_of: Callable[[Store], int], why: str
) -> None:
    record.add_demonstrations([demonstration()])
    with pytest.raises(StoreConflict, match=why):
        record.use_demonstration(group_of(record), 1)
    assert [one.uses for one in record.demonstrations()] == [0]


def dropped(record: Store, group_id: int) -> int:
    record.drop_group(group_id, "no_spread")
    return group_id


def test_a_dropped_demonstration_is_used_no_more(record: Store) -> None:
    record.add_demonstrations([demonstration()])
    record.drop_demonstration(1)
    with pytest.raises(StoreConflict, match="demonstration 1 of click-test was dropped"):
        record.use_demonstration(failed_group(record), 1)


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (replace(demonstration(), reward=0.0), r"reward must be in \(0, 1\], got 0.0"),
        (replace(demonstration(), steps=()), "it has no steps"),
        (
            replace(demonstration(), steps=(replace(step_at(0), logprobs=()),)),
            "step 0: 0 logprobs for 3 tokens",
        ),
    ],
)
def test_what_is_no_success_is_refused(record: Store, broken: Demonstration, why: str) -> None:
    with pytest.raises(StoreConflict, match=why):
        record.add_demonstrations([demonstration(8), broken])
    assert record.demonstrations() == ()


@pytest.mark.parametrize("call", [Store.demonstration, Store.drop_demonstration])
def test_an_unknown_demonstration_is_named(record: Store, call: Callable[[Store, int], object]) -> None:
    with pytest.raises(StoreConflict, match="has no demonstration 5"):
        call(record, 5)


# ---- self-rolled ----


def own_steps() -> tuple[Step, ...]:
    return tuple(step_at(3, number) for number in range(2))


def test_what_the_policy_did_under_a_guide_is_a_demonstration_with_its_own_log_probs(record: Store) -> None:
    record.add_demonstrations([replace(demonstration(), lacks_thought=True)])
    assert record.record_guided(1, 1, "click the button", 1.0, own_steps()) is Guided.ADDED
    guide, own = record.demonstrations()
    assert (guide.lacks_thought, guide.guide_id, guide.rolls) == (True, None, 1)
    assert (own.task_id, own.seed, own.origin) == (guide.task_id, guide.seed, "self-rolled")
    assert (own.lacks_thought, own.guide_id, own.is_self_rolled, own.rolls) == (False, 1, True, 0)
    kept = record.demonstration(own.pool_id).steps
    assert kept == own_steps()
    assert record.integrity(0) == ()


def test_the_policys_own_words_are_another_demonstration_also_where_they_are_those_of_its_guide(
    record: Store,
) -> None:
    record.add_demonstrations([demonstration()])
    steps = tuple(step_at(0, number) for number in range(3))
    assert record.record_guided(1, 1, demonstration().instruction, 1.0, steps) is Guided.ADDED
    assert [one.guide_id for one in record.demonstrations()] == [None, 1]


def test_a_guided_episode_does_not_take_a_dropped_demonstration_into_use_again(record: Store) -> None:
    record.add_demonstrations([demonstration()])
    assert record.record_guided(1, 1, "click the button", 1.0, own_steps()) is Guided.ADDED
    record.drop_demonstration(2)

    record.record_guided(1, 2, "click the button", 1.0, own_steps())

    assert [one.dropped for one in record.demonstrations()] == [False, True]


def test_the_steps_of_a_guided_episode_that_its_environment_has_stored_are_not_stored_again(
    record: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    record.add_demonstrations([demonstration()])
    sha256 = record._steps.put(pack_steps(own_steps()))
    monkeypatch.setattr(record._steps, "put", lambda _: pytest.fail("they were stored again"))
    call = m.RecordGuided(guide_id=1, attempt=1, instruction="click", reward=1.0, steps_sha256=sha256)
    assert record.write(call) is Guided.ADDED
    assert record.demonstration(2).steps == own_steps()


def test_a_guided_episode_that_did_worse_is_counted_and_an_attempt_counts_once(record: Store) -> None:
    record.add_demonstrations([demonstration()])
    assert record.record_guided(1, 1, "click the button", 0.5, own_steps()) is Guided.FAILED
    assert record.record_guided(1, 1, "click the button", 1.0, own_steps()) is Guided.DUPLICATE
    assert [one.rolls for one in record.demonstrations()] == [1]


def test_importing_again_says_whether_thoughts_are_missing(record: Store) -> None:
    record.add_demonstrations([demonstration()])
    record.add_demonstrations([replace(demonstration(), lacks_thought=True)])
    assert [one.lacks_thought for one in record.demonstrations()] == [True]
