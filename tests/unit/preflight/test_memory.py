"""The estimate of memory counts what a checkpoint and a configuration say."""

import json
import struct
from pathlib import Path

import pytest

from dart.config.config import Config, load_config
from dart.config.gpus import assign_gpus
from dart.preflight.memory import (
    BROWSER_BYTES,
    NO_GPUS,
    TORCH_ALONE_BYTES,
    TORCH_BYTES,
    PolicySize,
    ProcessMemory,
    describe,
    estimate,
    in_main_memory,
    memory_lines,
    policy_size,
    size_of,
)
from scripts.show_gpu_plan import PUBLISHED

REPOSITORY = Path(__file__).resolve().parents[3]
LAPTOP = REPOSITORY / "configs" / "laptop.toml"
GIB = 2**30

SEVEN_BILLION = PolicySize(parameters=8_290_000_000, adapter_parameters_per_rank=2_500_000)


def parts(kinds: list[ProcessMemory], name: str) -> dict[str, int]:
    return next(dict(kind.parts) for kind in kinds if kind.name == name)


def trainer(*overrides: str, policy: PolicySize = SEVEN_BILLION) -> dict[str, int]:
    config = load_config(LAPTOP, ["training.kl_beta=0.1", *overrides])
    return parts(estimate(config, policy), "trainer")


def test_the_laptop_policy_is_counted_from_the_header_of_its_weights() -> None:
    policy = policy_size(REPOSITORY / "configs" / "base-policy")

    assert policy.parameters == 593_879


def test_the_laptop_job_fits_a_laptop_and_is_mostly_browsers() -> None:
    kinds = estimate(load_config(LAPTOP), policy_size(REPOSITORY / "configs" / "base-policy"))

    assert kinds[0].name == "environment"
    assert kinds[0].total_bytes > 8 * BROWSER_BYTES
    assert 2 * GIB < sum(kind.total_bytes for kind in kinds) < 5 * GIB


def test_a_trainer_needs_its_weights_many_times() -> None:
    held = trainer("training.minibatches=1")

    assert held["weights"] == held["gradients"] == 4 * SEVEN_BILLION.parameters
    assert held["optimizer"] == 2 * held["weights"]
    assert held["reference policy"] == 4 * SEVEN_BILLION.parameters
    assert "copy to restore if the update fails" not in held


