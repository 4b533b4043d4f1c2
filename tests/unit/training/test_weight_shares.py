"""Which rank writes which weights."""

import random

import pytest

from dart.training.weight_shares import writers_of

LAYER_BYTES = {"self_attn.q_proj.weight": 50, "mlp.up_proj.weight": 270, "mlp.down_proj.weight": 270}

SIZES = {
    "model.language_model.embed_tokens.weight": 2_180,
    "lm_head.weight": 2_180,
    **{f"model.visual.blocks.{block}.mlp.weight": 79 for block in range(32)},
    **{
        f"model.language_model.layers.{layer}.{name}": size
        for layer in range(28)
        for name, size in LAYER_BYTES.items()
    },
}
"""About those of Qwen2.5-VL-7B in float32, in MB."""


def written_by(writers: dict[str, int], rank: int) -> int:
    return sum(SIZES[name] for name, writer in writers.items() if writer == rank)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_all_ranks_write_about_the_same_number_of_bytes(ranks: int) -> None:
    writers = writers_of(SIZES, ranks)
    written = [written_by(writers, rank) for rank in range(ranks)]
    assert sum(written) == sum(SIZES.values())
    assert max(written) < 1.1 * sum(written) / ranks


def test_every_rank_finds_the_same_writers() -> None:
    shuffled = list(SIZES.items())
    random.Random(1).shuffle(shuffled)
    assert writers_of(dict(shuffled), 8) == writers_of(SIZES, 8)


def test_the_weights_of_a_layer_have_one_writer() -> None:
    writers = writers_of(SIZES, 8)
    for layer in range(28):
        of_layer = {writers[f"model.language_model.layers.{layer}.{name}"] for name in LAYER_BYTES}
        assert len(of_layer) == 1


def test_rank_0_writes_what_it_has_to_and_less_of_the_rest() -> None:
    tied = ["lm_head.weight", "model.language_model.embed_tokens.weight"]
    writers = writers_of(SIZES, 4, tied)
    assert [writers[name] for name in tied] == [0, 0]
    assert written_by(writers, 0) < 1.1 * sum(SIZES.values()) / 4


def test_one_rank_writes_everything_and_some_ranks_write_nothing_of_few_weights() -> None:
    assert set(writers_of(SIZES, 1).values()) == {0}
    assert writers_of({"head.weight": 7}, 3) == {"head.weight": 0}
