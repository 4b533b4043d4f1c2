"""The curator actor: who plays what next, what is trained next, and when the run is over.

Receives   WorkRequest, RolloutStored, RolloutFailed, EvaluationStored, EvaluationFailed (environments);
           BatchRequest, UpdateCommitted (trainer)
Asks       the store for every write; reads the record itself
Dies when  the record contradicts its book (it was wrong; the next one reads the record anew)
On restart it rebuilds everything from the record; leases it had given out stay valid
"""

from dataclasses import dataclass
from pathlib import Path

from actors.actor import Actor, Sender, receives
from actors.board import ActorState
from actors.completion import Lock
from dart import messages as m
from dart.config import Config
from dart.curation.curator import Settings
from dart.curation.decisions import NoBatch, NoWork
from dart.curation.desk import open_desk
from dart.curation.phases import Plan, RunPhase, missing, phase_now
from dart.curation.quota import FixedQuota, GroupPlan
from dart.environments.seeds import TRAINING_SEEDS, held_out_seed
from dart.store.client import RecordClient
from dart.store.reader import StoreReader
from dart.store.records import Phase
from dart.types import RolloutLease

OVERDUE_CHECK_S = 2.0
"""How often leases are checked against their deadlines."""

EVALUATION_LEASE_S = 60.0
"""An evaluation episode that is not recorded by then is given to another environment."""

RETRY_S = 0.2


@dataclass(frozen=True, slots=True)
class EvaluationLease:
    """Who plays an evaluation episode, and until when."""

    environment: str
    deadline_unix_s: float


