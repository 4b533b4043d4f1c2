"""How much memory a run will hold, estimated from its configuration and its policy before anything starts.

Weights, gradients and the optimizer's state are counted; activations are a rough bound by the shapes; what
Python, its libraries and browsers hold was measured by `benchmarks.longevity`. On a machine with graphics
cards the weights and what belongs to them lie there, the rest in main memory.
"""

import json
import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from dart.config.config import Config
from dart.inference.probe import HEIGHT, WIDTH

MIB = 2**20

HEADER_BYTES_MOST = 100_000_000
"""The format allows no more."""

PYTHON_BYTES = 30 * MIB
"""Own share of an actor without torch (PSS): what it shares with its supervisor counts there."""

TORCH_BYTES = 220 * MIB
"""Of a process that has imported torch and transformers."""

VLLM_BYTES = 1024 * MIB
"""An allowance for what vLLM's own processes hold beyond that; not measured."""

BROWSER_BYTES = 200 * MIB
"""A headless Chromium after an hour of MiniWoB++ pages, all its processes together (PSS)."""

ALWAYS = ("store", "curator", "weight_sync", "root", "rollout_pool", "environment_pool", "main process")
"""Who is there once, besides the trainer."""

IMAGE_TOKEN_PX = 28
"""Side of an image token of Qwen2-VL, and what is assumed of families that do not say."""

PATCH_PX = 14
"""Side of a patch where a vision tower merges patches and does not say how large they are."""

TASK_TOKENS = 512
"""What a vision-language policy is told before the screenshots."""

TEXT_TOKENS = 64
"""Around the screenshot, of a policy that says how many tokens that takes."""

ANSWER_TOKENS = 128

TRAINED_BYTES_EACH = 4
"""Of a weight that is trained, of its gradient and of each of its moments."""

ADAM_MOMENTS = 2
"""AdamW keeps two figures for each parameter."""

BYTES_OF = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "I64": 8, "I32": 4, "U8": 1}
"""Of one number, by the name safetensors has for its type."""

BYTES_OF_DTYPE = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
"""The same by the name configurations have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySize:
    """What of a policy decides about memory."""

    parameters: int
    bytes_each: float
    layers: int = 0
    hidden: int = 0
    intermediate: int = 0
    keys_width: int = 0
    """Numbers of one key of one layer: key-value heads times their size."""
    vocabulary: int = 0
    prompt_tokens: int = 0
    """Of a policy that says so; others are shown what `[context]` says."""
    screenshot_bytes: int = 0
    """The same."""
    stem_numbers: int = 0
    """Numbers in the maps of a convolutional stem for one screenshot."""
    image_token_px: int = IMAGE_TOKEN_PX
    """Side of what one token of a screenshot covers."""
    unknown: tuple[str, ...] = ()
    """What could not be found out, in words."""

    @property
    def is_small(self) -> bool:
        """It is the small policy of the laptop job, which has a convolutional stem."""
        return self.stem_numbers > 0

    @property
    def weights_bytes(self) -> int:
        return int(self.parameters * self.bytes_each)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What one kind of process holds."""

    who: str
    count: int
    parts: Mapping[str, int]
    """Bytes of each process by what for."""

    @property
    def total_bytes(self) -> int:
        """Of all of them."""
        return self.count * sum(self.parts.values())


# ---- the policy ----


def policy_size(folder: Path) -> PolicySize:
    """From a checkpoint's configuration and the headers of its weights; without weights, from its shapes.

    raises    OSError or ValueError where there is no readable config.json
    """
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        headers = [_header(file) for file in sorted(folder.glob("*.safetensors"))]
        size = size_of(config, headers)
    except (TypeError, AttributeError, LookupError, ArithmeticError, RecursionError, struct.error) as error:
        raise ValueError(f"{folder} does not say the shape of a policy: {error}") from error
    if not all(isinstance(getattr(size, one.name), int | float | tuple | None) for one in fields(size)):
        raise ValueError(f"{folder}/config.json says text where a policy has numbers")
    return size


def _header(file: Path) -> Mapping[str, Any]:
    """What a safetensors file says of its tensors: eight bytes of length, then JSON."""
    with file.open("rb") as opened:
        (length,) = struct.unpack("<Q", opened.read(8))
        if length > HEADER_BYTES_MOST:
            raise ValueError(f"{file} is no safetensors file: its header would have {length} bytes")
        header: Mapping[str, Any] = json.loads(opened.read(length))
    return header


