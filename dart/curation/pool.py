"""Which demonstration a group gets in which every rollout failed (DART, arXiv 2509.23866, section 3.2).

Such a group teaches nothing by itself: all its advantages are 0. With one success from elsewhere it teaches
what to prefer. A group that has a success of its own gets none, so the pool never competes with the policy.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from dart.curation import groups
from dart.store.records import DemonstrationSummary, GroupRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The rule and its settings."""

    max_uses: int
    """How often one demonstration may be used; 0 for no limit."""
    order_seed: int = 0

    def demonstration_for(
        self, group: GroupRecord, known: Iterable[DemonstrationSummary]
    ) -> DemonstrationSummary | None:
        """What to add to a group, chosen by chance, the same for the same group; None to add nothing."""
        if not groups.has_only_failed(group) or group.injected:
            return None
        usable = sorted(
            (one for one in known if one.task_id == group.task_id and self._is_usable(one)),
            key=lambda one: one.pool_id,
        )
        if not usable:
            return None
        return Random(f"{self.order_seed}/{group.group_id}/pool").choice(usable)

    def _is_usable(self, demonstration: DemonstrationSummary) -> bool:
        has_uses_left = self.max_uses == 0 or demonstration.uses < self.max_uses
        return has_uses_left and not demonstration.dropped
