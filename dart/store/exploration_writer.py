"""The writer's part about exploration: screens, what was tried on them, and who may try more.

A lease gives one explorer the right to expand one screen. It has a fence, which grows with every lease, and a
deadline, which every report renews. A report under a lease that has ended changes nothing. The record itself
refuses two holders of one screen, two leases of one explorer, and a second first try of an action.
"""

from sqlalchemy import bindparam, update

from dart.core.exploration import (
    Effect,
    ExploreAct,
    ExploredStep,
    HeldLease,
    LeaseEnd,
    LeaseMove,
    PageScreen,
    StepVerdict,
)
from dart.core.records import StoredResult
from dart.store import queries
from dart.store.errors import StoreConflict
from dart.store.queries import first, scalar
from dart.store.schema import exploration_leases, explored_steps, screens
from dart.store.serialization import Row, record_of, screen_row
from dart.store.writer import RecordWriter

END = update(exploration_leases).values(ended=bindparam("why"), held_screen=None, held_by=None)
END_ONE = END.where(exploration_leases.c.fence == bindparam("key"), exploration_leases.c.ended.is_(None))
END_OF_EXPLORER = END.where(exploration_leases.c.held_by == bindparam("name"))


class ExplorationWriter(RecordWriter):
    """Writes exploration graphs."""

    def lease_screen(
        self,
        task_id: str,
        seed: int,
        screen_id: int | None,
        explorer: str,
        incarnation: int,
        deadline_unix_s: float,
    ) -> HeldLease:
        """Give an explorer the right to expand a screen; ends the lease that it had before.

        screen_id   None before any screen is known
        Raises StoreConflict if another explorer holds the screen.
        """
        with self._transaction():
            self._execute(END_OF_EXPLORER, name=explorer, why=LeaseEnd.REPLACED.value)
            if screen_id is not None and (holder := scalar(self._bare, queries.SCREEN_HELD, key=screen_id)):
                raise StoreConflict(f"screen {screen_id} cannot be leased to {explorer}: {holder} holds it")
            fence = self._insert(
                exploration_leases,
                task_id=task_id,
                seed=seed,
                screen_id=screen_id,
                goal_id=screen_id,
                explorer=explorer,
                incarnation=incarnation,
                deadline_unix_s=deadline_unix_s,
                held_screen=screen_id,
                held_by=explorer,
            )
            return record_of(HeldLease, self._lease(fence))

    def end_exploration_lease(self, fence: int, why: LeaseEnd) -> bool:
        """End a lease; returns whether it was held until now."""
        with self._transaction():
            return self._execute(END_ONE, key=fence, why=LeaseEnd(why).value).rowcount == 1

    def record_explored(
        self,
        fence: int,
        number: int,
        cost: int,
        source_id: int | None,
        act: ExploreAct,
        action: str,
        effect: Effect,
        target_id: int | None,
        screen: PageScreen | None,
        is_expansion: bool,
        move: LeaseMove,
        deadline_unix_s: float,
    ) -> StepVerdict:
        """Record an action of exploration, and the screen that it found, if the lease is still held.

        cost        number of actions that it took
        screen      a new screen, which becomes the target; None if `target_id` is the target or there is none
        Raises StoreConflict for a first try of an action that was tried before.
        """
        with self._transaction():
            lease = self._lease(fence)
            if known := first(self._bare, queries.REPORTED_STEP, fence=fence, number=number):
                return StepVerdict(
                    result=StoredResult.DUPLICATE, step=record_of(ExploredStep, known), holds=lease.screen_id
                )
            if lease.ended is not None:
                return StepVerdict(result=StoredResult.FENCED, step=None, holds=None)
            expansion = f"{source_id}|{action}" if is_expansion else None
            if expansion is not None and scalar(self._bare, queries.IS_EXPANDED, expansion=expansion):
                raise StoreConflict(f"action {action!r} of screen {source_id} was tried before")
            place = {"task_id": lease.task_id, "seed": lease.seed}
            actions = cost + (scalar(self._bare, queries.EXPLORED_ACTIONS, **place) or 0)
            if screen is not None:
                target_id = self._add_screen(lease, screen, actions, source_id)
            step_id = self._insert(
                explored_steps,
                **place,
                fence=fence,
                number=number,
                actions=actions,
                source_id=source_id,
                act=ExploreAct(act).value,
                action=action,
                effect=Effect(effect).value,
                target_id=target_id,
                expansion=expansion,
                unix_s=self._clock(),
            )
            holds = self._moved(lease, target_id, LeaseMove(move), deadline_unix_s)
            step = record_of(ExploredStep, self._one(queries.ONE_EXPLORED_STEP, "explored step", step_id))
            return StepVerdict(result=StoredResult.ACCEPTED, step=step, holds=holds)

    def _add_screen(self, lease: Row, screen: PageScreen, actions: int, source_id: int | None) -> int:
        depth = 0 if source_id is None else 1 + scalar(self._bare, queries.SCREEN_DEPTH, key=source_id)
        row = screen_row(
            screen,
            task_id=lease.task_id,
            seed=lease.seed,
            depth=depth,
            found_actions=actions,
            found_unix_s=self._clock(),
        )
        return self._insert(screens, **row)

    def _moved(
        self, lease: Row, target_id: int | None, move: LeaseMove, deadline_unix_s: float
    ) -> int | None:
        """Renew a lease, and let it follow its holder if the screen there is free; returns its screen."""
        held: int | None = lease.screen_id
        if move is LeaseMove.FOLLOW and target_id != held:
            is_free = target_id is not None and not scalar(self._bare, queries.SCREEN_HELD, key=target_id)
            held = target_id if is_free else None
        self._update(
            exploration_leases,
            lease.fence,
            screen_id=held,
            held_screen=held,
            deadline_unix_s=deadline_unix_s,
        )
        return held

    def _lease(self, fence: int) -> Row:
        return self._one(queries.EXPLORATION_LEASE, "exploration lease", fence)
