"""What the owner of the graph records of an explorer's report, and what it replies."""

from dataclasses import replace

import pytest

from dart.core import messages as m
from dart.core.exploration import Effect, ExploreAct, HeldLease, LeaseMove, PageScreen, StepVerdict
from dart.core.records import StoredResult
from dart.exploration.reports import record_of_report, reply_to_report
from tests.unit.exploration.screens import SEED, TASK, chain, click, screen, step

FIRST, SECOND = (screen(f"page {number}", ("next", "other")) for number in (1, 2))
OTHER_OF_A_KNOWN_SHAPE = screen("page 9", ("next", "other"), shape="page 2")


def report(
    shown: PageScreen | None, *, source_id: int | None = 1, effect: Effect | None = None
) -> m.ExploredReport:
    """A report of a click on `other`; of a reset if there is no source."""
    return m.ExploredReport(
        fence=1,
        number=1,
        cost=1,
        source_id=source_id,
        candidate=None if source_id is None else click("other", 1),
        effect=effect,
        screen=shown,
        move=LeaseMove.FOLLOW,
    )


def lease_of(screen_id: int | None) -> HeldLease:
    return HeldLease(
        fence=1,
        task_id=TASK,
        seed=SEED,
        screen_id=screen_id,
        explorer="explorer-000",
        incarnation=1,
        deadline_unix_s=60.0,
    )


@pytest.mark.parametrize(
    ("shown", "effect", "target_id"),
    [
        (screen("page 9"), Effect.NEW_SHAPE, None),
        (OTHER_OF_A_KNOWN_SHAPE, Effect.NEW_SCREEN, None),
        (SECOND, Effect.KNOWN_SCREEN, 2),
        (FIRST, Effect.NO_CHANGE, 1),
    ],
)
def test_the_effect_of_an_action_follows_from_the_screen_after_it(
    shown: PageScreen, effect: Effect, target_id: int | None
) -> None:
    recorded = record_of_report(report(shown), chain(3, untried=(1,)), lease_of(1), 60.0)
    assert (recorded.effect, recorded.target_id) == (effect, target_id)
    assert recorded.screen == (shown if target_id is None else None)


def test_an_effect_that_the_explorer_saw_is_kept() -> None:
    recorded = record_of_report(report(None, effect=Effect.LEFT), chain(3), lease_of(1), 60.0)
    assert (recorded.effect, recorded.target_id, recorded.screen) == (Effect.LEFT, None, None)


def test_the_record_has_what_the_report_says_and_the_new_deadline() -> None:
    given = replace(report(None, effect=Effect.ENDED), fence=3, number=5, cost=7)
    assert record_of_report(given, chain(3, untried=(1,)), lease_of(2), 60.0) == m.RecordExplored(
        fence=3,
        number=5,
        cost=7,
        source_id=1,
        act=ExploreAct.CLICK,
        action=click("other", 1).key,
        effect=Effect.ENDED,
        target_id=None,
        screen=None,
        is_expansion=False,
        move=LeaseMove.FOLLOW,
        deadline_unix_s=60.0,
    )


def test_a_reset_is_no_expansion() -> None:
    recorded = record_of_report(report(FIRST, source_id=None), chain(3), lease_of(1), 60.0)
    assert (recorded.act, recorded.action, recorded.is_expansion) == (ExploreAct.RESET, "", False)


def test_only_the_first_try_of_an_action_on_the_leased_screen_is_an_expansion() -> None:
    untried, tried = chain(3, untried=(1,)), chain(3)
    assert record_of_report(report(SECOND), untried, lease_of(1), 60.0).is_expansion
    assert not record_of_report(report(SECOND), untried, lease_of(2), 60.0).is_expansion
    assert not record_of_report(report(SECOND), tried, lease_of(1), 60.0).is_expansion


def test_an_action_is_tried_once_more_after_its_first_fault() -> None:
    graph, broke = chain(3, untried=(1,)), report(None, effect=Effect.FAULT)
    assert not record_of_report(broke, graph, lease_of(1), 60.0).is_expansion
    graph.add_step(step(50, 1, click("other", 1).key, Effect.FAULT, None, is_expansion=False))
    assert record_of_report(broke, graph, lease_of(1), 60.0).is_expansion


@pytest.mark.parametrize(
    ("target_id", "holds", "is_held"), [(2, 2, True), (2, 1, False), (2, None, False), (None, None, False)]
)
def test_the_reply_says_whether_the_lease_is_for_the_screen_that_the_action_led_to(
    target_id: int | None, holds: int | None, is_held: bool
) -> None:
    done = step(9, 1, click("other", 1).key, Effect.KNOWN_SCREEN, target_id)
    reply = reply_to_report(StepVerdict(result=StoredResult.ACCEPTED, step=done, holds=holds))
    assert reply == m.ExploredReply(screen_id=target_id, effect=Effect.KNOWN_SCREEN, holds=is_held)


@pytest.mark.parametrize("verdict", [None, StepVerdict(result=StoredResult.FENCED, step=None, holds=None)])
def test_the_reply_to_a_report_under_a_lease_that_has_ended_is_fenced(verdict: StepVerdict | None) -> None:
    reply = reply_to_report(verdict)
    assert (reply.is_fenced, reply.screen_id, reply.holds) == (True, None, False)