def size_of(config: Mapping[str, Any], headers: Sequence[Mapping[str, Any]] = ()) -> PolicySize:
    """The size of a policy by its `config.json` and the headers of its files of weights, if there are any."""
    text = {**_shapes(headers), **(config.get("text_config") or config)}
    tensors = list(_tensors(headers))
    parameters = sum(count for count, _ in tensors) or count_parameters(config)
    dtype = config.get("dtype") or config.get("torch_dtype") or text.get("dtype") or "float32"
    weights = sum(count * each for count, each in tensors)
    heads = text.get("num_attention_heads", 1)
    head = text.get("head_dim") or text.get("hidden_size", 0) // heads
    return PolicySize(
        parameters=parameters,
        bytes_each=weights / parameters if weights else BYTES_OF_DTYPE.get(str(dtype), 4),
        layers=text.get("num_hidden_layers", 0),
        hidden=text.get("hidden_size", 0),
        intermediate=text.get("intermediate_size", 0),
        keys_width=text.get("keys_width") or text.get("num_key_value_heads", heads) * head,
        vocabulary=text.get("vocab_size", 0),
        prompt_tokens=_prompt_tokens(config),
        screenshot_bytes=_screenshot_bytes(config),
        stem_numbers=_stem_numbers(config),
        image_token_px=_image_token_px(config) or IMAGE_TOKEN_PX,
        unknown=tuple(_unknown(config, text)),
    )


def _shapes(headers: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """What the weights of a decoder say of it, in the words of configurations: many of those leave out what
    is usual for the family. Weights of what looks at pictures are other people's."""
    shapes = {
        name: tensor["shape"]
        for header in headers
        for name, tensor in header.items()
        if name != "__metadata__" and "vis" not in name
    }
    keys = [shape for name, shape in shapes.items() if name.endswith(".k_proj.weight")]
    found = {"num_hidden_layers": len(keys), "keys_width": keys[0][0]} if keys else {}
    for name, shape in shapes.items():
        if name.endswith("embed_tokens.weight"):
            found |= {"vocab_size": shape[0], "hidden_size": shape[1]}
        elif name.endswith(".up_proj.weight"):
            found["intermediate_size"] = shape[0]
        elif name.endswith(".gate_up_proj.weight"):
            found["intermediate_size"] = shape[0] // 2
    return found


def _image_token_px(config: Mapping[str, Any]) -> int:
    """Of families that look at a screenshot patch by patch, in its own size; 0: of none of them."""
    vision = config.get("vision_config") or {}
    merged = vision.get("spatial_merge_size") or config.get("spatial_merge_size") or 0
    return int(merged * vision.get("patch_size", PATCH_PX))


def _unknown(config: Mapping[str, Any], text: Mapping[str, Any]) -> Iterator[str]:
    if "vision_config" in config and not _image_token_px(config):
        yield (
            f"how many tokens a screenshot is for a model of type {config.get('model_type')!r} is not known "
            f"here: counted as one for every {IMAGE_TOKEN_PX} px square"
        )
    missing = [name for name in ("num_hidden_layers", "hidden_size", "intermediate_size") if name not in text]
    if "stem_channels" not in config and missing:
        yield (
            f"neither its config.json nor its weights say {', '.join(missing)}: activations, and keys and "
            "values, are not counted whole"
        )


def _tensors(headers: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, int]]:
    """Numbers and bytes of each number, of every tensor."""
    for header in headers:
        for name, tensor in header.items():
            if name != "__metadata__":
                yield math.prod(tensor["shape"]), BYTES_OF.get(tensor["dtype"], 4)


def count_parameters(config: Mapping[str, Any]) -> int:
    """Parameters of a decoder with gated feed-forward layers, and of its vision tower, by their shapes.

    Norms and biases are left out: less than a part in a thousand.
    """
    text = config.get("text_config", config)
    hidden, vocabulary = text.get("hidden_size", 0), text.get("vocab_size", 0)
    heads = text.get("num_attention_heads", 1)
    head = text.get("head_dim") or hidden // heads
    keys = text.get("num_key_value_heads", heads) * head
    layer = 2 * hidden * heads * head + 2 * hidden * keys + 3 * hidden * text.get("intermediate_size", 0)
    is_tied = config.get("tie_word_embeddings", text.get("tie_word_embeddings", False))
    embeddings = vocabulary * hidden * (1 if is_tied else 2)
    vision = _vision_parameters(config.get("vision_config") or {}, hidden)
    return int(embeddings + text.get("num_hidden_layers", 0) * layer + vision)


