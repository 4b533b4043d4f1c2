"""The assignment of this machine's GPUs: engines get the first ones, the trainer the last ones.

An actor sets `CUDA_VISIBLE_DEVICES` for itself and its child processes, before CUDA starts. Its supervisor
does not set it, so a restarted actor sees all GPUs and selects its own again.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dart.config.config import Config

VISIBLE = "CUDA_VISIBLE_DEVICES"

RUN_ON_GPUS = ("transformers", "vllm")
"""Engines that use GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuAssignment:
    """The GPUs of each engine and those of the trainer; empty for those that use none.

    A GPU is named by its number, or in another way that CUDA_VISIBLE_DEVICES accepts, such as a UUID."""

    engines: tuple[tuple[str, ...], ...]
    """GPUs of each rollout actor."""
    trainer: tuple[str, ...]


def gpus_here(environment: Mapping[str, str] | None = None, devices: Path = Path("/dev")) -> tuple[str, ...]:
    """Return the names of the GPUs that this process may use.

    These are the GPUs in CUDA_VISIBLE_DEVICES (none if it is empty); if that variable is not set, the numbers
    from 0 of as many GPUs as the folder `devices` has. As for CUDA, the list ends before the first entry that
    names no GPU: `-1` and Slurm's `NoDevFiles` hide all. CUDA numbers GPUs without gaps: in a container that
    was given only /dev/nvidia3, this GPU has the number 0.
    """
    visible = (os.environ if environment is None else environment).get(VISIBLE)
    if visible is not None:
        listed = (gpu.strip() for gpu in visible.split(",") if gpu.strip())
        return tuple(takewhile(_names_gpu, listed))
    found = [path for path in devices.glob("nvidia[0-9]*") if path.name.removeprefix("nvidia").isdigit()]
    return tuple(map(str, range(len(found))))


def _names_gpu(entry: str) -> bool:
    """Whether an entry of CUDA_VISIBLE_DEVICES has the form of a number or of a UUID."""
    return entry.isdecimal() or entry.startswith(("GPU-", "MIG-"))


def assign_gpus(config: "Config", here: Sequence[str]) -> GpuAssignment:
    """Assign GPUs to engines and trainer.

    here   the GPUs of this machine, in order

    Each engine gets `rollout.vllm.tensor_parallel` of `rollout.gpus`, or of all GPUs. Each of the trainer's
    ranks on GPUs gets one of `training.gpus`, or of the last GPUs that no engine has, so that engines can be
    added (`dartrl scale rollouts=N`). When the GPUs are used up, assignment starts again from the first one,
    so several engines or ranks share a GPU; `shared_gpu_problems` says whether they can.
    """
    rollout, training = config.rollout, config.training
    width = gpus_of_engine(config)
    count = rollout.count if width else 0
    of_engines = tuple(_taken(rollout.gpus or here, width * index, width) for index in range(count))
    left = [gpu for gpu in here if not any(gpu in taken for taken in of_engines)]
    of_trainer = training.gpus or left[-training.ranks :] or here
    return GpuAssignment(engines=of_engines, trainer=_taken(of_trainer, 0, gpus_of_trainer(config)))


def _taken(gpus: Sequence[int | str], begin: int, count: int) -> tuple[str, ...]:
    if not gpus:
        return ()
    return tuple(dict.fromkeys(str(gpus[index % len(gpus)]) for index in range(begin, begin + count)))


def gpus_of_engine(config: "Config") -> int:
    """Return the number of GPUs that one engine takes on a machine with GPUs."""
    rollout = config.rollout
    if rollout.engine == "vllm":
        return rollout.vllm.tensor_parallel
    return 1 if rollout.engine in RUN_ON_GPUS else 0


def gpus_of_trainer(config: "Config") -> int:
    """Return the number of GPUs that the trainer takes on a machine with GPUs: one for each rank.

    It is 0 if the run trains nothing, if its learner is simulated, or if `training.device` is the CPU.
    """
    training = config.training
    return training.ranks if training.learner == "grpo" and training.device != "cpu" else 0


GpuProblem = tuple[tuple[str, ...], str]
"""The keys to change, and what is wrong with the first of them."""


