"""Writes the demonstrations of the experience pool, as a part of `dart.store.store.Store`."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from sqlalchemy import insert

from dart.core.records import GroupState, Guided
from dart.core.types import Demonstration, Step
from dart.store import queries
from dart.store.errors import BlobDamage, StoreConflict
from dart.store.queries import first, scalars, select
from dart.store.schema import group_demonstrations, pool
from dart.store.serialization import (
    DEMONSTRATION_COLUMNS,
    Row,
    check_demonstration,
    checksum,
    content_sha256,
    demonstration_row,
)
from dart.store.writer import RecordWriter

SELF_ROLLED = "self-rolled"
"""Origin of the demonstrations that the policy of the run played itself."""

Played = list[tuple[str, tuple[int, ...], str]]
"""For each step of a demonstration: its screenshot, the tokens of its answer, and its answer."""


class DemonstrationWriter(RecordWriter):
    """Writes the experience pool."""

    def add_demonstrations(self, demonstrations: Sequence[Demonstration], *, revive: bool = True) -> int:
        """Add demonstrations that the pool does not hold yet; returns how many.

        A demonstration that the pool holds with other prompts, because the configuration or dartrl was
        another one, gets the new prompts. It keeps its counts, and whether it was dropped.

        revive   whether the steps of a demonstration that the pool holds are stored again, and one that was
                 dropped is taken into use again; then it counts as added

        Raises StoreConflict for a demonstration without a reward above 0 or with damaged steps; then none is
        added.
        """
        for demonstration in demonstrations:
            check_demonstration(demonstration)
        with self._transaction():
            return sum(self._add_demonstration(found, revive=revive) for found in demonstrations)

    def _add_demonstration(
        self, demonstration: Demonstration, *, revive: bool, steps_sha256: str = ""
    ) -> bool:
        content = content_sha256(demonstration)
        known = first(self._bare, queries.SAME_CONTENT, sha256=content) or self._with_other_prompts(
            demonstration
        )
        if known is not None:
            changed: dict[str, Any] = {"dropped": False} if revive else {}
            if revive or known.content_sha256 != content:
                changed |= self._stored_again(known, demonstration)
            self._update(pool, known.pool_id, lacks_thought=demonstration.lacks_thought, **changed)
            return revive and bool(known.dropped)
        self._know_task(demonstration.task_id)
        sha256 = steps_sha256 or self._put_steps(demonstration.steps)
        self._insert(pool, **demonstration_row(demonstration, sha256, added_unix_s=self._clock()))
        return True

    def _with_other_prompts(self, demonstration: Demonstration) -> Row | None:
        """The row of the imported demonstration with the same screenshots and answers, if there is one."""
        if demonstration.guide_id is not None:
            return None
        wanted = _played(demonstration.steps)
        found = select(
            self._bare,
            queries.SAME_EPISODE,
            task_id=demonstration.task_id,
            seed=demonstration.seed,
            instruction=demonstration.instruction,
            num_steps=len(wanted),
        )
        return next((row for row in found if self._played(row) == wanted), None)

    def _played(self, row: Row) -> Played:
        with suppress(BlobDamage):
            return _played(self.steps(row.steps_sha256))
        return []

    def _stored_again(self, known: Row, demonstration: Demonstration) -> dict[str, Any]:
        """Store the steps of a demonstration that the pool has; returns the columns that change.

        The steps may be lost or damaged, and another version of dartrl may have packed them in another way.
        """
        sha256 = self._put_steps(demonstration.steps)
        if sha256 == known.steps_sha256:
            return {}
        changed = {"steps_sha256": sha256, "content_sha256": content_sha256(demonstration)}
        return {**changed, "checksum": checksum(known._asdict() | changed, DEMONSTRATION_COLUMNS)}

    def record_guided(
        self,
        guide_id: int,
        attempt: int,
        instruction: str,
        reward: float,
        steps: Sequence[Step],
        steps_sha256: str = "",
    ) -> Guided:
        """Record a guided episode, in which the actions of the demonstration `guide_id` were the hint.

        steps_sha256   the blob of its steps; empty: this call stores them before the row that names them

        The attempt is counted. The episode becomes a demonstration if its reward is at least that of its
        guide; one that the pool holds and that was dropped stays so. Returns DUPLICATE, and changes nothing,
        if this attempt was recorded before.
        """
        with self._transaction():
            guide = self._demonstration(guide_id)
            if attempt <= guide.rolls:
                return Guided.DUPLICATE
            self._update(pool, guide_id, rolls=attempt)
            if reward < guide.reward:
                return Guided.FAILED
            played = Demonstration(
                pool_id=0,
                task_id=guide.task_id,
                seed=guide.seed,
                origin=SELF_ROLLED,
                instruction=instruction,
                reward=reward,
                steps=tuple(steps),
                guide_id=guide_id,
            )
            check_demonstration(played)
            self._add_demonstration(played, revive=False, steps_sha256=steps_sha256)
            return Guided.ADDED

    def drop_demonstration(self, pool_id: int) -> None:
        """Take a demonstration out of use; groups that it was added to keep it."""
        with self._transaction():
            self._demonstration(pool_id)
            self._update(pool, pool_id, dropped=True)

    def use_demonstration(self, group_id: int, pool_id: int) -> None:
        """Add a demonstration to a group whose rollouts have all ended, and count the use once per group.

        Raises StoreConflict if the demonstration was dropped or is of another task, or if the group is not
        open or has rollouts that are not finished.
        """
        with self._transaction():
            demonstration = self._demonstration(pool_id)
            if pool_id in scalars(self._bare, queries.POOL_IDS_OF_GROUP, key=group_id):
                return
            self._check_may_have(group_id, demonstration)
            row = {"group_id": group_id, "pool_id": pool_id, "added_unix_s": self._clock()}
            self._execute(insert(group_demonstrations), **row)
            self._update(pool, pool_id, uses=demonstration.uses + 1)

    def _check_may_have(self, group_id: int, demonstration: Row) -> None:
        name = f"demonstration {demonstration.pool_id} of {demonstration.task_id}"
        group, _, missing = self._standing(group_id)
        if demonstration.dropped:
            raise StoreConflict(f"{name} was dropped from the pool: add it again, or use another one")
        if group.task_id != demonstration.task_id:
            raise StoreConflict(
                f"{name} cannot be added to group {group_id}, which is of task {group.task_id}"
            )
        if group.state != GroupState.OPEN or missing:
            raise StoreConflict(
                f"{name} cannot be added to group {group_id}: it is {group.state}, and {missing} of its "
                f"{group.rollouts_wanted} rollouts are not finished yet"
            )

    def _demonstration(self, pool_id: int) -> Row:
        return self._one(queries.IN_POOL, "demonstration", pool_id)


def _played(steps: Sequence[Step]) -> Played:
    return [(step.screenshot_sha256, step.token_ids, step.answer) for step in steps]
