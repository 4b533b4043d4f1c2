"""The room that checkpoints take is counted from the policy and the configuration."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from dart.config.config import load_config
from dart.preflight import disk_need as disk_need_module
from dart.preflight.disk_need import (
    checkpoint_bytes,
    disk_lines,
    disk_need,
    existing_part,
    growth_line,
    node_bytes,
)
from dart.preflight.memory import PolicySize

WEIGHTS, PER_RANK = 8_290_000_000, 2_500_000
SEVEN_BILLION = PolicySize(parameters=WEIGHTS, adapter_parameters_per_rank=PER_RANK)
ON_VLLM = ("rollout.engine=vllm", "training.precision=bfloat16")


def size_with(*overrides: str) -> int:
    return checkpoint_bytes(load_config(None, overrides), SEVEN_BILLION)


def test_a_checkpoint_has_weights_for_engines_those_of_the_trainer_and_two_moments() -> None:
    assert size_with() == (4 + 2 * 4) * WEIGHTS, "engines read what the trainer has"
    assert size_with(*ON_VLLM) == (2 + 4 + 2 * 4) * WEIGHTS
    assert size_with(*ON_VLLM, "training.weight_precision=bfloat16") == (2 + 2 * 2) * WEIGHTS


def test_a_checkpoint_of_an_adapter_is_small_unless_it_is_merged() -> None:
    adapter = 3 * 4 * 64 * PER_RANK
    assert size_with(*ON_VLLM, "training.lora.rank=64") == adapter
    assert size_with(*ON_VLLM, "training.lora.rank=64", "training.lora.publish=merged") == (
        2 * WEIGHTS + adapter
    )


def test_a_node_with_engines_keeps_two_versions_and_of_adapters_the_base_policy_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"x" * 1000)
    monkeypatch.setattr(disk_need_module, "size_from_files", lambda _: SEVEN_BILLION)

    def of_engines(*overrides: str) -> int:
        words = ("run.cache_bytes=1000000", f"training.policy={tmp_path}", *ON_VLLM, *overrides)
        config = load_config(None, words)
        return node_bytes(config, has_trainer=False, has_engines=True) - 1_000_000

    assert of_engines() == 2 * 2 * WEIGHTS
    assert of_engines("training.lora.rank=64") == 2 * 4 * 64 * PER_RANK + 1000
    assert of_engines("training.lora.rank=64", "training.lora.publish=merged") == 2 * 2 * WEIGHTS


def test_a_learner_that_trains_nothing_writes_nothing_large(tmp_path: Path) -> None:
    simulated = ("rollout.engine=simulated", "training.learner=simulated")
    assert size_with(*simulated) == 0
    assert disk_need(load_config(None, simulated), tmp_path) is None


def test_a_policy_that_is_not_there_yet_has_no_estimate(tmp_path: Path) -> None:
    assert disk_need(load_config(None, [f"training.policy={tmp_path}"]), tmp_path) is None


def test_checkpoints_that_a_run_has_already_are_not_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    config = load_config(None, ["training.checkpoints_kept=1", f'run.dir="{tmp_path / "run"}"'])
    new = disk_need(config, tmp_path / "run")
    assert new is not None
    assert new.folder == tmp_path
    assert new.lacking_bytes == 2 * new.checkpoint_bytes
    assert disk_lines(config)[1].startswith(
        "that is 13.6 MiB more than there is; free 13.6 MiB, or choose a larger disk"
    )

    (tmp_path / "run" / "checkpoints" / "v000001").mkdir(parents=True)
    (tmp_path / "run" / "checkpoints" / "v000001" / "weights").write_bytes(bytes(new.checkpoint_bytes))
    resumed = disk_need(config, tmp_path / "run")
    assert resumed is not None
    assert resumed.lacking_bytes == new.checkpoint_bytes


def test_the_room_that_screenshots_take_follows_from_kind_size_and_number_of_screens() -> None:
    machines = (
        "environments.kind=osworld",
        "environments.osworld.provider=pool",
        'tasks.train=["osworld/os/a"]',
        "training.updates=100",
    )
    batch = ("training.groups_per_update=8", "curation.rollouts_per_group=8", "curation.step_cap=30")
    of_machines = growth_line(load_config(None, [*machines, *batch]))
    assert of_machines == (
        "screenshots: about 1012.5 KiB for each step, so up to 1.9 GiB for each update (1,920 steps) "
        "and 185.4 GiB for 100 updates; dropped groups add to it, and none is deleted "
        "(run.screenshots_kept_days = 0)"
    )
    of_pages = growth_line(load_config(None, ["training.updates=0", "run.screenshots_kept_days=14"]))
    assert of_pages.startswith("screenshots: about 1.1 KiB for each step"), of_pages
    assert of_pages.endswith("screenshots that nothing needs are deleted after 14 to 16 days")
    simulated = ("environments.kind=simulated", 'tasks.train=["simulated/a"]')
    assert growth_line(load_config(None, simulated)) == ""


def test_a_folder_that_the_system_refuses_to_look_at_counts_as_one_that_does_not_exist(
    tmp_path: Path,
) -> None:
    assert existing_part(tmp_path / ("x" * 300) / "run") == tmp_path
