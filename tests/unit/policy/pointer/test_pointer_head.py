"""The pointer head: parameters, order of patches, loss, gradients."""

import math

import numpy as np
import pytest
import torch

from dart.core.boxes import Box
from dart.policy.pointer.head import (
    HeadMismatch,
    PointerHead,
    load_head,
    pointer_kl,
)
from dart.policy.pointer.patches import PatchGrid, patch_labels

PUBLISHED_NAMES = {
    "self_attention.in_proj_weight", "self_attention.in_proj_bias",
    "self_attention.out_proj.weight", "self_attention.out_proj.bias",
    "layer_norm.weight", "layer_norm.bias",
    "projection_enc.0.weight", "projection_enc.0.bias", "projection_enc.2.weight", "projection_enc.2.bias",
    "projection_dec.0.weight", "projection_dec.0.bias", "projection_dec.2.weight", "projection_dec.2.bias",
}  # fmt: skip


def head(size: int = 16, seed: int = 0) -> PointerHead:
    torch.manual_seed(seed)
    return PointerHead(size).eval()


@pytest.mark.parametrize("size", [16, 96, 1536])
def test_the_head_has_eight_d_squared_and_ten_d_parameters(size: int) -> None:
    with torch.device("meta"):
        count = sum(weight.numel() for weight in PointerHead(size).parameters())

    assert count == 8 * size**2 + 10 * size


def test_the_heads_of_the_published_sizes_have_their_published_parameters() -> None:
    with torch.device("meta"):
        counts = [sum(w.numel() for w in PointerHead(size).parameters()) for size in (1536, 2048, 3584)]

    assert counts == [18_889_728, 33_574_912, 102_796_288]


def test_the_weights_have_the_published_names() -> None:
    assert set(head().state_dict()) == PUBLISHED_NAMES


def test_permuted_patches_give_permuted_logits() -> None:
    pointer, order = head(), torch.randperm(12)
    patches, queries = torch.randn(2, 12, 16), torch.randn(2, 3, 16)

    assert torch.allclose(
        pointer(patches[:, order], queries), pointer(patches, queries)[..., order], atol=1e-5
    )


def test_patches_attend_to_one_another_unless_a_context_is_given() -> None:
    pointer, patches = head(), torch.randn(2, 9, 16)

    assert torch.equal(pointer.keys(patches, context=patches), pointer.keys(patches))
    assert not torch.allclose(pointer.keys(patches, context=patches[:, :2]), pointer.keys(patches))


def test_a_context_has_no_padding_although_the_patches_have() -> None:
    pointer, patches = head(), torch.randn(1, 9, 16)
    mask = torch.arange(9)[None, :] < 7

    keys = pointer.keys(patches, mask, context=patches[:, :4])

    assert torch.equal(keys, pointer.keys(patches, context=patches[:, :4]))


def test_padding_changes_no_logit_and_gets_no_attention() -> None:
    pointer, patches, queries = head(), torch.randn(1, 9, 16), torch.randn(1, 1, 16)
    padded = torch.cat([patches, torch.randn(1, 4, 16)], 1)
    mask = torch.arange(13)[None, :] < 9

    logits = pointer(padded, queries, mask)

    assert torch.allclose(logits[..., :9], pointer(patches, queries), atol=1e-5)
    assert float(logits.detach().softmax(-1)[..., 9:].max()) == 0.0


def test_the_loss_is_zero_where_the_attention_is_the_label() -> None:
    label = torch.from_numpy(patch_labels(Box(0.2, 0.1, 0.8, 0.6), PatchGrid(5, 5), "gaussian"))
    logits = label.clamp_min(1e-30).log()

    assert float(pointer_kl(logits[None, None], label[None, None])) == pytest.approx(0.0, abs=1e-5)


def test_the_loss_is_the_kullback_leibler_divergence() -> None:
    label, logits = torch.tensor([0.5, 0.5, 0.0, 0.0]), torch.zeros(4)

    assert float(pointer_kl(logits[None, None], label[None, None])) == pytest.approx(math.log(2))


def test_gradients_of_head_and_loss_are_those_of_finite_differences() -> None:
    pointer = head(8).double()
    patches = torch.randn(1, 5, 8, dtype=torch.double, requires_grad=True)
    queries = torch.randn(1, 2, 8, dtype=torch.double, requires_grad=True)
    targets = torch.softmax(torch.randn(1, 2, 5, dtype=torch.double), -1)

    def loss(patches: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
        scores = pointer.projection_dec(queries) @ pointer.keys(patches).transpose(1, 2) / math.sqrt(8)
        return -(targets * scores.log_softmax(-1)).sum()

    assert torch.autograd.gradcheck(loss, (patches, queries))


def test_the_gradient_of_the_loss_is_attention_minus_label() -> None:
    logits = torch.randn(1, 1, 7, requires_grad=True)
    targets = torch.softmax(torch.randn(1, 1, 7), -1)

    pointer_kl(logits, targets).backward()

    assert logits.grad is not None
    assert torch.allclose(logits.grad, logits.softmax(-1) - targets, atol=1e-6)


def test_a_few_steps_of_descent_bring_the_attention_to_the_label() -> None:
    torch.manual_seed(0)
    pointer = PointerHead(16)
    patches, queries = torch.randn(1, 20, 16), torch.randn(1, 1, 16)
    targets = torch.from_numpy(patch_labels(Box(0.0, 0.0, 0.5, 0.5), PatchGrid(4, 5)))[None, None]
    optimizer = torch.optim.Adam(pointer.parameters(), lr=1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        loss = pointer_kl(pointer(patches, queries), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    assert float(loss.detach()) < 0.05


def test_published_weights_load_by_name() -> None:
    theirs = head(16, seed=3)

    ours = load_head(theirs.state_dict(), 16).eval()

    patches, queries = torch.randn(1, 6, 16), torch.randn(1, 1, 16)
    assert torch.equal(ours(patches, queries), theirs(patches, queries))


@pytest.mark.parametrize("change", ["missing", "unknown", "shape"])
def test_weights_that_do_not_fit_are_refused_with_their_name(change: str) -> None:
    weights = dict(head(16).state_dict())
    if change == "missing":
        del weights["layer_norm.bias"]
    elif change == "unknown":
        weights["layer_norm.scale"] = torch.zeros(1)
    else:
        weights["layer_norm.bias"] = torch.zeros(8)

    with pytest.raises(HeadMismatch, match=r"layer_norm\.(bias|scale)"):
        load_head(weights, 16)


def test_a_width_that_the_heads_do_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="8 heads"):
        PointerHead(12)


def test_labels_and_logits_count_patches_in_the_same_order() -> None:
    """The grid is not square, so rows and columns cannot be exchanged unseen."""
    grid = PatchGrid(3, 5)
    label = patch_labels(Box(0.61, 0.34, 0.79, 0.66), grid)

    assert int(np.argmax(label)) == 1 * 5 + 3 == grid.patch_at(0.7, 0.5)
