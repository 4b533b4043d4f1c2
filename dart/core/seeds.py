"""The split of seeds: training uses training seeds only, evaluation held-out seeds only.

A MiniWoB++ seed decides the whole start screen. Disjoint ranges of seeds therefore separate the screens that
the policy was trained on from those that it has not seen.

Model cards have seeds of their own. A base policy is chosen by the figures in its model card. If these
figures were measured on the seeds of evaluations, the choice alone would raise the success in evaluations.
"""

TRAINING_SEEDS = range(1_000_000)
"""Seeds of demonstrations and reinforcement learning."""

HELD_OUT_SEEDS = range(1_000_000, 2_000_000)
"""Seeds of the evaluations of runs."""

MODEL_CARD_SEEDS = range(2_000_000, 3_000_000)
"""Seeds of the model cards of base policies."""


def is_held_out(seed: int) -> bool:
    """Whether training must not use ``seed``."""
    return seed in HELD_OUT_SEEDS or seed in MODEL_CARD_SEEDS
