"""ScreenSpot's format: screenshots with instructions and the box of the element that each one means.

Reads the annotations of ScreenSpot and ScreenSpot-v2 (Cheng et al. 2024, arXiv 2401.10935; Wu et al. 2024,
arXiv 2410.23218: boxes as x, y, width, height), of ScreenSpot-Pro (Li et al. 2025, arXiv 2504.07981: boxes as
left, top, right, bottom, with `img_size`), and of the data sets that this project makes. Writes only the last
kind. Such a data set has the layout of ScreenSpot-v2 with further keys, so that other programs can read it::

    DIR/annotations.json        a list of objects, one for each sample
    DIR/images/<sha256>.png     each screenshot once

The module is in `dart.core` because packages that do not import each other share it: explorers of sites write
the format, grounding reads and writes it. Pillow only reads the sizes of images.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeGuard

from dart.core.boxes import Box
from dart.core.errors import UnavailableError
from dart.core.png import opened_picture, png_size, whole_png_size, without_rest

ElementType = Literal["text", "icon"]
"""`text` if the element shows the words that name it, else `icon`. ScreenSpot reports both separately."""

ANNOTATIONS, IMAGES = "annotations.json", "images"

IMAGE_FOLDERS = (IMAGES, "screenspot_imgs", "screenspotv2_image", ".")
"""Names of the folders in which the published data sets and ours keep screenshots, beside the annotations."""

ROUNDING_PX = 1.0
"""Largest distance by which a box may lie outside of its screenshot, because annotations are rounded. Such a
box is cut at the screenshot's border."""


class GroundingDataError(UnavailableError):
    """A data set for grounding cannot be used; the message says which entry, why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundingSample:
    """One instruction for one screenshot, and the element that it means."""

    image: Path
    """File of the screenshot."""
    width_px: int
    height_px: int
    instruction: str
    box: Box
    """The element, in pixels of the screenshot."""
    element_type: ElementType
    source: str
    """Platform, site or task that the screenshot shows."""
    kind: str = ""
    """Kind of the element, such as `button`; empty if the data set does not say."""
    query: str = ""
    """By what the instruction names the element, such as `colour` or `text`; empty if unknown."""
    elements: tuple[Box, ...] = ()
    """All elements among which the instructions of this screenshot choose; empty if unknown."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Where the sample comes from, as plain data: seed, task, screen, run."""


# ---- reading ----


def read_screenspot(path: Path, images: Path | None = None, *, whole: bool = True) -> list[GroundingSample]:
    """Read all samples of an annotation file, or of all annotation files of a folder, in the files' order.

    images   folder of the screenshots; None: the first folder of IMAGE_FOLDERS, beside the annotations or one
             folder up, that has the screenshot
    whole    whether every screenshot is read to its end and checked; else only its size is read

    Raises GroundingDataError: no annotations, an empty set, a missing or unreadable screenshot, a box outside
    of its screenshot, an entry without a required key.
    """
    samples = [sample for file in _annotation_files(path) for sample in _samples(file, images, whole)]
    if not samples:
        raise GroundingDataError(f"{path} has no samples: its annotations are empty lists; build it again")
    return samples


def _annotation_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    folders = (path, path / "annotations")
    files = [file for folder in folders if folder.is_dir() for file in sorted(folder.glob("*.json"))]
    if not files:
        raise GroundingDataError(
            f"{path} has no annotations: expected a ScreenSpot annotation file (*.json), or a folder "
            "with some in it or in its folder annotations"
        )
    return files


def _samples(file: Path, images: Path | None, whole: bool) -> Iterator[GroundingSample]:
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise GroundingDataError(f"{file} cannot be read as JSON: {error}; fetch it again") from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise GroundingDataError(
            f"{file}: expected a list of objects, as ScreenSpot's annotations are, got "
            f"{type(entries).__name__}; name the annotation file itself"
        )
    reader = _FileReader(file, images, whole)
    for number, entry in enumerate(entries):
        yield reader.sample(number, entry)


