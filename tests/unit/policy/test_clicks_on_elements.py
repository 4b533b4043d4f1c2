"""The log-prob of clicking an element, at whichever of its points, against sums over all its points."""

import dataclasses
from pathlib import Path

import pytest
import torch

from dart.core.actions import Click, parse_action
from dart.core.boxes import Box
from dart.core.types import Group, Step
from dart.policy.codec import FRAME, GRID, PromptCodec, frame_at_size
from dart.policy.configuration import GuiPolicyConfig
from dart.policy.context import history_answer
from dart.policy.coordinates import CoordinateFrame
from dart.policy.load import load
from dart.policy.modeling import new_policy
from dart.policy.protocols import Screen
from dart.policy.small_policy import SmallPolicy, save_policy
from dart.policy.tokenizer import train_tokenizer
from dart.policy.vocabulary import (
    POINTER,
    X_BINS,
    Y_BINS,
    Coordinates,
    patch_token,
    special_ids,
    x_token,
    y_token,
)
from dart.store.blobs import FolderBlobs
from dart.training.learner import Learner, LearnerConfig
from dart.training.update_report import UpdateReport
from tests.tiny_small_policy import noise_png
from tests.unit.policy.test_pointer_small import TASK, pixels
from tests.unit.training.conftest import step_of, trajectory_of

BOX = (24.0, 32.0, 45.0, 48.0)
"""Three columns and two rows of patches of 8 px; five columns and four rows of bins of 4 px."""

CLICK = "click(start_box='(36,44)')"


def policy_of(folder: Path, coordinates: Coordinates) -> SmallPolicy:
    tokenizer = train_tokenizer([TASK] * 4, coordinates)
    config = GuiPolicyConfig(
        coordinates,
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        stem_channels=(8, 8, 8, 16),
    )
    save_policy(new_policy(config, 3), tokenizer, folder)
    policy = load(folder)
    assert isinstance(policy, SmallPolicy)
    return policy


@pytest.fixture
def pointing(tmp_path: Path) -> SmallPolicy:
    return policy_of(tmp_path / "pointing", "pointer")


@pytest.fixture
def writing(tmp_path: Path) -> SmallPolicy:
    return policy_of(tmp_path / "writing", "bins")


SCREENS = {"0": Screen("0", pixels(1)[0].numpy(), FRAME)}


def answered(codec: PromptCodec, action: str, box: tuple[float, float, float, float] | None = BOX) -> Step:
    tokens = tuple(codec.encode_answer(action, TASK))
    prompt = tuple(codec.encode_prompt(TASK, ()))
    return dataclasses.replace(step_of("0", tokens), prompt_ids=prompt, box=box)


def test_a_patch_counts_as_the_sum_over_the_patches_of_its_element(pointing: SmallPolicy) -> None:
    points = [f"click(start_box='({x},{y})')" for x in (28, 36, 44) for y in (36, 44)]
    steps = [answered(pointing.codec, one) for one in points]
    scores = pointing.score(steps, SCREENS, 1.3)
    assert scores.element_logprobs is not None
    total = scores.logprobs[:, 2].exp().sum().log()
    assert len({step.token_ids for step in steps}) == 6
    torch.testing.assert_close(scores.element_logprobs[:, 2], total.expand(6))
    others = [0, 1, *range(3, scores.logprobs.shape[1])]
    torch.testing.assert_close(scores.element_logprobs[:, others], scores.logprobs[:, others])


def test_a_bin_counts_as_the_sum_over_the_columns_and_then_over_the_rows_of_its_element(
    writing: SmallPolicy,
) -> None:
    columns = [answered(writing.codec, f"click(start_box='({x},44)')") for x in (26, 30, 34, 38, 42)]
    rows = [answered(writing.codec, f"click(start_box='(38,{y})')") for y in (34, 38, 42, 46)]
    of_columns, of_rows = (writing.score(steps, SCREENS, 1.0) for steps in (columns, rows))
    assert of_columns.element_logprobs is not None
    assert of_rows.element_logprobs is not None
    x_total = of_columns.logprobs[:, 1].exp().sum().log()
    torch.testing.assert_close(of_columns.element_logprobs[:, 1], x_total.expand(5))
    y_total = of_rows.logprobs[:, 2].exp().sum().log()
    torch.testing.assert_close(of_rows.element_logprobs[:, 2], y_total.expand(4))


