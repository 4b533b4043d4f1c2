"""Give a vision-language checkpoint a pointer head: `python -m dart.policy.pointer_checkpoint BASE OUT`.

The new checkpoint has a new token `<pointer>`, whose embeddings are the mean of all others, and a head with
random weights. Its `config.json` names the token. Before reinforcement learning, train it to point: imitate
demonstrations, or train it on boxes of elements. Imports torch.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dart.core.module_main import errors_as_messages, new_folder
from dart.policy.configuration import SMALL_POLICY
from dart.policy.load import CheckpointError, load, model_type
from dart.policy.pointer.head import HEAD_NAME, PointerHead
from dart.policy.vocabulary import POINTER, POINTER_KEY


def add_pointer(base: Path, out: Path, seed: int = 0) -> None:
    """Write the checkpoint of `base` with a pointer head into the new folder `out`.

    Raises CheckpointError for a checkpoint that cannot be loaded or cannot get a pointer head.
    """
    if model_type(base) == SMALL_POLICY:
        raise CheckpointError(
            f"{base} is a small policy, whose pointer head cannot be added later; make one with "
            "`dartrl pretrain --coordinates pointer`"
        )
    policy = load(base)
    module, tokenizer = policy.module, policy.codec.tokenizer  # type: ignore[attr-defined]
    if policy.codec.pointer is not None:
        raise CheckpointError(f"{base} has a pointer head already; use it as it is")
    tokenizer.add_special_tokens({"additional_special_tokens": [POINTER]}, replace_extra_special_tokens=False)
    token_id = int(tokenizer.convert_tokens_to_ids(POINTER))
    _make_room(module, token_id)
    setattr(module.config, POINTER_KEY, token_id)
    torch.manual_seed(seed)
    size = int(module.config.get_text_config().hidden_size)
    module.add_module(HEAD_NAME, PointerHead(size).to(next(module.parameters()).dtype))
    out.mkdir(parents=True)
    policy.save(out)
    tokenizer.save_pretrained(out)


@torch.no_grad()
def _make_room(module: Any, token_id: int) -> None:
    """Give a new token the mean embedding, in the input and in the output of the model."""
    known = module.get_input_embeddings().weight.shape[0]
    if token_id >= known:
        module.resize_token_embeddings(token_id + 1, mean_resizing=False)
    for table in _tables(module):
        table[token_id] = table[:token_id].mean(0)


def _tables(module: Any) -> list[Tensor]:
    """Return the embeddings of input and output; one tensor if they are tied."""
    tables = [module.get_input_embeddings().weight, module.get_output_embeddings().weight]
    return tables[:1] if tables[0] is tables[1] else tables


def main() -> None:
    """Run the command `python -m dart.policy.pointer_checkpoint`."""
    parser = argparse.ArgumentParser(
        description="Give a vision-language checkpoint a pointer head with random weights.",
        epilog="python -m dart.policy.pointer_checkpoint tiny tiny-pointer",
    )
    parser.add_argument("base", type=Path, help="checkpoint of the Qwen-VL family")
    parser.add_argument("out", type=new_folder, help="folder to write the checkpoint to; it must not exist")
    parser.add_argument("--seed", type=int, default=0, help="seed of the head's weights")
    options = parser.parse_args()
    with errors_as_messages(parser):
        add_pointer(options.base, options.out, options.seed)


if __name__ == "__main__":
    main()
