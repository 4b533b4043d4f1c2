"""Tokens and patches: drawn from logits, and scored under the same distribution."""

import torch

from dart.policy.sampling import draw_tokens, token_scores


def test_tokens_are_drawn_as_often_as_their_probability_says() -> None:
    logits = torch.log(torch.tensor([0.5, 0.3, 0.2])).expand(20_000, 3)
    token, _, _ = draw_tokens(logits, torch.ones(20_000), torch.Generator().manual_seed(0))

    shares = torch.bincount(token, minlength=3) / 20_000

    assert torch.allclose(shares, torch.tensor([0.5, 0.3, 0.2]), atol=0.015)


def test_the_score_of_a_drawn_token_is_its_recorded_log_prob() -> None:
    logits = torch.randn(50, 30)
    token, logprob, entropy = draw_tokens(logits, torch.full((50,), 0.7), torch.Generator().manual_seed(0))
    scored, entropy_again = token_scores(logits, token, 0.7)

    assert torch.allclose(logprob, scored, atol=1e-6)
    assert torch.allclose(entropy, entropy_again, atol=1e-6)


def test_a_greedy_token_is_the_most_likely_one_and_has_no_entropy() -> None:
    logits = torch.randn(4, 9)
    token, logprob, entropy = draw_tokens(logits, torch.zeros(4), torch.Generator())

    assert token.tolist() == logits.argmax(-1).tolist()
    assert logprob.tolist() == entropy.tolist() == [0.0] * 4
