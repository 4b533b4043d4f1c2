"""The trainer actor: batches in, policy versions out.

Asks       the curator for a batch, the store to commit the update
Tells      weight_sync and the curator of the new version
Waits for  its own worker thread, which runs the update; the mailbox stays answerable meanwhile
Refuses    a batch that cannot be trained (`dart.training.batch_errors`): the groups to blame are dropped
Dies when  an update overruns its deadline, several batches in a row are not finite in every group, or the
           record refuses its commit: another trainer holds the batch by now
On restart it goes on from the newest committed version; a checkpoint without a commit is renamed aside,
           its batch is still leased and is trained again from where it was: no trajectory trains twice
On stop    an update that is being made is committed first, if it ends in time
"""

import itertools
from dataclasses import asdict
from pathlib import Path
from typing import Any

from actors.actor import Actor
from actors.errors import AskError, MailboxFull
from actors.future import Future
from dart.config.config import Config
from dart.config.gpus import assign_gpus, gpus_here, set_visible_devices
from dart.core import messages as m
from dart.core.records import STALENESS_BOUND, Commit
from dart.core.types import Group
from dart.store.client import write
from dart.store.disk_wait import await_room
from dart.store.reader import StoreReader
from dart.telemetry.emit import emit
from dart.telemetry.events import BATCH_REFUSED
from dart.telemetry.gauges import Gauge
from dart.telemetry.load_meter import LOAD, LoadMeter
from dart.training.batch_errors import (
    REFUSED,
    REFUSED_IN_A_ROW,
    Blame,
    accuses_the_policy,
    blame,
    is_worth_another_try,
)
from dart.training.malloc_trim import give_back
from dart.training.staleness import staleness_figures, staleness_of

PAUSE_S = 0.2


class BatchTaken(RuntimeError):
    """An update came too late: its batch was leased to another trainer. Nothing of it is in the record."""

    def __init__(self, batch_id: int, fence: int, version: int) -> None:
        super().__init__(
            f"the update that made version {version} from batch {batch_id} (lease {fence}) is dropped: "
            "another trainer holds a newer lease of the batch; this one starts again from the record"
        )


