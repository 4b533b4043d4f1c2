"""weight_sync: rolls a new policy version through the pool, one rollout actor at a time.

Receives   VersionPublished (trainer)
Asks       LoadVersion of one rollout actor; the others never stop serving
On restart it reads the newest version from the record and looks on the board who serves what
"""

from pathlib import Path
from typing import Any

from actors.actor import Actor, Sender, receives
from actors.board import ActorState
from actors.errors import AskError
from dart import messages as m
from dart.store.reader import StoreReader

LOOK_S = 0.1
"""How often the board is looked at for a rollout actor that serves an old version."""

RECORD_LOOK_S = 1.0
"""How often the record is looked at: the trainer may die between its commit and its word of it."""

LOAD_DEADLINE_S = 90.0


class WeightSyncActor(Actor):
    """Owns which version every rollout actor should serve. Two syncs never overlap."""

    def on_start(self) -> None:
        self._workers: list[str] = list(self.args["workers"])
        self._reader = StoreReader(Path(self.args["store"]))
        self._target = m.VersionPublished(version=-1, folder="")
        self._look_at_record()
        self.every(RECORD_LOOK_S, self._look_at_record)
        self.run(self._roll_for_ever())

    @receives(m.VersionPublished)
    def published(self, call: m.VersionPublished, sender: Sender) -> None:
        self._aim_at(call)

    def _look_at_record(self) -> None:
        newest = self._reader.latest_version()
        assert newest is not None, "version 0 is recorded before the tree starts"
        self._aim_at(m.VersionPublished(version=newest.version, folder=newest.checkpoint))

    def _aim_at(self, published: m.VersionPublished) -> None:
        """The newest one counts; a version that was waiting is superseded."""
        if published.version > self._target.version:
            self._target = published

    async def _roll_for_ever(self) -> None:
        while True:
            stale = next((worker for worker in self._workers if self._is_stale(worker)), None)
            if stale is None:
                await self.sleep(LOOK_S)
            else:
                await self._update(stale)

    async def _update(self, worker: str) -> None:
        target = self._target
        call = m.LoadVersion(version=target.version, folder=target.folder)
        try:
            loaded: Any = await self.ask(worker, call, deadline_s=LOAD_DEADLINE_S)
        except AskError as error:
            self.log.warning("version_not_loaded", worker=worker, version=target.version, reason=str(error))
            await self.sleep(LOOK_S)
            return
        self.log.info("worker_updated", worker=worker, version=loaded.version)

    def _is_stale(self, worker: str) -> bool:
        slot = self.board.find(worker)
        if slot is None or self.board.state(slot) is not ActorState.RUNNING:
            return False  # it comes back with the newest version by itself
        return bool(self.board.get(slot, "gauge_version") < self._target.version)
