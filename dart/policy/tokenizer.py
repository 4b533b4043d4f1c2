"""The small policy's tokenizer: byte-level BPE over instructions, after the special tokens."""

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from dart.policy.vocabulary import EOS, PAD, special_tokens

TEXT_TOKENS = 640
"""Number of text tokens: 256 bytes, so that any text can be written, and frequent pairs of the
instructions."""


def train_tokenizer(instructions: Iterable[str]) -> PreTrainedTokenizerFast:
    """Train a tokenizer on these instructions; the same texts give the same tokenizer.

    Special tokens take the first ids, in the order of `special_tokens`. Each digit is a token of its own, so
    that ten tokens write any number.
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
