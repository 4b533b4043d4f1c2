"""An estimate of the memory that each GPU needs: weights, optimizer, activations, cache, and the sum.

Weights, gradients and the optimizer's state are counted (`dart.preflight.memory`). Activations follow
Korthikanti et al. 2022 (arXiv 2205.05198, section 4): in 16 bits, 34 bytes for each token, layer and hidden
unit. The part of attention that grows with the square of the length is left out, because current kernels do
not keep it. With gradient checkpointing it is 2 bytes, and 34 for one layer. An engine keeps those of one
layer, of the language model or of the vision tower (`TOWER_BYTES`), whichever takes more. The memory of
libraries and compiled graphs is assumed (`RUNTIME_BYTES`). For a trainer of a 3B policy with an adapter the
estimate is 18.9 GiB, and at most 16.5 GiB were allocated (docs/performance.md). Other layouts have not been
compared.
"""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dart.config.config import Config
from dart.config.gpus import GpuAssignment
from dart.config.sections import TrainingSettings
from dart.inference.vllm_passes import pass_tokens
from dart.inspect.formatting import size
from dart.policy.configuration import is_small_policy
from dart.preflight.memory import BYTES_OF_DTYPE, IN_MAIN_MEMORY, PolicySize, estimate, size_from_files
from dart.preflight.planned_layout import parts_of
from dart.telemetry.engine_names import engine_names

RUNTIME_BYTES = 2**30
"""Assumed bytes of one process on a GPU for the CUDA context, libraries and compiled graphs."""

LAYER_BYTES, KEPT_BYTES = 34, 2
"""Bytes of 16-bit activations for each token, layer and hidden unit, without and with checkpointing."""

LOGIT_COPIES = 3
"""Number of float32 arrays of the logits' size in an update: logits, their log-softmax, the gradient."""

PATCHES_PER_TOKEN = 4
"""Number of patches of the vision tower for each image token in the Qwen-VL family."""

LARGEST_IMAGE_TOKENS = 16_384
"""Number of tokens of the largest image of the Qwen-VL family. vLLM reserves memory to encode one of this
size or, if a pass has more tokens, as many images as fit in a pass."""

TOWER_BYTES = 20
"""Bytes of 16-bit activations for each patch and hidden unit of the vision tower in an engine: the input of a
layer twice, and three times the 2.7 times wider inside of its MLP."""

NO_ROOM = "no room for a cache within rollout.vllm.memory"

WITHOUT_LIMIT = "and activations, for which training.micro_batch_tokens sets no limit"

SMI_DEADLINE_S = 10.0

