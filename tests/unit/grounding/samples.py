"""Made grounding samples: a white screen with one coloured square for each element."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from dart.core.boxes import Box
from dart.core.screenspot import GroundingSample, save_image, write_screenspot
from tests.pictures import png_of

WIDTH, HEIGHT = 160, 210

COLOURS = {"red": (255, 0, 0), "green": (0, 128, 0), "blue": (0, 0, 255)}

PLACES = {"red": Box(10, 60, 50, 100), "green": Box(100, 60, 140, 100), "blue": Box(40, 140, 90, 190)}


def screen(places: dict[str, Box] = PLACES) -> bytes:
    """A PNG of the squares."""
    pixels = np.full((HEIGHT, WIDTH, 3), 255, dtype=np.uint8)
    for name, box in places.items():
        pixels[int(box.top) : int(box.bottom), int(box.left) : int(box.right)] = COLOURS[name]
    return png_of(Image.fromarray(pixels))


def samples(folder: Path, places: dict[str, Box] = PLACES) -> list[GroundingSample]:
    """One sample for each square of a screen that is written to the folder of a data set."""
    image = save_image(folder, screen(places))
    return [
        GroundingSample(
            image=image,
            width_px=WIDTH,
            height_px=HEIGHT,
            instruction=f"click what is {name}",
            box=box,
            element_type="icon",
            source="made",
            kind="box",
            query="colour",
            elements=tuple(places.values()),
        )
        for name, box in places.items()
    ]


def data_set(folder: Path) -> Path:
    """A data set of one screen on disk."""
    write_screenspot(folder, samples(folder))
    return folder


def made_sample(
    box: Box, elements: Sequence[Box] = (), provenance: Mapping[str, Any] | None = None, **values: str
) -> GroundingSample:
    """A sample whose screenshot is not needed."""
    return GroundingSample(
        image=Path("none.png"),
        width_px=100,
        height_px=100,
        instruction=values.get("instruction", "click it"),
        box=box,
        element_type="text",
        source="made",
        kind=values.get("kind", ""),
        query=values.get("query", ""),
        elements=tuple(elements),
        provenance=provenance or {},
    )
