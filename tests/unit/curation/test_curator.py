"""The curator's decisions, from a book written by hand."""

from collections import Counter
from dataclasses import replace

import pytest

from dart.core.messages import (
    DropGroup,
    LeaseBatch,
    LeaseRollout,
    NoWorkYet,
    OpenGroup,
    ReassignRollout,
    ReleaseRollout,
    UseDemonstration,
)
from dart.core.records import (
    Batch,
    DemonstrationSummary,
    GroupRecord,
    RolloutRecord,
    SeedReward,
    Snapshot,
    TaskStatistics,
)
from dart.core.types import FaultKind, RolloutState
from dart.curation.curator import Curator, Liveness, RevokeLease
from dart.curation.experience_pool import PoolRule
from dart.curation.quota import fixed_quota
from dart.curation.settings import CuratorSettings
from dart.curation.task_selection import ByExpectedSpread

NOW = 1000.0
SETTINGS = CuratorSettings(
    tasks=("click-test", "login-user"),
    seeds=range(100),
    quota=fixed_quota(2),
    largest_step_cap=10,
    groups_per_update=2,
    staleness_bound=1,
    max_attempts=3,
    lease_s=60.0,
)


def rollout(
    rollout_id: int,
    group_id: int,
    environment: str | None = None,
    *,
    reward: float | None = None,
    oldest: int = 5,
    deadline_unix_s: float = NOW + 60,
) -> RolloutRecord:
    """Stored when it has a reward, else leased."""
    return RolloutRecord(
        rollout_id=rollout_id,
        group_id=group_id,
        state=RolloutState.LEASED if reward is None else RolloutState.STORED,
        environment=environment,
        attempt=2,
        fence=4,
        deadline_unix_s=deadline_unix_s,
        reward=reward,
        oldest_version=None if reward is None else oldest,
    )


def group(group_id: int, *members: RolloutRecord, policy_version: int = 5) -> GroupRecord:
    return GroupRecord(
        group_id=group_id,
        task_id="click-test",
        seed=7,
        rollouts_wanted=2,
        step_cap=10,
        policy_version=policy_version,
        opened_unix_s=0.0,
        batch_id=None,
        rollouts=members,
    )


def ready(group_id: int, oldest: int = 5) -> GroupRecord:
    first, second = 10 * group_id, 10 * group_id + 1
    members = (rollout(first, group_id, reward=0.0, oldest=oldest), rollout(second, group_id, reward=1.0))
    return group(group_id, *members, policy_version=oldest)


def playing(group_id: int, policy_version: int = 5) -> GroupRecord:
    members = (rollout(10 * group_id, group_id, "env-008"), rollout(10 * group_id + 1, group_id, "env-009"))
    return group(group_id, *members, policy_version=policy_version)


def curator(*live: GroupRecord, serving: int | None = 5, version: int | None = 5) -> Curator:
    snapshot = Snapshot(groups=live, tasks=(), batch=None, version=version)
    return Curator(SETTINGS, snapshot, serving)


def lease_batch(*group_ids: int) -> LeaseBatch:
    return LeaseBatch(group_ids=group_ids, deadline_unix_s=NOW + SETTINGS.batch_lease_s)


def test_an_idle_environment_gets_a_rollout_that_awaits_another_attempt_first() -> None:
    book = curator(group(1), group(2, rollout(20, 2)))
    assert book.work_for("env-000", NOW) == ReassignRollout(
        rollout_id=20, environment="env-000", deadline_unix_s=NOW + 60
    )


def test_an_idle_environment_gets_the_next_rollout_of_the_oldest_group() -> None:
    book = curator(group(1, policy_version=5), group(2, policy_version=4), playing(3, policy_version=4))
    assert book.work_for("env-000", NOW) == LeaseRollout(
        group_id=2, environment="env-000", deadline_unix_s=NOW + 60
    )


def test_a_group_is_opened_when_all_issued_rollouts_are_being_played() -> None:
    decision = curator(playing(1)).work_for("env-000", NOW)
    assert isinstance(decision, OpenGroup)
    assert decision.task_id in SETTINGS.tasks
    assert (decision.rollouts_wanted, decision.step_cap, decision.policy_version) == (2, 10, 5)


def test_a_new_group_has_the_version_of_the_slowest_engine() -> None:
    decision = curator(serving=4, version=5).work_for("env-000", NOW)
    assert isinstance(decision, OpenGroup)
    assert decision.policy_version == 4


def test_tasks_take_turns_over_what_the_record_knows() -> None:
    known = TaskStatistics(task_id="click-test", groups_opened=9, recent=(), longest_success_steps=None)
    book = Curator(SETTINGS, Snapshot(groups=(), tasks=(known,), batch=None, version=0), 0)
    decision = book.work_for("env-000", NOW)
    assert isinstance(decision, OpenGroup)
    assert decision.task_id == "login-user"