@pytest.mark.parametrize(
    "box",
    [
        (28.0, 36.0, 44.0, 52.0),
        (26.0, 34.0, 42.0, 50.0),
        (28.4, 35.6, 44.4, 51.6),
        (136.0, 196.0, 160.0, 210.0),
        (0.0, 0.0, 160.0, 210.0),
    ],
    ids=[
        "edges on patches",
        "edges on bins",
        "fractions of pixels",
        "last column and row",
        "the whole screen",
    ],
)
@pytest.mark.parametrize("size", [(160, 210), (500, 375)])
def test_an_element_has_the_points_whose_clicks_hit_it(
    box: tuple[float, float, float, float], size: tuple[int, int], pointing: SmallPolicy, writing: SmallPolicy
) -> None:
    """The left and top edges belong to the element, the right and bottom edges do not, as in a browser."""
    frame = frame_at_size(*size)
    element = Box(*box).scaled(size[0] / 160, size[1] / 210)
    for codec in (pointing.codec, writing.codec):
        answers = all_clicks(codec)
        hit = [answer for answer in answers if is_hit(codec, answer, element, frame)]
        assert hit
        columns, rows = ({answer[place] for answer in hit} for place in (1, 2))
        expected = {place: found for place, found in ((1, columns), (2, rows)) if len(found) > 1}
        for answer in answers:
            found = codec.same_element(answer, element, frame)
            assert {place: set(tokens) for place, tokens in found.items()} == (
                expected if answer in hit else {}
            )


def all_clicks(codec: PromptCodec) -> list[list[int]]:
    """Return a click on every point that a policy can write."""
    ids = special_ids(codec.coordinates)
    if codec.coordinates == "pointer":
        points = [(ids[POINTER], ids[patch_token(patch)]) for patch in range(GRID.patches)]
    else:
        points = [(ids[x_token(x)], ids[y_token(y)]) for x in range(X_BINS) for y in range(Y_BINS)]
    return [[ids["<click>"], *point, codec.eos_id] for point in points]


def is_hit(codec: PromptCodec, token_ids: list[int], box: Box, frame: CoordinateFrame) -> bool:
    click = parse_action(codec.decode_action(token_ids, "", frame))
    assert isinstance(click, Click)
    return box.left <= click.x < box.right and box.top <= click.y < box.bottom


@pytest.mark.parametrize(
    ("action", "box"),
    [
        (CLICK, None),
        ("click(start_box='(100,44)')", BOX),
        ("drag(start_box='(36,44)', end_box='(100,100)')", BOX),
        ("wait()", BOX),
        ("type(content='two')", BOX),
    ],
    ids=["background", "a point outside the box", "two points", "no point", "text"],
)
def test_other_answers_count_as_they_were_drawn(
    action: str, box: tuple[float, float, float, float] | None, pointing: SmallPolicy, writing: SmallPolicy
) -> None:
    for policy in (pointing, writing):
        assert policy.score([answered(policy.codec, action, box)], SCREENS, 1.0).element_logprobs is None
        both = policy.score(
            [answered(policy.codec, action, box), answered(policy.codec, CLICK)], SCREENS, 1.0
        )
        assert both.element_logprobs is not None
        torch.testing.assert_close(both.element_logprobs[0], both.logprobs[0])


