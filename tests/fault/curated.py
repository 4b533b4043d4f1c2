"""Actors that play and train by a script, so that a real curator decides by the record alone.

`Player` stands for an environment and the trainer in turn: it never does two things at once. `KilledCurator`
is the real curator, killed by SIGKILL at named moments (`tests.fault.kill_moments`).
"""

import zlib
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from actors.actor import Actor, Sender, receives
from actors.errors import AskError, MailboxFull
from dart.core import messages as m
from dart.core.records import Batch
from dart.core.types import RolloutLease
from dart.curation.actor import CuratorActor
from dart.store.client import write_through_restarts
from dart.store.run_blobs import local_blobs
from dart.store.serialization import pack_steps
from dart.telemetry.board_gauges import Gauge
from dart.testing.trajectories import trajectory_for
from tests.fault.kill_moments import Place, Plan, wrap

PLAYER = "env-000"
RETRY_S = 0.05
SEEN_S = 0.1
"""Longer than the curator takes an engine's version from its last look."""


def writes(call: type) -> Any:
    """A call counts if the curator has the store carry out this one."""
    return lambda _, made, *__: isinstance(made, call)


WRITE = "dart.store.client:RecordClient.write"
CURATOR_PLACES = {
    "an environment asks": Place("dart.curation.service:CurationService.work", "before"),
    "a lease is decided and not sent": Place("dart.curation.service:CurationService.work", "after"),
    **{
        f"{what} is decided and not written": Place(WRITE, "before", writes(call))
        for what, call in (
            ("a group", m.OpenGroup),
            ("a lease", m.LeaseRollout),
            ("a drop", m.DropGroup),
            ("a decision about a task", m.RecordDecisions),
            ("a batch", m.LeaseBatch),
        )
    },
    **{
        f"{what} is written and not noted": Place(WRITE, "after", writes(call))
        for what, call in (
            ("a group", m.OpenGroup),
            ("a lease", m.LeaseRollout),
            ("a drop", m.DropGroup),
            ("a decision about a task", m.RecordDecisions),
            ("a batch", m.LeaseBatch),
        )
    },
    "a stored rollout is reported": Place("dart.curation.service:CurationService.look", "before"),
    "a stored rollout is noted": Place("dart.curation.curator:Curator.rollout_seen", "after"),
    "demonstrations are not used yet": Place(
        "dart.curation.service:CurationService._use_demonstrations", "before"
    ),
    "the trainer asks": Place("dart.curation.service:CurationService.batch", "before"),
    "a batch is leased and not sent": Place("dart.curation.service:CurationService.batch", "after"),
    "an update is reported": Place("dart.curation.service:CurationService.committed", "before"),
    "an update is noted": Place("dart.curation.service:CurationService.committed", "after"),
    "it has read nothing yet": Place("dart.curation.actor:open_service", "before"),
    "it has read the record": Place("dart.curation.actor:open_service", "after"),
}
"""The moments of a curator; those of its start come last, because a first start that fails ends the run."""


class KilledCurator(CuratorActor):
    """The curator; args `plan` is the folder of a `Plan`."""

    async def on_start(self) -> None:
        plan = Plan(Path(self.args["plan"]))
        if (moment := plan.next()) is not None:
            wrap(CURATOR_PLACES[moment.name], partial(plan.strike, moment.name))
        await super().on_start()


class ShownEngine(Actor):
    """Shows on the board the version that it is told to serve, as an engine does."""

    def on_start(self) -> None:
        self.set_gauges({Gauge.SERVED_VERSION: 0})

    @receives(m.VersionPublished)
    def serve(self, call: m.VersionPublished, sender: Sender) -> m.VersionLoaded:
        self.set_gauges({Gauge.SERVED_VERSION: call.version})
        return m.VersionLoaded(version=call.version)


class Player(Actor):
    """Plays what the curator leases and trains what is ready, one thing at a time, until the run is over."""

    def on_start(self) -> None:
        self._version = 0
        self._steps = local_blobs(self.identity.run_dir).steps
        self.after(0.0, self._until_over)

    async def _until_over(self) -> None:
        while True:
            match await self._asked(m.BatchRequest()):
                case m.RunOver():
                    self.stop()
                    return
                case Batch() as batch:
                    await self._train(batch)
                    continue
            match await self._asked(m.WorkRequest(environment=PLAYER)):
                case RolloutLease() as lease:
                    await self._play(lease)
                case _:
                    await self.sleep(RETRY_S)

    async def _asked(self, call: Any) -> Any:
        """The curator's answer; the question is repeated while the curator is started again."""
        while True:
            try:
                return await self.ask("curator", call, deadline_s=20.0)
            except (AskError, MailboxFull):
                await self.sleep(RETRY_S)

    async def _play(self, lease: RolloutLease) -> None:
        """Store an episode whose length and reward follow from the rollout."""
        drawn = zlib.crc32(f"{lease.task_id}/{lease.rollout_id}".encode())
        steps = 1 + drawn % lease.step_cap
        is_easy = lease.task_id.endswith("-0")
        reward = float(drawn // 7 % (4 if is_easy else 2) > 0)
        trajectory = trajectory_for(lease, reward, [self._version] * steps, PLAYER)
        stored = m.FinishRollout(
            rollout_id=lease.rollout_id,
            fence=lease.fence,
            trajectory=replace(trajectory, steps=()),
            steps_sha256=self._steps.put(pack_steps(trajectory.steps)),
        )
        await write_through_restarts(self, stored)
        self.tell("curator", m.RolloutStored(rollout_id=lease.rollout_id))

    async def _train(self, batch: Batch) -> None:
        self._version += 1
        commit = m.CommitUpdate(
            batch_id=batch.batch_id, fence=batch.fence, version=self._version, metrics={"loss": 0.5}
        )
        await write_through_restarts(self, commit)
        await self.ask("rollout-0", m.VersionPublished(version=self._version), deadline_s=20.0)
        self.tell("curator", m.UpdateCommitted(version=self._version))
        await self.sleep(SEEN_S)
