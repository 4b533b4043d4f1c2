"""Which GPUs of this machine each engine sees, and which the trainer: dealt in order, engines first.

An actor that is to see some of them sets `CUDA_VISIBLE_DEVICES` for itself and what it starts, before CUDA
begins. Its supervisor never does, so that whoever is started again finds all of them and takes its own.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dart.config.config import Config

VISIBLE = "CUDA_VISIBLE_DEVICES"

ORDER, BY_BUS = "CUDA_DEVICE_ORDER", "PCI_BUS_ID"
"""Numbers are those of nvidia-smi; CUDA's own order begins with the fastest."""

RUN_ON_GPUS = ("transformers", "vllm")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuAssignment:
    """GPUs by number (or whatever else CUDA_VISIBLE_DEVICES takes); empty where there are none."""

    engines: tuple[tuple[str, ...], ...]
    """Of each rollout actor."""
    trainer: tuple[str, ...]


def gpus_here(environment: Mapping[str, str] | None = None, devices: Path = Path("/dev")) -> tuple[str, ...]:
    """What this process may use: what it was told, or every NVIDIA device there is."""
    told = (os.environ if environment is None else environment).get(VISIBLE)
    if told is not None:
        return tuple(gpu.strip() for gpu in told.split(",") if gpu.strip())
    numbers = (path.name.removeprefix("nvidia") for path in devices.glob("nvidia[0-9]*"))
    return tuple(sorted((number for number in numbers if number.isdigit()), key=int))


def assign_gpus(config: Config, here: Sequence[str]) -> GpuAssignment:
    """Who sees which.

    Engines take `rollout.vllm.tensor_parallel` each of `rollout.gpus`, or of all; the trainer's ranks take
    one each of `training.gpus`, or of those no engine has. Where there are too few, they are dealt again from
    the beginning: then several share one.
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
    """This process, and those it starts, use these GPUs; nothing is changed where there are none."""
    if gpus:
        os.environ[VISIBLE] = ",".join(gpus)
        os.environ.setdefault(ORDER, BY_BUS)


def in_words(shares: GpuAssignment) -> str:
    """One line: who has which; empty where there are none."""
    told = [f"rollout-{index}: {', '.join(gpus)}" for index, gpus in enumerate(shares.engines) if gpus]
    told += [f"trainer: {', '.join(shares.trainer)}"] if shares.trainer else []
    return "; ".join(told)
