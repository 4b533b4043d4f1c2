"""What is told of tasks: their state, and every decision with its reason."""

import io
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from dart.cli.tasks import columns
from dart.config.config import Config
from dart.core.errors import UsageError
from dart.core.records import DecisionKind, TaskDecision
from dart.core.types import Demonstration
from dart.inspect import task_reports
from dart.inspect.tables import table
from dart.store.store import Store
from dart.testing.trajectories import step_at, trajectory_for

NOON = time.mktime((2026, 1, 5, 12, 0, 0, 0, 0, -1))
"""Local time, on the day that `today` makes today."""

LOCALTIME = time.localtime

TASKS = ("miniwob/click-tab", "miniwob/click-test")
CONFIG = Config.model_validate(
    {
        "tasks": {"train": TASKS},
        "curation": {
            "rollout_number": {"enabled": True},
            "trajectory_length": {"enabled": True},
            "task_quarantine": {"enabled": True},
        },
    }
)


@pytest.fixture(autouse=True)
def today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "localtime", lambda unix_s=NOON: LOCALTIME(unix_s))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store.db", clock=lambda: NOON) as opened:
        opened.add_version()
        yield opened


def decision(kind: DecisionKind, before: str, after: str, reason: str, at_s: float) -> TaskDecision:
    return TaskDecision(
        task_id=TASKS[0],
        kind=kind,
        before=before,
        after=after,
        reason=reason,
        policy_version=12,
        unix_s=NOON + at_s,
    )


FEWER = decision(DecisionKind.ROLLOUTS, "8", "4", "success 0.80 over the last 8", 0.0)
SHORTER = decision(DecisionKind.STEP_CAP, "10", "3", "the longest success has 2 steps", 5.0)
RESTS = decision(DecisionKind.QUARANTINE, "", str(NOON + 310), "20 attempts in a row ended by a fault", 10.0)
RELEASED = decision(
    DecisionKind.QUARANTINE, str(NOON + 310), "", "a group had a success after 300 s of quarantine", 320.0
)


def played(store: Store, task_id: str, *rewards: float) -> int:
    group_id = store.open_group(task_id, 1, len(rewards), 10, 0)
    for reward in rewards:
        lease = store.lease_rollout(group_id, "env-000", NOON + 60)
        store.finish_rollout(lease.rollout_id, lease.fence, trajectory_for(lease, reward))
    return group_id


def printed(reports: list[task_reports.TaskReport]) -> list[str]:
    console = Console(file=io.StringIO(), width=100, record=True)
    console.print(table(reports, columns(reports)))
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_the_history_says_in_words_what_changed_when_and_why() -> None:
    assert task_reports.history([FEWER, SHORTER, RESTS, RELEASED]) == [
        "12:00:00  N 8 -> 4: success 0.80 over the last 8 (version 12)",
        "12:00:05  step cap 10 -> 3: the longest success has 2 steps (version 12)",
        "12:00:10  in quarantine until 12:05:10: 20 attempts in a row ended by a fault (version 12)",
        "12:05:20  released: a group had a success after 300 s of quarantine (version 12)",
    ]


def test_a_moment_of_another_day_has_its_date() -> None:
    assert task_reports.clock(0.0).endswith(time.strftime("%H:%M:%S", time.localtime(0.0)))
    assert task_reports.clock(0.0).startswith(time.strftime("%Y-%m-%d", time.localtime(0.0)))


def test_a_task_is_reported_with_what_was_decided_last(store: Store) -> None:
    store.drop_group(played(store, TASKS[0], 1.0, 1.0, 1.0, 0.0), "no_spread")
    store.record_decisions((FEWER, SHORTER))

    first, second = task_reports.task_reports(store, CONFIG, NOON)

    assert (first.rollouts, first.step_cap, first.longest_success_steps) == (4, 3, 2)
    assert (first.success_rate, first.recent, first.finished) == (0.75, 4, 4)
    assert (first.groups, first.drops, first.quarantined_until_unix_s) == (1, {"no_spread": 1}, None)
    assert (second.rollouts, second.step_cap, second.success_rate) == (8, 10, None)


@pytest.mark.parametrize(("success_above", "rate"), [(0.5, 0.5), (0.3, 0.75)])
def test_what_counts_as_a_success_is_the_configurations_matter(
    store: Store, success_above: float, rate: float
) -> None:
    played(store, TASKS[0], 1.0, 0.6, 0.4, 0.0)
    config = Config.model_validate({"tasks": {"train": TASKS}, "curation": {"success_above": success_above}})
    assert task_reports.task_reports(store, config, NOON)[0].success_rate == rate


