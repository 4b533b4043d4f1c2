"""Which GPUs engines and the trainer see."""

import os
from pathlib import Path
from typing import Any

import pytest

from dart.config.config import Config, ConfigError, load_config
from dart.config.gpus import (
    GpuAssignment,
    absent_gpu_problems,
    assign_gpus,
    describe_gpus,
    gpus_here,
    set_visible_devices,
    shared_gpu_problems,
)

EIGHT = tuple("01234567")


def config(*, count: int, ranks: int = 1, engine: str = "vllm", width: int = 1, **more: Any) -> Config:
    rollout = {"engine": engine, "count": count, "vllm": {"tensor_parallel": width}}
    rollout |= {"gpus": more.get("engines_on", ())}
    training = {"ranks": ranks, "gpus": more.get("trainer_on", ()), **more.get("training", {})}
    return Config.model_validate({"rollout": rollout, "training": training})


def test_each_engine_has_its_own_and_the_trainer_those_that_are_left() -> None:
    shares = assign_gpus(config(count=4, ranks=4), EIGHT)
    assert shares == GpuAssignment(engines=(("0",), ("1",), ("2",), ("3",)), trainer=("4", "5", "6", "7"))


def test_an_engine_that_is_split_has_as_many_as_parts() -> None:
    shares = assign_gpus(config(count=3, width=2, ranks=2), EIGHT)
    assert shares == GpuAssignment(engines=(("0", "1"), ("2", "3"), ("4", "5")), trainer=("6", "7"))


def test_where_there_is_one_everybody_shares_it() -> None:
    assert assign_gpus(config(count=2), ("0",)) == GpuAssignment(engines=(("0",), ("0",)), trainer=("0",))


def test_those_that_are_named_are_taken() -> None:
    named = config(count=2, ranks=2, engines_on=("6", "7"), trainer_on=(0, 1))
    assert assign_gpus(named, EIGHT) == GpuAssignment(engines=(("6",), ("7",)), trainer=("0", "1"))


def test_where_only_the_engines_are_named_the_trainer_has_the_last_of_the_others() -> None:
    assert assign_gpus(config(count=1, ranks=2, engines_on=("0",)), EIGHT).trainer == ("6", "7")


@pytest.mark.parametrize("engine", ["simulated", "oracle"])
def test_an_engine_that_computes_nothing_takes_none(engine: str) -> None:
    assert assign_gpus(config(count=2, engine=engine), EIGHT) == GpuAssignment(engines=(), trainer=("7",))


@pytest.mark.parametrize("training", [{"learner": "none"}, {"learner": "simulated"}, {"device": "cpu"}])
def test_an_evaluation_and_a_trainer_on_the_cpu_take_no_gpu(training: dict[str, Any]) -> None:
    one = config(count=1, trainer_on=("0",), training=training)
    assert assign_gpus(one, ("0",)) == GpuAssignment(engines=(("0",),), trainer=())
    assert said(one, ("0",)) == ""


def test_ranks_on_the_cpu_take_no_gpu_and_are_not_counted() -> None:
    on_cpu = {"device": "cpu"}
    assert assign_gpus(config(count=1, ranks=2, training=on_cpu), ("0", "1", "2")).trainer == ()
    assert said(config(count=1, ranks=2, training=on_cpu), ("0", "1")) == ""
    found = said(config(count=2, training=on_cpu), ("0",))
    assert "assigns GPU 0 to rollout-0, rollout-1: 2 engines x 1 + 0 for the trainer = 2 GPUs" in found


def test_without_any_nobody_sees_one_and_nothing_is_said() -> None:
    shares = assign_gpus(config(count=2), ())
    assert shares == GpuAssignment(engines=((), ()), trainer=())
    assert describe_gpus(shares) == ""


def test_it_is_told_in_one_line() -> None:
    told = describe_gpus(assign_gpus(config(count=2, width=2), EIGHT))
    assert told == "rollout-0: 0, 1; rollout-1: 2, 3; trainer: 7"


def said(config: Config, here: tuple[str, ...] = ()) -> str:
    return "\n".join(text for _, text in shared_gpu_problems(config, here))


def test_gpus_dealt_twice_are_refused_with_the_arithmetic() -> None:
    found = said(config(count=5, width=2, ranks=8), EIGHT)
    assert "assigns GPU 0 to rollout-0, rollout-4, the trainer" in found
    assert "5 engines x 2 + 8 for the trainer = 18 GPUs, and 8 are on this machine" in found
    assert "rollout.vllm.memory of at most 0.33" in found


def test_gpus_that_are_named_twice_are_refused_when_the_file_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("[rollout]\nengine = 'vllm'\ngpus = [0, 1]\n[training]\ngpus = [1]\n")
    assert load_config(path).rollout.count == 1
    with pytest.raises(ConfigError, match=r"rollout\.count assigns GPU 1 to rollout-1, the trainer"):
        load_config(path, ["rollout.count=2"])


def test_a_gpu_is_shared_on_purpose_when_the_engine_leaves_room() -> None:
    one = config(count=1)
    half = one.rollout.vllm.model_copy(update={"memory": 0.5})
    roomy = one.model_copy(update={"rollout": one.rollout.model_copy(update={"vllm": half})})
    assert "assigns GPU 0 to rollout-0, the trainer" in said(one, ("0",))
    assert said(roomy, ("0",)) == ""


