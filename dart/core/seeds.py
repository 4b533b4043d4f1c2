"""The split of seeds: training uses training seeds only, evaluation held-out seeds only.

A MiniWoB++ seed decides the whole start screen. Disjoint ranges of seeds therefore separate the screens that
the policy was trained on from those that it has not seen.

Model cards have seeds of their own. A base policy is chosen by the figures of its model card; if they came
from the seeds of evaluations, the choice itself would raise the success there.
"""

TRAINING_SEEDS = range(1_000_000)
"""Seeds of demonstrations and reinforcement learning."""

HELD_OUT_SEEDS = range(1_000_000, 2_000_000)
"""Seeds of the evaluations of runs."""

MODEL_CARD_SEEDS = range(2_000_000, 3_000_000)
"""Seeds of the model cards of base policies."""


def training_seed(index: int) -> int:
    """Return the ``index``-th training seed; raises IndexError past the last."""
    return _seed(TRAINING_SEEDS, "training", index)


def held_out_seed(index: int) -> int:
    """Return the ``index``-th held-out seed; raises IndexError past the last."""
    return _seed(HELD_OUT_SEEDS, "held-out", index)


def model_card_seed(index: int) -> int:
    """Return the ``index``-th seed of model cards; raises IndexError past the last."""
    return _seed(MODEL_CARD_SEEDS, "model card", index)


def is_held_out(seed: int) -> bool:
    """Whether training must not use ``seed``."""
    return seed in HELD_OUT_SEEDS or seed in MODEL_CARD_SEEDS


def _seed(seeds: range, name: str, index: int) -> int:
    if not 0 <= index < len(seeds):
        raise IndexError(f"expected an index of a {name} seed between 0 and {len(seeds) - 1}, got: {index}")
    return seeds[index]