class _FileReader:
    """Turns the entries of one annotation file into samples."""

    def __init__(self, file: Path, images: Path | None, whole: bool) -> None:
        self._file = file
        self._size_of = _checked_size if whole else _image_size
        self._folders = [images] if images else _image_folders(file)
        self._sizes: dict[Path, tuple[int, int]] = {}

    def sample(self, number: int, entry: Mapping[str, Any]) -> GroundingSample:
        name = self._text(number, entry, "img_filename")
        image = self._image(number, name)
        size = self._size(number, image)
        if "img_size" in entry and entry["img_size"] != [*size]:
            raise self._refusal(
                number,
                f"img_size says {entry['img_size']}, but {image} has {size[0]}x{size[1]} pixels; "
                "use the screenshots that belong to these annotations",
            )
        kind = str(entry.get("ui_type", entry.get("data_type", "")))
        if kind not in ("text", "icon"):
            raise self._refusal(number, f"expected data_type or ui_type to be text or icon, got {kind!r}")
        return GroundingSample(
            image=image,
            width_px=size[0],
            height_px=size[1],
            instruction=self._text(number, entry, "instruction"),
            box=self._box(number, entry, size),
            element_type="text" if kind == "text" else "icon",
            source=str(entry.get("data_source") or entry.get("application") or entry.get("platform") or ""),
            kind=str(entry.get("kind", "")),
            query=str(entry.get("query", "")),
            elements=tuple(self._elements(number, entry, size)),
            provenance=self._provenance(number, entry),
        )

    def _text(self, number: int, entry: Mapping[str, Any], key: str) -> str:
        found = entry.get(key)
        if not isinstance(found, str) or not found:
            raise self._refusal(number, f"expected a text under {key!r}, got {found!r}")
        return found

    def _image(self, number: int, name: str) -> Path:
        for folder in self._folders:
            image = folder / name
            if image.is_file() and image.resolve().is_relative_to(folder.resolve()):
                return image
        searched = ", ".join(map(str, self._folders))
        raise self._refusal(
            number, f"the screenshot {name!r} is missing: searched in {searched}; fetch the images too"
        )

    def _size(self, number: int, image: Path) -> tuple[int, int]:
        """Return width and height of a screenshot."""
        if image not in self._sizes:
            try:
                self._sizes[image] = self._size_of(image)
            except (OSError, SyntaxError, ValueError) as error:
                problem = f"the screenshot {image} cannot be read: {error}; fetch it again"
                raise self._refusal(number, problem) from error
        return self._sizes[image]

    def _box(self, number: int, entry: Mapping[str, Any], size: tuple[int, int]) -> Box:
        """Return the box of an entry, cut to the screenshot. ScreenSpot-Pro's entries have an img_size."""
        found = entry.get("bbox")
        if not is_four_numbers(found):
            raise self._refusal(number, f"expected a bbox of four numbers, got {found!r}")
        left, top, third, fourth = found
        right, bottom = (third, fourth) if "img_size" in entry else (left + third, top + fourth)
        try:
            return cut_box(left, top, right, bottom, size)
        except ValueError as error:
            raise self._refusal(number, f"{error}; correct or remove this entry") from error

    def _elements(self, number: int, entry: Mapping[str, Any], size: tuple[int, int]) -> Iterator[Box]:
        """Yield the boxes of all elements of a screenshot, cut to it."""
        found = entry.get("elements", [])
        if not isinstance(found, list) or not all(map(is_four_numbers, found)):
            raise self._refusal(number, "expected elements to be a list of lists of four numbers")
        for left, top, width, height in found:
            try:
                yield cut_box(left, top, left + width, top + height, size)
            except ValueError as error:
                raise self._refusal(number, f"in elements, {error}; correct or remove it") from error

    def _provenance(self, number: int, entry: Mapping[str, Any]) -> dict[str, Any]:
        found = entry.get("provenance", {})
        if not isinstance(found, dict):
            raise self._refusal(
                number, f"expected provenance to be an object, got {found!r}; correct or remove it"
            )
        return found

    def _refusal(self, number: int, problem: str) -> GroundingDataError:
        return GroundingDataError(f"{self._file}, entry {number}: {problem}")


def is_four_numbers(value: object) -> TypeGuard[list[float]]:
    """Whether a value from JSON is a list of four numbers, so that it can be the sides of a box."""
    return (
        isinstance(value, list) and len(value) == 4 and all(isinstance(side, int | float) for side in value)
    )


def cut_box(left: float, top: float, right: float, bottom: float, size: tuple[int, int]) -> Box:
    """Return the box, cut at the borders of a screenshot of this width and height.

    Raises ValueError for a box without area, and for a box that lies outside by more than ROUNDING_PX.
    """
    box, (width, height) = Box(left, top, right, bottom), size
    excess = max(-box.left, -box.top, box.right - width, box.bottom - height)
    if excess > ROUNDING_PX:
        raise ValueError(
            f"the box {box} lies outside of its screenshot of {width}x{height} pixels by {excess:g} px"
        )
    return Box(max(0, box.left), max(0, box.top), min(width, box.right), min(height, box.bottom))