def test_bfloat16_halves_what_is_not_trained_and_an_adapter_leaves_little_to_train() -> None:
    whole, adapter, shared = (
        trainer("training.precision='bfloat16'", *more)
        for more in ([], ["training.lora.rank=64"], ["training.lora.rank=64", "training.ranks=4"])
    )

    assert whole["weights"] == 4 * SEVEN_BILLION.parameters
    assert whole["reference policy"] == 2 * SEVEN_BILLION.parameters
    assert adapter["weights"] == 2 * SEVEN_BILLION.parameters
    assert "reference policy" not in adapter
    assert adapter["adapter"] == 4 * 64 * SEVEN_BILLION.adapter_parameters_per_rank
    assert all(shared[what] == adapter[what] // 4 for what in ("weights", "adapter", "gradients"))


def test_weights_kept_in_bfloat16_take_half_with_all_that_belongs_to_them() -> None:
    light = ("training.precision='bfloat16'", "training.weight_precision='bfloat16'")
    whole, half = trainer("training.precision='bfloat16'"), trainer(*light)
    for what in ("weights", "gradients", "optimizer"):
        assert 2 * half[what] == whole[what]
    assert half["reference policy"] == whole["reference policy"]
    adapter = [trainer("training.lora.rank=64", *more) for more in (light, light[:1])]
    assert adapter[0] == adapter[1]


WRITTEN = "checkpoint being written"


@pytest.mark.parametrize("is_in_background", ["true", "false"])
def test_a_checkpoint_is_counted_as_copies_of_weights_and_moments_and_the_file_of_the_moments(
    is_in_background: str,
) -> None:
    setting = f"training.background_checkpoints={is_in_background}"
    weights = 4 * 8_290_000_000  # float32
    assert trainer(setting)[WRITTEN] == weights + 2 * weights + 2 * weights
    adapter = 4 * 64 * 2_500_000
    assert trainer(setting, "training.lora.rank=64")[WRITTEN] == adapter + 2 * adapter + 2 * adapter


def test_moments_kept_in_bfloat16_make_the_checkpoint_smaller_too() -> None:
    kept = ("training.precision='bfloat16'", "training.weight_precision='bfloat16'")
    weights = 2 * 8_290_000_000
    assert trainer(*kept)["optimizer"] == 2 * weights
    same = trainer(*kept, "rollout.engine='vllm'", "rollout.vllm.dtype='bfloat16'")
    assert same[WRITTEN] == weights + 2 * weights + 2 * weights


def test_ranks_write_moments_without_a_file_in_memory_and_weights_are_converted_for_engines() -> None:
    split = ("training.ranks=4", "rollout.engine='vllm'", "rollout.vllm.dtype='bfloat16'")
    part = 4 * 8_290_000_000 // 4
    converted = 2 * 8_290_000_000 // 4
    assert trainer(*split)[WRITTEN] == part + 2 * part + converted
    assert trainer(*split[:1])[WRITTEN] == part + 2 * part, "engines read what the trainer has"


def test_an_adapter_is_counted_beside_the_linear_layers_of_the_language_model_only() -> None:
    policy = size_of(
        {
            "model.language_model.layers.0.self_attn.k_proj.weight": (64, 256),
            "model.language_model.layers.0.mlp.up_proj.weight": (512, 256),
            "model.language_model.layers.0.self_attn.k_proj.bias": (64,),
            "model.language_model.embed_tokens.weight": (1000, 256),
            "model.vision_tower.layers.0.self_attn.k_proj.weight": (10, 10),
        }
    )

    assert policy.adapter_parameters_per_rank == 64 + 256 + 512 + 256
    assert policy.parameters == 64 * 256 + 512 * 256 + 64 + 1000 * 256 + 100


def test_weights_in_several_files_are_added_up(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2_5_vl"}))
    for number in range(2):
        content = {"__metadata__": {}, f"w{number}": {"dtype": "BF16", "shape": [10, 20]}}
        header = json.dumps(content).encode()
        file = tmp_path / f"model-{number}.safetensors"
        file.write_bytes(struct.pack("<Q", len(header)) + header)

    assert policy_size(tmp_path) == PolicySize(parameters=400)


@pytest.mark.parametrize("header", [b'{"w": 3}', b'{"w": {}}', b"[1]", b"no JSON"])
def test_a_damaged_checkpoint_is_named_and_not_estimated(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)

    (line,) = memory_lines(load_config(LAPTOP, [f"training.policy={str(tmp_path)!r}"]), GIB)

    assert "main memory cannot be estimated" in line
    assert str(tmp_path) in line


@pytest.mark.parametrize("engine", ["oracle", "simulated"])
def test_a_run_whose_engine_reads_no_policy_is_estimated_without_one(engine: str) -> None:
    overrides = ["training.policy='gone'", "training.learner='none'", f"rollout.engine='{engine}'"]

    lines = memory_lines(load_config(LAPTOP, overrides), GIB)

    assert lines[0] == "main memory, at least (a policy of 0 parameters)"


def test_an_engine_that_changes_weights_in_place_holds_them_once() -> None:
    overrides = ["rollout.engine='vllm'", "rollout.vllm.dtype='bfloat16'", "rollout.vllm.cpu_cache_gib=2.0"]

    held = parts(estimate(load_config(LAPTOP, overrides), SEVEN_BILLION), "rollout")

    assert held["weights"] == 2 * SEVEN_BILLION.parameters
    assert held["keys and values where there is no GPU"] == 2 * GIB
    assert "next version while it loads" not in held


def test_an_engine_of_transformers_holds_the_next_version_beside_the_one_it_serves() -> None:
    held = parts(estimate(load_config(LAPTOP), SEVEN_BILLION), "rollout")

    assert held["weights"] == held["next version while it loads"] == 4 * SEVEN_BILLION.parameters


def test_what_is_simulated_needs_neither_browsers_nor_weights() -> None:
    overrides = [
        "environments.kind='simulated'",
        "rollout.engine='simulated'",
        "training.learner='simulated'",
    ]
    config = load_config(LAPTOP, [*overrides, "tasks.train=['simulated/0']"])

    assert sum(kind.total_bytes for kind in estimate(config, PolicySize())) < GIB
    assert "in all" in memory_lines(config, GIB)[-1]


def test_what_does_not_fit_is_said_with_what_to_do() -> None:
    kinds = estimate(load_config(LAPTOP), SEVEN_BILLION)

    told, fits = (describe(kinds, SEVEN_BILLION, free * GIB, "less") for free in (16, 10_000))

    assert told[-1].endswith("more than is free; use less")
    assert fits[-1].endswith("free on this machine")
    assert len(fits) == 6


def test_an_engine_loads_fewer_libraries_only_for_the_small_policy(tmp_path: Path) -> None:
    large = load_config(LAPTOP, [f"training.policy={tmp_path}"])
    small, other = (
        parts(estimate(config, PolicySize()), "rollout") for config in (load_config(LAPTOP), large)
    )
    assert (small["libraries"], other["libraries"]) == (TORCH_ALONE_BYTES, TORCH_BYTES)


def test_a_desktop_may_take_the_memory_of_the_configuration() -> None:
    config = Config.model_validate({"environments": {"kind": "desktop", "desktop": {"memory_mb": 3072}}})
    assert parts(estimate(config, PolicySize()), "environment")["desktop at most"] == 3 * GIB


EIGHT = tuple("01234567")
LESS = "fewer environments (environments.count), fewer engines (rollout.count), or a machine with more memory"


def test_what_lies_on_gpus_is_not_counted_in_main_memory() -> None:
    config = load_config(REPOSITORY / "configs" / "osworld-uitars-7b.toml")
    whole = estimate(config, SEVEN_BILLION)
    left = in_main_memory(whole, assign_gpus(config, EIGHT))

    assert parts(left, "rollout").keys() == {"libraries"}
    assert parts(left, "trainer").keys() == {"libraries", WRITTEN}
    assert parts(left, "trainer")[WRITTEN] == parts(whole, "trainer")[WRITTEN]
    assert parts(left, "environment") == parts(whole, "environment")
    assert in_main_memory(whole, NO_GPUS) == whole


def test_a_trainer_on_the_processor_keeps_its_memory_beside_engines_on_gpus() -> None:
    config = load_config(LAPTOP, ["training.device=cpu", "rollout.engine=vllm"])
    whole = estimate(config, SEVEN_BILLION)
    left = in_main_memory(whole, assign_gpus(config, EIGHT))

    assert parts(left, "trainer") == parts(whole, "trainer")
    assert parts(left, "rollout").keys() == {"libraries"}


@pytest.mark.parametrize(
    ("here", "rank", "learner", "remedy"),
    [
        ((), 0, "grpo", "with more memory or with graphics cards"),
        (EIGHT, 0, "grpo", "use an adapter, whose checkpoints are small (training.lora.rank > 0), " + LESS),
        (EIGHT, 8, "grpo", "use " + LESS),
        (EIGHT, 0, "none", "use " + LESS),
    ],
)
def test_the_remedy_for_too_little_main_memory_is_one_that_helps(
    tmp_path: Path, here: tuple[str, ...], rank: int, learner: str, remedy: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED["UI-TARS-1.5-7B"]))
    config = load_config(
        LAPTOP,
        [f"training.policy={tmp_path}", f"training.lora.rank={rank}", f"training.learner={learner}"],
    )
    lines = memory_lines(config, 0, assign_gpus(config, here))

    assert lines[0] == "main memory, at least (a policy of 8,292,166,656 parameters)"
    assert lines[-1].endswith(remedy)
