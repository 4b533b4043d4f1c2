"""The supervised loss of a pointer head: which steps take part, and what it teaches."""

import dataclasses
from pathlib import Path

import pytest
import torch
from PIL import Image

from dart.core.types import Group, Step
from dart.policy.base import Policy
from dart.policy.codec import FRAME, GRID
from dart.policy.load import load
from dart.policy.protocols import Screen, UnsupportedCheckpoint
from dart.policy.small_policy import save_policy
from dart.store.blobs import FolderBlobs
from dart.testing.tiny_families import make_tiny_qwen
from dart.training.batch import StepSample
from dart.training.learner import Learner, LearnerConfig
from dart.training.pointer_loss import pointer_loss
from tests.pictures import png_of
from tests.unit.policy.test_pointer_small import CODEC, TASK, TOKENIZER, pixels, pointing_policy
from tests.unit.training.conftest import step_of, trajectory_of

CLICK = "click(start_box='(30,40)')"
BOX = (24.0, 32.0, 56.0, 48.0)
"""Four columns and two rows of patches."""

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    save_policy(pointing_policy(3), TOKENIZER, tmp_path / "policy")
    return load(tmp_path / "policy")


@pytest.fixture
def screens() -> dict[str, Screen]:
    return {"0": Screen("0", pixels(1)[0].numpy(), FRAME)}


def sample(action: str = CLICK, advantage: float = 1.0, **changes: object) -> StepSample:
    tokens = tuple(CODEC.encode_answer(action, TASK))
    step: Step = dataclasses.replace(
        step_of("0", tokens), prompt_ids=tuple(CODEC.encode_prompt(TASK, ())), **{"box": BOX, **changes}
    )
    return StepSample(step=step, advantage=advantage)


def loss_of(samples: list[StepSample], policy: Policy, screens: dict[str, Screen]) -> torch.Tensor:
    scores = policy.score([one.step for one in samples], screens, 1.0)
    return pointer_loss(samples, scores, screens, policy)


def value_of(samples: list[StepSample], policy: Policy, screens: dict[str, Screen]) -> float:
    return float(loss_of(samples, policy, screens).detach())


def test_the_loss_is_the_divergence_from_the_patches_under_the_box(
    policy: Policy, screens: dict[str, Screen]
) -> None:
    patches = policy.score([sample().step], screens, 1.0).patches
    assert patches is not None
    attention = patches.logits[0].detach().log_softmax(-1)
    inside = [row * GRID.columns + column for row in (4, 5) for column in (3, 4, 5, 6)]
    expected = -torch.log(torch.tensor(8.0)) - attention[inside].mean()
    assert value_of([sample()], policy, screens) == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize(
    "left_out",
    [
        sample(advantage=-1.0),
        sample(box=None),
        sample("drag(start_box='(4,12)', end_box='(156,204)')"),
        sample("wait()"),
    ],
    ids=["a failure", "no box", "two points", "no point"],
)
def test_a_step_without_a_label_counts_as_none(
    left_out: StepSample, policy: Policy, screens: dict[str, Screen]
) -> None:
    assert value_of([left_out], policy, screens) == 0.0
    alone = value_of([sample()], policy, screens)
    assert value_of([left_out, sample()], policy, screens) == pytest.approx(alone / 2, rel=1e-4)


def test_its_gradient_makes_the_head_point_into_the_box(policy: Policy, screens: dict[str, Screen]) -> None:
    optimizer = torch.optim.AdamW(policy.trainable(), lr=3e-3)
    losses = []
    for _ in range(10):
        loss = loss_of([sample()], policy, screens)
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert losses[-1] < 0.5 * losses[0]


def test_a_weight_without_a_head_is_refused_with_the_remedy() -> None:
    base = REPOSITORY / "configs" / "base-policy"
    with pytest.raises(UnsupportedCheckpoint, match="no pointer head; set it to 0"):
        Learner(base, LearnerConfig(pointer_weight=0.5))


def test_clicks_on_elements_are_refused_for_a_policy_that_writes_digits(tmp_path: Path) -> None:
    make_tiny_qwen(tmp_path / "tiny")
    with pytest.raises(UnsupportedCheckpoint, match=r"click_unit is element.*digits.*set it to point"):
        Learner(tmp_path / "tiny", LearnerConfig(click_unit="element"))


def test_an_update_reports_the_loss_and_trains_with_it(tmp_path: Path) -> None:
    save_policy(pointing_policy(3), TOKENIZER, tmp_path / "policy")
    blobs = FolderBlobs(tmp_path / "blobs")
    shown = blobs.put(png_of(Image.fromarray(pixels(1)[0].numpy())))
    step = dataclasses.replace(sample().step, screenshot_sha256=shown)
    trajectories = tuple(trajectory_of((step,), reward, int(reward)) for reward in (1.0, 0.0))
    group = Group(group_id=1, task_id="click-test", seed=7, trajectories=trajectories)
    without, reported = (
        Learner(tmp_path / "policy", LearnerConfig(lr=1e-3, kl_beta=0.0, pointer_weight=weight)).update(
            [group], blobs
        )
        for weight in (0.0, 1.0)
    )
    assert without.pointer_loss == 0.0
    assert reported.pointer_loss > 0.0
    assert reported.loss == pytest.approx(without.loss + reported.pointer_loss, rel=1e-4)
