"""The assignment of this machine's GPUs to engines and trainer: in order, engines first.

An actor sets `CUDA_VISIBLE_DEVICES` for itself and its child processes, before CUDA starts. Its supervisor
does not set it, so a restarted actor sees all GPUs and selects its own again.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dart.config.config import Config

VISIBLE = "CUDA_VISIBLE_DEVICES"

RUN_ON_GPUS = ("transformers", "vllm")
"""Engines that use GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuAssignment:
    """The GPUs of each engine and those of the trainer; empty on a machine without GPUs.

    A GPU has a number, or another name that CUDA_VISIBLE_DEVICES accepts."""

    engines: tuple[tuple[str, ...], ...]
    """GPUs of each rollout actor."""
    trainer: tuple[str, ...]


def gpus_here(environment: Mapping[str, str] | None = None, devices: Path = Path("/dev")) -> tuple[str, ...]:
    """Return the GPUs that this process may use: those of CUDA_VISIBLE_DEVICES, or every NVIDIA device."""
    visible = (os.environ if environment is None else environment).get(VISIBLE)
    if visible is not None:
        return tuple(gpu.strip() for gpu in visible.split(",") if gpu.strip())
    numbers = (path.name.removeprefix("nvidia") for path in devices.glob("nvidia[0-9]*"))
    return tuple(sorted((number for number in numbers if number.isdigit()), key=int))


def assign_gpus(config: Config, here: Sequence[str]) -> GpuAssignment:
    """Assign GPUs to engines and trainer.

    Each engine gets `rollout.vllm.tensor_parallel` of `rollout.gpus`, or of all GPUs. Each of the trainer's
    ranks gets one of `training.gpus`, or of the GPUs that no engine has. When there are too few, assignment
    starts again from the first, so that several share one.
    """
    rollout, training = config.rollout, config.training
    width = rollout.vllm.tensor_parallel if rollout.engine == "vllm" else 1
    count = rollout.count if rollout.engine in RUN_ON_GPUS else 0
    of_engines = tuple(_taken(rollout.gpus or here, width * index, width) for index in range(count))
    left = [gpu for gpu in here if not any(gpu in taken for taken in of_engines)]
    return GpuAssignment(engines=of_engines, trainer=_taken(training.gpus or left or here, 0, training.ranks))


def _taken(gpus: Sequence[int | str], begin: int, count: int) -> tuple[str, ...]:
    if not gpus:
        return ()
    return tuple(dict.fromkeys(str(gpus[index % len(gpus)]) for index in range(begin, begin + count)))


def set_visible_devices(gpus: Sequence[str]) -> None:
    """Restrict this process and its children to these GPUs; does nothing for an empty list."""
    if gpus:
        os.environ[VISIBLE] = ",".join(gpus)
        # Number GPUs as nvidia-smi does; CUDA's own order begins with the fastest.
        os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")


def describe_gpus(assignment: GpuAssignment) -> str:
    """Describe the assignment in one line; empty without GPUs."""
    parts = [f"rollout-{index}: {', '.join(gpus)}" for index, gpus in enumerate(assignment.engines) if gpus]
    parts += [f"trainer: {', '.join(assignment.trainer)}"] if assignment.trainer else []
    return "; ".join(parts)
