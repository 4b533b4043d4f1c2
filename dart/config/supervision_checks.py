"""Checks of the section `[supervision]`: values that contradict each other, and keys that have no effect."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from dart.config.failing_time import MAX_FAULTS_IN_ROW, RESET_ATTEMPTS, failing_s
from dart.config.problems import explain
from dart.config.sections import MACHINE_DEFAULTS, POOLS, ChildSettings, SupervisionSettings, pool_name
from dart.core.suggestions import did_you_mean, near

if TYPE_CHECKING:
    from dart.config.config import Config, Contradiction

RESTART_LIMITS = ("max_restarts", "max_seconds")
"""Keys of `POOL_LIMITS` that limit the restarts; the root has them, too."""

POOL_LIMITS = (*RESTART_LIMITS, "max_quarantined", "max_failing")
"""Keys that limit all children of a supervisor together, so that one child has none of its own."""

COUNTING = ("environment_pool", "explorer_pool")
"""Pools whose children count their uses, for `retirement.max_uses`."""


def supervision_problems(config: "Config") -> "Iterator[Contradiction]":
    """Yield a problem for each value of `[supervision]` that is wrong or has no effect."""
    default = SupervisionSettings()
    for name, child in config.supervision:
        if not isinstance(child, ChildSettings):
            continue
        yield from _child_problems(f"supervision.{name}", child)
        if name not in COUNTING and child.retirement.max_uses:
            yield _uses_problem(f"supervision.{name}")
        yield from _restart_problems(f"supervision.{name}", child, getattr(default, name))
        if name not in POOLS.values():
            yield from _single_problems(name, child, getattr(default, name))
    yield from _children_problems(config)
    yield from _healthy_problems(config)
    if config.training.learner != "none":
        yield from _overrun_problems(config)


def _overrun_problems(config: "Config") -> "Iterator[Contradiction]":
    """Yield a problem if a run would repeat an update for ever that always overruns its deadline.

    A restarted trainer gets the same batch. So the failures of such an update are as far apart as one try
    takes, and the run ends only if the window of a restart limit holds one more of them than it allows.
    """
    training, trainer, root = config.training, config.supervision.trainer, config.supervision.root
    own = trainer.budgets.overdue
    limit = own if own.max_seconds else root
    try_s = training.update_deadline_s + training.checkpoint_deadline_s + trainer.start_deadline_s
    least_s = limit.max_restarts * try_s
    if limit.max_seconds < least_s:
        rule = f"at least {least_s:g}" if own.max_seconds else "greater than 0"
        yield (
            (
                *("supervision.trainer.budgets.overdue.max_seconds", "training.update_deadline_s"),
                *("training.checkpoint_deadline_s", "supervision.trainer.start_deadline_s"),
            ),
            f"must be {rule}: a try of an update that overruns its deadline may take {try_s:g} s "
            "(training.update_deadline_s, training.checkpoint_deadline_s, "
            f"supervision.trainer.start_deadline_s), so no {limit.max_seconds:g} s hold "
            f"{limit.max_restarts + 1} tries, and the run would repeat it for ever; got {own.max_seconds:g}",
        )


def _healthy_problems(config: "Config") -> "Iterator[Contradiction]":
    """Yield a problem if a desktop or virtual machine counts as healthy before it can have failed.

    Each start would then end an outage or a quarantine, although no machine was ready."""
    breaker, reset_s = config.supervision.environment_pool.breaker, config.environments.reset_deadline_s
    if config.environments.kind not in MACHINE_DEFAULTS or not breaker.enabled:
        return
    if breaker.healthy_s <= failing_s(reset_s):
        yield (
            ("supervision.environment_pool.breaker.healthy_s", "environments.reset_deadline_s"),
            f"must be greater than {failing_s(reset_s):g}: an environment fails after {MAX_FAULTS_IN_ROW} "
            f"episodes with {RESET_ATTEMPTS} resets each, and a reset may take {reset_s:g} s "
            "(environments.reset_deadline_s) and a tenth more, so it would count as healthy before; "
            f"got {breaker.healthy_s:g}",
        )


def _child_problems(key: str, child: ChildSettings) -> "Iterator[Contradiction]":
    """Yield a problem for each value of a child that another value of it contradicts."""
    if child.backoff.max_s < child.backoff.initial_s:
        yield (
            (f"{key}.backoff.max_s", f"{key}.backoff.initial_s"),
            f"must be at least initial_s ({child.backoff.initial_s:g}), got {child.backoff.max_s:g}",
        )
    for kind, budget in child.budgets:
        if budget.max_restarts and not budget.max_seconds:
            yield (
                (f"{key}.budgets.{kind}.max_seconds", f"{key}.budgets.{kind}.max_restarts"),
                f"must be greater than 0: without a window, max_restarts = {budget.max_restarts} has "
                "no effect",
            )


def _uses_problem(key: str) -> "Contradiction":
    return (
        (f"{key}.retirement.max_uses",),
        "has no effect: only environments and explorers count their uses; set retirement.max_age_s",
    )


def _restart_problems(key: str, child: ChildSettings, default: ChildSettings) -> "Iterator[Contradiction]":
    """Yield a problem if a child has another `restart` than its default.

    An actor of a run that is not restarted is missing until the run ends. `trainer` and `exploration` are
    transient, because the run is over when they have ended.
    """
    reasons = {
        "permanent": "without a restart, the actor is missing until the run ends",
        "transient": "a permanent actor is started again even after it has finished its work",
    }
    if child.restart != default.restart:
        yield (
            (f"{key}.restart",),
            f"must be {default.restart!r}, got {child.restart!r}: {reasons[default.restart]}; "
            "leave the key out",
        )


def _single_problems(name: str, child: ChildSettings, default: ChildSettings) -> "Iterator[Contradiction]":
    """Yield a problem for each limit of a pool that is set for a child of the root."""
    if child.breaker.enabled:
        yield (
            (f"supervision.{name}.breaker.enabled",),
            "must be false: only children of a pool can be quarantined; the pools are "
            f"{', '.join(sorted(set(POOLS.values())))}",
        )
    for limit in POOL_LIMITS:
        if getattr(child, limit) != getattr(default, limit):
            yield (f"supervision.{name}.{limit}",), f"has no effect: {_limit_of_root(name, limit)}"


def _limit_of_root(name: str, limit: str) -> str:
    if limit in RESTART_LIMITS:
        budget = f"supervision.{name}.budgets"
        return (
            f"{name} is a child of the root, whose limit is supervision.root.{limit}; set that, or a limit "
            f"for one kind of failure in {budget}"
        )
    return f"{name} is not a pool; remove it"


def _children_problems(config: "Config") -> "Iterator[Contradiction]":
    """Yield a problem for each entry of `supervision.children` that names no child, and for each of its
    values that is not valid or has no effect."""
    supervision = config.supervision
    known = [f"env-{index:03d}" for index in range(config.environments.count)]
    known += [f"rollout-{index}" for index in range(config.rollout.count)]
    for child_id, different in supervision.children.items():
        key = f"supervision.children.{child_id}"
        if child_id not in known:
            yield (key,), f"is not a child of a pool{did_you_mean(near(child_id, known))}"
            continue
        pool = supervision.pool_of(child_id)
        try:
            child = pool.updated(different)
        except ValidationError as error:
            for problem in explain(error, ChildSettings, {}, pool.model_dump(mode="json")):
                yield (f"{key}.{problem.key}",), problem.text
            continue
        if child != pool:
            yield from _child_problems(key, child)
            yield from _restart_problems(key, child, ChildSettings())
        name = pool_name(child_id)
        if name not in COUNTING and child.retirement.max_uses and not pool.retirement.max_uses:
            yield _uses_problem(key)
        yield from _pool_limits_of_child(key, name, different)


def _pool_limits_of_child(key: str, pool: str, different: Mapping[str, Any]) -> "Iterator[Contradiction]":
    for limit in POOL_LIMITS:
        if limit in different:
            is_own = limit in RESTART_LIMITS
            own = f", or limits for kinds of failure of this child in {key}.budgets" if is_own else ""
            yield (
                (f"{key}.{limit}",),
                "has no effect: it limits all children of a pool together; "
                f"set supervision.{pool}.{limit}{own}",
            )