def test_a_solved_task_gets_fewer_groups_by_expected_spread() -> None:
    known = [
        TaskStatistics(
            task_id=task,
            groups_opened=4,
            recent=tuple(SeedReward(0, reward) for reward in rewards * 16),
            longest_success_steps=1,
        )
        for task, rewards in (("click-test", (1.0, 1.0)), ("login-user", (1.0, 0.0)))
    ]
    settings = replace(SETTINGS, task_order=ByExpectedSpread, groups_per_update=100, quota=fixed_quota(8))
    book = Curator(settings, Snapshot(groups=(), tasks=tuple(known), batch=None, version=0), 0)
    opened: Counter[str] = Counter()
    for number in range(1, 41):
        decision = book.work_for("env-000", NOW)
        assert isinstance(decision, OpenGroup)
        opened[decision.task_id] += 1
        book.group_seen(replace(playing(number), task_id=decision.task_id))
    assert opened["login-user"] > 3 * opened["click-test"] > 0


def test_an_opened_group_counts_for_its_tasks_turn_once() -> None:
    book = curator()
    for _ in range(3):
        book.group_seen(playing(1))
    decision = book.work_for("env-000", NOW)
    assert isinstance(decision, OpenGroup)
    assert decision.task_id == "login-user"


@pytest.mark.parametrize(("serving", "version"), [(None, 5), (5, None)])
def test_nothing_is_opened_before_a_version_is_served(serving: int | None, version: int | None) -> None:
    decision = curator(serving=serving, version=version).work_for("env-000", NOW)
    assert decision == NoWorkYet(retry_after_s=0.5, reason="no engine serves a policy version yet")


def test_work_that_was_admitted_is_given_out_even_while_no_engine_serves() -> None:
    assert isinstance(curator(group(1), serving=None).work_for("env-000", NOW), LeaseRollout)


def test_no_group_is_opened_that_could_become_stale() -> None:
    book = curator(*(playing(number) for number in range(1, 5)))
    decision = book.work_for("env-000", NOW)
    assert isinstance(decision, NoWorkYet)
    assert "4 groups are live; one more could be older than 1 versions" in decision.reason


LIVES, BOSS_LIVES, BOSS_IS_NEW = {"env-008": NOW - 10}, {"env-008": NOW - 900}, {"env-008": NOW - 20}


@pytest.mark.parametrize(
    ("supervised_since", "fault_kind", "environment_lost"),
    [(BOSS_LIVES, FaultKind.INFRASTRUCTURE, True), (BOSS_IS_NEW, FaultKind.SYSTEM, False)],
    ids=["it died alone", "it was started again along with its supervisor"],
)
def test_only_an_environment_that_died_by_itself_speaks_against_its_task(
    supervised_since: dict[str, float], fault_kind: FaultKind, environment_lost: bool
) -> None:
    """Who leased at NOW - 30 was replaced at NOW - 10."""
    book = curator(group(1, rollout(10, 1, "env-008", deadline_unix_s=NOW + 30)))
    book.liveness = Liveness(alive_since=LIVES.get, supervised_since=supervised_since.get)

    decision = book.work_for("env-008", NOW)

    assert isinstance(decision, RevokeLease)
    (overdue,) = book.overdue(NOW + 30)
    for revoked in (decision, overdue):
        assert (revoked.release.fault_kind, revoked.environment_lost) == (fault_kind, environment_lost)


def test_an_environment_that_asks_while_it_holds_a_lease_loses_it() -> None:
    decision = curator(playing(1)).work_for("env-008", NOW)
    release = ReleaseRollout(
        rollout_id=10,
        fence=4,
        fault_kind=FaultKind.INFRASTRUCTURE,
        detail="env-008 asked for work while it held this lease",
        max_attempts=3,
    )
    assert decision == RevokeLease(release=release, environment_lost=True)


def test_a_living_environment_that_asks_while_it_holds_a_lease_never_got_the_answer() -> None:
    """Neither the environment nor the task is to blame; only one that is late with its lease is."""
    book = curator(group(1, rollout(10, 1, "env-008", deadline_unix_s=NOW + 30)))
    book.liveness = Liveness(alive_since={"env-008": NOW - 900}.get)
    decision = book.work_for("env-008", NOW)
    assert isinstance(decision, RevokeLease)
    assert (decision.release.fault_kind, decision.environment_lost) == (FaultKind.SYSTEM, False)
    (overdue,) = book.overdue(NOW + 30)
    assert (overdue.release.fault_kind, overdue.environment_lost) == (FaultKind.INFRASTRUCTURE, False)


