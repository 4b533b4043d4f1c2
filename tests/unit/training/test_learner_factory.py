"""The settings of a learner are those of the configuration."""

from typing import Any

import pytest

from dart.config.config import load_config
from dart.training.learner_factory import learner_config


@pytest.mark.parametrize(
    ("override", "name", "value"),
    [
        ("curation.importance.cap=3.0", "tis_cap", 3.0),
        ("curation.high_entropy.quantile=0.3", "entropy_quantile", 0.3),
        ("rollout.temperature=0.7", "temperature", 0.7),
        ("run.seed=7", "seed", 7),
        ("training.max_grad_norm=0.5", "max_grad_norm", 0.5),
        ("training.minibatches=3", "minibatches", 3),
        ("training.warmup_updates=5", "warmup_updates", 5),
    ],
)
def test_a_value_of_the_configuration_is_that_of_the_learner(override: str, name: str, value: Any) -> None:
    used = ["curation.importance.enabled=true", "curation.high_entropy.enabled=true"]
    assert getattr(learner_config(load_config(None, [*used, override])), name) == value


@pytest.mark.parametrize(
    ("method", "name"), [("importance", "tis_cap"), ("high_entropy", "entropy_quantile")]
)
def test_a_method_that_is_switched_off_has_no_constant(method: str, name: str) -> None:
    assert getattr(learner_config(load_config(None, [f"curation.{method}.enabled=false"])), name) is None


def test_the_policy_is_placed_as_the_configuration_says() -> None:
    given = {
        "training.device": "cpu",
        "training.precision": "bfloat16",
        "training.weight_precision": "bfloat16",
        "training.gradient_checkpointing": "true",
        "training.lora.rank": "4",
        "training.lora.alpha": "8.0",
        "run.seed": "7",
    }
    placement = learner_config(
        load_config(None, [f"{key}={value}" for key, value in given.items()])
    ).placement
    assert (placement.device, placement.precision, placement.weight_precision) == (
        "cpu",
        "bfloat16",
        "bfloat16",
    )
    assert (placement.lora_rank, placement.lora_alpha, placement.seed) == (4, 8.0, 7)
    assert (placement.is_trained, placement.gradient_checkpointing) == (True, True)