class CuratorActor(Actor):
    """Moves messages between the desk (decisions) and the world; one desk operation at a time."""

    async def on_start(self) -> None:
        self._config = Config.model_validate(self.args["config"])
        self._workers: list[str] = list(self.args["workers"])
        self._reader = StoreReader(Path(self.args["store"]))
        self._plan = plan_of(self._config, self.args["training_ends_unix_s"])
        self._desk = await open_desk(settings_of(self._config), RecordClient(self, self._reader))
        self._desk_lock = Lock()
        self._evaluated = {
            phase: {(e.task_id, e.seed) for e in self._reader.evaluations(phase)} for phase in Phase
        }
        self._evaluating: dict[tuple[str, int], EvaluationLease] = {}
        self._failures: dict[tuple[str, int], int] = {}
        self._actions_known, self._actions_known_until_s = 0, 0.0
        self.every(OVERDUE_CHECK_S, lambda: self.run(self._take_back_overdue()))

    # ---- environments ----

    @receives(m.WorkRequest)
    async def work(self, call: m.WorkRequest, sender: Sender) -> RolloutLease | m.EvaluationTask | m.Wait:
        match self._phase():
            case RunPhase.TRAINING:
                return await self._rollout_for(call.environment)
            case RunPhase.BEFORE:
                return self._evaluation(Phase.BEFORE, call.environment)
            case RunPhase.AFTER:
                return self._evaluation(Phase.AFTER, call.environment)
            case RunPhase.OVER:
                return m.Wait(retry_after_s=1.0, reason="the run is over")

    @receives(m.RolloutStored)
    async def rollout_stored(self, call: m.RolloutStored, sender: Sender) -> None:
        async with self._desk_lock:
            await self._desk.look(call.rollout_id)

    @receives(m.RolloutFailed)
    async def rollout_failed(self, call: m.RolloutFailed, sender: Sender) -> None:
        self.log.warning(
            "rollout_failed",
            rollout=call.rollout_id,
            environment=sender.name,
            kind=call.kind,
            detail=call.detail,
        )
        async with self._desk_lock:
            await self._desk.failed(call.rollout_id, call.fence, call.kind, call.detail)

    @receives(m.EvaluationStored)
    def evaluation_stored(self, call: m.EvaluationStored, sender: Sender) -> None:
        self._evaluating.pop((call.task_id, call.seed), None)
        self._evaluated[self._evaluation_phase()].add((call.task_id, call.seed))

    @receives(m.EvaluationFailed)
    def evaluation_failed(self, call: m.EvaluationFailed, sender: Sender) -> None:
        """Tried again by whoever asks next; one that always fails is left out, and shown missing."""
        episode = (call.task_id, call.seed)
        self._evaluating.pop(episode, None)
        self._failures[episode] = self._failures.get(episode, 0) + 1
        self.log.warning("evaluation_failed", task=call.task_id, seed=call.seed, detail=call.detail)
        if self._failures[episode] >= self._config.curation.max_attempts:
            self._evaluated[self._evaluation_phase()].add(episode)

    # ---- trainer ----

    @receives(m.BatchRequest)
    async def batch(self, call: m.BatchRequest, sender: Sender) -> m.BatchLease | m.Wait | m.RunOver:
        phase = self._phase()
        if phase is RunPhase.OVER:
            return m.RunOver()
        if phase is not RunPhase.TRAINING and self._reader.open_batch() is None:
            return m.Wait(retry_after_s=RETRY_S, reason=f"the run is in phase {phase}")
        async with self._desk_lock:
            decision = await self._desk.batch()
        if isinstance(decision, NoBatch):
            return m.Wait(retry_after_s=decision.retry_after_s, reason=decision.reason)
        return m.BatchLease(batch_id=decision.batch_id, group_ids=decision.group_ids, fence=decision.fence)

    @receives(m.UpdateCommitted)
    async def update_committed(self, call: m.UpdateCommitted, sender: Sender) -> None:
        async with self._desk_lock:
            await self._desk.reload()

    # ---- inside ----

    async def _rollout_for(self, environment: str) -> RolloutLease | m.Wait:
        async with self._desk_lock:
            self._desk.serving(self._oldest_served())
            answer = await self._desk.work(environment, self.clock.unix_s())
        if isinstance(answer, NoWork):
            return m.Wait(retry_after_s=answer.retry_after_s, reason=answer.reason)
        return answer

    def _evaluation(self, phase: Phase, environment: str) -> m.EvaluationTask | m.Wait:
        if phase is Phase.AFTER and (behind := self._not_settled()):
            return m.Wait(retry_after_s=RETRY_S, reason=behind)
        now_s = self.clock.unix_s()
        for episode in missing(self._plan, self._evaluated[phase]):
            lease = self._evaluating.get(episode)
            # Whoever asks plays nothing: what it held, or an earlier life of it, is free again.
            if lease is None or lease.environment == environment or lease.deadline_unix_s < now_s:
                self._evaluating[episode] = EvaluationLease(environment, now_s + EVALUATION_LEASE_S)
                return self._evaluation_task(phase, *episode)
        return m.Wait(retry_after_s=RETRY_S, reason="every evaluation episode is being played")

    def _evaluation_task(self, phase: Phase, task_id: str, seed: int) -> m.EvaluationTask:
        return m.EvaluationTask(
            phase=phase.value,
            task_id=task_id,
            seed=seed,
            step_cap=self._config.curation.step_cap,
            temperature=self._config.evaluation.temperature,
        )

    def _not_settled(self) -> str:
        """Why the final policy cannot be measured yet; empty when it can."""
        if self._reader.open_batch() is not None:
            return "the last batch is still being trained"
        newest = self._reader.latest_version()
        if newest is None or self._oldest_served() != newest.version:
            return "the newest version is not served by every rollout actor yet"
        return ""

    def _phase(self) -> RunPhase:
        return phase_now(
            self._plan,
            updates=self._desk.curator.trainer_version or 0,
            actions=self._actions(),
            now_unix_s=self.clock.unix_s(),
            missing_before=len(missing(self._plan, self._evaluated[Phase.BEFORE])),
            missing_after=len(missing(self._plan, self._evaluated[Phase.AFTER])),
        )

    def _actions(self) -> int:
        """Environment steps played for training; looked up only where they are limited."""
        now_s = self.clock.monotonic_s()
        if self._plan.max_actions and now_s >= self._actions_known_until_s:
            self._actions_known_until_s = now_s + RETRY_S
            self._actions_known = self._reader.totals().steps
        return self._actions_known

    def _evaluation_phase(self) -> Phase:
        return Phase.BEFORE if self._phase() is RunPhase.BEFORE else Phase.AFTER

    def _oldest_served(self) -> int | None:
        """The oldest version any rollout actor in routing serves; None while none is."""
        served = []
        for worker in self._workers:
            slot = self.board.find(worker)
            if slot is not None and self.board.state(slot) is ActorState.RUNNING:
                served.append(int(self.board.get(slot, "gauge_version")))
        return min(served, default=None)

    async def _take_back_overdue(self) -> None:
        async with self._desk_lock:
            taken = await self._desk.take_back_overdue(self.clock.unix_s())
        if taken:
            self.log.warning("leases_taken_back", count=taken)


def settings_of(config: Config) -> Settings:
    """The desk's settings from the configuration."""
    group = GroupPlan(rollouts=config.curation.rollouts_per_group, step_cap=config.curation.step_cap)
    return Settings(
        tasks=config.tasks.train,
        seeds=TRAINING_SEEDS,
        quota=FixedQuota(group),
        groups_per_update=config.training.groups_per_update,
        staleness_bound=config.curation.staleness,
        max_attempts=config.curation.max_attempts,
        lease_s=config.curation.lease_s,
        retry_after_s=RETRY_S,
        order_seed=config.run.seed,
    )


def plan_of(config: Config, training_ends_unix_s: float) -> Plan:
    """What the run is to do, from the configuration."""
    return Plan(
        tasks=config.tasks.train,
        held_out_seeds=tuple(held_out_seed(index) for index in range(config.evaluation.seeds_per_task)),
        before=config.evaluation.before,
        after=config.evaluation.after,
        max_updates=config.training.updates,
        max_actions=config.training.actions,
        training_ends_unix_s=training_ends_unix_s,
    )
