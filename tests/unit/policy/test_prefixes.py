"""Prefixes that are kept between answers, against prefixes that are computed anew for each answer."""

from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from dart.policy.codec import FRAME
from dart.policy.prefixes import Prefix, PrefixCache, compute_prefixes
from dart.policy.protocols import Prompt, Screen
from dart.policy.small_policy import SmallPolicy
from dart.policy.vocabulary import Coordinates
from tests.unit.policy.test_clicks_on_elements import policy_of
from tests.unit.policy.test_pointer_small import TASK, pixels

SCREENS = dict(zip("abc", pixels(3), strict=True))


@pytest.fixture(params=["pointer", "bins"])
def policy(request: pytest.FixtureRequest, tmp_path: Path) -> SmallPolicy:
    coordinates: Coordinates = request.param
    return policy_of(tmp_path / "policy", coordinates)


def prefix(policy: SmallPolicy, screen: str, past: int = 0) -> Prefix:
    """Return the prefix of a step on a screen after some clicks; more clicks make a longer prompt."""
    return tuple(policy.codec.encode_prompt(TASK, ["click(start_box='(36,44)')"] * past)), screen


def assert_as_computed_anew(policy: SmallPolicy, cache: PrefixCache, asked: list[Prefix]) -> None:
    answers = torch.tensor(
        [policy.codec.encode_action("click(start_box='(36,44)')", TASK, FRAME)] * len(asked)
    )
    kept, anew = cache.outputs(asked, SCREENS), compute_prefixes(policy.module, asked, SCREENS)
    torch.testing.assert_close(kept.logits, anew.logits, rtol=1e-4, atol=1e-5)
    following = [
        policy.module(answers, past_key_values=out.past_key_values, logits_to_keep=answers.shape[1]).logits
        for out in (kept, anew)
    ]
    torch.testing.assert_close(following[0], following[1], rtol=1e-4, atol=1e-5)


@torch.inference_mode()
def test_kept_prefixes_of_any_length_give_the_outputs_of_prefixes_computed_anew(policy: SmallPolicy) -> None:
    cache = PrefixCache(policy.module)
    first = [prefix(policy, "a"), prefix(policy, "b", 2), prefix(policy, "a")]
    assert_as_computed_anew(policy, cache, first)
    assert_as_computed_anew(policy, cache, [prefix(policy, "c", 1), *reversed(first), prefix(policy, "a", 2)])


@torch.inference_mode()
def test_each_distinct_prefix_is_computed_once_while_it_is_kept(policy: SmallPolicy) -> None:
    cache = PrefixCache(policy.module, capacity=2)
    a, b, c = (prefix(policy, screen) for screen in "abc")
    with patch("dart.policy.prefixes.compute_prefixes", side_effect=compute_prefixes) as computing:
        for asked in ([a] * 8, [a, b], [c, a], [b]):  # b was used before a and c, so it has left the cache
            cache.outputs(asked, SCREENS)
    assert [call.args[1] for call in computing.call_args_list] == [[a], [b], [c], [b]]


@torch.inference_mode()
def test_a_batch_may_have_more_prefixes_than_are_kept(policy: SmallPolicy) -> None:
    asked = [prefix(policy, screen) for screen in "abca"]
    assert_as_computed_anew(policy, PrefixCache(policy.module, capacity=1), asked)


def test_a_policy_computes_the_common_prefix_of_its_answers_once(policy: SmallPolicy) -> None:
    screens = {name: Screen(name, shown.numpy(), FRAME) for name, shown in SCREENS.items()}
    prompt = Prompt(prefix(policy, "a")[0])
    with patch.object(policy.module.stem, "forward", side_effect=policy.module.stem.forward) as stem:
        for batch in (8, 4):
            rows = [[screens["a"]]] * batch
            answers = policy.sample([prompt] * batch, rows, [1.0] * batch, torch.Generator().manual_seed(0))
            assert len({answer.token_ids for answer in answers}) > 1
    assert stem.call_count == 1


@torch.inference_mode()
def test_a_copy_that_shares_the_weights_keeps_prefixes_of_its_own(policy: SmallPolicy) -> None:
    made = policy.copy_sharing_weights()
    assert made._prefixes is not policy._prefixes
    shared = zip(policy.module.parameters(), made.module.parameters(), strict=True)
    assert all(one is other for one, other in shared)
    assert_as_computed_anew(made, made._prefixes, [prefix(made, "a"), prefix(made, "a")])
