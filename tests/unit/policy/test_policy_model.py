"""The model, its files, and sampling against teacher forcing."""

import errno
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from dart.policy.codec import PromptCodec
from dart.policy.configuration import GuiPolicyConfig
from dart.policy.load import CheckpointError, load
from dart.policy.modeling import GuiPolicyModel, Pointer, PromptError, new_policy
from dart.policy.protocols import PromptTooLong
from dart.policy.sampling import (
    MAX_ANSWER_TOKENS,
    AnswerScores,
    answer_scores,
    pad_left,
    sample,
    teacher_forced,
)
from dart.policy.small_policy import SmallPolicy, save_policy
from dart.policy.tokenizer import train_tokenizer
from dart.policy.vocabulary import Coordinates
from tests.tiny_small_policy import tiny_small_policy

TOKENIZER = train_tokenizer(["Click on Tab #2.", 'Enter "Ann" and press Submit.'] * 4)
PROMPTS = (
    ("Click on Tab #2.", ()),
    ('Enter "Ann" and press Submit.', ("click(start_box='(82,122)')", "type(content='Ann')")),
    ("x", ("wait()",) * 20),
)
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def model() -> GuiPolicyModel:
    config = GuiPolicyConfig(
        vocab_size=TOKENIZER.get_vocab_size(),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        stem_channels=(8, 8, 8, 16),
        pointer_size=8,
    )
    return new_policy(config, seed=0).eval()


@pytest.fixture(scope="module")
def codec(model: GuiPolicyModel) -> PromptCodec:
    return PromptCodec(TOKENIZER, model.config.image_tokens)


def prompts_of(codec: PromptCodec) -> list[list[int]]:
    return [codec.encode_prompt(instruction, history) for instruction, history in PROMPTS]


def answer_logits(
    model: GuiPolicyModel,
    prompts: Sequence[Sequence[int]],
    answers: Sequence[Sequence[int]],
    pixels: torch.Tensor,
) -> torch.Tensor:
    return teacher_forced(model, prompts, answers, pixels)[0].logits


def answer_logprobs(
    model: GuiPolicyModel,
    prompts: Sequence[Sequence[int]],
    answers: Sequence[Sequence[int]],
    pixels: torch.Tensor,
    temperature: float = 1.0,
) -> AnswerScores:
    out, targets, mask = teacher_forced(model, prompts, answers, pixels)
    return answer_scores(out.logits, targets, mask, temperature)


