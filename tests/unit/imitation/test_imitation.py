"""Soft targets, the imitation loss and the samples it is computed on."""

import hashlib
import json
import math
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dart.imitation.pretrain import PretrainConfig, lr_factor, soften_pointer
from dart.imitation.samples import (
    ImitatedStep,
    ImitationLoss,
    _pointer_loss,
    batches,
    imitation_loss,
    lowest_seeds,
    soft_targets,
    steps_by_task,
)
from dart.policy.codec import PromptCodec
from dart.policy.configuration import GuiPolicyConfig
from dart.policy.modeling import GuiPolicyModel, new_policy
from dart.policy.sampling import teacher_forced
from dart.policy.tokenizer import train_tokenizer
from dart.policy.vocabulary import BIN_PX, PATCH_PX, Coordinates
from dart.testing.trajectories import step_at
from dart.training.demonstration_format import BadDemonstrations
from tests.pictures import png
from tests.tiny_small_policy import tiny_small_policy

INSTRUCTION = 'Enter "Ann" and press Submit.'
TOKENIZER = train_tokenizer([INSTRUCTION] * 4)


@pytest.fixture(scope="module")
def model() -> GuiPolicyModel:
    config = GuiPolicyConfig(
        vocab_size=TOKENIZER.get_vocab_size(),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        stem_channels=(8, 8, 8, 16),
        pointer_size=8,
    )
    return new_policy(config, seed=0)