def _image_folders(file: Path) -> list[Path]:
    around = (file.parent, file.parent.parent)
    return [folder / name for folder in around for name in IMAGE_FOLDERS]


def _image_size(image: Path) -> tuple[int, int]:
    """Return width and height of a screenshot from the beginning of its file.

    Raises OSError, SyntaxError or ValueError for a file that does not begin as a picture.
    """
    with opened_picture(image) as picture:
        return picture.size


def _checked_size(image: Path) -> tuple[int, int]:
    """Return width and height of a screenshot.

    The whole file is read, so that a damaged screenshot is an error now, and not in the middle of a job. A
    PNG passes the check that it has to pass when an environment shows it; it is not decoded.

    Raises OSError, SyntaxError or ValueError for a screenshot that is damaged.
    """
    with opened_picture(image) as picture:
        if picture.format == "PNG":
            return whole_png_size(without_rest(image.read_bytes()))
        picture.load()
        return picture.size


# ---- splitting ----


def split_by_image(
    samples: Sequence[GroundingSample], held_out_share: float
) -> tuple[list[GroundingSample], list[GroundingSample]]:
    """Split samples by screenshot, never by instruction. Returns samples for training and held-out samples.

    All samples of one screenshot are on the same side, so that no held-out screen is trained on. The hashes
    of the screenshots' file names decide. So the split depends neither on the order of the samples nor on
    what a file name says about its screenshot.

    held_out_share   share of the screenshots, in [0, 1], whose samples are held out
    """
    names = {sample.image.name for sample in samples}
    images = sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())
    held_out = set(images[: round(len(images) * held_out_share)])
    kept = [sample for sample in samples if sample.image.name not in held_out]
    return kept, [sample for sample in samples if sample.image.name in held_out]


# ---- writing ----


def save_image(folder: Path, png: bytes) -> Path:
    """Write a screenshot into the folder of a data set, under its hash, unless it is there. Returns its path.

    Raises ValueError when it is not a PNG.
    """
    png_size(png)
    return save_under_hash(folder / IMAGES, png)


def save_under_hash(images: Path, png: bytes) -> Path:
    """Write a screenshot as `<sha256>.png`, whole or not at all, unless it is there. Returns its path."""
    images.mkdir(parents=True, exist_ok=True)
    path = images / f"{hashlib.sha256(png).hexdigest()}.png"
    if not path.exists():
        partial = path.with_suffix(".partial")
        partial.write_bytes(png)
        partial.replace(path)
    return path


def write_screenspot(folder: Path, samples: Iterable[GroundingSample]) -> int:
    """Write the annotations of samples whose screenshots `save_image` wrote. Returns the number of samples.

    The file is replaced at once: a reader sees the old annotations or all of the new ones.

    Raises GroundingDataError if there are no samples, if a screenshot is in another folder, or if a box lies
    outside of its screenshot.
    """
    entries = [_entry(folder, number, sample) for number, sample in enumerate(samples)]
    if not entries:
        raise GroundingDataError(f"no samples to write to {folder}: a data set has at least one")
    partial = folder / f"{ANNOTATIONS}.partial"
    partial.write_text("[\n" + ",\n".join(map(json.dumps, entries)) + "\n]\n", encoding="utf-8")
    partial.replace(folder / ANNOTATIONS)
    return len(entries)


def _entry(folder: Path, number: int, sample: GroundingSample) -> dict[str, Any]:
    if sample.image.parent != folder / IMAGES:
        raise GroundingDataError(
            f"sample {number} ({sample.instruction!r}): its screenshot {sample.image} is not in "
            f"{folder / IMAGES}; write it with save_image first"
        )
    try:
        size = sample.width_px, sample.height_px
        box = cut_box(sample.box.left, sample.box.top, sample.box.right, sample.box.bottom, size)
    except ValueError as error:
        raise GroundingDataError(f"sample {number} ({sample.instruction!r}): {error}") from error
    return {
        "img_filename": sample.image.name,
        "bbox": _sides(box),
        "instruction": sample.instruction,
        "data_type": sample.element_type,
        "data_source": sample.source,
        "kind": sample.kind,
        "query": sample.query,
        "elements": [_sides(element) for element in sample.elements],
        "provenance": dict(sample.provenance),
    }


def _sides(box: Box) -> Sequence[float]:
    """Return a box as ScreenSpot writes it: x, y, width, height."""
    return [box.left, box.top, box.width, box.height]
