import pytest
import torch
from torch import Tensor

from dart.training.logprob_mismatch import mismatch_figures, mismatch_sums
from dart.training.loss import TokenBatch


def batch(differences: list[list[float]], lengths: list[int], known: list[bool]) -> TokenBatch:
    """old - behaviour as given, log-probs otherwise 0."""
    old: Tensor = torch.tensor(differences)
    zeros = torch.zeros_like(old)
    return TokenBatch(
        logp=zeros,
        old=old,
        behaviour=zeros,
        has_behaviour=torch.tensor(known),
        reference=None,
        advantage=torch.zeros(len(lengths)),
        mask=torch.arange(old.shape[1]) < torch.tensor(lengths).unsqueeze(1),
    )


def none_of(samples: int) -> Tensor:
    """None of them is of a demonstration."""
    return torch.zeros(samples, dtype=torch.bool)


def test_what_others_sampled_or_the_policy_with_a_hint_is_no_difference_to_the_engine() -> None:
    steps = batch([[0.5], [3.0]], [1, 1], [True, True])
    sums = mismatch_sums(steps, torch.tensor([False, False]), torch.tensor([False, True]), cap=1.0)
    assert mismatch_figures(sums) == {"mismatch_engine": 0.5, "mismatch_stale": None, "tis_truncated": 1.0}


def test_tokens_of_the_trainers_version_and_older_ones_are_told_apart() -> None:
    sums = mismatch_sums(
        batch([[0.25, -0.75], [-2.0, 9.0], [4.0, 0.0], [7.0, 7.0]], [2, 1, 1, 2], [True, True, True, False]),
        torch.tensor([False, True, True, False]),
        none_of(4),
        cap=1.0,
    )
    assert mismatch_figures(sums) == {
        "mismatch_engine": pytest.approx(0.5),
        "mismatch_stale": pytest.approx(3.0),
        "tis_truncated": pytest.approx(2 / 4),
    }


def test_rounding_at_the_cap_is_not_called_truncation() -> None:
    steps = batch([[1e-5, 0.1, -1e-5, -0.1]], [4], [True])
    sums = mismatch_sums(steps, torch.tensor([False]), none_of(1), cap=1.0)
    assert mismatch_figures(sums)["tis_truncated"] == pytest.approx(1 / 4)


def test_what_never_occurred_is_none_and_without_a_cap_nothing_is_cut() -> None:
    is_stale = torch.tensor([False])
    unknown, known = (batch([[5.0]], [1], [is_known]) for is_known in (False, True))
    figures = mismatch_figures(mismatch_sums(unknown, is_stale, none_of(1), cap=None))
    assert figures == {"mismatch_engine": None, "mismatch_stale": None, "tis_truncated": None}
    figures = mismatch_figures(mismatch_sums(known, is_stale, none_of(1), cap=None))
    assert figures["tis_truncated"] == 0.0
