"""What `benchmarks.decoupling` compares: cells, each with its arms, and the configuration of one run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import runs
from dart.config.config import Config, load_config

REPOSITORY = Path(__file__).resolve().parent.parent

COUPLED, DECOUPLED = "batch+all_at_once", "rollout+one_at_a_time"


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to run the job: its name and what is set differently."""

    name: str
    overrides: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One comparison."""

    name: str
    config: str
    arms: tuple[Arm, ...]
    base: Mapping[str, Any] = field(default_factory=dict)
    """Set for every arm."""
    updates: int
    warm_up: int
    """Updates that are cut off at the front."""
    is_simulated: bool = True
    """Bounds and predictions can be computed."""
    bound: str = ""
    """In words, where it cannot be computed."""


def scheduling_arms() -> tuple[Arm, ...]:
    """The six of the experiment. Batch-wise is on-policy; the others keep the configured staleness bound."""
    return tuple(
        Arm(
            f"{scheduling}+{sync}",
            {"curation.scheduling": scheduling, "rollout.sync": sync}
            | ({"curation.staleness": 0} if scheduling == "batch" else {}),
        )
        for scheduling in ("batch", "task", "rollout")
        for sync in ("all_at_once", "one_at_a_time")
    )


CELLS = (
    Cell(name="latencies", config="configs/decoupling.toml", arms=scheduling_arms(), updates=10, warm_up=3),
    Cell(
        name="april",
        config="configs/decoupling.toml",
        arms=tuple(
            Arm(f"alpha {alpha:g}", {"curation.over_provision": alpha}) for alpha in (1.0, 1.25, 1.5, 2.0)
        ),
        base={
            "training.groups_per_update": 4,
            "simulation.steps_sigma": 0.9,
            "curation.step_cap": 60,
            "curation.staleness": 3,
        },
        updates=10,
        warm_up=3,
    ),
    Cell(
        name="browsers",
        config="configs/laptop.toml",
        arms=scheduling_arms(),
        base={
            "curation.staleness": 2,
            "training.groups_per_update": 4,
            "training.minibatches": 1,
            "training.warmup_updates": 0,
            "evaluation.before": False,
            "evaluation.after": False,
            "telemetry.load_every_s": 1.0,
        },
        updates=5,
        warm_up=1,
        is_simulated=False,
        bound="two CPU cores, shared by browsers, engine and trainer: who waits leaves them to the rest",
    ),
)


def overrides_of(cell: Cell, arm: Arm, seed: int, updates: int) -> dict[str, Any]:
    """Everything that is set for one run."""
    return {**cell.base, **arm.overrides, "run.seed": seed, "training.updates": updates}


def config_of(cell: Cell, arm: Arm, seed: int, updates: int) -> Config:
    """The configuration of one run."""
    given = [
        f"{key}={runs.toml_value(value)}" for key, value in overrides_of(cell, arm, seed, updates).items()
    ]
    return load_config(REPOSITORY / cell.config, given)
