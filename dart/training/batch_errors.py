"""Batches that cannot be trained: what is wrong with one, whose fault it is, and what to do about it. Pure.

A batch that fails is never trained again as it is: the groups to blame are dropped and the others are open
again, so that damage costs what it touches and not the run.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dart.core.types import Group, Step
from dart.policy.protocols import ForeignPrompt, screenshots_of
from dart.store.errors import BlobDamage
from dart.training.advantage import members

TRIES = 2
"""Updates on one batch that may end in a number that is not finite."""

REFUSED_IN_A_ROW = 3
"""Batches in a row of which that is true for every group; one more ends training: the policy is to blame and
not the data."""


class MalformedStep(ValueError):
    """A recorded step whose token ids and log-probs do not belong together."""

    def __init__(self, step: Step, group_id: int) -> None:
        super().__init__(
            f"group {group_id}: step with answer {step.answer!r} (policy version {step.policy_version}) has "
            f"{len(step.token_ids)} token ids, {len(step.logprobs)} log-probs and {len(step.entropies)} "
            "entropies; it was not recorded by an engine of this system, and its group is dropped"
        )
        self.step = step


class NothingToLearn(ValueError):
    """No group of the batch has rewards that differ and a step to train on."""


class NonFiniteUpdate(RuntimeError):
    """A loss or a gradient is not a finite number; the policy is as it was before the update."""

    def __init__(self, what: str, value: float, version: int, steps: Sequence[Step] = ()) -> None:
        """`steps` are those whose own loss is not finite; none where it is not known which they are."""
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
"""What may be wrong with a batch."""

REFUSED = (MalformedStep, ForeignPrompt, NothingToLearn, NonFiniteUpdate, BlobDamage)
"""The same, to be caught."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """What of a batch is never to be trained."""

    group_ids: tuple[int, ...]
    pool_ids: tuple[int, ...] = ()
    """Demonstrations of the experience pool."""
    reason: str
    """Counted by it: `damaged_screenshot`, `malformed_step`, `nothing_to_learn` or `not_finite`."""


def is_worth_another_try(error: Refused, tries: int) -> bool:
    """Whether the same batch may be trained after all; `tries` were made."""
    return isinstance(error, NonFiniteUpdate) and not error.steps and tries < TRIES


def accuses_the_policy(error: Refused, found: Blame, groups: Sequence[Group]) -> bool:
    """Whether the update was not finite because of every group of the batch, and not of some of them."""
    return isinstance(error, NonFiniteUpdate) and len(found.group_ids) == len(groups)


def blame(error: Refused, groups: Sequence[Group]) -> Blame:
    """The groups, and the demonstrations among them, that hold what the error names; else all groups."""
    match error:
        case BlobDamage():
            return _holders(groups, lambda step: error.sha256 in screenshots_of(step), "damaged_screenshot")
        case MalformedStep() | ForeignPrompt():
            return _holders(groups, lambda step: step == error.step, "malformed_step")
        case NothingToLearn():
            return _everybody(groups, "nothing_to_learn")
        case NonFiniteUpdate():
            found = _holders(groups, lambda step: step in error.steps, "not_finite")
            # In every group: the policy is to blame, and no demonstration is lost to it.
            return _everybody(groups, found.reason) if len(found.group_ids) == len(groups) else found


def _everybody(groups: Sequence[Group], reason: str) -> Blame:
    return Blame(group_ids=tuple(group.group_id for group in groups), reason=reason)


def _holders(groups: Sequence[Group], is_bad: Callable[[Step], bool], reason: str) -> Blame:
    found = tuple(group.group_id for group in groups if any(map(is_bad, _steps(group))))
    if not found:
        return _everybody(groups, reason)
    injected = {demo.pool_id: demo for group in groups for demo in group.injected}
    pool_ids = tuple(key for key, demo in injected.items() if any(map(is_bad, demo.steps)))
    return Blame(group_ids=found, pool_ids=pool_ids, reason=reason)


def _steps(group: Group) -> Iterator[Step]:
    for member in members(group):
        yield from member.steps