def test_leases_past_their_deadline_are_taken_back() -> None:
    late = rollout(10, 1, "env-008", deadline_unix_s=NOW)
    in_time = rollout(11, 1, "env-009", deadline_unix_s=NOW + 0.1)
    book = curator(group(1, late, in_time))
    assert [decision.release.rollout_id for decision in book.overdue(NOW)] == [10]


@pytest.mark.parametrize(
    ("waited_unix_s", "fault_kind"),
    [(0.0, FaultKind.INFRASTRUCTURE), (NOW - 59.0, FaultKind.SYSTEM)],
)
def test_a_task_is_not_to_blame_for_a_holder_that_could_not_store(
    waited_unix_s: float, fault_kind: FaultKind
) -> None:
    book = curator(group(1, rollout(10, 1, "env-008", deadline_unix_s=NOW)))
    book.liveness = Liveness(alive_since=lambda _: NOW - 900, waited_unix_s=lambda _: waited_unix_s)
    (revoked,) = book.overdue(NOW + SETTINGS.lease_s)
    assert revoked.release.fault_kind == fault_kind


@pytest.mark.parametrize(
    ("kind", "max_attempts"),
    [("infrastructure", 3), ("policy", 3), ("evaluator", 3), ("task", 1)],
)
def test_a_task_that_cannot_be_set_up_is_not_tried_again(kind: str, max_attempts: int) -> None:
    decision = curator().after_fault(10, 4, FaultKind(kind), "page is missing")
    assert decision.max_attempts == max_attempts


def test_the_oldest_ready_groups_make_the_batch() -> None:
    book = curator(ready(1), ready(2, oldest=4), ready(3), group(4))
    assert book.batch(NOW) == lease_batch(2, 1)


def test_too_few_ready_groups_make_no_batch() -> None:
    decision = curator(ready(1), playing(2)).batch(NOW)
    assert decision == NoWorkYet(retry_after_s=0.5, reason="1 of 2 groups are ready, 2 are live")


def test_a_slow_group_is_waited_for_when_overtaking_would_make_it_stale() -> None:
    book = curator(playing(1, policy_version=4), ready(2), ready(3))
    decision = book.batch(NOW)
    assert isinstance(decision, NoWorkYet)
    assert decision.reason == "group 1 (click-test) must be in the next batch and is still being played"


def test_a_slow_group_with_time_left_is_overtaken() -> None:
    book = curator(playing(1, policy_version=5), ready(2), ready(3))
    assert book.batch(NOW) == lease_batch(2, 3)


def test_nothing_is_waited_for_that_waiting_cannot_save() -> None:
    book = curator(playing(1, policy_version=3), ready(2), ready(3))
    assert book.batch(NOW) == lease_batch(2, 3)


def trains(book: Curator, *group_ids: int) -> None:
    book.batch_leased(Batch(batch_id=1, group_ids=group_ids))


def test_while_a_batch_is_trained_the_groups_of_the_next_one_are_named_and_not_leased() -> None:
    book = curator(ready(1), ready(2), ready(3), ready(4))
    assert isinstance(book.batch_ahead(), NoWorkYet)  # the next batch can be leased itself
    trains(book, 1, 2)
    assert book.batch_ahead() == book.batch_ahead() == (3, 4)
    book.update_committed(6)
    assert book.batch(NOW) == lease_batch(3, 4)


def test_the_trainer_gets_the_groups_that_it_was_named_though_older_ones_are_ready_by_now() -> None:
    book = curator(ready(1), ready(2), ready(5), ready(6))
    trains(book, 1, 2)
    named = book.batch_ahead()
    assert named == (5, 6)
    book.update_committed(6)
    book.group_seen(ready(3))
    assert book.batch(NOW) == lease_batch(3, 5)
    assert not isinstance(named, NoWorkYet)
    assert book.batch(NOW, named) == lease_batch(5, 6)
    book.group_dropped(5)
    assert book.batch(NOW, named) == lease_batch(3, 6)


def test_no_groups_are_named_that_are_too_old_when_the_open_batch_is_committed() -> None:
    book = curator(ready(1), ready(2), ready(3, oldest=4), ready(4, oldest=4))
    trains(book, 1, 2)
    assert isinstance(book.batch_ahead(), NoWorkYet)
    assert book.batch(NOW) == lease_batch(3, 4)


def test_no_groups_are_named_without_a_slow_one_that_would_be_too_old_for_the_update_after_them() -> None:
    """The batch after the open one is trained at version 6, and the slow group has to be in it."""
    live = (*(ready(number) for number in range(1, 5)), playing(5, policy_version=4))
    settings = replace(SETTINGS, staleness_bound=2)
    book = Curator(settings, Snapshot(groups=live, tasks=(), batch=None, version=5), 5)
    trains(book, 1, 2)
    decision = book.batch_ahead()
    assert isinstance(decision, NoWorkYet)
    assert decision.reason == "group 5 (click-test) must be in the next batch and is still being played"


