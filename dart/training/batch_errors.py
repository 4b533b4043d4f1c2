"""Batches that cannot be trained: the errors, and which groups are to blame. Pure.

A batch that fails is never trained again unchanged. The groups to blame are dropped and the others become
available for later batches, so damage costs only the groups that it affects.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dart.core.errors import DartError
from dart.core.types import Group, Step
from dart.policy.protocols import ForeignPrompt, screenshots_of
from dart.store.errors import BlobDamage
from dart.training.advantage import group_members

MAX_TRIES = 2
"""Number of times that one batch is tried while its loss or gradient is not finite."""

MAX_REFUSED_IN_A_ROW = 3
"""How many batches in a row are refused because no group has a finite loss. One more such batch ends the
trainer, because then not the data but the policy is to blame."""


DAMAGED_STEPS = "damaged_steps"
"""Reason of a batch that was refused because steps of it could not be read from the record."""


class MalformedStep(ValueError):
    """A recorded step has different numbers of token ids, log-probs and entropies."""

    def __init__(self, step: Step, group_id: int) -> None:
        super().__init__(
            f"group {group_id}: step with answer {step.answer!r} (policy version {step.policy_version}) has "
            f"{len(step.token_ids)} token ids, {len(step.logprobs)} log-probs and {len(step.entropies)} "
            "entropies, which should be equal; its group is dropped"
        )
        self.step = step


class NothingToLearn(ValueError):
    """No group of the batch has both different rewards and a step to train on."""


class NonFiniteUpdate(RuntimeError):
    """A loss or a gradient is not a finite number; the policy is as it was before the update."""

    def __init__(self, what: str, value: float, version: int, steps: Sequence[Step] = ()) -> None:
        """steps   steps whose own loss is not finite; empty when they are not known"""
        remedy = (
            f"{len(steps)} steps have a loss that is not finite: their groups are dropped, the other groups "
            "of the batch are trained later"
            if steps
            else "the batch is tried again and then dropped"
        )
        super().__init__(
            f"the {what} of the update on policy version {version} is {value}; nothing was applied: "
            f"{remedy}; lower training.lr if it happens batch after batch"
        )
        self.what, self.value, self.version, self.steps = what, value, version, tuple(steps)


Refused = MalformedStep | ForeignPrompt | NothingToLearn | NonFiniteUpdate | BlobDamage
"""The errors of a batch that cannot be trained."""

REFUSED = (MalformedStep, ForeignPrompt, NothingToLearn, NonFiniteUpdate, BlobDamage)
"""The classes of `Refused` as a tuple, for `except`."""

SHARED_BY_RANKS = (*REFUSED, DartError, OSError)
"""Errors that all ranks of a trainer raise together. They change no rank's state, so the ranks go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """The part of a batch that must not be trained."""

    group_ids: tuple[int, ...]
    pool_ids: tuple[int, ...] = ()
    """Keys in the record of the demonstrations that must not be trained."""
    reason: str
    """The reason that is recorded: `damaged_screenshot`, `damaged_steps`, `malformed_step`,
    `nothing_to_learn` or `not_finite`."""


def can_retry(error: Refused, tries: int) -> bool:
    """Whether the same batch may be tried again after `tries` failed updates."""
    return isinstance(error, NonFiniteUpdate) and not error.steps and tries < MAX_TRIES


def is_policy_at_fault(error: Refused, found: Blame, groups: Sequence[Group]) -> bool:
    """Whether the loss was not finite in every group of the batch, so that the policy is to blame."""
    return isinstance(error, NonFiniteUpdate) and len(found.group_ids) == len(groups)


def blame(error: Refused, groups: Sequence[Group]) -> Blame:
    """Return the groups and demonstrations that contain the step or screenshot that the error names.

    If no group contains it, or the error names none, return all groups and no demonstration.
    """
    match error:
        case BlobDamage():
            return _blame_holders(
                groups, lambda step: error.sha256 in screenshots_of(step), "damaged_screenshot"
            )
        case MalformedStep() | ForeignPrompt():
            return _blame_holders(groups, lambda step: step == error.step, "malformed_step")
        case NothingToLearn():
            return _blame_all(groups, "nothing_to_learn")
        case NonFiniteUpdate():
            found = _blame_holders(groups, lambda step: step in error.steps, "not_finite")
            # Every group is affected: the policy is to blame, so no demonstration is taken out of use.
            return _blame_all(groups, found.reason) if len(found.group_ids) == len(groups) else found


def _blame_all(groups: Sequence[Group], reason: str) -> Blame:
    return Blame(group_ids=tuple(group.group_id for group in groups), reason=reason)


def _blame_holders(groups: Sequence[Group], is_bad: Callable[[Step], bool], reason: str) -> Blame:
    found = tuple(group.group_id for group in groups if any(map(is_bad, _steps(group))))
    if not found:
        return _blame_all(groups, reason)
    shown = {demo.pool_id: demo for group in groups for demo in group.demonstrations}
    pool_ids = tuple(key for key, demo in shown.items() if any(map(is_bad, demo.steps)))
    return Blame(group_ids=found, pool_ids=pool_ids, reason=reason)


def _steps(group: Group) -> Iterator[Step]:
    for member in group_members(group):
        yield from member.steps
