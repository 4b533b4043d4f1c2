"""What lies on each GPU: counted from published dimensions, summed, and held against the GPU's memory."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from dart.config.bundled import bundled_folder
from dart.config.config import load_config
from dart.config.gpus import assign_gpus
from dart.inference.tensor_layout import layout_of
from dart.inference.vllm_passes import PASS_TOKENS
from dart.preflight.gpu_memory import Holder, counted, dimensions_of, gpu_lines, on_gpus
from dart.preflight.memory import size_of
from dart.preflight.planned_layout import planned_layout
from scripts.show_gpu_plan import PUBLISHED, with_published

GIB = 2**30


@pytest.mark.parametrize(
    ("name", "parameters"), [("UI-TARS-1.5-7B", 8_292_166_656), ("Qwen2.5-VL-3B-Instruct", 3_754_622_976)]
)
def test_a_published_checkpoint_is_counted_from_its_config_alone(
    tmp_path: Path, name: str, parameters: int
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED[name]))
    assert size_of(planned_layout(tmp_path)).parameters == parameters


def test_the_count_is_that_of_the_weights_that_transformers_writes(tiny_qwen: Path) -> None:
    planned, written = planned_layout(tiny_qwen), layout_of(tiny_qwen)
    assert sorted(map(math.prod, planned.values())) == sorted(map(math.prod, written.values()))
    assert size_of(planned) == size_of(written)


@pytest.mark.parametrize("part", ["text_config", "vision_config"])
def test_a_part_of_a_config_that_is_no_object_is_named(part: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2_5_vl", part: 5}))
    for read in (planned_layout, dimensions_of):
        with pytest.raises(ValueError, match=f"an object under {part} in .*config.json, got 5"):
            read(tmp_path)


def test_a_config_without_the_dimensions_of_such_a_model_says_which_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "qwen2_5_vl"}')
    with pytest.raises(ValueError, match=r"config\.json has no 'vision_config'"):
        planned_layout(tmp_path)
    with pytest.raises(ValueError, match=r"config\.json has no 'num_attention_heads'"):
        dimensions_of(tmp_path)


def test_the_first_job_fits_a_gpu_of_24_gb_with_its_engine_and_its_trainer(tmp_path: Path) -> None:
    config = with_published(load_config(bundled_folder() / "one-gpu-miniwob.toml"), tmp_path)
    policy, dimensions = counted(config)
    memory = int(22.5 * GIB)  # what the driver leaves of 24 GB on an L4 or an A10
    found = on_gpus(config, policy, dimensions, assign_gpus(config, ()), memory)
    engine, trainer = found["0"]
    assert (engine.name, trainer.name) == ("rollout-0", "trainer")
    assert engine.total_bytes == pytest.approx(0.45 * memory, abs=1)
    assert dimensions is not None
    tokens = engine.parts["cache"] / dimensions.cache_bytes_per_token
    assert tokens > config.environments.count * 2048, "room for all environments at once"
    assert engine.total_bytes + trainer.total_bytes < memory
    assert not any("more than it has" in line for line in gpu_lines(found, memory))


def test_a_gpu_of_the_papers_job_holds_a_whole_engine_with_room_for_its_environments(tmp_path: Path) -> None:
    config = with_published(load_config(bundled_folder() / "osworld-uitars-7b.toml"), tmp_path)
    policy, dimensions = counted(config)
    found = on_gpus(config, policy, dimensions, assign_gpus(config, ()), 80 * GIB)
    assert [[one.name for one in holders] for holders in found.values()] == [
        *(["rollout-0"], ["rollout-1"], ["rollout-2"], ["rollout-3"]),
        *([f"trainer, rank {rank}"] for rank in range(4)),
    ]
    assert dimensions is not None
    tokens = found["0"][0].parts["cache"] // dimensions.cache_bytes_per_token
    assert tokens > 3 * 14_000 * config.environments.count / config.rollout.count
    assert all(sum(one.total_bytes for one in holders) < 80 * GIB for holders in found.values())


def test_a_gpu_holds_moments_in_their_precision_and_no_copy_for_a_checkpoint(tmp_path: Path) -> None:
    file = bundled_folder() / "osworld-uitars-7b.toml"
    kept = "training.weight_precision='bfloat16'"
    parameters, ranks, totals = 8_292_166_656, 4, []
    for number, overrides in enumerate(
        ([], [kept], [kept, "training.background_checkpoints=false"]),
    ):
        (folder := tmp_path / str(number)).mkdir()
        config = with_published(load_config(file, overrides), folder)
        policy, dimensions = counted(config)
        (trainer,) = on_gpus(config, policy, dimensions, assign_gpus(config, ()), 80 * GIB)["7"]
        in_bytes = 2 if overrides else 4
        assert trainer.parts["weights"] == trainer.parts["gradients"] == in_bytes * parameters // ranks
        assert trainer.parts["optimizer"] == 2 * in_bytes * parameters // ranks
        totals.append(trainer.total_bytes)
    assert totals[0] - totals[1] == (4 - 2) * (1 + 1 + 2) * parameters // ranks, "weights, gradients, moments"
    assert totals[1] == totals[2], "copies for a checkpoint are in main memory"


def test_an_engine_is_counted_with_the_pass_that_it_is_started_with_or_the_largest_image_if_that_takes_more(
    tmp_path: Path,
) -> None:
    config = with_published(load_config(bundled_folder() / "osworld-uitars-7b.toml"), tmp_path)
    policy, dimensions = counted(config)
    assert dimensions is not None
    for vision_hidden, expected in (
        (0, 34 * PASS_TOKENS * dimensions.hidden),
        (1280, 20 * 4 * 16_384 * 1280),
    ):
        model = replace(dimensions, vision_hidden=vision_hidden)
        engine = on_gpus(config, policy, model, assign_gpus(config, ()), 80 * GIB)["0"][0]
        assert engine.parts["activations"] == expected


def test_activations_of_passes_without_a_limit_are_named_and_not_counted_as_nothing(tmp_path: Path) -> None:
    file = bundled_folder() / "one-gpu-miniwob.toml"
    config = with_published(load_config(file, ["training.micro_batch_tokens=0"]), tmp_path)
    policy, dimensions = counted(config)
    trainer = on_gpus(config, policy, dimensions, assign_gpus(config, ()), 24 * GIB)["0"][1]
    assert "activations" not in trainer.parts
    said = "(and activations, for which training.micro_batch_tokens sets no limit)"
    assert gpu_lines({"0": [trainer]}, 24 * GIB)[1].endswith(said)


def test_what_does_not_fit_is_said_with_by_how_much() -> None:
    full = {"0": [Holder(name="rollout-0", parts={"weights": 3 * GIB})]}
    assert gpu_lines(full, 2 * GIB)[-1].startswith("    that is 1.0 GiB more than it has; use ")
    assert len(gpu_lines(full, None)) == 2
