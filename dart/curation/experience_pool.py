"""Which demonstration a group gets if every rollout in it failed (DART, arXiv 2509.23866, section 3.2).

Such a group does not teach how to succeed by itself; where its rewards are equal, all its advantages are 0.
With a demonstration, which is a success, it teaches what to prefer. Every rollout failed if no reward is a
success (`success_above`), also if the rewards differ. A group that has a success of its own gets no
demonstration, so the experience pool never competes with the policy.

Rewards are compared only between episodes that begin alike. If the start screen of a task follows from the
seed, a group gets demonstrations of its own seed only. Tasks that fail are then played more often on seeds
that have a demonstration.

A self-rolled demonstration is an episode that the policy played itself, with the actions of another
demonstration as a hint (`guide_for`). It is used instead of the demonstration that gave the hint
(docs/decisions/0017-self-rolled-demonstrations.md).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from random import Random

from dart.core.records import DemonstrationSummary, GroupRecord, SeedReward
from dart.core.types import SUCCESS_ABOVE
from dart.curation import groups


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRule:
    """Chooses demonstrations for groups and for guided episodes."""

    max_uses: int
    """How often one demonstration may be added to a group; 0: no limit."""
    order_seed: int = 0
    matches_seeds: bool = False
    """Whether a demonstration is added only to groups of its own seed."""
    without_thought: bool = False
    """Whether demonstrations without thoughts are used, although the policy writes thoughts."""
    guided_attempts: int = 0
    """How many guided episodes the policy may play with one demonstration; 0: none."""
    success_above: float = SUCCESS_ABOVE
    """An episode with a reward above this value is a success."""

    def demonstration_for(
        self, group: GroupRecord, known: Iterable[DemonstrationSummary]
    ) -> DemonstrationSummary | None:
        """Return the demonstration to add to a group in which every rollout failed.

        The demonstration is drawn at random, but is always the same for the same group and the same pool.
        Returns None for any other group, and if `known` has no demonstration that fits.
        """
        if not groups.has_only_failed(group, self.success_above) or group.demonstrations:
            return None
        usable = self._trainable([one for one in known if self._is_of(one, group)])
        own = [one for one in usable if one.is_self_rolled]
        return self._chosen(own or usable, f"{group.group_id}/pool")

    def guide_for(
        self, group: GroupRecord, known: Iterable[DemonstrationSummary]
    ) -> DemonstrationSummary | None:
        """Return a demonstration for a guided episode, after a group in which every rollout failed.

        Returns None for any other group. Returns None as well if every fitting demonstration was replaced by
        a self-rolled one, or has had `guided_attempts` guided episodes.
        """
        if not groups.has_only_failed(group, self.success_above):
            return None
        found = [one for one in known if self._is_of(one, group)]
        return self._chosen(self._guides(found), f"{group.group_id}/guide")

    def is_guide(self, demonstration: DemonstrationSummary, known: Collection[DemonstrationSummary]) -> bool:
        """Whether a guided episode may use this demonstration; `known` has all demonstrations of its task."""
        return self._may_guide(demonstration) and demonstration.pool_id not in _replaced(known)

    def seed_for(
        self,
        rollouts: int,
        chance: Random,
        known: Collection[DemonstrationSummary],
        played: Sequence[SeedReward],
    ) -> int | None:
        """Return a seed that has a demonstration, for a task's next group; None: any seed will do.

        rollouts   number of rollouts of the group
        chance     source of the random choice
        known      the demonstrations of the task
        played     the seeds and rewards of the task's latest episodes

        Only a group in which every rollout fails needs a demonstration. So such a seed is returned with the
        probability that this happens: the share of the latest seeds on which every episode failed. A page
        that always fails beside others that succeed counts in full.

        Of the seeds with a demonstration, those that were solved lately are left out while there are others.
        A seed is the more likely the more often its demonstrations were needed.
        """
        if not self.matches_seeds or chance.random() >= self._share_of_failed_seeds(rollouts, played):
            return None
        uses: Counter[int] = Counter()
        for one in {*self._trainable(known), *self._guides(known)}:
            uses[one.seed] += 1 + one.uses
        solved = {seed for seed, reward in played if reward > self.success_above}
        seeds = sorted(uses.keys() - solved) or sorted(uses)
        return chance.choices(seeds, [uses[seed] for seed in seeds])[0] if seeds else None

    def _share_of_failed_seeds(self, rollouts: int, played: Sequence[SeedReward]) -> float:
        """Return the share of the seeds in `played` on which every episode failed; 1 if too little is known.

        A seed without a success counts once at least half of a group's episodes were played on it.
        """
        best: dict[int, float] = {}
        for seed, reward in played:
            best[seed] = max(reward, best.get(seed, reward))
        episodes = Counter(seed for seed, _ in played)
        succeeded = sum(reward > self.success_above for reward in best.values())
        failed = sum(
            reward <= self.success_above and 2 * episodes[seed] >= rollouts for seed, reward in best.items()
        )
        return failed / (failed + succeeded) if failed + succeeded else 1.0

    def _trainable(self, known: Collection[DemonstrationSummary]) -> list[DemonstrationSummary]:
        """Return the demonstrations that may be added to a group."""
        replaced = _replaced(known)
        return [one for one in known if self._may_be_trained(one) and one.pool_id not in replaced]

    def _guides(self, known: Collection[DemonstrationSummary]) -> list[DemonstrationSummary]:
        """Return the demonstrations that a guided episode may use."""
        replaced = _replaced(known)
        return [one for one in known if self._may_guide(one) and one.pool_id not in replaced]

    def _may_be_trained(self, demonstration: DemonstrationSummary) -> bool:
        """Whether a demonstration may be added to a group, unless a self-rolled one replaced it."""
        has_uses_left = self.max_uses == 0 or demonstration.uses < self.max_uses
        is_whole = self.without_thought or not demonstration.lacks_thought
        return has_uses_left and is_whole and self._is_success_in_use(demonstration)

    def _may_guide(self, demonstration: DemonstrationSummary) -> bool:
        """Whether a guided episode may use a demonstration, unless a self-rolled one replaced it."""
        return (
            not demonstration.is_self_rolled
            and self._is_success_in_use(demonstration)
            and demonstration.rolls < self.guided_attempts
        )

    def _is_success_in_use(self, demonstration: DemonstrationSummary) -> bool:
        """Whether a demonstration was not dropped and is better than a group in which every rollout
        failed."""
        return not demonstration.dropped and demonstration.reward > self.success_above

    def _is_of(self, demonstration: DemonstrationSummary, group: GroupRecord) -> bool:
        is_of_seed = not self.matches_seeds or demonstration.seed == group.seed
        return demonstration.task_id == group.task_id and is_of_seed

    def _chosen(self, found: Iterable[DemonstrationSummary], what: str) -> DemonstrationSummary | None:
        ordered = sorted(found, key=lambda one: one.pool_id)
        return Random(f"{self.order_seed}/{what}").choice(ordered) if ordered else None


def _replaced(known: Collection[DemonstrationSummary]) -> set[int]:
    """Return the ids of the demonstrations that were the hint of a self-rolled one in `known` that is not
    dropped."""
    return {one.guide_id for one in known if one.guide_id is not None and not one.dropped}