def demonstrations(folder: Path, episodes: int = 2) -> Path:
    content = png(160, 210, (255, 0, 0))
    red = hashlib.sha256(content).hexdigest()
    (folder / "screenshots").mkdir()
    (folder / "screenshots" / f"{red}.png").write_bytes(content)
    actions = ("click(start_box='(82,122)')", "type(content='Ann')")
    steps = [{"screenshot_sha256": red, "action": action} for action in actions]
    lines = [
        {"task_id": task, "seed": seed, "instruction": INSTRUCTION, "reward": 1.0, "steps": steps}
        for seed in reversed(range(episodes))
        for task in ("b", "a")
    ]
    (folder / "demonstrations.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    return folder


def examples(model: GuiPolicyModel, folder: Path) -> dict[str, list[ImitatedStep]]:
    codec = PromptCodec(TOKENIZER, model.config.image_tokens)
    return steps_by_task(lowest_seeds(folder, {"a": 2, "b": 2}), folder, codec)


def loss_of(model: GuiPolicyModel, batch: list[ImitatedStep], sigma_bins: float) -> ImitationLoss:
    steps, pixels = [one.step for one in batch], [one.screen.pixels for one in batch]
    return imitation_loss(model, steps, pixels, sigma_bins)


def test_the_episodes_of_lowest_seed_are_read_whatever_the_order_of_the_file(tmp_path: Path) -> None:
    episodes = lowest_seeds(demonstrations(tmp_path, episodes=5), {"b": 2, "a": 2})
    assert [(one.task_id, one.seed) for one in episodes] == [("b", 0), ("b", 1), ("a", 0), ("a", 1)]


def test_an_episode_that_a_folder_has_twice_counts_once(tmp_path: Path) -> None:
    file = demonstrations(tmp_path) / "demonstrations.jsonl"
    file.write_text(f"{file.read_text()}\n" * 2)

    assert [one.seed for one in lowest_seeds(tmp_path, {"a": 2})] == [0, 1]
    with pytest.raises(BadDemonstrations, match=r"expected 3 episodes of a .* found 2"):
        lowest_seeds(tmp_path, {"a": 3})


def test_too_few_episodes_are_an_error_that_names_the_task(tmp_path: Path) -> None:
    with pytest.raises(BadDemonstrations, match=r"expected 9 episodes of a .* found 2"):
        lowest_seeds(demonstrations(tmp_path), {"a": 9})


def test_a_step_is_shown_the_answers_before_it(model: GuiPolicyModel, tmp_path: Path) -> None:
    first, second, *_ = (one.step for one in examples(model, demonstrations(tmp_path))["a"])
    assert len(second.prompt_ids) == len(first.prompt_ids) + 3
    assert second.prompt_ids[-4:-1] == first.token_ids[:-1]


def test_batches_repeat_with_their_seed_and_draw_tasks_by_emphasis_and_the_root_of_their_steps() -> None:
    rows = {"a": [step_at(0, number=1)] * 36, "b": [step_at(0, number=2)]}
    drawn = list(islice(batches(rows, 50, 3, {"b": 2.0}), 4))
    assert drawn == list(islice(batches(rows, 50, 3, {"b": 2.0}), 4))
    share = sum(one is rows["b"][0] for batch in drawn for one in batch) / 200
    assert 0.18 < share < 0.32  # 2 / (2 + 6)


def test_soft_targets_are_distributions_around_the_target_and_one_hot_elsewhere(
    model: GuiPolicyModel,
) -> None:
    config = model.config
    x = config.first_x_token_id + 10
    wanted = soft_targets(torch.tensor([[4, x, config.first_y_token_id, 1]]), config, sigma_bins=1.0)
    torch.testing.assert_close(wanted.sum(-1), torch.ones(1, 4))
    assert wanted[0, 0, 4] == 1.0
    assert wanted[0, 3, 1] == 1.0
    assert wanted[0, 1].argmax() == x
    assert wanted[0, 1, x + 1] / wanted[0, 1, x] == pytest.approx(np.exp(-0.5))
    assert wanted[0, 2, config.first_y_token_id - 1] == 0.0


def test_the_target_of_a_patch_is_a_gaussian_over_the_rows_and_columns_of_the_screen() -> None:
    config = GuiPolicyConfig("pointer", vocab_size=2000)
    first, columns = config.first_patch_token_id, config.patch_columns
    edge = first + 3 * columns - 1  # at the right end of the third row

    wanted = soft_targets(torch.tensor([[edge]]), config, sigma_bins=PATCH_PX / BIN_PX)[0, 0]

    assert int(wanted.argmax()) == edge
    assert float(wanted.sum()) == pytest.approx(1.0)
    assert not wanted[:first].any()
    squares = {
        edge - 1: 1,
        edge - columns: 1,
        edge + columns: 1,
        edge + columns - 1: 2,
        edge + 1: 1 + (columns - 1) ** 2,
    }
    for patch, square in squares.items():
        assert float(wanted[patch] / wanted[edge]) == pytest.approx(math.exp(-0.5 * square), abs=1e-6)


def test_the_pointer_is_taught_the_cell_in_the_column_of_x_and_the_row_of_y(model: GuiPolicyModel) -> None:
    config = model.config
    targets = torch.tensor([[config.first_x_token_id + 3, config.first_y_token_id + 5]])
    wanted = soft_targets(targets, config, sigma_bins=1e-3)

    def loss(row: int, column: int) -> float:
        scores = torch.zeros(1, 2, config.x_bins * config.y_bins)
        scores[0, 0, row * config.x_bins + column] = 30.0
        return float(_pointer_loss(scores, targets, wanted, config))

    assert loss(5, 3) < 1e-3
    assert loss(3, 5) > 10.0


def test_with_hard_targets_the_answer_loss_is_the_mean_cross_entropy(
    model: GuiPolicyModel, tmp_path: Path
) -> None:
    batch = examples(model, demonstrations(tmp_path))["a"][:2]
    loss = loss_of(model, batch, sigma_bins=1e-3)
    total, count = 0.0, 0
    for example in batch:
        step, pixels = example.step, torch.from_numpy(example.screen.pixels).unsqueeze(0)
        out, _, _ = teacher_forced(model, [step.prompt_ids], [step.token_ids], pixels)
        total += F.cross_entropy(out.logits[0], torch.tensor(step.token_ids), reduction="sum").item()
        count += len(step.token_ids)
    assert loss.answer.item() == pytest.approx(total / count, rel=1e-4)


def test_a_batch_without_coordinates_has_no_pointer_loss(model: GuiPolicyModel, tmp_path: Path) -> None:
    typed = examples(model, demonstrations(tmp_path))["a"][1]
    assert loss_of(model, [typed], 1.0).pointer.item() == 0.0


def test_a_few_updates_on_one_demonstration_make_it_likely(tmp_path: Path) -> None:
    config = GuiPolicyConfig(
        vocab_size=TOKENIZER.get_vocab_size(), hidden_size=32, intermediate_size=64, num_hidden_layers=1
    )
    model = new_policy(config, seed=0)
    batch = examples(model, demonstrations(tmp_path))["a"][:2]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    before = loss_of(model, batch, 0.5)
    for _ in range(40):
        loss = loss_of(model, batch, 0.5)
        optimizer.zero_grad()
        (loss.answer + loss.pointer).backward()
        optimizer.step()
    assert loss.answer.item() < 0.3 * before.answer.item()
    assert loss.pointer.item() < 0.5 * before.pointer.item()


def test_the_learning_rate_warms_up_and_ends_near_zero() -> None:
    config = PretrainConfig(episodes=(("a", 1),), updates=10, warmup_updates=4)
    factors = [lr_factor(update, config.updates, config) for update in range(1, 11)]
    assert factors[:4] == [0.25, 0.5, 0.75, 1.0]
    assert factors[4:] == sorted(factors[4:], reverse=True)
    assert 0.0 < factors[-1] < 0.2


@pytest.mark.parametrize(("coordinates", "key_shape"), [("bins", (1, 32, 6)), ("pointer", (1, 6, 96))])
def test_a_softened_pointer_divides_its_scores_by_the_temperature(
    coordinates: Coordinates, key_shape: tuple[int, ...]
) -> None:
    policy = new_policy(GuiPolicyConfig(coordinates, vocab_size=2000), 0).eval()
    draw = torch.Generator().manual_seed(0)
    hidden, keys = torch.randn(1, 3, 96, generator=draw), torch.randn(key_shape, generator=draw)
    before = policy.pointer(hidden, keys)

    soften_pointer(policy, 2.0)

    torch.testing.assert_close(policy.pointer(hidden, keys), before / 2)
    assert before.std() > 0


def test_the_naming_loss_is_that_of_the_query_at_the_x_token_where_an_instruction_names_a_text(
    tmp_path: Path,
) -> None:
    model = tiny_small_policy(TOKENIZER, reading_channels=(4, 4, 3))
    [click, typed, *_] = examples(model, demonstrations(tmp_path))["a"]
    steps, pixels = [click.step, click.step, typed.step], [click.screen.pixels] * 3
    wanted = torch.tensor([[0.6, 0.8, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])

    def naming(rows: list[int]) -> float:
        chosen = [steps[row] for row in rows]
        return imitation_loss(model, chosen, pixels[: len(rows)], 0.5, wanted[rows]).naming.item()

    of_click = naming([0])
    assert naming([0, 1, 2]) == pytest.approx(of_click), "one step names no text, and one has no point"
    assert naming([1]) == 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(20):
        optimizer.zero_grad()
        imitation_loss(model, steps[:1], pixels[:1], 0.5, wanted[:1]).naming.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert naming([0]) < of_click / 2
