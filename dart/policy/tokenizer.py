"""The policy's tokenizer: byte-level BPE over instructions, with the special tokens in front."""

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from dart.policy.vocabulary import EOS, PAD, special_tokens

TEXT_TOKENS = 640
"""256 bytes, so that any text can be written, and the most frequent pairs of the instructions."""


def train_tokenizer(instructions: Iterable[str]) -> PreTrainedTokenizerFast:
    """A tokenizer for these instructions; the same texts give the same tokenizer.

    Special tokens take the first ids, in the order of `special_tokens`. Digits stay single, so
    that numbers of any length are written with ten tokens.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TEXT_TOKENS + len(special_tokens()),
        min_frequency=4,
        special_tokens=list(special_tokens()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(instructions, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
