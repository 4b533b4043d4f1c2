"""The supervision tree of a run.

root                     rest_for_one: a child that fails restarts the children after it, which depend on it
├─ store                 the durable record
├─ curator               task difficulty, leases, batches, phases
├─ rollout_pool          one_for_one: rollout-0 …, one engine each; independent
├─ weight_sync           takes a new version through the engines, a share of them at a time
├─ environment_pool      one_for_one: env-000 …, one environment each; independent
├─ trainer               transient, significant: when it has ended, the run is over; independent
└─ exploration           owner of the exploration graph; only if idle environments explore

Independent children go on while the store or the curator restarts, and repeat their calls until it answers.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from actors.system import RootSpec
from dart.config.config import Config
from dart.config.sections import ChildSettings
from dart.policy.configuration import is_small_policy
from dart.telemetry.engine_names import engine_names as names_of_engines
from supervision.child_spec import (
    AutoShutdown,
    Backoff,
    Breaker,
    Budget,
    ChildSpec,
    Failure,
    Restart,
    Retirement,
    Strategy,
    SupervisorFlags,
)
from supervision.supervisor import supervisor_args, supervisor_spec

ENGINE_MODULES = {
    "transformers": "dart.inference.transformers_engine",
    "vllm": "dart.inference.vllm_engine",
    "simulated": "dart.inference.simulated_engine",
    "oracle": "dart.inference.oracle_engine",
}
"""The module of each kind of engine. The pool preloads it, so that a restarted engine need not import
torch."""

VLM_MODULE = "dart.policy.vlm_load"
"""The module that loads vision-language policies. It imports transformers, so only their pool preloads it."""

ENVIRONMENT_POOL, ROLLOUT_POOL = "environment_pool", "rollout_pool"
EXPLORER_POOL = "explorer_pool"

ROLLOUT_ACTOR = "dart.inference.actor:RolloutActor"
ENVIRONMENT_ACTOR = "dart.environments.actor:EnvironmentActor"
TRAINER_ACTOR = "dart.training.actor:TrainerActor"
NO_TRAINING_ACTOR = "dart.training.no_training:NoTrainingActor"
EXPLORING_ENVIRONMENT_ACTOR = "dart.exploration.actor:ExploringEnvironmentActor"


def engine_names(config: Config) -> tuple[str, ...]:
    """Return the names of all rollout actors."""
    return names_of_engines(config.rollout.count)


def environment_names(config: Config) -> tuple[str, ...]:
    """Return the names of all environment actors."""
    return tuple(f"env-{index:03d}" for index in range(config.environments.count))


def children(config: Config, run: Mapping[str, Any]) -> tuple[ChildSpec, ...]:
    """Return the child specs of the root, in start order; the children stop in reverse order.

    run   arguments that every actor gets: configuration, record, epoch, end of training
    """
    store, curator, weight_sync, trainer = single_children(config, run)
    engines = pool_children(config, run, ROLLOUT_POOL, engine_names(config))
    environments = pool_children(config, run, ENVIRONMENT_POOL, environment_names(config))
    return (
        store,
        curator,
        supervisor_spec(ROLLOUT_POOL, pool_flags(config, ROLLOUT_POOL), engines, independent=True),
        weight_sync,
        supervisor_spec(
            ENVIRONMENT_POOL, pool_flags(config, ENVIRONMENT_POOL), environments, independent=True
        ),
        trainer,
        *exploration_owner(config, run),
    )


def single_children(config: Config, run: Mapping[str, Any]) -> tuple[ChildSpec, ...]:
    """Return the child specs of store, curator, weight_sync and trainer, in this order.

    run   arguments that every actor gets
    """
    ends_run: dict[str, Any] = {"significant": True, "independent": True}
    trains = config.training.learner != "none"
    return (
        _worker(config, run, "store", "dart.store.actor:StoreActor"),
        _worker(config, run, "curator", "dart.curation.actor:CuratorActor"),
        _worker(config, run, "weight_sync", "dart.inference.weight_sync_actor:WeightSyncActor"),
        _worker(config, run, "trainer", TRAINER_ACTOR if trains else NO_TRAINING_ACTOR, **ends_run),
    )


def exploration_child(config: Config, run: Mapping[str, Any], **spec: Any) -> ChildSpec:
    """Return the child spec of the owner of the exploration graph.

    run    arguments that the actor gets
    spec   other fields of the child spec
    """
    return _worker(config, run, "exploration", "dart.exploration.owner:ExplorationActor", **spec)


def exploration_owner(config: Config, run: Mapping[str, Any]) -> tuple[ChildSpec, ...]:
    """Return the child spec of the owner of the exploration graph of a training run.

    There is none unless idle environments explore (`exploration.enabled`).
    """
    return (exploration_child(config, run),) if config.exploration.enabled else ()


def explorer_names(config: Config) -> tuple[str, ...]:
    """Return the names of all explorers."""
    return tuple(f"explorer-{index:03d}" for index in range(config.exploration.explorers))


def exploration_children(config: Config, run: Mapping[str, Any]) -> tuple[ChildSpec, ...]:
    """Return the child specs of the root of `dartrl explore`, in start order.

    The run ends when the owner of the graph has ended. There are engines only if `exploration.prior` needs
    them.

    run   arguments that every actor gets
    """
    store, _, weight_sync, _ = single_children(config, run)
    owner = exploration_child(config, {**run, "ends_run": True}, significant=True)
    names = explorer_names(config)
    explorers = tuple(_worker(config, run, name, "dart.exploration.actor:ExplorerActor") for name in names)
    pool = supervisor_spec(EXPLORER_POOL, pool_flags(config, EXPLORER_POOL), explorers)
    if config.exploration.prior == "constant":
        return store, owner, pool
    engines = pool_children(config, run, ROLLOUT_POOL, engine_names(config))
    return (
        store,
        supervisor_spec(ROLLOUT_POOL, pool_flags(config, ROLLOUT_POOL), engines),
        weight_sync,
        owner,
        pool,
    )


def pool_children(
    config: Config,
    run: Mapping[str, Any],
    pool: str,
    names: Sequence[str],
    preload: Sequence[str] | None = None,
) -> tuple[ChildSpec, ...]:
    """Return the child specs of the children of a pool with these names.

    run       arguments that every actor gets
    pool      `environment_pool` or `rollout_pool`
    preload   modules that the pool preloads; None: those of `pool_modules`
    """
    modules = pool_modules(config, pool) if preload is None else tuple(preload)
    return tuple(_worker(config, run, name, _pool_actor(config, pool), preload=modules) for name in names)


def pool_modules(config: Config, pool: str) -> tuple[str, ...]:
    """Return the modules that a pool preloads.

    The kind of the policy is read from its folder, which may be on the control node alone: call this there.
    """
    actor_module = _pool_actor(config, pool).partition(":")[0]
    if pool == ENVIRONMENT_POOL:
        return (actor_module,)
    modules = actor_module, ENGINE_MODULES[config.rollout.engine]
    if config.rollout.engine == "transformers" and not is_small_policy(config.training.policy):
        return *modules, VLM_MODULE
    return modules


def _pool_actor(config: Config, pool: str) -> str:
    if pool == ROLLOUT_POOL:
        return ROLLOUT_ACTOR
    return EXPLORING_ENVIRONMENT_ACTOR if config.exploration.enabled else ENVIRONMENT_ACTOR


def pool_flags(config: Config, pool: str) -> SupervisorFlags:
    """Return the limits of a pool's supervisor from the configuration."""
    limits = getattr(config.supervision, pool)
    return SupervisorFlags(
        max_restarts=limits.max_restarts,
        max_seconds=limits.max_seconds,
        max_quarantined=limits.max_quarantined,
        max_failing=limits.max_failing,
        ordered=False,
    )