class TrainerActor(Actor):
    """One update after the other; ends normally when the curator says that the run is over."""

    def on_start(self) -> None:
        from dart.training.learner_factory import learner_at

        self._config = Config.model_validate(self.args["config"])
        self._reader = self.enter_context(StoreReader(Path(self.args["store"])))
        set_visible_devices(assign_gpus(self._config, gpus_here()).trainer)
        self._checkpoints = self.identity.run_dir / "checkpoints"
        newest = self._reader.latest_version()
        assert newest is not None, "version 0 is recorded before the tree starts"
        self._learner = learner_at(self._config, newest, self._checkpoints)
        self._refused_in_a_row = 0
        self._update_ended: Future[None] | None = None
        """Of the update that is being made."""
        self._publish()
        self._load = LoadMeter(self.clock.monotonic_s)
        self.every(self._config.telemetry.load_every_s, self._tell_load)
        self.after(0.0, self._train_until_over)

    async def on_stop(self) -> None:
        if self._update_ended is not None:
            await self._update_ended
        self._tell_load()

    async def _train_until_over(self) -> None:
        while not self.is_stopping:
            with self._load.during("starved_s"):
                batch = await self._next_batch()
            if batch is None:
                self.stop()
                return
            self._update_ended = Future()
            await self._update(batch)
            give_back()
            ended, self._update_ended = self._update_ended, None
            ended.succeed(None)

    async def _next_batch(self) -> m.BatchLease | None:
        """Wait for the next batch; None when the run is over."""
        while True:
            try:
                answer = await self.ask("curator", m.BatchRequest(), deadline_s=20.0)
            except (AskError, MailboxFull) as error:
                self.log.info("no_curator", reason=str(error))
                await self.sleep(PAUSE_S)
                continue
            match answer:
                case m.RunOver():
                    return None
                case m.NoWorkYet():
                    await self.sleep(answer.retry_after_s)
                case m.BatchLease():
                    return answer

    async def _update(self, batch: m.BatchLease) -> None:
        groups = self._reader.groups_to_trajectories(batch.group_ids)
        staleness = staleness_of(groups, self._learner.version)
        self._assert_fresh(staleness, batch.batch_id)
        report = await self._trained_on(batch, groups)
        if report is None:
            return
        bound = {STALENESS_BOUND: float(self._config.curation.staleness)}
        metrics = _metrics(report, staleness, groups) | bound
        with self._load.during("blocked_s"):
            folder = await await_room(self, f"checkpoint {self._learner.version}", self._save)
            await self._commit(batch, folder, metrics)
        self.log.info("update_committed", **metrics)
        self._publish()
        self.tell("weight_sync", m.VersionPublished(version=self._learner.version, folder=str(folder)))
        self.tell("curator", m.UpdateCommitted(version=self._learner.version))
        self._prune()

    async def _trained_on(self, batch: m.BatchLease, groups: tuple[Group, ...]) -> Any | None:
        """What the update did; None when the batch cannot be trained and was given back."""
        for tries in itertools.count(1):
            try:
                with self._load.during("update_s"):
                    report = await self.in_thread(
                        lambda: self._learner.update(groups, self.identity.run_dir / "blobs"),
                        name="update",
                        deadline_s=self._config.training.update_deadline_s,
                    )
            except REFUSED as error:
                if is_worth_another_try(error, tries):
                    self.log.warning("update_failed", batch=batch.batch_id, tries=tries, reason=str(error))
                    continue
                found = blame(error, groups)
                if accuses_the_policy(error, found, groups):
                    if self._refused_in_a_row >= REFUSED_IN_A_ROW:
                        raise
                    self._refused_in_a_row += 1
                await self._refuse(batch, found, str(error))
                return None
            self._refused_in_a_row = 0
            return report
        raise AssertionError("unreachable: the count has no end")

    async def _refuse(self, batch: m.BatchLease, found: Blame, detail: str) -> None:
        """Durable when this returns. The curator notices when it is asked next: the record refuses it."""
        self.log.error(
            BATCH_REFUSED,
            batch=batch.batch_id,
            groups=found.group_ids,
            demonstrations=found.pool_ids,
            reason=found.reason,
            detail=detail,
        )
        call = m.RefuseBatch(
            batch_id=batch.batch_id,
            fence=batch.fence,
            group_ids=found.group_ids,
            pool_ids=found.pool_ids,
            reason=found.reason,
            detail=detail,
        )
        await write(self, call)

    async def _save(self) -> Path:
        return await self.in_thread(
            lambda: self._learner.save(self._checkpoints),
            name="checkpoint",
            deadline_s=self._config.training.checkpoint_deadline_s,
        )

    async def _commit(self, batch: m.BatchLease, folder: Path, metrics: dict[str, float]) -> None:
        """Durable when this returns. Raises BatchTaken."""
        version = self._learner.version
        call = m.CommitUpdate(
            batch_id=batch.batch_id,
            fence=batch.fence,
            version=version,
            checkpoint=str(folder.relative_to(self.identity.run_dir)),
            metrics=metrics,
        )
        if await write(self, call) == Commit.FENCED:
            raise BatchTaken(batch.batch_id, batch.fence, version)

    def _assert_fresh(self, staleness: list[int], batch_id: int) -> None:
        """Invariant fresh, asserted at consumption."""
        bound = self._config.curation.staleness
        if max(staleness) > bound:
            raise AssertionError(
                f"batch {batch_id} holds a step {max(staleness)} versions old, the bound is {bound}"
            )

    def _prune(self) -> None:
        """Keep the newest checkpoints, and whatever a rollout actor may still be loading."""
        from dart.store.checkpoints import prune, remove_uncommitted

        remove_uncommitted(self._checkpoints, self._learner.version)
        engines = [row for row in self.board.rows() if row.name.startswith("rollout-")]
        served = {row.gauges[Gauge.SERVED_VERSION] for row in engines}
        prune(self._checkpoints, self._config.training.checkpoints_kept, protect=frozenset(served))

    def _publish(self) -> None:
        self.set_gauges({Gauge.TRAINED_VERSION: self._learner.version})

    def _tell_load(self) -> None:
        emit(self, LOAD, self.identity.name, self._load.totals())


def _metrics(report: Any, staleness: list[int], groups: tuple[Group, ...]) -> dict[str, float]:
    """The figures of an update as they are kept with its version; what it could not know is left out."""
    figures = {name: float(value) for name, value in asdict(report).items() if value is not None}
    trajectories = float(sum(len(group.trajectories) for group in groups))
    return {**figures, **staleness_figures(staleness), "trajectories": trajectories}
