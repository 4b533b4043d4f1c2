"""Functions that judge pictures, by the names OSWorld's tasks call them.

Pictures of different sizes are not alike. Which of two files a function takes first, the one the policy made
or the one the task brought, is the published functions' choice.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageChops, ImageStat

from dart.environments.osworld.likeness import picture_likeness
from dart.environments.osworld.reading import picture_of, reading

ALIKE_FROM, MIRRORED_FROM, ALIKE_IN_CONTRAST_FROM = 0.9, 0.99, 0.65
"""Structural similarity from which two pictures are the same one."""

SURELY_BETTER = 0.01
MEDIUM_BRIGHTNESS = 128
DARK_BELOW = 128
AT_THE_LEFT = 0.05
"""Of the width."""
IN_THE_MIDDLE = 0.05
"""Of width and height, to either side."""

Rules = Mapping[str, Any]


def picture(path: Path) -> Image.Image:
    """Raises Unreadable."""
    with reading(path, "picture"):
        return picture_of(path)


# ---- the same picture ----


def compare_images(result: Path, expected: Path, *, reference_base_result: float | None = None) -> float:
    """How alike two pictures are in grey, brought to the smaller size; with a base result, from what the task
    began with (0) to equal (1)."""
    one, other = picture(result).convert("L"), picture(expected).convert("L")
    size = min(one.size, other.size)
    alike = picture_likeness(
        np.asarray(one.resize(size, Image.Resampling.LANCZOS)),
        np.asarray(other.resize(size, Image.Resampling.LANCZOS)),
        axes=(0, 1),
    )
    if reference_base_result is None:
        return max(0.0, alike)
    if alike < reference_base_result + SURELY_BETTER:
        return 0.0
    return (alike - reference_base_result) / (1 - reference_base_result)


def compare_image_list(result: Path | Sequence[Path], expected: Path | Sequence[Path]) -> float:
    """Every pixel of every picture is the same."""
    found = [result] if isinstance(result, Path) else result
    wanted = [expected] if isinstance(expected, Path) else expected
    return float(all(_is_same(picture(a), picture(b)) for a, b in zip(found, wanted, strict=True)))


def _is_same(one: Image.Image, other: Image.Image) -> bool:
    if one.mode != other.mode or one.size != other.size:
        return False
    return ImageChops.difference(one, other).getbbox() is None


def _are_alike(one: Image.Image, other: Image.Image, least: float = ALIKE_FROM) -> bool:
    """By structural similarity: windows lie along height and width.

    In a picture of one channel along the height only: the published functions take its columns for colours,
    and their limits are made for that.
    """
    a, b = np.asarray(one), np.asarray(other)
    axes = (0, 1) if a.ndim == 3 else (0,)
    return a.shape == b.shape and picture_likeness(a, b, axes=axes) >= least


def check_structure_sim(result: Path, expected: Path) -> float:
    return float(_are_alike(picture(result), picture(expected)))


check_file_exists_and_structure_sim = check_structure_sim
"""A file that is not there is not judged at all."""


def check_structure_sim_resized(result: Path, expected: Path) -> float:
    """The same once what is not transparent has the size of the other."""
    found, wanted = picture(result), picture(expected)
    if _is_transparent(found):
        box = _seen(found)
        if box is None:
            return 0.0
        found = found.convert("RGBA").crop(box).convert("RGB")
    wanted = wanted if wanted.mode == "RGB" else wanted.convert("RGB")
    return float(_are_alike(found.resize(wanted.size), wanted))


def _is_transparent(image: Image.Image) -> bool:
    return image.mode in ("RGBA", "LA") or "transparency" in image.info


def _seen(image: Image.Image) -> tuple[int, int, int, int] | None:
    """The box around what is not wholly transparent; None when all is."""
    return image.convert("RGBA").getchannel("A").getbbox()


def check_image_mirror(result: Path, expected: Path) -> float:
    """One is the other, left for right."""
    mirrored = picture(result).transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return float(_are_alike(mirrored, picture(expected), MIRRORED_FROM))


def check_palette_and_structure_sim(result: Path, expected: Path) -> float:
    """The same picture, its colours now from a palette."""
    found = picture(result)
    return float(found.mode == "P" and _are_alike(found.convert("RGB"), picture(expected)))


# ---- the same picture, changed in one way ----


def check_brightness_decrease_and_structure_sim(
    result: Path, expected: Path, threshold: float = 0.03
) -> float:
    """The first is darker, and the same once both are equally bright.

    threshold   the largest mean square of the differences of pixels in [0, 1]
    """
    dark, bright = picture(result), picture(expected)
    if _brightness(dark) >= _brightness(bright) or dark.size != bright.size:
        return 0.0
    a, b = (np.asarray(_equally_bright(one), dtype=np.float64) / 255 for one in (dark, bright))
    return float(a.shape == b.shape and float(np.mean((a - b) ** 2)) < threshold)


def decrease_brightness(before: Path, after: Path) -> float:
    return float(_brightness(picture(before)) > _brightness(picture(after)))


def _brightness(image: Image.Image) -> float:
    return float(ImageStat.Stat(image.convert("L")).mean[0])


def _equally_bright(image: Image.Image) -> Image.Image:
    factor = MEDIUM_BRIGHTNESS / max(_brightness(image), 1e-9)
    return image.point(lambda value: min(255, max(0, int(value * factor))))


def check_saturation_increase_and_structure_sim(result: Path, expected: Path) -> float:
    """The colours of the first are stronger; hue and brightness are the same."""
    found, wanted = picture(result).convert("HSV"), picture(expected).convert("HSV")
    hue, strength, value = found.split()
    hue_before, strength_before, value_before = wanted.split()
    return float(
        _mean(strength) > _mean(strength_before)
        and _are_alike(hue, hue_before)
        and _are_alike(value, value_before)
    )


def increase_saturation(before: Path, after: Path) -> float:
    a, b = (picture(path).convert("HSV").getchannel("S") for path in (before, after))
    return float(_mean(a) < _mean(b))


def _mean(channel: Image.Image) -> float:
    return float(np.mean(np.asarray(channel)))


def check_contrast_increase_and_structure_sim(result: Path, expected: Path) -> float:
    """The pixels of the first are further apart, and it is still the same picture."""
    found, wanted = picture(result), picture(expected)
    a, b = (np.asarray(one, dtype=np.float64) for one in (found, wanted))
    return float(np.std(a) > np.std(b) and _are_alike(found, wanted, ALIKE_IN_CONTRAST_FROM))


def check_sharper(result: Path, expected: Path) -> float:
    """The edges of the first are steeper."""
    return float(_sharpness(picture(result)) > _sharpness(picture(expected)))


def _sharpness(image: Image.Image) -> float:
    """The variance of what the Laplace operator makes of it."""
    grey = np.pad(np.asarray(image.convert("L"), dtype=np.float64), 1, mode="reflect")
    edges = grey[:-2, 1:-1] + grey[2:, 1:-1] + grey[1:-1, :-2] + grey[1:-1, 2:] - 4 * grey[1:-1, 1:-1]
    return float(np.var(edges))


def check_green_background(result: Path, expected: Path) -> float:
    """Wherever the other is not black, the first is more green than red or blue."""
    found, wanted = (np.asarray(picture(path).convert("RGB"), dtype=int) for path in (result, expected))
    if found.shape != wanted.shape:
        return 0.0
    is_background = wanted.any(axis=2)
    red, green, blue = (found[..., channel][is_background] for channel in range(3))
    return float(np.all((green > red) & (green > blue)))


# ---- where something is, and how large ----


def check_triangle_position(result: Path) -> float:
    """The middle of the second most common colour is in the middle of the picture."""
    pixels = np.asarray(picture(result).convert("RGBA"))
    colours, places, counts = np.unique(
        pixels.reshape(-1, pixels.shape[2]), axis=0, return_inverse=True, return_counts=True
    )
    if len(colours) < 2:
        return 0.0
    second = np.argsort(counts)[-2]
    where = np.argwhere(places.reshape(pixels.shape[:2]) == second)
    size = np.array(pixels.shape[:2])
    return float(np.all(np.abs(where.mean(axis=0) - size / 2) < IN_THE_MIDDLE * size))


def check_textbox_on_leftside(result: Path) -> float:
    """Something dark is at the left edge."""
    dark = np.asarray(picture(result).convert("L")) < DARK_BELOW
    columns = np.flatnonzero(dark.any(axis=0))
    return float(bool(len(columns)) and columns[0] < AT_THE_LEFT * dark.shape[1])


def check_image_size(result: Path, rules: Rules) -> float:
    """Width and height, where they are said; with ``ignore_transparent``, of what is seen."""
    found = picture(result)
    width, height = found.size
    if rules.get("ignore_transparent") and _is_transparent(found):
        left, top, right, bottom = _seen(found) or (0, 0, 0, 0)
        width, height = right - left, bottom - top
    return float(rules.get("width") in (None, width) and rules.get("height") in (None, height))


def check_image_file_size(result: Path, rules: Rules) -> float:
    """The file has fewer bytes than this."""
    return float(result.stat().st_size < rules["max_size"])
