"""Writes exploration graphs, as a part of `dart.store.store.Store`: screens, tried actions and leases.

A lease gives one explorer the right to expand one screen. It has a fence, which grows with every lease, and a
deadline, which every report renews. A report under a lease that has ended changes nothing. Unique columns of
the tables exclude two holders of one screen, two held leases of one explorer, and two expansions (first
tries) of one action on one screen.
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
        """Give an explorer the right to expand a screen, and end the lease that this explorer had before.

        screen_id   None for the start screen that the explorer will show, if it is not known or varies

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
        """End a lease and record why; returns whether the lease was held until now."""
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

        number        number of the report within its lease; a report that is sent again has the same one
        cost          number of actions that the step took
        source_id     the screen on which the action was done; None for a reset
        action        key of the candidate; empty for a reset
        target_id     the known screen that the action led to; None if there is none or `screen` is new
        screen        a new screen that the action led to, else None
        is_expansion  whether this is the first try of the action on that screen
        move          which screen the lease is for afterwards

        Returns DUPLICATE for a report that is recorded already, and FENCED if the lease has ended. Raises
        StoreConflict for an expansion with an action that was tried on the screen before.
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
                raise StoreConflict(
                    f"action {action!r} of screen {source_id} is no expansion: it was tried before"
                )
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
        """Renew the deadline of a lease and return the screen that the lease is for from now on.

        With `LeaseMove.FOLLOW` this is the target, or None if another explorer holds the target.
        """
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
