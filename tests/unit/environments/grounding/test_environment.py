"""Recorded screenshots as an environment: what an episode shows, what ends it, and what it is worth."""

from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from dart.core.actions import Action, Click, Drag, LeftDouble, RightSingle, Type, Wait
from dart.core.screenspot import GroundingDataError, GroundingSample, read_screenspot
from dart.environments.faults import CorruptFrame, InfrastructureFault, ResetFailed, UnknownTask
from dart.environments.grounding.data_sets import DataSet
from dart.environments.grounding.environment import GroundingEnvironment
from tests.unit.environments.huge_pictures import HUGE_BMP
from tests.unit.grounding.samples import PLACES, data_set, screen

TASK = "grounding/made"
TRAINING, HELD_OUT = 0, 1_000_000
DEADLINE_S = 30.0
CENTRE = PLACES["red"].centre
CORNER = (11, 61)


def sample_of(folder: Path) -> GroundingSample:
    return next(one for one in read_screenspot(data_set(folder)) if "red" in one.instruction)


def environment_of(sample: GroundingSample, reward: str = "hit") -> GroundingEnvironment:
    return GroundingEnvironment({TASK: DataSet((sample,), (sample,))}, reward)  # type: ignore[arg-type]


async def worth(environment: GroundingEnvironment, seed: int, action: Action) -> float:
    """Reward of an episode with one action, which ends it."""
    await environment.reset(TASK, seed, deadline_s=DEADLINE_S)
    assert (await environment.step(action, deadline_s=DEADLINE_S)).terminated
    return await environment.evaluate(deadline_s=DEADLINE_S)


def click(point: tuple[float, float]) -> Click:
    return Click(int(point[0]), int(point[1]))


async def test_a_reset_shows_the_screenshot_and_the_instruction_of_the_sample(tmp_path: Path) -> None:
    environment = environment_of(sample_of(tmp_path))
    seen = await environment.reset(TASK, TRAINING, deadline_s=DEADLINE_S)

    assert seen.instruction == "click what is red"
    assert seen.screenshot == screen()
    assert await environment.observe(deadline_s=DEADLINE_S) == seen
    assert await environment.reset(TASK, TRAINING, deadline_s=DEADLINE_S) == seen


async def test_bytes_after_the_end_of_a_screenshot_are_not_shown(tmp_path: Path) -> None:
    folder = data_set(tmp_path)
    for image in (folder / "images").iterdir():
        image.write_bytes(image.read_bytes() + b"\n")
    environment = environment_of(read_screenspot(folder)[0])

    assert (await environment.reset(TASK, TRAINING, deadline_s=DEADLINE_S)).screenshot == screen()


@pytest.mark.parametrize("cut", [1, 4, 12])
def test_a_screenshot_that_no_reset_could_show_is_refused_with_its_data_set(tmp_path: Path, cut: int) -> None:
    folder = data_set(tmp_path)
    for image in (folder / "images").iterdir():
        image.write_bytes(image.read_bytes()[:-cut])

    with pytest.raises(GroundingDataError, match=r"entry 0: the screenshot .* cannot be read"):
        read_screenspot(folder)


async def test_a_click_in_the_box_is_worth_one_and_one_elsewhere_nothing(tmp_path: Path) -> None:
    environment = environment_of(sample_of(tmp_path))

    assert await worth(environment, TRAINING, click(CORNER)) == 1.0
    assert await worth(environment, TRAINING, Click(9, 61)) == 0.0
    assert await worth(environment, TRAINING, Click(9999, 9999)) == 0.0


async def test_the_gaussian_counts_the_distance_in_training_and_evaluations_count_hits(
    tmp_path: Path,
) -> None:
    environment = environment_of(sample_of(tmp_path), "gaussian")

    assert await worth(environment, TRAINING, click(CENTRE)) == 1.0
    assert 0.3 < await worth(environment, TRAINING, click(CORNER)) < 0.5
    assert 0.0 < await worth(environment, TRAINING, Click(60, 80)) < 0.5
    assert await worth(environment, HELD_OUT, click(CORNER)) == 1.0
    assert await worth(environment, HELD_OUT, Click(60, 80)) == 0.0


@pytest.mark.parametrize("reward", ["hit", "gaussian"])
@pytest.mark.parametrize(
    "action", [Type("red"), Wait(), Drag(30, 80, 30, 80), LeftDouble(30, 80), RightSingle(30, 80)]
)
async def test_an_action_that_is_no_click_is_worth_nothing(
    tmp_path: Path, action: Action, reward: str
) -> None:
    assert await worth(environment_of(sample_of(tmp_path), reward), TRAINING, action) == 0.0


async def test_an_episode_without_an_action_is_worth_nothing(tmp_path: Path) -> None:
    environment = environment_of(sample_of(tmp_path))
    await environment.reset(TASK, TRAINING, deadline_s=DEADLINE_S)

    assert await environment.evaluate(deadline_s=DEADLINE_S) == 0.0


async def test_a_screenshot_that_is_lost_cut_or_another_one_is_a_fault(tmp_path: Path) -> None:
    sample = sample_of(tmp_path)
    environment = environment_of(sample)
    whole = sample.image.read_bytes()

    sample.image.write_bytes(whole[:-9])
    with pytest.raises(CorruptFrame, match="whole PNG"):
        await environment.reset(TASK, TRAINING, deadline_s=DEADLINE_S)
    sample.image.write_bytes(whole)
    other = environment_of(replace(sample, width_px=99))
    with pytest.raises(CorruptFrame, match="expected 99x210 pixels, got 160x210"):
        await other.reset(TASK, TRAINING, deadline_s=DEADLINE_S)
    sample.image.write_bytes(HUGE_BMP)
    with pytest.raises(ResetFailed, match="cannot be read"):
        await environment.reset(TASK, TRAINING, deadline_s=DEADLINE_S)
    sample.image.unlink()
    with pytest.raises(ResetFailed, match="cannot be read") as fault:
        await environment.reset(TASK, TRAINING, deadline_s=DEADLINE_S)
    assert isinstance(fault.value, InfrastructureFault)
    with pytest.raises(RuntimeError, match="evaluate without an episode"):
        await environment.evaluate(deadline_s=DEADLINE_S)


async def test_a_jpeg_becomes_a_png_of_the_same_size(tmp_path: Path) -> None:
    file = tmp_path / "page.jpg"
    Image.open(BytesIO(screen())).save(file)
    environment = environment_of(replace(sample_of(tmp_path), image=file))
    seen = await environment.reset(TASK, TRAINING, deadline_s=DEADLINE_S)

    assert Image.open(BytesIO(seen.screenshot)).size == (160, 210)
    assert Image.open(BytesIO(seen.screenshot)).format == "PNG"


async def test_no_second_action_and_no_unknown_task(tmp_path: Path) -> None:
    environment = environment_of(sample_of(tmp_path))
    with pytest.raises(UnknownTask, match="did you mean grounding/made"):
        await environment.reset("grounding/mad", TRAINING, deadline_s=DEADLINE_S)
    await worth(environment, TRAINING, click(CENTRE))
    with pytest.raises(RuntimeError, match="step after the end of the episode of grounding/made"):
        await environment.step(click(CENTRE), deadline_s=DEADLINE_S)
