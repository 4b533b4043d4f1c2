"""An estimate of the memory of a run, from its configuration and its policy, before anything starts.

The estimate counts the weights in the checkpoint's files, what the configuration adds to them (gradients,
optimizer, adapter, copies), and the memory of Python, its libraries and a browser as measured by
`benchmarks.longevity`. It does not count activations, key-value caches and screenshots, which depend on the
episodes; `training.image_cache_mib` limits the screenshots that a trainer has prepared. Where GPUs are
assigned, the weights and what the configuration adds to them are in the memory of the GPUs
(`dart.preflight.gpu_memory`), and `in_main_memory` leaves them out.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dart.config.config import Config
from dart.config.environment_kinds import KINDS
from dart.config.gpus import GpuAssignment
from dart.config.published import published_dtype, publishes_adapter, reads_policy
from dart.core.errors import DartError
from dart.inference.tensor_layout import Layout, layout_of
from dart.inspect.formatting import size
from dart.policy.configuration import is_small_policy
from dart.preflight.planned_layout import planned_layout

MIB = 2**20

NO_GPUS = GpuAssignment(engines=(), trainer=())

PYTHON_BYTES = 30 * MIB
"""Bytes of an actor without torch, apart from memory that it shares with its supervisor (measured as PSS)."""

TORCH_BYTES = 220 * MIB
"""Bytes of a process that has imported torch and transformers, or torch and its optimizers."""

TORCH_ALONE_BYTES = 120 * MIB
"""Bytes of an engine that has imported torch without transformers: that of a small policy."""

BROWSER_BYTES = 200 * MIB
"""Bytes of all processes of a headless Chromium, after an hour of MiniWoB++ pages (measured as PSS)."""

SINGLETONS = ("store", "curator", "weight_sync", "root", "rollout_pool", "environment_pool", "main process")
"""Processes, other than the trainer, of which a run has exactly one."""

ADAM_MOMENTS = 2
"""Number of values that AdamW stores for each trained weight."""

BYTES_OF_DTYPE = {"float32": 4, "bfloat16": 2, "float16": 2}

ADAPTED = re.compile(r"\.(?:[qkvo]_proj|qkv_proj|gate_proj|up_proj|gate_up_proj|down_proj)\.weight$")
"""Names of the weights that LoRA adapts (`dart.policy.lora.LAYERS`). Weights of the vision tower also match,
although LoRA does not adapt them."""

IN_MAIN_MEMORY = (
    "python",
    "libraries",
    "checkpoint being written",
    "weights with the adapter while they are written",
)
"""Names of those parts of the memory of an engine or trainer on a GPU that are in main memory."""

FEWER = "fewer environments (environments.count), fewer engines (rollout.count)"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySize:
    """The number of parameters of a policy and of a LoRA adapter for it."""

    parameters: int = 0
    adapter_parameters_per_rank: int = 0
    """Number of parameters of a LoRA adapter of rank 1."""


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """The memory of `count` processes of one kind."""

    name: str
    count: int
    parts: Mapping[str, int]
    """Bytes in each process of this kind, by their purpose, such as `weights`."""

    @property
    def total_bytes(self) -> int:
        """Return the bytes of all processes of this kind together."""
        return self.count * sum(self.parts.values())


def policy_size(folder: Path) -> PolicySize:
    """Count the parameters of a checkpoint. Only the headers of its weight files are read.

    raises    OSError, ValueError or DartError if the folder has no readable checkpoint
    """
    try:
        return size_of(layout_of(folder))
    except (TypeError, AttributeError, LookupError, RecursionError) as error:
        raise ValueError(f"{folder} holds no checkpoint of a policy: {error}") from error


def size_from_files(folder: Path) -> PolicySize:
    """Count the parameters of a policy from its weight files or, if it has none, from its config.json alone.

    raises    OSError, ValueError or DartError if neither can be read
    """
    has_weights = any(folder.glob("*.safetensors"))
    return policy_size(folder) if has_weights else size_of(planned_layout(folder))


def size_of(layout: Layout) -> PolicySize:
    """Count the parameters of a checkpoint whose tensors have these names and shapes."""
    adapted = [shape for name, shape in layout.items() if ADAPTED.search(name) and "vis" not in name]
    return PolicySize(
        parameters=sum(math.prod(shape) for shape in layout.values()),
        adapter_parameters_per_rank=sum(sum(shape) for shape in adapted),
    )


def estimate(config: Config, policy: PolicySize) -> list[ProcessMemory]:
    """Estimate the memory of each kind of process of a run; the kinds with the most memory come first."""
    kinds = [
        ProcessMemory("trainer", config.training.ranks, dict(_trainer(config, policy))),
        ProcessMemory("rollout", config.rollout.count, dict(_engine(config, policy))),
        ProcessMemory("environment", config.environments.count, dict(_environment(config))),
        ProcessMemory(", ".join(SINGLETONS), len(SINGLETONS), {"python": PYTHON_BYTES}),
    ]
    return sorted(kinds, key=lambda kind: -kind.total_bytes)


def could_adapt(config: Config, policy: PolicySize) -> bool:
    """Whether a run trains all weights of a policy that could have an adapter; a small policy has none."""
    training = config.training
    return training.learner == "grpo" and training.lora.rank == 0 and policy.adapter_parameters_per_rank > 0


def in_main_memory(kinds: Sequence[ProcessMemory], assignment: GpuAssignment) -> list[ProcessMemory]:
    """Return the kinds of process without the parts of their memory that are on GPUs.

    assignment   the GPUs of engines and trainer; empty for those that use none
    """
    on_gpus = {"rollout": any(assignment.engines), "trainer": bool(assignment.trainer)}
    left = [_without_gpus(kind) if on_gpus.get(kind.name) else kind for kind in kinds]
    return sorted(left, key=lambda kind: -kind.total_bytes)


def _without_gpus(kind: ProcessMemory) -> ProcessMemory:
    parts = {name: held_bytes for name, held_bytes in kind.parts.items() if name in IN_MAIN_MEMORY}
    return ProcessMemory(kind.name, kind.count, parts)


def _trainer(config: Config, policy: PolicySize) -> Iterator[tuple[str, int]]:
    """Yield name and bytes of each part of the memory of one rank of the trainer.

    Trained weights, their gradients and their optimizer moments have `training.weight_precision`, or float32
    if an adapter is trained. Weights that are not trained have `training.precision`."""
    training = config.training
    if training.learner != "grpo":
        yield "python", PYTHON_BYTES
        return
    frozen = policy.parameters * BYTES_OF_DTYPE[training.precision] // training.ranks
    has_adapter = training.lora.rank > 0
    parameters = policy.adapter_parameters_per_rank * training.lora.rank if has_adapter else policy.parameters
    precision = "float32" if has_adapter else training.weight_precision
    trained = BYTES_OF_DTYPE[precision] * parameters // training.ranks
    yield "libraries", TORCH_BYTES
    if has_adapter:
        yield "weights", frozen
        if not publishes_adapter(config):
            yield "weights with the adapter while they are written", frozen
    yield "adapter" if has_adapter else "weights", trained
    yield "gradients", trained
    yield "optimizer", ADAM_MOMENTS * trained
    if training.kl_beta > 0 and not has_adapter:
        yield "reference policy", frozen
    if training.minibatches > 1:
        yield "copy to restore if the update fails", (1 + ADAM_MOMENTS) * trained
    yield "checkpoint being written", _checkpoint_bytes(config, trained, parameters, precision)


def _checkpoint_bytes(config: Config, trained: int, parameters: int, precision: str) -> int:
    """Return the bytes of main memory that a rank needs while a checkpoint is written.

    trained      bytes of the trained weights of this rank
    parameters   number of trained weights of all ranks
    precision    precision of the trained weights

    A checkpoint is written from a copy of weights and moments (`dart.training.checkpoint_copy`), also without
    `training.background_checkpoints`. A single process makes the file of the moments in memory first. After
    that, weights are converted if engines read another precision. Each rank holds the share of the weights
    that it writes. An adapter is copied by rank 0 alone; here all ranks share it, so that the sum is right.
    """
    training, engines = config.training, published_dtype(config)
    file = ADAM_MOMENTS * trained if training.ranks == 1 else 0
    is_converted = training.lora.rank == 0 and engines != precision
    converted = BYTES_OF_DTYPE[engines] * parameters // training.ranks if is_converted else 0
    return (1 + ADAM_MOMENTS) * trained + max(file, converted)


def _engine(config: Config, policy: PolicySize) -> Iterator[tuple[str, int]]:
    rollout = config.rollout
    if rollout.engine in ("simulated", "oracle"):
        yield "python", PYTHON_BYTES
        return
    is_alone = rollout.engine == "transformers" and is_small_policy(config.training.policy)
    yield "libraries", TORCH_ALONE_BYTES if is_alone else TORCH_BYTES
    if rollout.engine == "vllm":
        yield "weights", policy.parameters * BYTES_OF_DTYPE[rollout.vllm.dtype]
        yield "keys and values where there is no GPU", int(rollout.vllm.cpu_cache_gib * 2**30)
        return
    weights = BYTES_OF_DTYPE["float32"] * policy.parameters
    yield "weights", weights
    adapter = policy.adapter_parameters_per_rank * config.training.lora.rank * BYTES_OF_DTYPE["float32"]
    yield "next version while it loads", adapter if publishes_adapter(config) else weights


def _environment(config: Config) -> Iterator[tuple[str, int]]:
    yield "python", PYTHON_BYTES
    if KINDS[config.environments.kind].is_page:
        yield "browser", BROWSER_BYTES
    if config.environments.kind == "desktop":
        yield "desktop at most", config.environments.desktop.memory_mb * MIB


def memory_lines(config: Config, available_bytes: int, assignment: GpuAssignment = NO_GPUS) -> list[str]:
    """Return the estimate of main memory as lines of text, or one line that says why there is no estimate.

    available_bytes   bytes of main memory that are free now
    assignment        the GPUs of engines and trainer, whose memory is not counted here
    """
    folder = config.training.policy
    if not reads_policy(config):
        policy = PolicySize()
    elif not (folder / "config.json").exists():
        return [f"main memory cannot be estimated before {folder}/config.json exists"]
    else:
        try:
            policy = size_from_files(folder)
        except (OSError, ValueError, DartError) as error:
            return [f"main memory cannot be estimated: {error}"]
    kinds = in_main_memory(estimate(config, policy), assignment)
    return describe(kinds, policy, available_bytes, _remedy(config, policy, assignment))


def _remedy(config: Config, policy: PolicySize, assignment: GpuAssignment) -> str:
    """Say how a run takes less main memory, or where there is more."""
    if not any((*assignment.engines, assignment.trainer)):
        return f"{FEWER}, or a machine with more memory or with graphics cards"
    small = "an adapter, whose checkpoints are small (training.lora.rank > 0), "
    adapter = small if could_adapt(config, policy) else ""
    return f"{adapter}{FEWER}, or a machine with more memory"


def describe(
    kinds: Sequence[ProcessMemory], policy: PolicySize, available_bytes: int, remedy: str
) -> list[str]:
    """Return lines of text: a heading, each kind of process, the total, and a warning if it is too much."""
    total = sum(kind.total_bytes for kind in kinds)
    lines = [f"main memory, at least (a policy of {policy.parameters:,} parameters)"]
    for kind in kinds:
        parts = sorted(kind.parts.items(), key=lambda part: -part[1])
        each = ", ".join(f"{name} {size(held_bytes)}" for name, held_bytes in parts)
        times = f"{kind.count} x " if kind.count > 1 else ""
        lines.append(f"  {size(kind.total_bytes):>9}  {times}{kind.name}: {each}")
    lines.append(f"  {size(total):>9}  in all; {size(available_bytes)} are free on this machine")
    if total > available_bytes:
        lines.append(f"that is {size(total - available_bytes)} more than is free; use {remedy}")
    return lines