def test_an_engine_of_transformers_reserves_nothing_and_may_share() -> None:
    assert said(config(count=2, engine="transformers"), ("0",)) == ""


def test_two_ranks_never_share_a_gpu() -> None:
    found = said(config(count=1, ranks=4, engine="transformers"), ("0", "1"))
    assert "is 4, and there are 1 GPUs for the trainer (1)" in found


def test_an_engine_with_fewer_gpus_than_it_is_split_into_is_refused() -> None:
    found = said(config(count=1, width=4, engines_on=("0", "1"), trainer_on=("2",)), EIGHT)
    assert found.startswith("is 4, and an engine gets 2 different GPUs")


def test_where_there_is_no_gpu_nothing_is_dealt_twice() -> None:
    assert said(config(count=5, width=2, ranks=8)) == ""


def test_what_the_process_was_told_counts_before_what_the_machine_has(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert gpus_here({}, tmp_path) == ("0", "1", "2"), "CUDA numbers them without gaps"
    assert gpus_here({"CUDA_VISIBLE_DEVICES": "3, GPU-8932f937"}, tmp_path) == ("3", "GPU-8932f937")
    assert gpus_here({"CUDA_VISIBLE_DEVICES": ""}, tmp_path) == ()


@pytest.mark.parametrize(
    ("visible", "here"),
    [
        ("-1", ()),
        ("0,-1,1", ("0",)),
        ("NoDevFiles", ()),
        ("GPU-ab,1", ("GPU-ab", "1")),
        ("MIG-ab", ("MIG-ab",)),
    ],
)
def test_the_list_of_gpus_ends_before_the_first_entry_that_names_none(
    visible: str, here: tuple[str, ...]
) -> None:
    assert gpus_here({"CUDA_VISIBLE_DEVICES": visible}) == here


def test_a_container_that_was_given_the_fourth_gpu_has_number_0(tmp_path: Path) -> None:
    (tmp_path / "nvidia3").touch()
    assert gpus_here({}, tmp_path) == ("0",)


def test_a_process_sees_its_own_in_the_order_of_the_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {})
    set_visible_devices(())
    assert os.environ == {}
    set_visible_devices(("4", "5"))
    assert os.environ == {"CUDA_VISIBLE_DEVICES": "4,5", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def absent(config: Config, *here: str) -> str:
    return "\n".join(f"{keys[0]} {text}" for keys, text in absent_gpu_problems(config, here))


def test_each_named_gpu_that_is_not_here_is_reported_with_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    engines, trainer = absent(config(count=2, engines_on=(0, 1), trainer_on=(2, 3)), "0").splitlines()
    assert engines.startswith("rollout.gpus names GPU 1, which this process cannot use: it has GPU 0 ")
    assert "(CUDA_VISIBLE_DEVICES=0)" in engines
    assert trainer.startswith("training.gpus names GPUs 2, 3, which this process cannot use")


@pytest.mark.parametrize(
    ("visible", "reason"),
    [
        ("", "CUDA_VISIBLE_DEVICES is empty"),
        ("-1", "CUDA_VISIBLE_DEVICES=-1"),
        (None, "there is no device /dev/"),
    ],
)
def test_where_there_is_no_gpu_every_named_one_is_absent(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, reason: str
) -> None:
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = absent(config(count=1, engines_on=(0,)))
    assert found.startswith(f"rollout.gpus names GPU 0, which this process cannot use: it has none ({reason}")
    assert "; leave rollout.gpus empty to compute without GPUs, start the run where these GPUs are" in found


def test_a_run_that_names_no_gpu_or_uses_none_misses_none() -> None:
    assert absent(config(count=1)) == ""
    assert absent(config(count=1, engines_on=(0,), engine="simulated")) == ""
    on_processor = load_config(None, ["training.gpus=[3]", "training.device=cpu"])
    assert absent(on_processor) == ""
    assert absent(load_config(None, ["training.gpus=[3]", "training.learner=none"])) == ""


def test_a_uuid_is_compared_with_uuids_only() -> None:
    named = config(count=1, engines_on=("GPU-8932f937",))
    assert absent(named, "0", "1") == "", "numbers do not say which UUIDs there are"
    assert absent(named, "GPU-8932f937-d72c-4106") == "", "CUDA accepts the beginning of a UUID"
    assert "names GPU GPU-8932f937" in absent(named, "GPU-1111")
    assert "names GPU GPU-8932f937" in absent(named)


@pytest.mark.parametrize("users", [2, 3, 6, 7, 24, 99, 100, 1000])
def test_the_share_that_the_message_names_is_accepted(users: int) -> None:
    crowded = config(count=users, engines_on=("0",), trainer_on=("1",))
    share = float(said(crowded).rpartition("at most ")[2])
    vllm = crowded.rollout.vllm.model_copy(update={"memory": share})
    roomy = crowded.model_copy(update={"rollout": crowded.rollout.model_copy(update={"vllm": vllm})})
    assert share > 0.8 / users
    assert said(roomy) == ""