def screens(count: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(
        np.random.default_rng(seed).integers(0, 256, (count, 210, 160, 3), dtype=np.uint8)
    )


def test_a_saved_policy_loads_and_answers_the_same(
    model: GuiPolicyModel, codec: PromptCodec, tmp_path: Path
) -> None:
    save_policy(model, TOKENIZER, tmp_path)
    loaded = SmallPolicy(tmp_path)
    assert vars(loaded.module.config) == vars(model.config)
    assert prompts_of(loaded.codec) == prompts_of(codec)
    ids, mask = pad_left(prompts_of(codec), model.config.pad_token_id)
    pixels = screens(3).permute(0, 3, 1, 2)
    with torch.inference_mode():
        assert torch.equal(loaded.module(ids, mask, pixels).logits, model(ids, mask, pixels).logits)


def test_what_a_policy_reads_moves_its_pointer_and_is_saved_with_it(tmp_path: Path) -> None:
    reads = tiny_small_policy(TOKENIZER, reading_channels=(4, 4, 3)).eval()
    prompts, pixels = prompts_of(PromptCodec(TOKENIZER, reads.config.image_tokens)), screens(3)
    answers = [[4, reads.config.first_x_token_id + 3, 1]] * 3
    with torch.inference_mode():
        before = teacher_forced(reads, prompts, answers, pixels)[0].pointer
        save_policy(reads, TOKENIZER, tmp_path)
        loaded = SmallPolicy(tmp_path).module
        assert torch.equal(teacher_forced(loaded, prompts, answers, pixels)[0].pointer, before)

        assert isinstance(reads.pointer, Pointer)
        reads.pointer.said.weight.add_(1.0)
        assert not torch.allclose(teacher_forced(reads, prompts, answers, pixels)[0].pointer, before)


def test_loading_draws_no_random_numbers(model: GuiPolicyModel, tmp_path: Path) -> None:
    save_policy(model, TOKENIZER, tmp_path)
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    SmallPolicy(tmp_path)
    assert torch.equal(torch.rand(3), expected)


def test_a_full_disk_under_the_tokenizer_is_an_error_of_the_system(
    model: GuiPolicyModel, tmp_path: Path
) -> None:
    (tmp_path / "tokenizer.json").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device") as refused:
        save_policy(model, TOKENIZER, tmp_path)
    assert refused.value.errno == errno.ENOSPC


@pytest.mark.parametrize("part", ["dart.inference.transformers_engine", "dart.training.learner"])
def test_the_small_policy_is_loaded_without_transformers(
    model: GuiPolicyModel, part: str, tmp_path: Path
) -> None:
    save_policy(model, TOKENIZER, tmp_path)
    program = (
        "import sys, pathlib, importlib\n"
        f"importlib.import_module({part!r})\n"
        "from dart.policy.load import load\n"
        "load(pathlib.Path(sys.argv[1]))\n"
        "print(*sorted({'transformers', 'torch._dynamo', 'torch.distributed.tensor'} & set(sys.modules)))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True
    )
    assert ended.stdout.split() == []


def test_logits_are_log_probabilities_up_to_one_constant_per_position(
    model: GuiPolicyModel, codec: PromptCodec
) -> None:
    logits = answer_logits(model, prompts_of(codec), [[1]] * 3, screens(3))
    assert logits.shape == (3, 1, TOKENIZER.get_vocab_size())
    assert torch.isfinite(logits).all()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_sampled_log_probs_and_entropies_are_those_of_teacher_forcing(
    model: GuiPolicyModel, codec: PromptCodec, temperature: float
) -> None:
    generator = torch.Generator().manual_seed(1)
    answers = sample(model, prompts_of(codec), screens(3), [temperature] * 3, generator, max_new_tokens=12)
    scores = answer_logprobs(
        model, prompts_of(codec), [a.token_ids for a in answers], screens(3), temperature
    )
    for row, answer in enumerate(answers):
        length = len(answer.token_ids)
        assert scores.mask[row].tolist() == [column < length for column in range(scores.mask.shape[1])]
        assert scores.logprobs[row, :length].tolist() == pytest.approx(answer.logprobs, abs=TOLERANCE)
        assert scores.entropies[row, :length].tolist() == pytest.approx(answer.entropies, abs=TOLERANCE)


def test_an_answer_may_hold_any_token_and_still_scores_as_it_was_sampled(
    model: GuiPolicyModel, codec: PromptCodec
) -> None:
    config = model.config
    answer = [
        config.image_token_id,
        config.answer_token_id,
        config.first_step_token_id,
        config.pad_token_id,
        300,
        1,
    ]
    prompt, pixels = prompts_of(codec)[0], screens(1)
    scores = answer_logprobs(model, [prompt], [answer], pixels)
    with torch.inference_mode():
        out = model(*pad_left([prompt], 0), pixels.permute(0, 3, 1, 2), use_cache=True, logits_to_keep=1)
        steps = []
        for token in answer:
            steps.append(out.logits[0, -1].log_softmax(-1)[token].item())
            out = model(torch.tensor([[token]]), past_key_values=out.past_key_values, logits_to_keep=1)
    assert scores.logprobs[0].tolist() == pytest.approx(steps, abs=TOLERANCE)


def test_who_shares_a_batch_changes_no_log_prob(model: GuiPolicyModel, codec: PromptCodec) -> None:
    prompts, pixels = prompts_of(codec), screens(3)
    draw = random.Random(0)
    answers = [[draw.randrange(TOKENIZER.get_vocab_size()) for _ in range(length)] for length in (2, 7, 4)]
    together = answer_logprobs(model, prompts, answers, pixels)
    for row, answer in enumerate(answers):
        alone = answer_logprobs(model, [prompts[row]], [answer], pixels[row : row + 1])
        assert together.logprobs[row, : len(answer)].tolist() == pytest.approx(
            alone.logprobs[0].tolist(), abs=TOLERANCE
        )


def test_greedy_answers_are_the_modes_whatever_the_generator(
    model: GuiPolicyModel, codec: PromptCodec
) -> None:
    one, other = (
        sample(model, prompts_of(codec), screens(3), [0.0] * 3, torch.Generator().manual_seed(seed))
        for seed in (1, 2)
    )
    assert one == other
    logits = answer_logits(model, prompts_of(codec), [a.token_ids for a in one], screens(3))
    assert [row.tolist()[: len(a.token_ids)] for row, a in zip(logits.argmax(-1), one, strict=True)] == [
        list(a.token_ids) for a in one
    ]


def test_each_request_has_its_own_temperature(model: GuiPolicyModel, codec: PromptCodec) -> None:
    prompts, pixels = prompts_of(codec), screens(3)
    answers = sample(model, prompts, pixels, [0.0, 1.0, 0.0], torch.Generator().manual_seed(0))
    assert set(answers[0].logprobs) == {0.0}
    assert set(answers[2].entropies) == {0.0}
    assert min(answers[1].entropies) > 0.0


def test_an_answer_that_never_ends_is_cut(model: GuiPolicyModel, codec: PromptCodec) -> None:
    answers = sample(
        model, prompts_of(codec), screens(3), [1.0] * 3, torch.Generator().manual_seed(0), max_new_tokens=2
    )
    assert all(len(answer.token_ids) <= 2 for answer in answers)


def tail_of(length: int, codec: PromptCodec) -> list[int]:
    """A prompt with `length` tokens from the step counter on, most of them of a typed text."""
    prompt = codec.encode_prompt("x", ["type(content='a')"])
    typed = prompt[-2]
    return [*prompt[:-2], *[typed] * (length - 4), *prompt[-2:]]


@pytest.mark.parametrize("length", [500, 511, 512])
def test_the_longest_prompt_leaves_positions_for_a_whole_answer(
    model: GuiPolicyModel, codec: PromptCodec, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model.config, "eos_token_id", -1)  # no answer ends early
    prompt, pixels = tail_of(length, codec), screens(1)
    (answer,) = sample(model, [prompt], pixels, [1.0], torch.Generator().manual_seed(0))
    assert len(answer.token_ids) == MAX_ANSWER_TOKENS
    scores = answer_logprobs(model, [prompt], [answer.token_ids], pixels)
    assert scores.logprobs[0].tolist() == pytest.approx(answer.logprobs, abs=TOLERANCE)


def test_a_prompt_that_is_too_long_is_refused_before_anything_is_sampled(
    model: GuiPolicyModel, codec: PromptCodec
) -> None:
    with pytest.raises(PromptTooLong, match="512 tokens from the step counter on, got 1 and 513"):
        sample(model, [tail_of(513, codec)], screens(1), [1.0], torch.Generator())


def test_an_answer_that_is_too_long_for_the_positions_is_refused_alone_and_after_a_cached_prompt(
    model: GuiPolicyModel, codec: PromptCodec
) -> None:
    prompt, pixels = tail_of(512, codec), screens(1)
    with pytest.raises(PromptTooLong, match="answers of at most 512 tokens"):
        answer_logprobs(model, [prompt], [[300] * 514], pixels)
    with torch.inference_mode():
        out = model(*pad_left([prompt], 0), pixels.permute(0, 3, 1, 2), use_cache=True, logits_to_keep=1)
        with pytest.raises(PromptTooLong, match="answers of at most 512 tokens"):
            model(torch.tensor([[300] * 513]), past_key_values=out.past_key_values, logits_to_keep=1)


def test_y_tokens_depend_on_the_x_token_before_them(model: GuiPolicyModel, codec: PromptCodec) -> None:
    first_x = model.config.first_x_token_id
    prompts, pixels = prompts_of(codec)[:1] * 2, screens(1).expand(2, -1, -1, -1)
    logits = answer_logits(model, prompts, [[4, first_x + 3, 1], [4, first_x + 30, 1]], pixels)
    rows = slice(model.config.first_y_token_id, model.config.first_y_token_id + model.config.y_bins)
    assert not torch.allclose(logits[0, 2, rows], logits[1, 2, rows])


def test_a_prompt_without_its_image_placeholders_is_refused(
    model: GuiPolicyModel, codec: PromptCodec
) -> None:
    with pytest.raises(PromptError, match="70 image placeholders"):
        answer_logprobs(model, [prompts_of(codec)[0][1:]], [[1]], screens(1))


def test_a_prompt_without_pixels_is_refused(model: GuiPolicyModel, codec: PromptCodec) -> None:
    with pytest.raises(PromptError, match="pixel_values"):
        model(torch.tensor([prompts_of(codec)[0]]))


def test_a_folder_without_a_policy_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="dartrl pretrain"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.safetensors", b"\x08"),
        ("tokenizer.json", b'{"version": '),
        ("tokenizer.json", b"{}"),
        ("config.json", b'{"model_type": "gui_policy", "stem_channels": null}'),
    ],
)
def test_a_damaged_checkpoint_is_named(
    model: GuiPolicyModel, name: str, content: bytes, tmp_path: Path
) -> None:
    save_policy(model, TOKENIZER, tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match="damaged"):
        load(tmp_path)


