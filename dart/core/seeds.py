"""The one split of seeds. Training never sees a held-out seed, evaluation only those.

A MiniWoB++ seed decides the whole start screen, so two ranges that do not meet
are two sets of screens the policy has and has not seen.

A base policy is chosen by the figures of its model card, so these come from seeds of
their own: measured on the seeds of an evaluation, the choice would show there as success.
"""

TRAINING_SEEDS = range(1_000_000)
"""Demonstrations and reinforcement learning."""

HELD_OUT_SEEDS = range(1_000_000, 2_000_000)
"""Evaluation of runs only."""

MODEL_CARD_SEEDS = range(2_000_000, 3_000_000)
"""Figures of base policies only."""


def training_seed(index: int) -> int:
    """The ``index``-th training seed; raises IndexError past the last."""
    return _seed(TRAINING_SEEDS, "training", index)


def held_out_seed(index: int) -> int:
    """The ``index``-th held-out seed; raises IndexError past the last."""
    return _seed(HELD_OUT_SEEDS, "held-out", index)


def model_card_seed(index: int) -> int:
    """The ``index``-th seed of a model card; raises IndexError past the last."""
    return _seed(MODEL_CARD_SEEDS, "model card", index)


def is_held_out(seed: int) -> bool:
    """Whether ``seed`` is kept from training."""
    return seed in HELD_OUT_SEEDS or seed in MODEL_CARD_SEEDS


def _seed(seeds: range, name: str, index: int) -> int:
    if not 0 <= index < len(seeds):
        raise IndexError(f"expected an index of a {name} seed between 0 and {len(seeds) - 1}, got: {index}")
    return seeds[index]