def test_what_was_decided_does_not_hold_where_the_switch_is_off_or_the_bounds_have_changed(
    store: Store,
) -> None:
    store.record_decisions((FEWER, SHORTER, RESTS))
    parts = ("rollout_number", "trajectory_length", "task_quarantine")
    off = {"curation": {name: {"enabled": False} for name in parts}, "tasks": {"train": TASKS}}
    task, _ = task_reports.task_reports(store, Config.model_validate(off), NOON)
    assert (task.rollouts, task.step_cap, task.quarantined_until_unix_s, task.quarantine_reason) == (
        8,
        10,
        None,
        "",
    )

    smaller = CONFIG.model_copy(
        update={"curation": CONFIG.curation.model_copy(update={"rollouts_per_group": 3})}
    )
    task, _ = task_reports.task_reports(store, smaller, NOON)
    assert task.rollouts == 3


def test_a_task_quarantined_until_the_time_that_was_decided_or_until_it_is_released(store: Store) -> None:
    store.record_decisions((RESTS,))
    quarantined, _ = task_reports.task_reports(store, CONFIG, NOON + 309)
    over, _ = task_reports.task_reports(store, CONFIG, NOON + 310)
    store.record_decisions((RELEASED,))
    released, _ = task_reports.task_reports(store, CONFIG, NOON + 309)

    assert task_reports.quarantines([quarantined]) == [
        "miniwob/click-tab is in quarantine until 12:05:10: 20 attempts in a row ended by a fault"
    ]
    assert (over.quarantined_until_unix_s, released.quarantined_until_unix_s) == (None, None)


def test_the_list_has_a_row_for_each_task_and_says_the_family_once(store: Store) -> None:
    store.drop_group(played(store, TASKS[0], 1.0, 1.0), "no_spread")
    store.record_decisions((FEWER, RESTS))
    store.add_demonstrations([demonstration()])

    header, first, second = printed(task_reports.task_reports(store, CONFIG, NOON))

    assert header.split()[:2] == ["miniwob", "task"]
    assert first.split() == [
        "click-tab",
        "100",
        "%",
        "4",
        "10",
        "1",
        "1",
        "1",
        "no_spread",
        "quarantined",
    ]
    assert second.split() == ["click-test", "–", "8", "10", "0", "0", "active"]


def test_a_task_is_described_with_its_success_its_next_group_its_drops_and_its_pool() -> None:
    one = task_reports.TaskReport(
        task_id=TASKS[0],
        groups=7,
        finished=50,
        success_rate=0.25,
        recent=40,
        rollouts=4,
        step_cap=10,
        longest_success_steps=3,
        quarantined_until_unix_s=None,
        quarantine_reason="",
        demonstrations=2,
        uses=1,
        drops={"too_few": 1, "no_spread": 4},
    )

    assert task_reports.about(one) == [
        "miniwob/click-tab  active",
        "success 25 % over the newest 40",
        "next group: 4 rollouts of at most 10 steps (longest success so far: 3)",
        "groups: 7 opened, 5 dropped (4 no_spread, 1 too_few)",
        "experience pool: 2 demonstrations, used 1 time",
    ]
    fresh = replace(one, recent=0, success_rate=None, longest_success_steps=None, drops={}, demonstrations=0)
    assert task_reports.about(fresh)[1:] == [
        "no episode finished yet",
        "next group: 4 rollouts of at most 10 steps (longest success so far: –)",
        "groups: 7 opened, 0 dropped",
    ]


def demonstration() -> Demonstration:
    return Demonstration(
        pool_id=0,
        task_id=TASKS[0],
        seed=3,
        origin="oracle",
        instruction="click it",
        reward=1.0,
        steps=(step_at(0),),
    )


@pytest.mark.parametrize(
    ("name", "task"),
    [
        *(("miniwob/click-tab", TASKS[0]), ("click-tab", TASKS[0]), ("click-test", TASKS[1])),
        *(("miniwob/click-ta…", TASKS[0]), ("click-te…", TASKS[1])),
    ],
)
def test_a_task_is_found_by_its_id_or_its_last_part_also_if_a_table_has_cut_it(name: str, task: str) -> None:
    assert task_reports.find_task(name, TASKS) == task


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("clik-tab", "did you mean click-tab"),
        ("miniwob/click-tob", "did you mean miniwob/click-tab"),
        ("click-t…", "the run has no task 'click-t…'"),
        ("lick-te…", "the run has no task"),
        ("zzz", "its tasks are miniwob/click-tab, miniwob/click-test"),
    ],
)
def test_an_unknown_task_is_refused_with_the_nearest_or_all(name: str, hint: str) -> None:
    with pytest.raises(UsageError, match=hint):
        task_reports.find_task(name, TASKS)


def test_the_last_part_does_not_do_where_two_tasks_have_it() -> None:
    with pytest.raises(UsageError):
        task_reports.find_task("click-tab", ("miniwob/click-tab", "desktop/click-tab"))


def test_a_demonstration_that_is_not_there_is_refused_with_the_remedy(store: Store) -> None:
    store.add_demonstrations([demonstration()])
    task_reports.check_demonstration(1, store.demonstrations())

    with pytest.raises(UsageError, match="'dartrl pool list' shows what it has"):
        task_reports.check_demonstration(2, store.demonstrations())