def test_groups_at_the_trainer_are_no_over_provisioning() -> None:
    live = Snapshot(groups=(ready(1), ready(2)), tasks=(), batch=None, version=5)
    book = Curator(replace(SETTINGS, over_provision=1.0), live, 5)
    assert isinstance(book.work_for("env-000", NOW), NoWorkYet)
    trains(book, 1, 2)
    assert isinstance(book.work_for("env-000", NOW), OpenGroup)


def failed(group_id: int, oldest: int = 5) -> GroupRecord:
    first, second = 10 * group_id, 10 * group_id + 1
    members = (rollout(first, group_id, reward=0.0, oldest=oldest), rollout(second, group_id, reward=0.0))
    return group(group_id, *members, policy_version=oldest)


def test_no_demonstration_is_spent_on_a_group_that_is_too_old() -> None:
    demonstration = DemonstrationSummary(
        pool_id=1,
        task_id="click-test",
        seed=7,
        origin="oracle",
        reward=1.0,
        num_steps=2,
        uses=0,
        dropped=False,
    )
    known = TaskStatistics(
        task_id="click-test",
        groups_opened=2,
        recent=(),
        longest_success_steps=None,
        demonstrations=(demonstration,),
    )
    live = Snapshot(groups=(failed(1, oldest=3), failed(2, oldest=4)), tasks=(known,), batch=None, version=5)
    book = Curator(replace(SETTINGS, pool=PoolRule(max_uses=0)), live, 5)
    assert book.demonstration_to_use() == UseDemonstration(group_id=2, pool_id=1)


def test_a_curator_keeps_what_the_record_does_not_hold_from_the_one_that_it_replaces() -> None:
    before, after = curator(failed(1)), curator()
    before.liveness = Liveness(engines_answer=False)
    before.wanted_guides = {3: "click-test"}
    after.continue_from(before)
    assert (after.liveness, after.wanted_guides) == (before.liveness, before.wanted_guides)
    after.count_failed_groups()  # group 1 is not live any more


def test_groups_that_teach_nothing_or_are_too_old_are_dropped() -> None:
    equal = group(1, rollout(10, 1, reward=1.0), rollout(11, 1, reward=1.0))
    old = ready(2, oldest=3)
    book = curator(equal, old, ready(3, oldest=4), playing(4))
    assert book.drops() == (
        DropGroup(group_id=1, reason="no_spread"),
        DropGroup(group_id=2, reason="stale"),
    )


def two_groups(settings: CuratorSettings, *played: tuple[tuple[float, int], ...]) -> Curator:
    """A curator of groups 1 and 2 with these rewards and numbers of steps, and of a group 3 with spread."""
    groups = (
        group(
            number,
            *(
                replace(rollout(10 * number + n, number, reward=reward), num_steps=steps)
                for n, (reward, steps) in enumerate(members)
            ),
        )
        for number, members in enumerate(played, start=1)
    )
    live = Snapshot(groups=(*groups, ready(3)), tasks=(), batch=None, version=5)
    return Curator(settings, live, 5)


def test_with_credit_for_steps_a_group_of_equal_successes_of_different_lengths_is_trained() -> None:
    settings = replace(SETTINGS, compared_above=SETTINGS.success_above)
    book = two_groups(settings, ((1.0, 1), (1.0, 3)), ((1.0, 1), (1.0, 1)))
    assert book.drops() == (DropGroup(group_id=2, reason="no_spread"),)
    assert book.batch(NOW) == lease_batch(1, 3)


def test_with_a_penalty_a_group_that_failed_at_once_is_trained_and_one_that_succeeded_is_dropped() -> None:
    settings = replace(SETTINGS, penalised_up_to=SETTINGS.success_above)
    book = two_groups(settings, ((0.0, 1), (0.0, 1)), ((1.0, 1), (1.0, 1)))
    assert book.drops() == (DropGroup(group_id=2, reason="no_spread"),)
    assert book.batch(NOW) == lease_batch(1, 3)


def test_a_finished_rollout_completes_its_group_in_the_book() -> None:
    book = curator(ready(1), group(2, rollout(20, 2, reward=0.0), rollout(21, 2, "env-009")))
    assert isinstance(book.batch(NOW), NoWorkYet)
    book.rollout_seen(rollout(21, 2, reward=1.0))
    assert book.batch(NOW) == lease_batch(1, 2)


def test_a_row_of_a_group_that_is_out_of_the_book_changes_nothing() -> None:
    book = curator(ready(1))
    book.group_dropped(1)
    book.rollout_seen(rollout(10, 1, reward=1.0))
    assert book.drops() == ()
