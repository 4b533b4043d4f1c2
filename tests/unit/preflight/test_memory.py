"""The estimate of memory counts what a policy and a configuration say."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from dart.config.config import load_config
from dart.preflight.memory import (
    BROWSER_BYTES,
    Held,
    PolicySize,
    count_parameters,
    estimate,
    in_words,
    policy_size,
    size_of,
)

REPOSITORY = Path(__file__).resolve().parents[3]
LAPTOP = REPOSITORY / "configs" / "laptop.toml"
GIB = 2**30

SEVEN_BILLION: dict[str, Any] = {
    "model_type": "qwen2_5_vl",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vision_config": {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "spatial_merge_size": 2},
}
"""Shapes of a vision-language model of the 7B class, as its config.json has them."""


def parts(held: tuple[Held, ...], who: str) -> dict[str, int]:
    return next(dict(one.parts) for one in held if one.who == who)


def test_the_laptop_policy_is_counted_from_the_header_of_its_weights() -> None:
    policy = policy_size(REPOSITORY / "configs" / "base-policy")

    assert (policy.parameters, policy.bytes_each, policy.layers) == (566_473, 4.0, 3)


def test_the_laptop_job_fits_a_laptop_and_is_mostly_browsers() -> None:
    held = estimate(load_config(LAPTOP), policy_size(REPOSITORY / "configs" / "base-policy"))

    assert held[0].who == "environment"
    assert held[0].total_bytes > 8 * BROWSER_BYTES
    assert 2 * GIB < sum(one.total_bytes for one in held) < 5 * GIB


def test_the_parameters_of_a_model_of_the_7b_class_follow_from_its_shapes() -> None:
    assert count_parameters(SEVEN_BILLION) == pytest.approx(8.29e9, rel=0.01)
    nested = {"text_config": SEVEN_BILLION, "vision_config": SEVEN_BILLION["vision_config"]}
    assert count_parameters(nested) == count_parameters(SEVEN_BILLION)


def test_a_trainer_of_the_7b_class_needs_its_weights_many_times() -> None:
    config = load_config(LAPTOP, ["training.minibatches=1", "training.kl_beta=0.1", "training.micro_batch=1"])
    policy = size_of(SEVEN_BILLION)

    trainer = parts(estimate(config, policy), "trainer")

    assert policy.weights_bytes == pytest.approx(2 * 8.29e9, rel=0.01)
    assert trainer["optimizer"] == 2 * trainer["weights"] == 2 * 4 * policy.parameters
    assert trainer["reference policy"] == 4 * policy.parameters
    assert "copy to go back to" not in trainer
    assert trainer["activations"] > GIB


def test_bfloat16_halves_what_is_not_trained_and_an_adapter_leaves_little_to_train() -> None:
    policy = size_of(SEVEN_BILLION)
    whole, adapter, shared = (
        parts(estimate(load_config(LAPTOP, ["training.precision='bfloat16'", *more]), policy), "trainer")
        for more in ([], ["training.lora.rank=64"], ["training.lora.rank=64", "training.ranks=4"])
    )

    assert whole["weights"] == 4 * policy.parameters
    assert whole["reference policy"] == 2 * policy.parameters
    assert adapter["weights"] == 2 * policy.parameters
    assert "reference policy" not in adapter
    assert adapter["adapter"] == pytest.approx(4 * 161e6, rel=0.02)
    assert all(shared[what] == adapter[what] // 4 for what in ("weights", "adapter", "gradients"))


def test_what_is_computed_again_and_smaller_passes_need_less_room() -> None:
    policy = size_of(SEVEN_BILLION)
    more, less, least = (
        parts(estimate(load_config(LAPTOP, overrides), policy), "trainer")["activations"]
        for overrides in (
            [],
            ["training.gradient_checkpointing=true"],
            ["training.gradient_checkpointing=true", "training.micro_batch_tokens=8192"],
        )
    )

    assert more > 4 * less > 8 * least


def test_without_weights_the_type_of_the_configuration_holds() -> None:
    assert size_of(SEVEN_BILLION).bytes_each == 2
    assert size_of(SEVEN_BILLION | {"torch_dtype": "float32"}).bytes_each == 4


def test_weights_in_several_files_are_added_up(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SEVEN_BILLION))
    for number, dtype in enumerate(("BF16", "F32")):
        header = json.dumps({"__metadata__": {}, "w": {"dtype": dtype, "shape": [10, 20]}}).encode()
        file = tmp_path / f"model-{number}.safetensors"
        file.write_bytes(struct.pack("<Q", len(header)) + header)

    policy = policy_size(tmp_path)

    assert (policy.parameters, policy.weights_bytes) == (400, 200 * 2 + 200 * 4)


TILED: dict[str, Any] = {
    "model_type": "llava_onevision",
    "text_config": {"model_type": "qwen2", "vocab_size": 1000},
    "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 64},
}
"""As configurations are that leave out what is usual for their family."""


def weights_of(shapes: dict[str, list[int]]) -> dict[str, Any]:
    return {name: {"dtype": "BF16", "shape": shape} for name, shape in shapes.items()}


def test_what_a_configuration_leaves_out_is_read_from_the_weights() -> None:
    layers = {
        f"model.language_model.layers.{number}.{name}.weight": shape
        for number in range(3)
        for name, shape in {"self_attn.k_proj": [64, 256], "mlp.up_proj": [512, 256]}.items()
    }
    others = {
        "model.language_model.embed_tokens.weight": [1000, 256],
        "model.vision_tower.layers.0.self_attn.k_proj.weight": [999, 999],
    }
    policy = size_of(TILED, [weights_of(layers), weights_of(others)])
    assert (policy.layers, policy.hidden, policy.intermediate) == (3, 256, 512)
    assert (policy.keys_width, policy.vocabulary) == (64, 1000)


def test_what_cannot_be_found_out_is_said() -> None:
    assert size_of(SEVEN_BILLION).unknown == ()
    policy = size_of(TILED)
    told = "\n".join(in_words(estimate(load_config(LAPTOP), policy), policy, GIB))
    assert "how many tokens a screenshot is for a model of type 'llava_onevision' is not known" in told
    assert "say num_hidden_layers, hidden_size, intermediate_size: activations" in told


def test_a_screenshot_is_fewer_tokens_where_patches_are_larger() -> None:
    larger = SEVEN_BILLION | {"vision_config": SEVEN_BILLION["vision_config"] | {"patch_size": 16}}
    assert (size_of(SEVEN_BILLION).image_token_px, size_of(larger).image_token_px) == (28, 32)
    config = load_config(LAPTOP)
    many, few = (
        parts(estimate(config, size_of(one)), "rollout")["keys and values"] for one in (SEVEN_BILLION, larger)
    )
    assert many > few


def test_a_longer_batch_needs_more_room_for_keys_and_values() -> None:
    policy = size_of(SEVEN_BILLION)
    small, large = (
        parts(estimate(load_config(LAPTOP, [f"rollout.max_batch={count}"]), policy), "rollout")
        for count in (4, 8)
    )

    assert large["keys and values"] == 2 * small["keys and values"]
    assert large["weights"] == small["weights"]


def test_an_engine_that_changes_weights_in_place_holds_them_once() -> None:
    overrides = ["rollout.engine='vllm'", "rollout.vllm.dtype='bfloat16'", "rollout.vllm.cpu_cache_gib=2.0"]
    policy = size_of(SEVEN_BILLION | {"torch_dtype": "float32"})

    held = parts(estimate(load_config(LAPTOP, overrides), policy), "rollout")

    assert held["weights"] == 2 * policy.parameters
    assert held["keys and values where there is no GPU"] == 2 * GIB
    assert "next version while it loads" not in held


def test_what_is_simulated_needs_neither_browsers_nor_weights() -> None:
    overrides = [
        "environments.kind='simulated'",
        "rollout.engine='simulated'",
        "training.learner='simulated'",
    ]
    config = load_config(LAPTOP, [*overrides, "tasks.train=['simulated/0']"])

    held = estimate(config, PolicySize(parameters=0, bytes_each=4))

    assert sum(one.total_bytes for one in held) < GIB


def test_what_does_not_fit_is_said_with_what_to_do() -> None:
    policy = size_of(SEVEN_BILLION)
    held = estimate(load_config(LAPTOP), policy)

    told, fits = in_words(held, policy, 16 * GIB), in_words(held, policy, 10_000 * GIB)

    assert "more than there is" in told[-1]
    assert "training.micro_batch" in told[-1]
    assert fits[-1].endswith("free on this machine")
    assert len(fits) == 6
