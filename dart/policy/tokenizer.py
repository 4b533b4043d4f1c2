"""Tokenizers of small policies: first the special tokens, then byte-level BPE tokens of texts."""

from collections.abc import Iterable, Sequence

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from dart.policy.vocabulary import Coordinates, special_tokens

TEXT_TOKENS = 640
"""Largest number of text tokens: the 256 bytes, so that any text can be written, and frequent byte pairs of
the instructions."""


def train_tokenizer(instructions: Iterable[str], coordinates: Coordinates = "bins") -> Tokenizer:
    """Train the small policy's tokenizer on these instructions; the same texts give the same tokenizer."""
    return byte_level_tokenizer(instructions, special_tokens(coordinates), TEXT_TOKENS, 4)


def byte_level_tokenizer(
    texts: Iterable[str], special: Sequence[str], text_tokens: int, min_frequency: int
) -> Tokenizer:
    """Train byte-level BPE on texts.

    Special tokens take the first ids, in their order. Each digit is a token of its own, so that ten tokens
    write any number.

    text_tokens     largest number of tokens besides the special ones
    min_frequency   how often a pair has to occur in the texts to become a token
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=text_tokens + len(special),
        min_frequency=min_frequency,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
