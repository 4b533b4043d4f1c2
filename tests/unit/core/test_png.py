"""Damage to a picture that is found without decoding it."""

import pytest
from PIL import Image

from dart.core.png import FIRST_CHUNK, whole_png_size
from tests.pictures import png_of


@pytest.fixture(scope="module")
def png() -> bytes:
    return png_of(Image.effect_noise((160, 210), 64))


def test_a_whole_picture_has_its_size(png: bytes) -> None:
    assert whole_png_size(png) == (160, 210)


def test_a_byte_that_was_changed_is_found_wherever_it_is(png: bytes) -> None:
    for at in range(FIRST_CHUNK, len(png), 97):
        damaged = png[:at] + bytes([png[at] ^ 1]) + png[at + 1 :]
        with pytest.raises(ValueError, match="expected a"):
            whole_png_size(damaged)


@pytest.mark.parametrize("kept", [9, 30, 1000])
def test_a_picture_without_its_middle_is_refused(png: bytes, kept: int) -> None:
    with pytest.raises(ValueError, match="expected a"):
        whole_png_size(png[:kept] + png[-12:])