def _vision_parameters(vision: Mapping[str, Any], hidden: int) -> int:
    """Of a vision transformer, and of what brings its patches to the decoder's size."""
    if not vision:
        return 0
    width = vision.get("hidden_size") or vision.get("embed_dim", 0)
    depth = vision.get("depth") or vision.get("num_hidden_layers", 0)
    inner = vision.get("intermediate_size") or 4 * width
    merged = width * vision.get("spatial_merge_size", 1) ** 2
    return int(depth * (4 * width**2 + 3 * width * inner) + merged**2 + merged * hidden)


def _prompt_tokens(config: Mapping[str, Any]) -> int:
    """One token covers 16 px in height and 32 px in width, where the policy is this project's own."""
    if "image_height" not in config:
        return 0
    height, width = int(config["image_height"]), int(config["image_width"])
    return math.ceil(height / 16) * math.ceil(width / 32) + TEXT_TOKENS


def _screenshot_bytes(config: Mapping[str, Any]) -> int:
    """Three bytes for each pixel, where the policy says what it sees."""
    return 3 * int(config.get("image_height", 0)) * int(config.get("image_width", 0))


def _stem_numbers(config: Mapping[str, Any]) -> int:
    """Each map has half the height and width of the one before, and is kept before and after its ReLU."""
    if "stem_channels" not in config:
        return 0
    pixels = config["image_height"] * config["image_width"]
    return sum(2 * channels * pixels // 4**place for place, channels in enumerate(config["stem_channels"], 1))


# ---- the run ----


def estimate(config: Config, policy: PolicySize) -> tuple[Held, ...]:
    """What every process of a run will hold at most, the largest kinds first."""
    found = (
        Held(who="trainer", count=config.training.ranks, parts=dict(_trainer(config, policy))),
        Held(who="rollout", count=config.rollout.count, parts=dict(_engine(config, policy))),
        Held(who="environment", count=config.environments.count, parts=dict(_environment(config))),
        Held(who=", ".join(ALWAYS), count=len(ALWAYS), parts={"python": PYTHON_BYTES}),
    )
    return tuple(sorted(found, key=lambda one: -one.total_bytes))


def _trainer(config: Config, policy: PolicySize) -> Iterator[tuple[str, int]]:
    """Of each rank. Weights that are trained are float32, whatever is computed in; an adapter is small."""
    training = config.training
    if training.learner == "simulated":
        yield "python", PYTHON_BYTES
        return
    ranks = training.ranks
    frozen = policy.parameters * _computed_bytes_each(config, policy) // ranks
    beside = 0 if policy.is_small else _adapter_parameters(policy, training.lora.rank)
    adapter = TRAINED_BYTES_EACH * beside // ranks
    trained = adapter or TRAINED_BYTES_EACH * policy.parameters // ranks
    yield "libraries", TORCH_BYTES
    if adapter:
        yield "weights", frozen
        yield "weights with the adapter while they are written", frozen
    yield "adapter" if adapter else "weights", trained
    yield "gradients", trained
    yield "optimizer", ADAM_MOMENTS * trained
    if training.kl_beta > 0 and not adapter:
        yield "reference policy", frozen
    if training.minibatches > 1:
        yield "copy to go back to", (1 + ADAM_MOMENTS) * trained
    yield "checkpoint being written", ADAM_MOMENTS * trained
    yield "activations", _activations(config, policy)
    steps = training.groups_per_update * config.curation.rollouts_per_group * config.curation.step_cap
    yield "screenshots of a batch", steps * _screenshot_bytes_of(config, policy)


def _computed_bytes_each(config: Config, policy: PolicySize) -> int:
    return 2 if config.training.precision == "bfloat16" and not policy.is_small else 4


def _adapter_parameters(policy: PolicySize, rank: int) -> int:
    """Of the seven linear layers of each layer: rank times what goes in and what comes out."""
    hidden, inner, keys = policy.hidden, policy.intermediate, policy.keys_width
    attention = 2 * 2 * hidden + 2 * (hidden + keys)
    return rank * policy.layers * (attention + 3 * (hidden + inner))


def _activations(config: Config, policy: PolicySize) -> int:
    """For the backward pass: about 12 maps of the hidden size and 3 of the inner one, of each token and
    layer (of one layer and the inputs of all, where they are computed again); the answers' logits three
    times, in 4 bytes.
    """
    training, samples = config.training, config.training.micro_batch
    each = _computed_bytes_each(config, policy)
    tokens = samples * (_prompt_tokens_of(config, policy) + ANSWER_TOKENS)
    if training.micro_batch_tokens:
        tokens = min(tokens, training.micro_batch_tokens)
    layer = 12 * policy.hidden + 3 * policy.intermediate
    is_recomputed = training.gradient_checkpointing and not policy.is_small
    maps = policy.layers * policy.hidden + layer if is_recomputed else policy.layers * layer
    logits = 3 * 4 * samples * ANSWER_TOKENS * policy.vocabulary
    return int(tokens * maps * each + logits + samples * policy.stem_numbers * each)


def _prompt_tokens_of(config: Config, policy: PolicySize) -> int:
    """Of a vision-language policy: the screenshots it is shown, the answers it is told, and the task."""
    if policy.is_small:
        return policy.prompt_tokens
    width, height = _screen(config)
    picture = math.ceil(width / policy.image_token_px) * math.ceil(height / policy.image_token_px)
    return config.context.screenshots * picture + config.context.turns * ANSWER_TOKENS + TASK_TOKENS


def _screenshot_bytes_of(config: Config, policy: PolicySize) -> int:
    width, height = _screen(config)
    return policy.screenshot_bytes if policy.is_small else 3 * width * height


def _screen(config: Config) -> tuple[int, int]:
    """Width and height in pixels of what is seen."""
    environments = config.environments
    if environments.kind == "desktop":
        return environments.desktop.width, environments.desktop.height
    if environments.kind == "osworld":
        return environments.osworld.width, environments.osworld.height
    return WIDTH, HEIGHT


def _engine(config: Config, policy: PolicySize) -> Iterator[tuple[str, int]]:
    if config.rollout.engine in ("simulated", "oracle"):
        yield "python", PYTHON_BYTES
        return
    if config.rollout.engine == "vllm":
        yield "libraries", TORCH_BYTES + VLLM_BYTES
        yield "weights", policy.parameters * BYTES_OF_DTYPE[config.rollout.vllm.dtype]
        yield "keys and values where there is no GPU", int(config.rollout.vllm.cpu_cache_gib * 2**30)
        return
    tokens = config.rollout.max_batch * (_prompt_tokens_of(config, policy) + ANSWER_TOKENS)
    yield "libraries", TORCH_BYTES
    yield "weights", policy.weights_bytes
    yield "next version while it loads", policy.weights_bytes
    yield "keys and values", int(2 * tokens * policy.layers * policy.keys_width * policy.bytes_each)
    stem = config.rollout.max_batch * policy.stem_numbers
    yield (
        "activations",
        int((tokens * (12 * policy.hidden + 3 * policy.intermediate) + stem) * policy.bytes_each),
    )


def _environment(config: Config) -> Iterator[tuple[str, int]]:
    yield "python", PYTHON_BYTES
    if config.environments.kind == "miniwob":
        yield "browser", BROWSER_BYTES
    if config.environments.kind == "desktop":
        yield "desktop at most", config.environments.desktop.memory_mb * MIB


# ---- in words ----


def in_words(held: Iterable[Held], policy: PolicySize, available_bytes: int) -> list[str]:
    """The estimate for people, a line for each kind of process; the last says whether it fits.

    available_bytes   main memory that is free now
    """
    from dart.inspect.live import size

    rows = list(held)
    total = sum(one.total_bytes for one in rows)
    lines = [
        f"memory, roughly (a policy of {policy.parameters:,} parameters, {policy.bytes_each:g} bytes each)"
    ]
    for one in rows:
        parts = sorted(one.parts.items(), key=lambda part: -part[1])
        each = ", ".join(f"{name} {size(held_bytes)}" for name, held_bytes in parts)
        times = f"{one.count} x " if one.count > 1 else ""
        lines.append(f"  {size(one.total_bytes):>9}  {times}{one.who}: {each}")
    lines += [f"  {note}" for note in policy.unknown]
    lines.append(f"  {size(total):>9}  in all; {size(available_bytes)} are free on this machine")
    if total > available_bytes:
        lines.append(f"that is {size(total - available_bytes)} more than there is: {REMEDY}")
    return lines


REMEDY = (
    "fewer environments (environments.count), smaller passes (training.micro_batch, rollout.max_batch), "
    "or a machine with more memory or with graphics cards"
)
