"""The small policy with a pointer head: its answers, its log-probs, and its greedy points."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dart.core.actions import Click, parse_action
from dart.core.types import Step
from dart.imitation.samples import imitation_loss, soft_targets
from dart.policy.codec import GRID, PromptCodec
from dart.policy.configuration import GuiPolicyConfig
from dart.policy.load import load, load_codec
from dart.policy.modeling import GuiPolicyModel, new_policy
from dart.policy.protocols import ForeignPrompt, Screen
from dart.policy.sampling import SampledAnswer, sample
from dart.policy.small_policy import save_policy
from dart.policy.tokenizer import train_tokenizer
from dart.policy.vocabulary import (
    FRAME_HEIGHT_PX,
    FRAME_WIDTH_PX,
    PATCH_PX,
    POINTER,
    patch_token,
    special_ids,
    special_tokens,
)

TOKENIZER = train_tokenizer(["Click on Tab #2."] * 4, "pointer")
CODEC = PromptCodec(TOKENIZER, image_tokens=70)
POINTER_ID = special_ids("pointer")[POINTER]
FIRST_PATCH = special_ids("pointer")[patch_token(0)]
TASK = "Click on Tab #2."


def pointing_policy(seed: int) -> GuiPolicyModel:
    """A policy with random weights that clicks and drags, because its other actions are improbable."""
    config = GuiPolicyConfig(
        "pointer",
        vocab_size=TOKENIZER.get_vocab_size(),
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        stem_channels=(8, 8, 8, 16),
    )
    model = new_policy(config, seed)
    with torch.no_grad():
        model.head.bias[[POINTER_ID, special_ids()["<eos>"]]] += 8.0
    return model.eval()


@pytest.fixture(scope="module")
def model() -> GuiPolicyModel:
    return pointing_policy(0)


def pixels(count: int) -> torch.Tensor:
    noise = np.random.default_rng(0).integers(0, 256, (count, FRAME_HEIGHT_PX, FRAME_WIDTH_PX, 3))
    return torch.from_numpy(noise.astype(np.uint8))


def sampled(
    model: GuiPolicyModel, temperature: float, count: int = 6
) -> tuple[list[SampledAnswer], list[Step], dict[str, Screen]]:
    prompts = [CODEC.encode_prompt(TASK, ["click(start_box='(30,40)')"] * (row % 3)) for row in range(count)]
    screens = pixels(count)
    answers = sample(model, prompts, screens, [temperature] * count, torch.Generator().manual_seed(1))
    shown = {f"{row}": Screen(f"{row}", screens[row].numpy(), None) for row in range(count)}  # type: ignore[arg-type]
    return answers, [step_of(f"{row}", prompts[row], answers[row]) for row in range(count)], shown


def step_of(sha256: str, prompt: list[int], answer: SampledAnswer) -> Step:
    return Step(
        screenshot_sha256=sha256,
        prompt_ids=tuple(prompt),
        token_ids=answer.token_ids,
        logprobs=answer.logprobs,
        entropies=answer.entropies,
        centres=answer.centres,
        answer="",
        policy_version=0,
        observe_ms=0.0,
        generate_ms=0.0,
        act_ms=0.0,
    )


# ---- the answer ----


@given(x=st.integers(0, FRAME_WIDTH_PX - 1), y=st.integers(0, FRAME_HEIGHT_PX - 1))
def test_a_click_comes_back_within_half_a_patch(x: int, y: int) -> None:
    tokens = CODEC.encode_answer(f"click(start_box='({x},{y})')", TASK)
    assert [special_tokens("pointer")[token] for token in tokens[:2]] == ["<click>", POINTER]
    click = parse_action(CODEC.decode_action(tokens, TASK))
    assert isinstance(click, Click)
    assert max(abs(click.x - x), abs(click.y - y)) <= PATCH_PX // 2


def test_a_drag_is_two_pointers_and_a_scroll_keeps_its_direction() -> None:
    drag = "drag(start_box='(4,12)', end_box='(156,204)')"
    tokens = CODEC.encode_answer(drag, TASK)
    assert [token for token in tokens if token == POINTER_ID] == [POINTER_ID] * 2
    assert CODEC.decode_action(tokens, TASK) == drag
    scroll = "scroll(start_box='(84,124)', direction='down')"
    assert CODEC.decode_action(CODEC.encode_answer(scroll, TASK), TASK) == scroll


@pytest.mark.parametrize("rest", [[POINTER_ID], [FIRST_PATCH, FIRST_PATCH], [POINTER_ID, POINTER_ID], []])
def test_a_pointer_without_its_patch_is_no_action(rest: list[int]) -> None:
    answer = CODEC.decode_action([special_ids()["<click>"], *rest, CODEC.eos_id], TASK)
    assert answer.startswith("not an action: ")


def test_tokens_before_the_coordinates_have_the_ids_of_a_policy_with_bins() -> None:
    bins = special_ids()
    assert all(bins[token] == index for token, index in special_ids("pointer").items() if token in bins)


# ---- samples and scores ----


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.5])
def test_the_log_probs_of_patches_are_those_that_the_trainer_computes(
    model: GuiPolicyModel, tmp_path: Path, temperature: float
) -> None:
    answers, steps, screens = sampled(model, temperature)
    assert sum(POINTER_ID in answer.token_ids for answer in answers) > 2
    save_policy(model, TOKENIZER, tmp_path)
    policy = load(tmp_path)
    scores = policy.score(steps, screens, temperature)
    for row, step in enumerate(steps):
        policy.check_prompt(step, screens)
        length = len(step.token_ids)
        assert step.logprobs == pytest.approx(scores.logprobs[row, :length].tolist(), abs=1e-5)
        assert step.entropies == pytest.approx(scores.entropies[row, :length].tolist(), abs=1e-5)


def test_after_a_pointer_comes_a_patch_and_nowhere_else(model: GuiPolicyModel) -> None:
    answers, _, _ = sampled(model, 1.0)
    for answer in answers:
        for before, token in zip((None, *answer.token_ids), answer.token_ids, strict=False):
            assert (before == POINTER_ID) == (FIRST_PATCH <= token < FIRST_PATCH + GRID.patches)


def test_the_gradient_of_a_patchs_log_prob_reaches_every_weight_of_the_head(tmp_path: Path) -> None:
    model = pointing_policy(1)
    save_policy(model, TOKENIZER, tmp_path)
    policy = load(tmp_path)
    _, steps, screens = sampled(model, 1.0)
    policy.score(steps, screens, 1.0).logprobs.sum().backward()  # type: ignore[no-untyped-call]
    for name, weight in policy.module.pointer.named_parameters():
        assert weight.grad is not None, name
        assert name.endswith("in_proj_bias") or bool(weight.grad.abs().sum() > 0), name


def test_the_codec_of_a_checkpoint_knows_its_patches(model: GuiPolicyModel, tmp_path: Path) -> None:
    save_policy(model, TOKENIZER, tmp_path)
    assert load_codec(tmp_path).pointer == CODEC.pointer


# ---- greedy answers ----


def test_a_greedy_answer_clicks_the_centre_of_a_region_and_is_never_trained_on(
    model: GuiPolicyModel, tmp_path: Path
) -> None:
    answers, steps, screens = sampled(model, 0.0)
    pointing = [row for row, answer in enumerate(answers) if POINTER_ID in answer.token_ids]
    assert pointing
    save_policy(model, TOKENIZER, tmp_path)
    for row in pointing:
        assert len(answers[row].centres) == answers[row].token_ids.count(POINTER_ID)
        with pytest.raises(ForeignPrompt, match="never trained on"):
            load(tmp_path).check_prompt(steps[row], screens)


def test_the_centre_of_a_region_replaces_that_of_the_patch() -> None:
    tokens = CODEC.encode_answer("drag(start_box='(4,4)', end_box='(156,204)')", TASK)
    found = CODEC.decode_action(tokens, TASK, centres=((0.5, 0.5), (0.0, 1.0)))
    assert found == "drag(start_box='(80,105)', end_box='(0,209)')"


# ---- steps of other policies ----


@pytest.mark.parametrize(
    "token_ids",
    [(4, POINTER_ID, 1), (4, FIRST_PATCH, 1), (4, POINTER_ID, FIRST_PATCH + GRID.patches, 1)],
)
def test_a_step_that_this_head_cannot_have_drawn_is_refused(
    model: GuiPolicyModel, tmp_path: Path, token_ids: tuple[int, ...]
) -> None:
    save_policy(model, TOKENIZER, tmp_path)
    _, steps, screens = sampled(model, 1.0, count=1)
    step = dataclasses.replace(steps[0], token_ids=token_ids)
    with pytest.raises(ForeignPrompt, match=f"one of {GRID.patches} patches after each pointer token"):
        load(tmp_path).check_prompt(step, screens)


# ---- imitation ----


def test_the_target_of_a_patch_is_a_gaussian_over_its_neighbours(model: GuiPolicyModel) -> None:
    patch = GRID.patch_at(0.5, 0.5)
    wanted = soft_targets(torch.tensor([[4, POINTER_ID, FIRST_PATCH + patch, 1]]), model.config, 1.0)
    of_patches = wanted[0, 2, FIRST_PATCH : FIRST_PATCH + GRID.patches]
    assert wanted.sum(-1)[0].tolist() == pytest.approx([1.0] * 4)
    assert float(of_patches.sum()) == pytest.approx(1.0)
    assert int(of_patches.argmax()) == patch
    assert float(of_patches[patch + 1]) == pytest.approx(float(of_patches[patch + GRID.columns]))


def test_imitation_teaches_where_to_point() -> None:
    model = pointing_policy(2).train()
    tokens = tuple(CODEC.encode_answer("click(start_box='(30,40)')", TASK))
    answer = SampledAnswer(tokens, (0.0,) * len(tokens), (0.0,) * len(tokens))
    step = step_of("0", CODEC.encode_prompt(TASK, ()), answer)
    image = pixels(1)[0].numpy()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(12):
        loss = imitation_loss(model, [step], [image], 0.5)
        losses.append(float(loss.pointer.detach()))
        optimizer.zero_grad()
        (loss.answer + loss.pointer).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert losses[-1] < 0.5 * losses[0]
