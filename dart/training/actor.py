"""The trainer actor: batches in, policy versions out.

Asks       the curator for a batch, the store to commit the update
Tells      weight_sync and the curator of the new version
Waits for  its own worker thread, which runs the update; the mailbox stays answerable meanwhile
Dies when  an update overruns its deadline, is not finite, or the disk refuses a checkpoint
On restart it goes on from the newest committed version; a checkpoint without a commit is removed,
           its batch is still leased and is trained again from where it was: no trajectory trains twice
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from actors.actor import Actor
from actors.errors import AskError, MailboxFull
from dart import messages as m
from dart.config import Config
from dart.store.client import write
from dart.store.reader import StoreReader
from dart.training.staleness import staleness_of
from dart.types import Group

UPDATE_DEADLINE_S = 300.0
CHECKPOINT_DEADLINE_S = 120.0
PAUSE_S = 0.2


class TrainerActor(Actor):
    """One update after the other; ends normally when the curator says that the run is over."""

    def on_start(self) -> None:
        from dart.training.resume import learner_at

        self._config = Config.model_validate(self.args["config"])
        self._reader = StoreReader(Path(self.args["store"]))
        self._checkpoints = self.identity.run_dir / "checkpoints"
        newest = self._reader.latest_version()
        assert newest is not None, "version 0 is recorded before the tree starts"
        self._learner = learner_at(self._config, newest, self._checkpoints)
        self._publish()
        self.after(0.0, self._train_until_over)

    async def _train_until_over(self) -> None:
        while True:
            try:
                answer = await self.ask("curator", m.BatchRequest(), deadline_s=20.0)
            except (AskError, MailboxFull) as error:
                self.log.info("no_curator", reason=str(error))
                await self.sleep(PAUSE_S)
                continue
            match answer:
                case m.RunOver():
                    self.stop()
                    return
                case m.Wait():
                    await self.sleep(answer.retry_after_s)
                case m.BatchLease():
                    await self._update(answer)

    async def _update(self, batch: m.BatchLease) -> None:
        groups = self._reader.groups_to_trajectories(batch.group_ids)
        staleness = staleness_of(groups, self._learner.version)
        self._assert_fresh(staleness, batch.batch_id)
        report = await self.in_thread(
            lambda: self._learner.update(groups, self.identity.run_dir / "blobs"),
            name="update",
            deadline_s=UPDATE_DEADLINE_S,
        )
        folder: Path = await self.in_thread(
            lambda: self._learner.save(self._checkpoints), name="checkpoint", deadline_s=CHECKPOINT_DEADLINE_S
        )
        metrics = _metrics(report, staleness, groups)
        await write(
            self,
            m.CommitUpdate(
                batch_id=batch.batch_id,
                fence=batch.fence,
                version=self._learner.version,
                checkpoint=str(folder),
                metrics=metrics,
            ),
        )
        self.log.info("update_committed", **metrics)
        self._publish()
        self.tell("weight_sync", m.VersionPublished(version=self._learner.version, folder=str(folder)))
        self.tell("curator", m.UpdateCommitted(version=self._learner.version))
        self._prune()

    def _assert_fresh(self, staleness: list[int], batch_id: int) -> None:
        """Invariant fresh, asserted at consumption."""
        bound = self._config.curation.staleness
        if max(staleness) > bound:
            raise AssertionError(
                f"batch {batch_id} holds a step {max(staleness)} versions old, the bound is {bound}"
            )

    def _prune(self) -> None:
        """Keep the newest checkpoints, and whatever a rollout actor may still be loading."""
        from dart.training.checkpoint import prune

        served = {row.gauge_version for row in self.board.rows() if row.name.startswith("rollout-")}
        prune(self._checkpoints, self._config.training.checkpoints_kept, protect=frozenset(served))

    def _publish(self) -> None:
        self.set_gauges(version=self._learner.version)


def _metrics(report: Any, staleness: list[int], groups: tuple[Group, ...]) -> dict[str, float]:
    figures = {name: float(value) for name, value in asdict(report).items()}
    figures["staleness_mean"] = sum(staleness) / len(staleness)
    figures["staleness_max"] = float(max(staleness))
    figures["trajectories"] = float(sum(len(group.trajectories) for group in groups))
    return figures