def test_the_expected_gradient_is_that_of_the_drawn_patches(pointing: SmallPolicy) -> None:
    """Where the reward depends on the element only, both units have the same expected policy gradient."""
    query = pointing.module.pointer.query.weight
    points = [f"click(start_box='({x},{y})')" for x in (28, 36, 44) for y in (36, 44)]
    scores = pointing.score([answered(pointing.codec, one) for one in points], SCREENS, 1.0)
    assert scores.element_logprobs is not None
    chances = scores.logprobs[:, 2].detach().exp()
    drawn, element = (
        torch.autograd.grad((chances * logprobs[:, 2]).sum(), query, retain_graph=True)[0]
        for logprobs in (scores.logprobs, scores.element_logprobs)
    )
    torch.testing.assert_close(drawn, element, rtol=1e-4, atol=1e-7)


def updated(folder: Path, unit: str, blobs: FolderBlobs) -> tuple[UpdateReport, SmallPolicy, Step, Step]:
    """Make one update of a policy of which one click succeeded and one, on another element, failed."""
    policy = SmallPolicy(folder)
    sha256 = blobs.put(noise_png(0))
    screens = {sha256: policy.codec.screen(sha256, blobs.read(sha256))}
    right, wrong = (
        dataclasses.replace(answered(policy.codec, action, box), screenshot_sha256=sha256, policy_version=0)
        for action, box in ((CLICK, BOX), ("click(start_box='(100,100)')", (88.0, 96.0, 120.0, 112.0)))
    )
    scores = policy.score([right, wrong], screens, 1.0)
    recorded = [
        dataclasses.replace(step, logprobs=tuple(row[: len(step.token_ids)].tolist()))
        for step, row in zip((right, wrong), scores.logprobs.detach(), strict=True)
    ]
    trajectories = tuple(
        trajectory_of((step,), reward, number)
        for number, (step, reward) in enumerate(zip(recorded, (1.0, 0.0), strict=True))
    )
    config = LearnerConfig(lr=1e-3, betas=(0.9, 0.99), weight_decay=0.0, kl_beta=0.01, click_unit=unit)  # type: ignore[arg-type]
    learner = Learner(folder, config)
    report = learner.update([Group(group_id=1, task_id="t", seed=7, trajectories=trajectories)], blobs)
    saved = learner.save(folder.parent / unit)
    return report, SmallPolicy(saved), recorded[0], recorded[1]


@pytest.mark.parametrize("coordinates", ["pointer", "bins"])
def test_an_update_moves_whole_elements_and_weighs_what_was_drawn(
    coordinates: Coordinates, tmp_path: Path
) -> None:
    policy_of(tmp_path / "base", coordinates)
    blobs = FolderBlobs(tmp_path / "blobs")
    found: dict[str, float] = {}
    for unit in ("point", "element"):
        report, after, right, wrong = updated(tmp_path / "base", unit, blobs)
        assert report.mismatch_engine == pytest.approx(0.0, abs=1e-5)
        assert report.tis_weight == pytest.approx(1.0, abs=1e-5)
        screens = {one: after.codec.screen(one, blobs.read(one)) for one in (right.screenshot_sha256,)}
        with torch.no_grad():
            before = SmallPolicy(tmp_path / "base").score([right, wrong], screens, 1.0).element_logprobs
            now = after.score([right, wrong], screens, 1.0).element_logprobs
        assert before is not None
        assert now is not None
        gained = (now - before).sum(1)
        found[unit] = float(gained[0] - gained[1])
    assert found["element"] > found["point"] > 0


@pytest.mark.parametrize(
    ("answer", "box", "told"),
    [
        (CLICK, BOX, "click(start_box='(34,40)')"),
        ("left_double(start_box='(36,44)')", BOX, "left_double(start_box='(34,40)')"),
        ("right_single(start_box='(36,44)')", BOX, "right_single(start_box='(34,40)')"),
        (CLICK, None, CLICK),
        ("type(content='two')", BOX, "type(content='two')"),
        ("not an action: <click>", BOX, "not an action: <click>"),
    ],
)
def test_later_prompts_tell_a_click_in_the_middle_of_its_element(
    answer: str, box: tuple[float, float, float, float] | None, told: str
) -> None:
    assert history_answer(answer, box) == told