REMEDY = (
    "a larger GPU, more GPUs (training.ranks, rollout.vllm.tensor_parallel), training.lora.rank > 0, a "
    "smaller training.micro_batch_tokens, or another rollout.vllm.memory"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimensions:
    """The dimensions of a model, read from the config.json of its checkpoint."""

    layers: int
    hidden: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    vision_layers: int
    vision_hidden: int

    @property
    def cache_bytes_per_token(self) -> int:
        """Bytes of the keys and values of one token in all layers, in 16 bits."""
        return 2 * 2 * self.layers * self.kv_heads * self.head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process that has memory on a GPU, with the bytes and a note for the user."""

    name: str
    parts: Mapping[str, int]
    """Bytes on the GPU by purpose, such as `weights`."""
    note: str = ""

    @property
    def total_bytes(self) -> int:
        return sum(self.parts.values())


def dimensions_of(folder: Path) -> Dimensions:
    """Read the dimensions of a vision-language checkpoint.

    Raises OSError or ValueError if config.json cannot be read or lacks a dimension.
    """
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    text, vision = parts_of(config, folder)
    try:
        heads = text["num_attention_heads"]
        return Dimensions(
            layers=text["num_hidden_layers"],
            hidden=text["hidden_size"],
            kv_heads=text.get("num_key_value_heads") or heads,
            head_dim=text.get("head_dim") or text["hidden_size"] // heads,
            vocabulary=text["vocab_size"],
            vision_layers=vision.get("depth") or vision.get("num_hidden_layers") or 0,
            vision_hidden=vision.get("embed_dim") or vision.get("hidden_size") or 0,
        )
    except (KeyError, TypeError) as missing:
        raise ValueError(f"{folder}/config.json has no {missing} of a vision-language model") from missing


def gpu_bytes_here() -> int | None:
    """Return the memory of this machine's smallest GPU in bytes; None if no GPU is found."""
    try:
        return min(map(int, of_gpus("memory.total"))) * 2**20
    except ValueError:
        return None  # the plan is shown without a limit


def of_gpus(what: str) -> list[str]:
    """Return one property of each GPU of this machine; empty if it has none or its driver does not answer.

    what   name of the property, as in `nvidia-smi --help-query-gpu`
    """
    command = ["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader,nounits"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=SMI_DEADLINE_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return ran.stdout.splitlines()


def on_gpus(
    config: Config,
    policy: PolicySize,
    dimensions: Dimensions | None,
    assignment: GpuAssignment,
    gpu_bytes: int | None,
    names: Sequence[str] = (),
) -> dict[str, list[Holder]]:
    """Return the processes that have memory on each GPU, by the name of the GPU, in the order of the names.

    dimensions   dimensions of the policy; None for a small policy, whose activations and caches are not
                 counted
    gpu_bytes    memory of one GPU; None: unknown, so the cache of a vLLM engine is not counted
    names        names of the engines; empty: those of a run on one machine
    """
    found: dict[str, list[Holder]] = {}
    engines = names or engine_names(len(assignment.engines))
    for name, gpus in zip(engines, assignment.engines, strict=True):
        for gpu in gpus:
            holder = _engine(config, policy, dimensions, gpu_bytes, name, len(gpus))
            found.setdefault(gpu, []).append(holder)
    for rank, gpu in enumerate(assignment.trainer):
        name = f"trainer, rank {rank}" if config.training.ranks > 1 else "trainer"
        is_unlimited = dimensions is not None and config.training.micro_batch_tokens == 0
        parts, note = dict(_trainer(config, policy, dimensions)), WITHOUT_LIMIT if is_unlimited else ""
        found.setdefault(gpu, []).append(Holder(name=name, parts=parts, note=note))
    return dict(sorted(found.items(), key=lambda one: (len(one[0]), one[0])))


def _engine(
    config: Config,
    policy: PolicySize,
    dimensions: Dimensions | None,
    gpu_bytes: int | None,
    name: str,
    width: int,
) -> Holder:
    """Return the memory of an engine on one of its `width` GPUs."""
    rollout = config.rollout
    if rollout.engine != "vllm":
        weights = BYTES_OF_DTYPE["float32"] * policy.parameters
        return Holder(
            name=name, parts={"weights": weights, "next version": weights, "runtime": RUNTIME_BYTES}
        )
    parts = {
        "weights": policy.parameters * BYTES_OF_DTYPE[rollout.vllm.dtype] // width,
        "runtime": RUNTIME_BYTES,
    }
    if dimensions is not None:
        parts["activations"] = _pass_bytes(pass_tokens(rollout), dimensions) // width
    if gpu_bytes is None:
        return Holder(name=name, parts=parts, note=f"and cache, up to {rollout.vllm.memory:g} of the GPU")
    room = int(rollout.vllm.memory * gpu_bytes) - sum(parts.values())
    parts["cache"] = max(0, room)
    if dimensions is None or room <= 0:
        return Holder(name=name, parts=parts, note=NO_ROOM if room <= 0 else "")
    tokens = room * width // dimensions.cache_bytes_per_token
    prompts = tokens // rollout.vllm.max_tokens
    note = f"cache of {tokens:,} tokens, {prompts} of the longest prompts at a time"
    return Holder(name=name, parts=parts, note=note)


def _pass_bytes(tokens: int, dimensions: Dimensions) -> int:
    """Return the bytes of the activations of an engine's pass: of its tokens, or of its images if more."""
    patches = PATCHES_PER_TOKEN * max(tokens, LARGEST_IMAGE_TOKENS)
    of_tower = TOWER_BYTES * patches * dimensions.vision_hidden
    return max(LAYER_BYTES * tokens * dimensions.hidden, of_tower)


def _trainer(config: Config, policy: PolicySize, dimensions: Dimensions | None) -> Iterator[tuple[str, int]]:
    """Yield name and bytes of each part of the memory of one rank of the trainer on its GPU."""
    held = next(kind.parts for kind in estimate(config, policy) if kind.name == "trainer")
    yield from ((name, count) for name, count in held.items() if name not in IN_MAIN_MEMORY)
    yield "runtime", RUNTIME_BYTES
    if dimensions is None:
        return
    training = config.training
    if training.micro_batch_tokens > 0:
        yield "activations", _activation_bytes(training, dimensions)
    answers = training.micro_batch * config.context.answer_tokens
    yield "logits", LOGIT_COPIES * 4 * answers * dimensions.vocabulary


def _activation_bytes(training: TrainingSettings, dimensions: Dimensions) -> int:
    """Return the bytes of the activations of a pass with `training.micro_batch_tokens` tokens."""
    scale = BYTES_OF_DTYPE[training.precision] / 2
    tokens = training.micro_batch_tokens
    is_whole = training.lora.rank == 0  # otherwise the vision tower is frozen and keeps nothing
    widths = [(tokens, dimensions.layers, dimensions.hidden)]
    if is_whole:
        patches = PATCHES_PER_TOKEN * tokens
        widths.append((patches, dimensions.vision_layers, dimensions.vision_hidden))
    kept = KEPT_BYTES if training.gradient_checkpointing else LAYER_BYTES
    kept_bytes = sum(kept * count * layers * width for count, layers, width in widths)
    one_layer = max(LAYER_BYTES * count * width for count, _, width in widths)
    return int(scale * (kept_bytes + one_layer * training.gradient_checkpointing))


def gpu_lines(found: Mapping[str, Sequence[Holder]], gpu_bytes: int | None, where: str = "GPU") -> list[str]:
    """Return lines of text: for each GPU the sum, the memory of each process, and a warning if needed.

    gpu_bytes   memory of one GPU; None: unknown, so there is no limit and no warning about the sum
    where       text before the name of a GPU
    """
    lines: list[str] = []
    for gpu, holders in found.items():
        total = sum(holder.total_bytes for holder in holders)
        limit = f" of {size(gpu_bytes)}" if gpu_bytes else ""
        lines.append(f"  {where} {gpu}: {size(total)}{limit}")
        lines += [f"    {_described(holder)}" for holder in holders]
        if gpu_bytes and total > gpu_bytes:
            lines.append(f"    that is {size(total - gpu_bytes)} more than it has; use {REMEDY}")
        elif any(holder.note == NO_ROOM for holder in holders):
            lines.append(f"    an engine on this GPU cannot start; use {REMEDY}")
    return lines


def _described(holder: Holder) -> str:
    parts = sorted(holder.parts.items(), key=lambda part: -part[1])
    listed = ", ".join(f"{name} {size(count)}" for name, count in parts)
    return f"{holder.name}  {size(holder.total_bytes)}: {listed}{f' ({holder.note})' if holder.note else ''}"


def counted(config: Config) -> tuple[PolicySize, Dimensions | None]:
    """Return the size and the dimensions of a run's policy; the dimensions are None for a small policy.

    raises   OSError, ValueError or DartError if the folder of the policy does not have them
    """
    folder = config.training.policy
    return size_from_files(folder), None if is_small_policy(folder) else dimensions_of(folder)
