"""Which GPUs engines and the trainer see."""

import os
from pathlib import Path
from typing import Any

import pytest

from dart.config.config import Config
from dart.config.gpus import GpuAssignment, assign_gpus, describe_gpus, gpus_here, set_visible_devices

EIGHT = tuple("01234567")


def config(*, count: int, ranks: int = 1, engine: str = "vllm", width: int = 1, **more: Any) -> Config:
    rollout = {"engine": engine, "count": count, "vllm": {"tensor_parallel": width}}
    rollout |= {"gpus": more.get("engines_on", ())}
    return Config.model_validate(
        {"rollout": rollout, "training": {"ranks": ranks, "gpus": more.get("trainer_on", ())}}
    )


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


def test_where_only_the_engines_are_named_the_trainer_has_the_others() -> None:
    assert assign_gpus(config(count=1, ranks=2, engines_on=("0",)), EIGHT).trainer == ("1", "2")


@pytest.mark.parametrize("engine", ["simulated", "oracle"])
def test_an_engine_that_computes_nothing_takes_none(engine: str) -> None:
    assert assign_gpus(config(count=2, engine=engine), EIGHT) == GpuAssignment(engines=(), trainer=("0",))


def test_without_any_nobody_sees_one_and_nothing_is_said() -> None:
    shares = assign_gpus(config(count=2), ())
    assert shares == GpuAssignment(engines=((), ()), trainer=())
    assert describe_gpus(shares) == ""


def test_it_is_told_in_one_line() -> None:
    told = describe_gpus(assign_gpus(config(count=2, width=2), EIGHT))
    assert told == "rollout-0: 0, 1; rollout-1: 2, 3; trainer: 4"


def test_what_the_process_was_told_counts_before_what_the_machine_has(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert gpus_here({}, tmp_path) == ("0", "2", "10")
    assert gpus_here({"CUDA_VISIBLE_DEVICES": "3, GPU-8932f937"}, tmp_path) == ("3", "GPU-8932f937")
    assert gpus_here({"CUDA_VISIBLE_DEVICES": ""}, tmp_path) == ()


def test_a_process_sees_its_own_in_the_order_of_the_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {})
    set_visible_devices(())
    assert os.environ == {}
    set_visible_devices(("4", "5"))
    assert os.environ == {"CUDA_VISIBLE_DEVICES": "4,5", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
