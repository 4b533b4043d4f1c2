"""Exploration in the record: leases with one holder, reports that count once, screens that come back."""

from typing import Any

import pytest

from dart.core import messages as m
from dart.core.exploration import Effect, ExploreAct, HeldLease, LeaseEnd, LeaseMove, PageScreen, StepVerdict
from dart.core.records import StoredResult
from dart.store.errors import StoreConflict
from dart.store.store import Store
from tests.record_places import RecordPlaces

TASK, SEED = "sites/shop/explore", 3


def screen(name: str) -> PageScreen:
    return PageScreen(
        screenshot_sha256=name.ljust(64, "0"),
        url="http://shop.localhost/",
        title=name,
        width=10,
        height=10,
        grid=b"grey",
        volatile=b"",
        structure=(1, 2**32 - 1),
        shape=name,
        elements=(),
        scrolls=(ExploreAct.SCROLL_DOWN,),
    )


def lease(record: Store, explorer: str = "explorer-000", screen_id: int | None = None) -> HeldLease:
    return record.write(
        m.LeaseScreen(
            task_id=TASK,
            seed=SEED,
            screen_id=screen_id,
            explorer=explorer,
            incarnation=1,
            deadline_unix_s=9000.0,
        )
    )


def report(record: Store, fence: int, number: int, **changes: Any) -> StepVerdict:
    fields: dict[str, Any] = {
        "cost": 1,
        "source_id": None,
        "act": ExploreAct.RESET,
        "action": "",
        "effect": Effect.NEW_SHAPE,
        "target_id": None,
        "screen": None,
        "is_expansion": False,
        "move": LeaseMove.FOLLOW,
        "deadline_unix_s": 9100.0,
    }
    return record.write(m.RecordExplored(fence=fence, number=number, **fields | changes))


def expand(
    record: Store, fence: int, number: int, source_id: int, action: str, **changes: Any
) -> StepVerdict:
    of_click = {"source_id": source_id, "act": ExploreAct.CLICK, "action": action, "is_expansion": True}
    return report(record, fence, number, **of_click | changes)


@pytest.fixture
def begun(record: Store) -> int:
    """The fence of a lease whose holder has found the start screen, screen 1."""
    held = lease(record)
    report(record, held.fence, 1, screen=screen("home"))
    return held.fence


def test_a_found_screen_comes_back_as_it_was(record: Store, begun: int) -> None:
    verdict = expand(record, begun, 2, 1, "click|link|Cart", cost=3, screen=screen("cart"))
    assert verdict.result is StoredResult.ACCEPTED
    assert verdict.holds == 2
    home, cart = record.screens(TASK, SEED)
    assert (home.screen, cart.screen) == (screen("home"), screen("cart"))
    assert (home.depth, cart.depth, cart.found_actions) == (0, 1, 4)
    assert [one.screen_id for one in record.screens(TASK, SEED, since_id=1)] == [2]
    assert [one.actions for one in record.explored_steps(TASK, SEED)] == [1, 4]
    assert record.explorations() == ((TASK, SEED),)
    assert record.damaged_rows(full=True) == []


def test_a_report_that_is_sent_again_is_recorded_once(record: Store, begun: int) -> None:
    first = expand(record, begun, 2, 1, "click|link|Cart", screen=screen("cart"))
    again = expand(record, begun, 2, 1, "click|link|Cart", screen=screen("cart"))
    assert again == StepVerdict(result=StoredResult.DUPLICATE, step=first.step, holds=2)
    assert len(record.screens(TASK, SEED)) == 2


def test_a_report_under_an_ended_lease_changes_nothing(record: Store, begun: int) -> None:
    assert record.write(m.EndExplorationLease(fence=begun, why=LeaseEnd.EXPIRED))
    assert not record.write(m.EndExplorationLease(fence=begun, why=LeaseEnd.GIVEN_BACK))
    verdict = expand(record, begun, 2, 1, "click|link|Cart", screen=screen("cart"))
    assert verdict == StepVerdict(result=StoredResult.FENCED, step=None, holds=None)
    assert len(record.screens(TASK, SEED)) == 1


def test_no_two_explorers_hold_one_screen(record: Store, begun: int) -> None:
    with pytest.raises(
        StoreConflict, match="screen 1 cannot be leased to explorer-001: explorer-000 holds it"
    ):
        lease(record, "explorer-001", screen_id=1)
    record.write(m.EndExplorationLease(fence=begun, why=LeaseEnd.GIVEN_BACK))
    assert lease(record, "explorer-001", screen_id=1).screen_id == 1


def test_a_new_lease_of_an_explorer_ends_its_earlier_one(record: Store, begun: int) -> None:
    later = lease(record, screen_id=1)
    assert [one.fence for one in record.held_leases()] == [later.fence]
    assert expand(record, begun, 2, 1, "click|link|Cart").result is StoredResult.FENCED


def test_a_lease_does_not_follow_to_a_screen_that_another_explorer_holds(record: Store, begun: int) -> None:
    expand(record, begun, 2, 1, "click|link|Cart", screen=screen("cart"))
    other = lease(record, "explorer-001", screen_id=1)
    verdict = expand(record, begun, 3, 2, "click|link|Home", effect=Effect.KNOWN_SCREEN, target_id=1)
    assert verdict.holds is None
    assert {one.explorer: one.screen_id for one in record.held_leases()} == {
        "explorer-000": None,
        "explorer-001": other.screen_id,
    }


def test_a_lease_stays_with_its_screen_while_its_holder_is_on_the_way(record: Store, begun: int) -> None:
    verdict = expand(record, begun, 2, 1, "click|link|Cart", screen=screen("cart"), move=LeaseMove.KEEP)
    assert verdict.holds == 1
    assert record.held_leases()[0].deadline_unix_s == 9100.0


def test_an_action_is_tried_for_the_first_time_once(record: Store, begun: int) -> None:
    expand(record, begun, 2, 1, "click|link|Cart", effect=Effect.NO_CHANGE, target_id=1)
    with pytest.raises(StoreConflict, match="was tried before"):
        expand(record, begun, 3, 1, "click|link|Cart", effect=Effect.NO_CHANGE, target_id=1)
    again = expand(
        record, begun, 3, 1, "click|link|Cart", effect=Effect.NO_CHANGE, target_id=1, is_expansion=False
    )
    assert again.step is not None
    assert not again.step.is_expansion


def test_goals_that_were_not_reached_are_counted(record: Store, begun: int) -> None:
    record.write(m.EndExplorationLease(fence=begun, why=LeaseEnd.GIVEN_BACK))
    for _ in range(2):
        held = lease(record, screen_id=1)
        record.write(m.EndExplorationLease(fence=held.fence, why=LeaseEnd.UNREACHED))
    assert record.unreached_screens(2) == frozenset({1})
    assert record.unreached_screens(3) == frozenset()


def test_a_damaged_screen_is_named(places: RecordPlaces, record: Store, begun: int) -> None:
    places.run(record.address, "UPDATE screens SET depth = 7 WHERE screen_id = 1")
    assert any("explored screen 1" in str(found) for found in record.damaged_rows(full=True))