def shared_gpu_problems(config: "Config", here: Sequence[str] = ()) -> Iterator[GpuProblem]:
    """Yield a problem if a GPU is given to more engines and trainer ranks than fit on it.

    here   the GPUs of this machine, which are assigned where the configuration names none; empty: only the
           GPUs that the configuration names are checked

    vLLM reserves the share `rollout.vllm.memory` of a GPU when it starts. So if u engines or ranks use one
    GPU, this share must be at most 1/u. Two ranks of the trainer never share a GPU: NCCL refuses that.
    """
    assignment = assign_gpus(config, here)
    users = _users(assignment)
    crowded = [(gpu, names) for gpu, names in users.items() if config.rollout.vllm.memory * len(names) > 1]
    if crowded and config.rollout.engine == "vllm":
        gpu, names = max(crowded, key=lambda one: len(one[1]))
        yield (
            ("rollout.count", "rollout.gpus", "training.gpus", "rollout.vllm.memory"),
            f"assigns GPU {gpu} to {', '.join(names)}: {_demand(config, here)}; vLLM reserves "
            f"{config.rollout.vllm.memory:g} of a GPU (rollout.vllm.memory). Use fewer engines or ranks, "
            "name other GPUs, or let them share GPUs with rollout.vllm.memory of at most "
            f"{_share_of(len(names)):g}",
        )
    elif any(0 < len(gpus) < gpus_of_engine(config) for gpus in assignment.engines):
        yield (
            ("rollout.vllm.tensor_parallel", "rollout.gpus"),
            f"is {gpus_of_engine(config)}, and an engine gets {len(assignment.engines[0])} different GPUs: "
            f"{_demand(config, here)}",
        )
    if 0 < len(assignment.trainer) < config.training.ranks:
        yield (
            ("training.ranks", "training.gpus"),
            f"is {config.training.ranks}, and there are {len(assignment.trainer)} GPUs for the trainer "
            f"({', '.join(assignment.trainer)}): {_demand(config, here)}; each rank needs a GPU of its own",
        )


def _share_of(users: int) -> float:
    """Return the largest share of a GPU that each of its users can have, rounded down to two digits."""
    scale: int = 10 ** (1 + len(str(users)))
    return scale // users / scale


def absent_gpu_problems(config: "Config", here: Sequence[str]) -> Iterator[GpuProblem]:
    """Yield a problem for each key that names GPUs which this process cannot use.

    here   the GPUs that this process may use (`gpus_here`)
    """
    for key, named in _named_gpus(config):
        absent = [str(gpu) for gpu in named if not _is_among(str(gpu), here)]
        others = f"name others, leave {key} empty to use all that are here"
        instead = others if here else f"leave {key} empty to compute without GPUs"
        if absent:
            yield (
                (key,),
                f"names {_listed(absent)}, which this process cannot use: it has {_described(here)}; "
                f"{instead}, start the run where these GPUs are or, if they are here, list them in {VISIBLE}",
            )


def _named_gpus(config: "Config") -> Iterator[tuple[str, Sequence[int | str]]]:
    """Yield each key that names GPUs for something that computes on them, with the names."""
    if gpus_of_engine(config):
        yield "rollout.gpus", config.rollout.gpus
    if gpus_of_trainer(config):
        yield "training.gpus", config.training.gpus


def _is_among(gpu: str, here: Sequence[str]) -> bool:
    """Whether a GPU may be one of those here. A number says nothing about UUIDs, so it may be any of them."""
    if gpu in here or gpu.isdigit():
        return gpu in here
    return any(one.isdigit() or one.startswith(gpu) for one in here)


def _listed(gpus: Sequence[str]) -> str:
    return f"GPU{'s' if len(gpus) > 1 else ''} {', '.join(gpus)}"


def _described(here: Sequence[str]) -> str:
    visible = os.environ.get(VISIBLE)
    if visible is None:
        return _listed(here) if here else "none (there is no device /dev/nvidia*)"
    if not visible:
        return f"none ({VISIBLE} is empty)"
    return f"{_listed(here) if here else 'none'} ({VISIBLE}={visible})"


def _users(assignment: GpuAssignment) -> dict[str, list[str]]:
    """Return which engines use each GPU, and whether the trainer does: their names by GPU."""
    users: dict[str, list[str]] = {}
    for index, gpus in enumerate(assignment.engines):
        for gpu in gpus:
            users.setdefault(gpu, []).append(f"rollout-{index}")
    for gpu in assignment.trainer:
        users.setdefault(gpu, []).append("the trainer")
    return users


def _demand(config: "Config", here: Sequence[str]) -> str:
    """Say in words how many GPUs the run takes, and how many there are."""
    width, ranks = gpus_of_engine(config), gpus_of_trainer(config)
    engines = config.rollout.count * width
    known = set(here) | {str(gpu) for _, named in _named_gpus(config) for gpu in named}
    where = "on this machine" if here else "named"
    return (
        f"{config.rollout.count} engines x {width} + {ranks} for the trainer = {engines + ranks} GPUs, "
        f"and {len(known)} are {where}"
    )


def set_visible_devices(gpus: Sequence[str]) -> None:
    """Restrict this process and its children to these GPUs; does nothing for an empty list."""
    if gpus:
        os.environ[VISIBLE] = ",".join(gpus)
        # Number GPUs as nvidia-smi does; CUDA's own order begins with the fastest.
        os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")


def hide_gpus() -> None:
    """Have this process and its children see no GPU, although the machine may have some."""
    os.environ[VISIBLE] = ""


def describe_gpus(assignment: GpuAssignment) -> str:
    """Return the assignment as one line of text; empty without GPUs."""
    parts = [f"rollout-{index}: {', '.join(gpus)}" for index, gpus in enumerate(assignment.engines) if gpus]
    parts += [f"trainer: {', '.join(assignment.trainer)}"] if assignment.trainer else []
    return "; ".join(parts)
