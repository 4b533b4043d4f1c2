"""The pointer head on a vision-language model: its inputs from the model, and its weights in checkpoints.

The head takes the patches of the newest screenshot as they enter the language model, and the last hidden
state at the token `<pointer>`. Hooks on the language model read both, so the head works with every model
family whose images are a grid of patches. The drawn patch is one more token of the answer. The model reads
`<pointer>` again in place of the patch, so the next token does not depend on which patch was drawn.

Shapes: B rows, T tokens, d width of the language model, m patches of the largest screenshot.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING

from dart.policy.pointer.head import HEAD_NAME, PointerHead, load_head
from dart.policy.protocols import UnsupportedCheckpoint

LANGUAGE_MODEL = "language_model"

HEAD_PATTERN = rf"^{HEAD_NAME}\."


@dataclass(slots=True)
class Seen:
    """What the hooks recorded of the language model; None before its first call."""

    inputs: Tensor | None = None
    """Embeddings [B, T, d] of the first call: the whole prompt, images included."""
    hidden: Tensor | None = None
    """Last hidden states [B, t, d] of the newest call, after the final norm."""


def language_model_of(module: nn.Module) -> nn.Module:
    """Return the language model of a vision-language model, also if an adapter wraps it."""
    for name, part in module.named_modules():
        if name.rpartition(".")[2] == LANGUAGE_MODEL:
            found: nn.Module = part
            return found
    raise UnsupportedCheckpoint(
        f"expected a part named {LANGUAGE_MODEL} in a {type(module).__name__}, found none: the pointer head "
        "reads its hidden states; use a checkpoint of the Qwen-VL family"
    )


@contextmanager
def watching(module: nn.Module) -> Iterator[Seen]:
    """Record the inputs and the hidden states of the language model while the block runs."""
    seen, model = Seen(), language_model_of(module)

    def before(_: nn.Module, __: Any, given: dict[str, Any]) -> None:
        if seen.inputs is None:
            seen.inputs = given["inputs_embeds"]

    def after(_: nn.Module, __: Any, output: Any) -> None:
        seen.hidden = output[0]

    hooks = (
        model.register_forward_pre_hook(before, with_kwargs=True),
        model.register_forward_hook(after),
    )
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def newest_patches(inputs: Tensor, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Return the patches [B, m, d] of each row's newest screenshot, and a mask bool [B, m], false at padding.

    inputs   embeddings [B, T, d] that entered the language model
    rows     for each row, the positions of the newest screenshot's tokens
    """
    most = max(map(len, rows))
    index = torch.tensor([[*row, *(0,) * (most - len(row))] for row in rows], device=inputs.device)
    mask = torch.tensor([[place < len(row) for place in range(most)] for row in rows], device=inputs.device)
    return inputs.gather(1, index[..., None].expand(-1, -1, inputs.shape[-1])), mask


def positions_of_newest(token_ids: Sequence[int], placeholder_id: int, count: int, padding: int) -> list[int]:
    """Return the positions of the newest screenshot's tokens in a padded row.

    count     number of tokens of the newest screenshot
    padding   number of padding tokens before the row
    """
    images = [place + padding for place, token in enumerate(token_ids) if token == placeholder_id]
    return images[len(images) - count :]


def padded_queries(hidden: Tensor, points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gather the hidden states at pointer tokens into one tensor of queries, padded with zeros.

    hidden   [B, K, d]
    points   bool [B, K], true where the hidden state is a query

    Returns queries [B, n, d], and for each point in the order of `points.nonzero()` its row and its place
    among the queries of the row.
    """
    row, column = points.nonzero(as_tuple=True)
    place = (points.long().cumsum(1) - 1)[row, column]
    most = int(points.sum(1).max())
    queries = hidden.new_zeros(hidden.shape[0], most, hidden.shape[-1])
    return queries.index_put((row, place), hidden[row, column]), row, place


def attach_head(module: Any, folder: Path) -> None:
    """Give a model the pointer head of its checkpoint, in the precision and on the device of the model.

    The head has no dropout: a patch is scored under the distribution from which it was drawn.
    Raises UnsupportedCheckpoint when the checkpoint has no head, HeadMismatch when its head does not fit.
    """
    weights = head_tensors(folder)
    if not weights:
        raise UnsupportedCheckpoint(
            f"{folder}/config.json names a pointer token, but the checkpoint has no weights {HEAD_NAME}.*; "
            "make a checkpoint with a head by `python -m dart.policy.pointer_checkpoint`, or use another one"
        )
    like = next(module.parameters())
    head = load_head(weights, int(module.config.get_text_config().hidden_size))
    module.add_module(HEAD_NAME, head.to(like.device, like.dtype))


def expect_head(config: Any) -> None:
    """Make transformers ignore the head's weights when it loads this kind of model, instead of reporting
    unexpected weights."""
    kind: Any = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING[type(config)]
    known = kind._keys_to_ignore_on_load_unexpected or []
    if HEAD_PATTERN not in known:
        kind._keys_to_ignore_on_load_unexpected = [*known, HEAD_PATTERN]


def head_of(module: Any) -> PointerHead:
    """Return the pointer head of a model, also if an adapter wraps the model."""
    found: PointerHead = next(
        part for name, part in module.named_modules() if name.rpartition(".")[2] == HEAD_NAME
    )
    return found


def head_tensors(folder: Path) -> dict[str, Tensor]:
    """Read the head's weights from the files of a checkpoint, by their names without HEAD_NAME."""
    found: dict[str, Tensor] = {}
    first = f"{HEAD_NAME}."
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            names = [name for name in opened.keys() if name.startswith(first)]  # noqa: SIM118  # no dictionary
            found |= {name.removeprefix(first): opened.get_tensor(name) for name in names}
    return found
