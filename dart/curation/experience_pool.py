"""Which demonstration a group gets if all its rollouts failed (DART, arXiv 2509.23866, section 3.2).

Such a group teaches nothing by itself: all its advantages are 0. With one success from elsewhere it teaches
what to prefer. A group that has a success of its own gets none, so the pool never competes with the policy.

Rewards are compared only between episodes that began alike. So where the content of a task follows from its
seed, a group gets demonstrations of its own seed only, and tasks that fail are played on seeds that have a
demonstration.

An episode that the policy played itself with the actions of a demonstration as a hint (self-rolled,
`guide_for`) is used instead of that demonstration (docs/decisions/0017-self-rolled-demonstrations.md).
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from random import Random

from dart.core.records import DemonstrationSummary, GroupRecord
from dart.core.types import SUCCESS_ABOVE
from dart.curation import groups


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRule:
    """Chooses demonstrations for groups and for guided episodes."""

    max_uses: int
    """How often one demonstration may be used; 0 for no limit."""
    order_seed: int = 0
    matches_seeds: bool = False
    """A demonstration joins groups of its own seed only."""
    without_thought: bool = False
    """Whether demonstrations without a thought are trained on, although the policy writes thoughts."""
    guided_attempts: int = 0
    """How many guided episodes the policy may play with one demonstration; 0 for none."""
    success_above: float = SUCCESS_ABOVE
    """A reward above it is a success."""

    def demonstration_for(
        self, group: GroupRecord, known: Iterable[DemonstrationSummary]
    ) -> DemonstrationSummary | None:
        """A demonstration for a group in which every rollout failed; None to add nothing.

        It is drawn at random, with the same result for the same group.
        """
        if not groups.has_only_failed(group, self.success_above) or group.demonstrations:
            return None
        found = [one for one in known if self._is_of(one, group)]
        usable = [one for one in found if self._is_trainable(one, found)]
        own = [one for one in usable if one.is_self_rolled]
        return self._chosen(own or usable, f"{group.group_id}/pool")

    def guide_for(
        self, group: GroupRecord, known: Iterable[DemonstrationSummary]
    ) -> DemonstrationSummary | None:
        """A demonstration for a guided episode, after a group in which every rollout failed.

        None if the policy has played every demonstration of the task itself, or tried it often enough.
        """
        if not groups.has_only_failed(group, self.success_above):
            return None
        found = [one for one in known if self._is_of(one, group)]
        return self._chosen([one for one in found if self.is_guide(one, found)], f"{group.group_id}/guide")

    def is_guide(self, demonstration: DemonstrationSummary, known: Collection[DemonstrationSummary]) -> bool:
        """Whether a guided episode may use this demonstration; `known` has all demonstrations of its task."""
        return (
            not demonstration.is_self_rolled
            and not demonstration.dropped
            and demonstration.rolls < self.guided_attempts
            and not _is_replaced(demonstration, known)
        )

    def seed_for(
        self,
        rollouts: int,
        chance: Random,
        known: Collection[DemonstrationSummary],
        rewards: Sequence[float],
    ) -> int | None:
        """A seed with a demonstration, for a task's next group of `rollouts` rollouts; None for any seed.

        A seed is drawn with the probability that every rollout of such a group fails, estimated from the
        latest rewards, because only such a group needs a demonstration.
        """
        if not self.matches_seeds:
            return None
        helpful = (one for one in known if self._is_trainable(one, known) or self.is_guide(one, known))
        seeds = sorted({one.seed for one in helpful})
        failing = sum(reward <= self.success_above for reward in rewards) / len(rewards) if rewards else 1.0
        needs_one = chance.random() < failing**rollouts
        return chance.choice(seeds) if seeds and needs_one else None

    def _is_trainable(
        self, demonstration: DemonstrationSummary, known: Collection[DemonstrationSummary]
    ) -> bool:
        has_uses_left = self.max_uses == 0 or demonstration.uses < self.max_uses
        is_whole = self.without_thought or not demonstration.lacks_thought
        is_in_use = not demonstration.dropped and not _is_replaced(demonstration, known)
        return has_uses_left and is_whole and is_in_use

    def _is_of(self, demonstration: DemonstrationSummary, group: GroupRecord) -> bool:
        is_of_seed = not self.matches_seeds or demonstration.seed == group.seed
        return demonstration.task_id == group.task_id and is_of_seed

    def _chosen(self, found: Iterable[DemonstrationSummary], what: str) -> DemonstrationSummary | None:
        ordered = sorted(found, key=lambda one: one.pool_id)
        return Random(f"{self.order_seed}/{what}").choice(ordered) if ordered else None


def _is_replaced(demonstration: DemonstrationSummary, known: Collection[DemonstrationSummary]) -> bool:
    """Whether a self-rolled demonstration that was made with this demonstration as its hint is in use."""
    return any(one.guide_id == demonstration.pool_id and not one.dropped for one in known)
