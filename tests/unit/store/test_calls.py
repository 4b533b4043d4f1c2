"""A message of the record is a call of the store's method: it fits, and its result fits what it promises."""

from inspect import signature
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from dart.core import messages as m
from dart.core.records import Batch, Reassignment, Release, RolloutChange
from dart.core.types import FaultKind, RolloutLease
from dart.store.client import result_of
from dart.store.errors import StoreConflict
from dart.store.store import METHODS, SHOW_ROWS, Store
from tests.record_places import RecordPlaces

OPEN = m.OpenGroup(task_id="click-test", seed=7, rollouts_wanted=2, step_cap=10, policy_version=0)
LEASE = m.LeaseRollout(group_id=1, environment="env-000", deadline_unix_s=60.0)
RELEASE = m.ReleaseRollout(
    rollout_id=1, fence=1, fault_kind=FaultKind.SYSTEM, detail="it hung", max_attempts=3
)
REASSIGN = m.ReassignRollout(rollout_id=1, environment="env-001", deadline_unix_s=90.0)

ROWLESS = [call for call in METHODS if call not in SHOW_ROWS]


@pytest.mark.parametrize("call", METHODS, ids=lambda call: call.__name__)
def test_the_fields_of_a_call_are_the_arguments_of_its_method(call: Any) -> None:
    arguments = dict(list(signature(getattr(Store, METHODS[call])).parameters.items())[1:])
    fields = set(call.__dataclass_fields__)
    if "steps_sha256" in fields:  # the store reads the steps, for a method that takes them
        fields, arguments = fields - {"steps_sha256"}, arguments.keys() - {"steps", "steps_sha256"}
    assert fields == set(arguments)


@pytest.mark.parametrize("call", ROWLESS, ids=lambda call: call.__name__)
def test_a_call_promises_what_its_method_returns(call: Any) -> None:
    assert get_type_hints(getattr(Store, METHODS[call]))["return"] == m.result_type(call)


@pytest.mark.parametrize("call", SHOW_ROWS[1:], ids=lambda call: call.__name__)
def test_a_call_about_a_rollout_promises_the_rollout_with_what_its_method_returns(call: Any) -> None:
    (result,) = get_args(m.result_type(call))
    assert get_type_hints(getattr(Store, METHODS[call]))["return"] == result


def test_every_call_but_the_one_to_the_curator_is_carried_out_by_the_store() -> None:
    calls = {one for one in vars(m).values() if isinstance(one, type) and issubclass(one, m.Call)}
    assert calls - set(METHODS) == {m.Call, m.EvaluationEnded}


def by_mail(store: Store, call: m.Call[Any]) -> Any:
    """What the caller is told when the result of a call came by mail."""
    packed = msgspec.msgpack.encode(m.CallResult(value=store.write(call)))
    return result_of(call, msgspec.msgpack.decode(packed, type=m.CallResult))


def test_a_result_that_came_by_mail_is_the_one_that_the_store_gave_and_shows_the_row(
    places: RecordPlaces,
) -> None:
    with Store(places.empty(), steps=places.steps) as store:
        store.add_version()
        assert by_mail(store, OPEN) == store.group(1)
        leased = by_mail(store, LEASE)
        assert isinstance(leased.result, RolloutLease)
        assert leased.rollout == store.rollout(1)
        owned = by_mail(store, REASSIGN)
        assert owned == RolloutChange(result=Reassignment.OWNED, rollout=store.rollout(1))
        released = by_mail(store, RELEASE)
        assert released == RolloutChange(result=Release.AWAITING, rollout=store.rollout(1))
        assert released.result is Release.AWAITING
        reassigned = by_mail(store, REASSIGN)
        assert isinstance(reassigned.result, RolloutLease)
        assert reassigned.rollout == store.rollout(1)
        assert by_mail(store, m.DropGroup(group_id=1, reason="no_spread")) == 1


def test_a_result_without_a_value_and_one_with_a_batch_come_by_mail() -> None:
    batch = Batch(batch_id=1, group_ids=(1, 2), deadline_unix_s=600.0)
    packed = msgspec.msgpack.encode(m.CallResult(value=batch))
    answer = msgspec.msgpack.decode(packed, type=m.CallResult)
    assert result_of(m.LeaseBatch(group_ids=(1, 2), deadline_unix_s=600.0), answer) == batch
    assert result_of(m.UseDemonstration(group_id=1, pool_id=1), m.CallResult(value=None)) is None


def test_a_row_that_cannot_be_shown_takes_its_write_back(
    places: RecordPlaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Store, group_id: int) -> None:
        raise StoreConflict(f"group {group_id} cannot be read")

    with Store(places.empty(), steps=places.steps) as store:
        monkeypatch.setattr(Store, "group", fail)
        with pytest.raises(StoreConflict):
            store.write(OPEN)
        assert store.snapshot().groups == ()