def test_a_policy_is_read_in_utf_8_whatever_the_locale(model: GuiPolicyModel, tmp_path: Path) -> None:
    save_policy(model, TOKENIZER, tmp_path)
    program = (
        "import sys, pathlib\n"
        "from dart.policy.small_policy import SmallPolicy\n"
        "print(SmallPolicy(pathlib.Path(sys.argv[1])).codec.encode_prompt('Zo\\u00eb', ()))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, tmp_path],
        env=os.environ | {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.strip() == str(SmallPolicy(tmp_path).codec.encode_prompt("Zoë", ()))


def test_the_same_seed_makes_the_same_policy(model: GuiPolicyModel) -> None:
    again = new_policy(model.config, seed=0)
    other = new_policy(model.config, seed=1)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    assert not torch.equal(model.pointer.query.weight, other.pointer.query.weight)


@pytest.mark.parametrize("coordinates", ["bins", "pointer"])
def test_every_bias_of_a_new_policy_is_zero(coordinates: Coordinates) -> None:
    weights = new_policy(GuiPolicyConfig(coordinates), seed=0).state_dict()
    biases = {name: weight for name, weight in weights.items() if name.endswith("bias")}
    assert biases
    assert [name for name, weight in biases.items() if weight.any()] == []


def test_the_shipped_base_policy_is_small_enough() -> None:
    folder = Path(__file__).parents[3] / "configs" / "base-policy"
    policy = SmallPolicy(folder)
    assert sum(weight.numel() for weight in policy.module.parameters()) <= 4_000_000
    assert sum(file.stat().st_size for file in folder.iterdir()) < 10_000_000
    prompt = policy.codec.encode_prompt("Click on Tab #2.", ())
    answers = sample(policy.module, [prompt], screens(1), [1.0], torch.Generator())
    assert answers[0].token_ids