def _worker(config: Config, run: Mapping[str, Any], id_: str, actor: str, **spec: Any) -> ChildSpec:
    limits = {"preload": (actor.partition(":")[0],)} | limits_of(config.supervision.child(id_)) | spec
    return ChildSpec(id=id_, actor=actor, args={**run, "engines": list(engine_names(config))}, **limits)


def limits_of(child: ChildSettings) -> dict[str, Any]:
    """Return the limits of a child from the configuration, as fields of its child spec."""
    budgets = {
        Failure(kind): Budget(**budget.model_dump()) for kind, budget in child.budgets if budget.max_seconds
    }
    breaker = Breaker(**child.breaker.model_dump(exclude={"enabled"})) if child.breaker.enabled else None
    retirement = child.retirement.model_dump() | {"max_age_s": child.retirement.max_age_s or math.inf}
    return {
        "restart": Restart(child.restart),
        "start_deadline_s": child.start_deadline_s,
        "hang_deadline_s": child.hang_deadline_s,
        "probe_every_s": child.probe_every_s,
        "shutdown_s": child.shutdown_s,
        "backoff": Backoff(**child.backoff.model_dump()),
        "budgets": budgets,
        "preemptions": Budget(**child.preemptions.model_dump()),
        "breaker": breaker,
        "retirement": Retirement(**retirement),
    }


def root_spec(config: Config, run: Mapping[str, Any]) -> RootSpec:
    """Return the root supervisor with the whole tree of a training run.

    run   arguments that every actor gets
    """
    return root_of(config, children(config, run))


def root_of(config: Config, below: tuple[ChildSpec, ...]) -> RootSpec:
    """Return the root supervisor with the children `below`."""
    limits = config.supervision.root
    flags = SupervisorFlags(
        strategy=Strategy.REST_FOR_ONE,
        max_restarts=limits.max_restarts,
        max_seconds=limits.max_seconds,
        auto_shutdown=AutoShutdown.ANY_SIGNIFICANT,
    )
    args = supervisor_args(flags, below)
    return RootSpec(name="root", actor="supervision.supervisor:Supervisor", args=args)
