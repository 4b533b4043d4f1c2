"""A message to the store calls one method of `dart.store.store.Store` with its fields as arguments."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar, cast

from dart.core import messages as m
from dart.core.records import RolloutChange
from dart.core.types import Step
from dart.store import step_files

T = TypeVar("T")

METHODS: Mapping[type[m.Call[Any]], str] = {
    m.OpenGroup: "open_group",
    m.LeaseRollout: "lease_rollout",
    m.ReassignRollout: "reassign_rollout",
    m.ReleaseRollout: "release_rollout",
    m.FinishRollout: "finish_rollout",
    m.ParkRollout: "park_rollout",
    m.ForgetParked: "forget_parked",
    m.DropGroup: "drop_group",
    m.InjectDemonstration: "inject",
    m.RecordGuided: "record_guided",
    m.LeaseBatch: "lease_batch",
    m.ReassignBatch: "reassign_batch",
    m.CommitUpdate: "commit_update",
    m.RefuseBatch: "refuse_batch",
    m.RecordEvaluation: "record_evaluation",
    m.RecordDecisions: "record_decisions",
    m.RecordEvents: "record_events",
}

SHOW_ROWS = (m.OpenGroup, m.LeaseRollout, m.ReassignRollout, m.ReleaseRollout)
"""Calls whose results also hold the group or rollout after the call, for the curator's index."""


def carry_out(writer: Any, call: m.Call[T]) -> T:
    """Call the writer's method and return the result of the call. Raises what the method raises."""
    answer = getattr(writer, METHODS[type(call)])(**arguments_of(writer, call))
    match cast(Any, call):
        case m.OpenGroup():
            answer = writer.group(answer)
        case m.LeaseRollout():
            answer = RolloutChange(result=answer, rollout=writer.rollout(answer.rollout_id))
        case m.ReassignRollout(rollout_id=rollout_id) | m.ReleaseRollout(rollout_id=rollout_id):
            answer = RolloutChange(result=answer, rollout=writer.rollout(rollout_id))
    return cast(T, answer)


def arguments_of(writer: Any, call: Any) -> dict[str, Any]:
    """The fields of a message by name, with the steps that its step file holds."""
    given = {field.name: getattr(call, field.name) for field in fields(call)}
    match call:
        case m.FinishRollout():
            del given["steps"]
            given["trajectory"] = replace(call.trajectory, steps=steps_of(writer, call))
        case m.ParkRollout():
            given["steps"] = steps_of(writer, call)
        case m.RecordGuided():
            given["steps"] = step_files.opened(call.steps)
    return given


def steps_of(writer: Any, call: m.FinishRollout | m.ParkRollout) -> tuple[Step, ...]:
    """The steps of a report; none if its lease has ended, because its file may have been removed."""
    return step_files.opened(call.steps) if writer.is_held(call.rollout_id, call.fence) else ()
