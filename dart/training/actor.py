"""The trainer actor: trains on one batch after another and publishes policy versions.

Asks       the curator for a batch, the store to commit the update
Tells      weight_sync and the curator of the new version
Waits for  its own worker threads: one runs the update, another writes the checkpoint of the previous version
           from a copy; messages are handled meanwhile
Refuses    a batch that cannot be trained (`dart.training.batch_errors`): the groups to blame are dropped
Dies when  an update or a checkpoint exceeds its deadline, the loss of several batches in a row is not finite
           in every group, the record refuses its commit because another trainer holds the batch, or the
           record took the last commit of the trainer before it after this one had loaded its version
On restart resumes from the newest committed version. A checkpoint without a commit is renamed at the first
           batch; its batch is still leased and is trained again from the committed version, so no trajectory
           trains twice
On stop    commits the current update first, if it ends in time

A version is announced when it is durable and committed, never before. While a version is being written, the
trainer already trains on the groups of the batch that the curator will lease next: it trains *ahead*. It
requests the lease of this batch after the commit of the version. Until then nothing of the update ahead is in
the record, so a kill costs the updates since the last commit.
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

from actors.actor import Actor
from actors.errors import AskError, MailboxFull
from actors.future import Future
from dart.config.config import Config
from dart.config.gpus import assign_gpus, gpus_here, set_visible_devices
from dart.core import messages as m
from dart.core.malloc_trim import trim_heap
from dart.core.record_address import parse_record_address
from dart.core.records import STALENESS_BOUND, Batch, StoredResult
from dart.core.types import Group
from dart.store.checkpoints import WriteCheckpoint, set_aside_uncommitted
from dart.store.client import write_through_restarts
from dart.store.disk_wait import await_room, in_storage
from dart.store.errors import StepsLost
from dart.store.patience import AT_START
from dart.store.reader import StoreReader
from dart.store.run_blobs import run_blobs
from dart.store.run_checkpoints import run_checkpoints
from dart.telemetry.board_gauges import Gauge
from dart.telemetry.emit import emit
from dart.telemetry.events import BATCH_REFUSED, VERSION_SET_ASIDE
from dart.telemetry.load_interval import load_every_s
from dart.telemetry.load_meter import LOAD, LoadMeter
from dart.training.batch_errors import (
    DAMAGED_STEPS,
    MAX_REFUSED_IN_A_ROW,
    REFUSED,
    Blame,
    blame,
    can_retry,
    is_policy_at_fault,
)
from dart.training.staleness import staleness_figures, staleness_of
from dart.training.update_report import UpdateSummary

T = TypeVar("T")

PAUSE_S = 0.2


class BatchTaken(RuntimeError):
    """The record refused the commit of an update, because another trainer holds a newer lease of the batch.

    The record has nothing of this update.
    """

    def __init__(self, batch_id: int, fence: int, version: int) -> None:
        super().__init__(
            f"the update to version {version} on batch {batch_id} (lease {fence}) is dropped: another "
            "trainer holds a newer lease of the batch; this trainer restarts from the record"
        )


class CommittedMeanwhile(RuntimeError):
    """The record took a commit of the trainer before this one, after this trainer had loaded its version."""

    def __init__(self, loaded: int, newest: int) -> None:
        super().__init__(
            f"this trainer loaded version {loaded}, and then the record took version {newest} from the "
            f"trainer before it; nothing was trained, and it restarts from version {newest}"
        )


class TrainedAhead(RuntimeError):
    """The trainer trained ahead on groups, and the curator then leased a batch of other groups."""

    def __init__(self, trained: tuple[int, ...], leased: tuple[int, ...]) -> None:
        super().__init__(
            f"an update that was trained ahead of its lease on the groups {trained} is dropped: the curator "
            f"leased the groups {leased} instead; this trainer restarts from the record"
        )


TrainOn = Batch | m.BatchAhead
"""What an update trains on: a leased batch, or the groups of a batch that is leased later."""


class TrainerActor(Actor):
    """Makes one update after another; ends normally when the curator says that the run is over."""

    async def on_start(self) -> None:
        from dart.training.learner_factory import learner_at

        self._config = Config.model_validate(self.args["config"])
        self._blobs = run_blobs(self._config.run, self.identity.run_dir)
        address = parse_record_address(self.args["store"])
        self._reader = self.enter_context(StoreReader(address, AT_START, steps=self._blobs.steps))
        set_visible_devices(assign_gpus(self._config, gpus_here()).trainer)
        self._checkpoints = self.identity.run_dir / "checkpoints"
        newest = self._newest_version()
        self._published = run_checkpoints(self._config, self.identity.run_dir)
        if newest > 0:
            await self._share("checkpoint", lambda: self._published.fetch(newest))
        self._is_first_batch = True
        self._learner = learner_at(self._config, newest, self._checkpoints)
        self._refused_in_a_row = 0
        self._update_ended: Future[None] | None = None
        """A future that succeeds when the current update has ended; None between updates."""
        self._committed = self._learner.version
        """The newest version in the record; the learner's version is higher while a checkpoint is written."""
        self._written: Future[None] | None = None
        """A future that succeeds when the version that is being written is committed; None between writes."""
        self._publish()
        self._load = LoadMeter(self.clock.monotonic_s)
        self.every(load_every_s(self._config), self._record_load)
        self.after(0.0, self._train_until_over)

    def _newest_version(self) -> int:
        """Read the newest version in the record."""
        newest = self._reader.latest_version()
        assert newest is not None, (
            "the record has no policy version; version 0 should be in it before the tree starts"
        )
        return newest.version

    async def on_stop(self) -> None:
        if self._update_ended is not None:
            await self._update_ended
        await self._until_committed()
        self._record_load()

    async def _train_until_over(self) -> None:
        while not self.is_stopping:
            with self._load.during("starved_s"):
                batch = await self._next_batch()
            if batch is None:
                self.stop()
                return
            self._update_ended = Future()
            await self._update(batch)
            trim_heap()
            ended, self._update_ended = self._update_ended, None
            ended.succeed(None)

    async def _next_batch(self) -> TrainOn | None:
        """Wait for the next batch and return it; while a version is being written, return only its groups.

        None: the run is over, or this actor is stopping.
        """
        while not self.is_stopping:
            asks_ahead = self._written is not None
            reply = await self._ask_curator(m.BatchAheadRequest() if asks_ahead else m.BatchRequest())
            match reply:
                case m.RunOver():
                    return None
                case m.NoWorkYet():
                    await self._sleep_or_committed(reply.retry_after_s)
                case Batch() | m.BatchAhead():
                    return reply
        return None

    async def _sleep_or_committed(self, wait_s: float) -> None:
        """Wait `wait_s` seconds, or less if the version that is being written is committed earlier."""
        ended: Future[None] = Future()
        self.after(wait_s, lambda: ended.succeed(None))
        if self._written is not None:
            self._written.then(lambda: ended.succeed(None))
        await ended

    async def _ask_curator(self, call: m.BatchRequest | m.BatchAheadRequest) -> Any:
        try:
            return await self.ask("curator", call, deadline_s=20.0)
        except (AskError, MailboxFull) as error:
            self.log.info("no_curator", reason=str(error))
            return m.NoWorkYet(retry_after_s=PAUSE_S, reason=str(error))

    async def _leased(self, batch: TrainOn) -> Batch | None:
        """Return the lease of a batch; None when the run is over.

        If the batch was trained ahead, wait for the commit before it and request the lease now. Raises
        TrainedAhead when the curator leases other groups.
        """
        await self._until_committed()
        if isinstance(batch, Batch):
            return batch
        while True:
            match await self._ask_curator(m.BatchRequest(group_ids=batch.group_ids)):
                case m.RunOver():
                    return None
                case m.NoWorkYet(retry_after_s=wait_s):
                    await self.sleep(wait_s)
                case Batch() as leased:
                    if set(leased.group_ids) != set(batch.group_ids):
                        raise TrainedAhead(batch.group_ids, leased.group_ids)
                    return leased

    async def _update(self, batch: TrainOn) -> None:
        if self._is_first_batch:
            await self._take_over()
            self._is_first_batch = False
        groups = await self._groups_of(batch)
        if groups is None:
            return
        staleness = staleness_of(groups, self._learner.version)
        self._assert_fresh(staleness, batch.group_ids)
        report = await self._train(batch, groups)
        if report is None:
            return
        bound = {STALENESS_BOUND: float(self._config.curation.staleness)}
        metrics = _metrics(report, staleness, groups) | bound
        with self._load.during("blocked_s"):
            leased = await self._leased(batch)
            if leased is None:
                return
            self._written = Future()
            version = self._learner.version
            write = await self._checkpoint_work("copy", self._learner.copy)
            self.run(self._publish_version(version, write, leased, metrics))
            if not self._config.training.background_checkpoints:
                await self._until_committed()

    async def _publish_version(
        self, version: int, write: WriteCheckpoint, batch: Batch, metrics: dict[str, float]
    ) -> None:
        """Write a version's checkpoint durably, commit and announce the version, delete old checkpoints."""
        with self._load.during("writing_s"):
            folder = await await_room(
                self,
                f"checkpoint {version}",
                lambda: self._checkpoint_work("checkpoint", lambda: write(self._checkpoints)),
            )
            await self._share(f"checkpoint {version}", lambda: self._published.publish(version, folder))
            await self._commit(batch, version, metrics)
        self.log.info("update_committed", **metrics)
        self._committed = version
        self._publish()
        self.tell("weight_sync", m.VersionPublished(version=version))
        self.tell("curator", m.UpdateCommitted(version=version))
        await self._prune()
        written, self._written = self._written, None
        assert written is not None
        written.succeed(None)

    async def _until_committed(self) -> None:
        """Wait until the version that is being written, if there is one, is in the record."""
        if self._written is not None:
            await self._written

    async def _groups_of(self, batch: TrainOn) -> tuple[Group, ...] | None:
        """Read the groups of a batch; None when some of its steps are lost and the batch was refused."""
        try:
            return await in_storage(
                self,
                self._blobs.steps,
                "the steps of a batch",
                lambda: self._reader.groups_to_trajectories(batch.group_ids),
            )
        except StepsLost as lost:
            found = Blame(group_ids=lost.group_ids, pool_ids=lost.pool_ids, reason=DAMAGED_STEPS)
            await self._refuse(batch, found, str(lost))
            return None

    async def _train(self, batch: TrainOn, groups: tuple[Group, ...]) -> UpdateSummary | None:
        """Make the update and return its report; None when the batch cannot be trained and was refused."""
        tries = 0
        while True:
            tries += 1
            try:
                with self._load.during("update_s"):
                    report = await await_room(
                        self, "the screenshots of a batch", lambda: self._updated(groups)
                    )
            except REFUSED as error:
                if can_retry(error, tries):
                    self.log.warning("update_failed", groups=batch.group_ids, tries=tries, reason=str(error))
                    continue
                found = blame(error, groups)
                if is_policy_at_fault(error, found, groups):
                    if self._refused_in_a_row >= MAX_REFUSED_IN_A_ROW:
                        raise
                    self._refused_in_a_row += 1
                await self._refuse(batch, found, str(error))
                return None
            self._refused_in_a_row = 0
            return report

    def _updated(self, groups: tuple[Group, ...]) -> Future[UpdateSummary]:
        return self.in_thread(
            lambda: self._learner.update(groups, self._blobs.screenshots),
            name="update",
            deadline_s=self._config.training.update_deadline_s,
            setting="training.update_deadline_s",
        )

    async def _refuse(self, trained_on: TrainOn, found: Blame, detail: str) -> None:
        """Record that the batch is refused. The curator reads this when the trainer next asks for a batch."""
        batch = await self._leased(trained_on)
        if batch is None:
            return
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
            detail=detail[: m.DETAIL_CHARACTERS],
            **asdict(found),
        )
        await write_through_restarts(self, call)

    async def _take_over(self) -> None:
        """Set aside versions that an earlier trainer wrote but did not commit.

        This trainer must hold its first lease: from then on the record takes no commit of an earlier trainer.
        An event names each version that the earlier trainer had published for other machines. Raises
        CommittedMeanwhile if the record took a commit after this trainer had loaded its version.
        """
        committed = self._committed
        if (newest := self._newest_version()) != committed:
            raise CommittedMeanwhile(committed, newest)
        set_aside_uncommitted(self._checkpoints, committed)
        aside = await self._share("checkpoints", lambda: self._published.set_aside_uncommitted(committed))
        for version in aside:
            place = self._published.place_of_uncommitted(version)
            data: dict[str, str | int] = {"version": version, "committed": committed, "place": place}
            emit(self, VERSION_SET_ASIDE, self.identity.name, data)

    async def _share(self, what: str, work: Callable[[], T]) -> T:
        """Return the result of work with the checkpoints that all machines share.

        While their storage does not answer, wait and try again. Without such storage, just do the work.
        """
        if not self._published.is_remote:
            return work()
        return await await_room(self, what, lambda: self._checkpoint_work(what, work))

    def _checkpoint_work(self, name: str, work: Callable[[], T]) -> Future[T]:
        return self.in_thread(
            work,
            name=name,
            deadline_s=self._config.training.checkpoint_deadline_s,
            setting="training.checkpoint_deadline_s",
        )

    async def _commit(self, batch: Batch, version: int, metrics: dict[str, float]) -> None:
        """Commit the new version to the record, durably. Raises BatchTaken."""
        call = m.CommitUpdate(batch_id=batch.batch_id, fence=batch.fence, version=version, metrics=metrics)
        if await write_through_restarts(self, call) == StoredResult.FENCED:
            raise BatchTaken(batch.batch_id, batch.fence, version)

    def _assert_fresh(self, staleness: list[int], group_ids: tuple[int, ...]) -> None:
        """Raise AssertionError if a step is older than the staleness bound that the curator guarantees."""
        bound = self._config.curation.staleness
        if max(staleness) > bound:
            raise AssertionError(
                f"the batch of groups {group_ids} holds a step that is {max(staleness)} versions old; "
                f"curation.staleness allows {bound}"
            )

    async def _prune(self) -> None:
        """Delete old checkpoints, except those that a rollout actor serves or loads."""
        from dart.store.checkpoints import prune, remove_uncommitted

        remove_uncommitted(self._checkpoints, self._committed)
        engines = [row for row in self.board.rows() if row.name.startswith("rollout-")]
        used = (Gauge.SERVED_VERSION, Gauge.LOADING_VERSION)
        protected = frozenset(row.gauges[gauge] for row in engines for gauge in used)
        kept = self._config.training.checkpoints_kept
        prune(self._checkpoints, kept, protect=protected)
        await self._share("checkpoints", lambda: self._published.prune(kept, protected))

    def _publish(self) -> None:
        self.set_gauges({Gauge.TRAINED_VERSION: self._committed})

    def _record_load(self) -> None:
        emit(self, LOAD, self.identity.name, self._load.totals())


def _metrics(report: UpdateSummary, staleness: list[int], groups: tuple[Group, ...]) -> dict[str, float]:
    """Return the metrics to record with the new version; figures that are None are left out."""
    figures = {name: float(value) for name, value in asdict(report).items() if value is not None}
    trajectories = float(sum(len(group.trajectories) for group in groups))
    return {**figures, **staleness_figures(staleness), "trajectories": trajectories}
