"""Soft targets, the imitation loss and the samples it is computed on."""

import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from dart.imitation.pretrain import PretrainConfig, lr_factor
from dart.imitation.samples import (
    DemonstrationError,
    Sample,
    batches,
    imitation_loss,
    read_episodes,
    samples_by_task,
    soft_targets,
)
from dart.policy.configuration import GuiPolicyConfig
from dart.policy.modeling import GuiPolicyForImageTextToText, new_policy
from dart.policy.sampling import answer_logits
from dart.policy.small_policy_files import build_processor, codec_of
from dart.policy.tokenizer import train_tokenizer

INSTRUCTION = 'Enter "Ann" and press Submit.'
TOKENIZER = train_tokenizer([INSTRUCTION] * 4)


@pytest.fixture(scope="module")
def model() -> GuiPolicyForImageTextToText:
    torch.set_num_threads(1)
    config = GuiPolicyConfig(
        vocab_size=len(TOKENIZER),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        stem_channels=(8, 8, 8, 16),
        pointer_size=8,
    )
    return new_policy(config, seed=0)


def demonstrations(folder: Path, episodes: int = 2) -> Path:
    (folder / "screenshots").mkdir()
    Image.new("RGB", (160, 210), (255, 0, 0)).save(folder / "screenshots" / "red.png")
    actions = ("click(start_box='(82,122)')", "type(content='Ann')")
    steps = [{"screenshot_sha256": "red", "action": action, "target": None} for action in actions]
    lines = [
        {"task_id": task, "seed": seed, "instruction": INSTRUCTION, "reward": 1.0, "steps": steps}
        for seed in reversed(range(episodes))
        for task in ("b", "a")
    ]
    (folder / "demonstrations.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    return folder


def samples(model: GuiPolicyForImageTextToText, folder: Path) -> dict[str, list[Sample]]:
    codec = codec_of(build_processor(TOKENIZER, model.config.image_tokens))
    return samples_by_task(read_episodes(folder, ("a", "b"), 2), folder, codec)


def test_the_episodes_of_lowest_seed_are_read_whatever_the_order_of_the_file(tmp_path: Path) -> None:
    episodes = read_episodes(demonstrations(tmp_path, episodes=5), ("b", "a"), 2)
    assert [(one["task_id"], one["seed"]) for one in episodes] == [("b", 0), ("b", 1), ("a", 0), ("a", 1)]


def test_too_few_episodes_are_an_error_that_names_the_task(tmp_path: Path) -> None:
    with pytest.raises(DemonstrationError, match=r"expected 9 episodes of a .* found 2"):
        read_episodes(demonstrations(tmp_path), ("a",), 9)


def test_a_step_is_shown_the_answers_before_it(model: GuiPolicyForImageTextToText, tmp_path: Path) -> None:
    first, second, *_ = samples(model, demonstrations(tmp_path))["a"]
    assert len(second.prompt) == len(first.prompt) + 3
    assert second.prompt[-4:-1] == first.answer[:-1]


def test_batches_repeat_with_their_seed_and_draw_tasks_by_emphasis_and_the_root_of_their_steps() -> None:
    pixels = np.zeros((210, 160, 3), np.uint8)
    rows = {"a": [Sample((1,), (1,), pixels)] * 36, "b": [Sample((2,), (2,), pixels)]}
    drawn = list(islice(batches(rows, 50, 3, {"b": 2.0}), 4))
    assert drawn == list(islice(batches(rows, 50, 3, {"b": 2.0}), 4))
    share = sum(one.prompt == (2,) for batch in drawn for one in batch) / 200
    assert 0.18 < share < 0.32  # 2 / (2 + 6)


def test_soft_targets_are_distributions_around_the_target_and_one_hot_elsewhere(
    model: GuiPolicyForImageTextToText,
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


def test_with_hard_targets_the_answer_loss_is_the_mean_cross_entropy(
    model: GuiPolicyForImageTextToText, tmp_path: Path
) -> None:
    batch = samples(model, demonstrations(tmp_path))["a"][:2]
    loss = imitation_loss(model, batch, sigma_bins=1e-3)
    pixels = torch.stack([torch.from_numpy(one.pixels) for one in batch])
    total, count = 0.0, 0
    for row, one in enumerate(batch):
        logits, _, _ = answer_logits(model, [one.prompt], [one.answer], pixels[row : row + 1])
        total += F.cross_entropy(logits[0], torch.tensor(one.answer), reduction="sum").item()
        count += len(one.answer)
    assert loss.answer.item() == pytest.approx(total / count, rel=1e-4)


def test_a_batch_without_coordinates_has_no_pointer_loss(
    model: GuiPolicyForImageTextToText, tmp_path: Path
) -> None:
    typing = samples(model, demonstrations(tmp_path))["a"][1]
    assert imitation_loss(model, [typing], 1.0).pointer.item() == 0.0


def test_a_few_updates_on_one_demonstration_make_it_likely(tmp_path: Path) -> None:
    config = GuiPolicyConfig(
        vocab_size=len(TOKENIZER), hidden_size=32, intermediate_size=64, num_hidden_layers=1
    )
    model = new_policy(config, seed=0)
    batch = samples(model, demonstrations(tmp_path))["a"][:2]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    before = imitation_loss(model, batch, 0.5)
    for _ in range(40):
        loss = imitation_loss(model, batch, 0.5)
        optimizer.zero_grad()
        (loss.answer + loss.pointer).backward()
        optimizer.step()
    assert loss.answer.item() < 0.3 * before.answer.item()
    assert loss.pointer.item() < 0.5 * before.pointer.item()


def test_the_learning_rate_warms_up_and_ends_near_zero() -> None:
    config = PretrainConfig(updates=10, warmup_updates=4)
    factors = [lr_factor(update, config) for update in range(1, 11)]
    assert factors[:4] == [0.25, 0.5, 0.75, 1.0]
    assert factors[4:] == sorted(factors[4:], reverse=True)
    assert 0.0 < factors[-1] < 0.2
