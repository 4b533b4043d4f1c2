"""What the methods of an environment return is checked where an episode takes it."""

import math
import zlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dart.core.types import FaultKind
from dart.environments.faults import CorruptFrame, WrongResult
from dart.environments.protocol import Observation, StepResult
from dart.environments.result_checks import checked_observation, checked_step, refuse_undecodable
from dart.environments.simulated import screenshot_of
from tests.pictures import png_of_data

PNG = screenshot_of("own/square", 1, 0)


def seen(screenshot: Any = PNG, instruction: Any = "Click the square.") -> Observation:
    return Observation(screenshot=screenshot, instruction=instruction)


def test_an_observation_of_a_png_and_a_text_is_returned_as_it_is() -> None:
    observation = seen()
    assert checked_observation("own", "reset", observation) is observation


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (None, "an Observation, got None"),
        ((PNG, "Click"), r"an Observation, got \(b'"),
        (SimpleNamespace(screenshot=PNG, instruction="Click"), "an Observation, got namespace"),
        (seen(instruction=None), "an Observation whose instruction is text, got None"),
        (seen(instruction=b"Click"), "an Observation whose instruction is text, got b'Click'"),
        (seen(instruction="half \ud83d"), "an Observation whose instruction is text, got 'half "),
        (seen(screenshot="screen.png"), "whose screenshot is the bytes of a PNG file, got 'screen.png'"),
        (seen(screenshot=np.zeros((1, 1))), r"whose screenshot is the bytes of a PNG file, got array"),
    ],
)
def test_what_is_no_observation_is_named_with_the_kind_and_the_method(returned: Any, says: str) -> None:
    with pytest.raises(
        WrongResult, match=f"^expected observe of environments of kind 'own' to return .*{says}"
    ):
        checked_observation("own", "observe", returned)


@pytest.mark.parametrize("screenshot", [b"", b"\xff\xd8\xff\xe0JFIF", PNG[:20]])
def test_a_screenshot_that_is_no_png_is_corrupt(screenshot: bytes) -> None:
    with pytest.raises(CorruptFrame, match=f"expected a PNG, got {len(screenshot)} bytes"):
        checked_observation("own", "reset", seen(screenshot))


@pytest.mark.parametrize(
    "screenshot", [PNG[:24], PNG[:-1], PNG[:60] + b"?" + PNG[61:]], ids=["header", "cut off", "damaged"]
)
def test_a_screenshot_that_begins_as_a_png_and_is_not_whole_is_corrupt(screenshot: bytes) -> None:
    with pytest.raises(CorruptFrame, match="expected a whole PNG"):
        checked_observation("own", "observe", seen(screenshot))


def test_a_screenshot_with_bytes_after_its_last_chunk_is_whole() -> None:
    observation = seen(PNG + b"padding")
    assert checked_observation("own", "observe", observation) is observation


def test_a_wrong_result_is_the_environments_fault_and_quotes_no_more_than_a_line() -> None:
    with pytest.raises(WrongResult) as raised:
        checked_step("own", "x" * 10_000)
    assert raised.value.kind is FaultKind.INFRASTRUCTURE
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize("returned", [None, True, (True, None)])
def test_what_is_no_step_result_is_named(returned: Any) -> None:
    with pytest.raises(WrongResult, match=r"expected step of .* 'own' to return a StepResult, got "):
        checked_step("own", returned)


@pytest.mark.parametrize(
    "box", [(1, 2, 3), "four", 7, (1, 2, math.nan, 4), (1, 2, "x", 4), (0, 0, math.inf, 1)]
)
def test_a_box_that_is_not_four_finite_numbers_is_named(box: Any) -> None:
    with pytest.raises(WrongResult, match="a StepResult whose box is None or four numbers, got "):
        checked_step("own", StepResult(terminated=False, box=box))


@pytest.mark.parametrize("box", [np.array([1, 2, 3, 4]), [1, 2, 3, 4], (np.float32(1), 2, 3, np.int64(4))])
def test_a_box_of_numpys_numbers_becomes_one_of_floats_which_can_be_recorded(box: Any) -> None:
    checked = checked_step("own", StepResult(terminated=True, box=box))
    assert checked == StepResult(terminated=True, box=(1.0, 2.0, 3.0, 4.0))
    assert checked.box is not None
    assert {type(side) for side in checked.box} == {float}


def test_a_step_without_a_box_is_returned_as_it_is() -> None:
    result = StepResult(terminated=False)
    assert checked_step("own", result) is result


@pytest.mark.parametrize("data", [b"", b"no pixels", zlib.compress(bytes(17 * 16))[:-6]])
def test_a_whole_picture_that_cannot_be_decoded_is_corrupt_only_when_it_is_decoded(data: bytes) -> None:
    broken = checked_observation("own", "observe", seen(png_of_data(data))).screenshot
    with pytest.raises(CorruptFrame, match="image"):
        refuse_undecodable(broken)


def test_a_picture_that_can_be_decoded_is_not_refused() -> None:
    refuse_undecodable(PNG)
    refuse_undecodable(png_of_data(zlib.compress(bytes(17 * 16))))
