"""Windows of equal length attend in one call, with the result of one window after the other."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn

from dart.core.types import GenerateRequest, PastStep
from dart.policy.load import load
from dart.policy.placement import ModelPlacement
from dart.policy.vision_attention import BY_LENGTH, attend_by_length, attend_windows_together
from dart.policy.vlm import VisionLanguagePolicy
from tests.pictures import png_of

SIZES = ((300, 90), (160, 210))


@pytest.mark.parametrize("lengths", [(4, 4, 4), (4,), (4, 2, 4, 6, 2, 4), (1, 5), (4, 0, 4)])
def test_every_window_attends_to_itself_alone(lengths: tuple[int, ...]) -> None:
    draw = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, 3, sum(lengths), 8, generator=draw) for _ in range(3))
    limits = torch.tensor([0, *lengths]).cumsum(0)
    found, _ = attend_by_length(nn.Identity(), query, key, value, cu_seq_lens_q=limits, scaling=0.2)
    alone = [
        F.scaled_dot_product_attention(*parts, scale=0.2)
        for parts in zip(*(one.split(lengths, 2) for one in (query, key, value)), strict=True)
    ]
    assert torch.allclose(found, torch.cat(alone, 2).transpose(1, 2), atol=1e-6)


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_a_vision_tower_sees_and_learns_as_with_one_window_after_the_other(
    family: str, tiny_checkpoint: Callable[[str], Path]
) -> None:
    policy = load(tiny_checkpoint(family), placement=ModelPlacement(device="cpu", is_trained=True))
    assert isinstance(policy, VisionLanguagePolicy)
    vision = policy.module.config.vision_config
    assert vision._attn_implementation == BY_LENGTH
    found = []
    for name in (BY_LENGTH, "sdpa"):
        vision._attn_implementation = name
        logits = logits_of(policy)
        policy.module.zero_grad()
        logits.logsumexp(-1).sum().backward()
        tower = [weight.grad for name, weight in policy.module.named_parameters() if "visual" in name]
        found.append([logits.detach(), *(grad.clone() for grad in tower if grad is not None)])
    assert len(found[0]) > 2
    for here, alone in zip(*found, strict=True):
        assert torch.allclose(here, alone, rtol=1e-5, atol=1e-5 * float(alone.abs().max()))


def test_what_is_kept_between_calls_can_be_trained_with_also_when_an_answer_made_it() -> None:
    lengths = (3, 5, 3)
    limits = torch.tensor([0, *lengths]).cumsum(0)
    query = torch.randn(1, 2, sum(lengths), 4, requires_grad=True)
    with torch.inference_mode():
        attend_by_length(nn.Identity(), query, query, query, cu_seq_lens_q=limits)
    found, _ = attend_by_length(nn.Identity(), query, query, query, cu_seq_lens_q=limits)
    found.sum().backward()
    assert query.grad is not None


def test_a_tower_without_windows_keeps_its_attention(tiny_checkpoint: Callable[[str], Path]) -> None:
    policy = load(tiny_checkpoint("llava_onevision"), placement=ModelPlacement(device="cpu"))
    assert isinstance(policy, VisionLanguagePolicy)
    assert policy.module.config.vision_config._attn_implementation == "sdpa"


class Attention(nn.Module):
    """Attention within windows, as the towers of transformers have it."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.num_key_value_groups = groups

    def forward(self, hidden: torch.Tensor, cu_seqlens: torch.Tensor) -> torch.Tensor:
        return hidden


class SometimesWhole(Attention):
    """Attention that is not always within windows."""

    def forward(self, hidden: torch.Tensor, cu_seqlens: torch.Tensor | None = None) -> torch.Tensor:
        return hidden


@pytest.mark.parametrize(
    ("attention", "expected"),
    [(Attention(1), BY_LENGTH), (Attention(4), "sdpa"), (SometimesWhole(1), "sdpa")],
)
def test_only_towers_that_always_attend_in_windows_with_all_key_heads_attend_so(
    attention: Attention, expected: str
) -> None:
    model = nn.Sequential(Attention(1), attention)
    model.config = SimpleNamespace(vision_config=SimpleNamespace(_attn_implementation="sdpa"))  # type: ignore[assignment]
    attend_windows_together(model)
    assert model.config.vision_config._attn_implementation == expected


def logits_of(policy: VisionLanguagePolicy) -> torch.Tensor:
    """Logits of a prompt with two screenshots of different sizes."""
    names = [f"{number}" for number in range(len(SIZES))]
    screens = [
        policy.codec.screen(name, png(size, number))
        for number, (name, size) in enumerate(zip(names, SIZES, strict=True))
    ]
    said = tuple(policy.codec.encode_action("wait()", "", screens[0].frame))
    request = GenerateRequest(
        screenshot_sha256=names[1],
        instruction="Click.",
        history=("wait()",),
        temperature=1.0,
        past=(PastStep(screenshot_sha256=names[0], token_ids=said),),
    )
    prompt = policy.codec.prompt(request, screens)
    rows = [policy.codec.expand_images(prompt.token_ids, screens)]
    logits: torch.Tensor = policy.forward(rows, screens).logits
    return logits


def png(size: tuple[int, int], seed: int) -> bytes:
    """Noise of this size."""
    draw = torch.Generator().manual_seed(seed)
    noise = torch.randint(0, 256, (size[1], size[0], 3), generator=draw, dtype=torch.uint8)
    return png_of(Image.fromarray(noise.numpy()))
