"""Checks of pictures before they are decoded."""

import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

FIRST_CHUNK = 8
"""Offset of the first chunk of a PNG, after the signature."""

TRAILER = b"IEND\xaeB`\x82"
"""Name and checksum of the last chunk of a PNG, which a truncated picture lacks."""


MOST_PIXELS = 7680 * 4320
"""Largest number of pixels of a picture: an 8K screen."""


def png_size(png: bytes) -> tuple[int, int]:
    """Return width and height in pixels from a PNG's header.

    Raises ValueError for bytes that are no PNG, and for a picture with more than `MOST_PIXELS`.
    """
    if not png.startswith(b"\x89PNG\r\n\x1a\n") or png[12:16] != b"IHDR" or len(png) < 24:
        raise ValueError(f"expected a PNG, got {len(png)} bytes that start with {png[:8]!r}")
    width, height = struct.unpack(">II", png[16:24])
    refuse_huge(width, height)
    return width, height


def refuse_huge(width_px: int, height_px: int) -> None:
    """Raise ValueError for a picture with more than `MOST_PIXELS`, which would need too much memory.

    Code that decodes a picture calls this again with the size that the decoder reports, because a file may
    contain a second header.
    """
    if width_px * height_px > MOST_PIXELS:
        raise ValueError(
            f"the picture has {width_px}x{height_px} pixels; at most {MOST_PIXELS} in total are accepted"
        )


def whole_png_size(png: bytes) -> tuple[int, int]:
    """Like `png_size`, but also raises ValueError for a picture that is truncated or damaged.

    The checksum of each chunk is compared. That took at most a fifteenth of the time of decoding.
    """
    size = png_size(png)
    if not png.endswith(TRAILER):
        raise ValueError(f"expected a whole PNG, got {len(png)} bytes that end with {png[-8:]!r}")
    at, view = FIRST_CHUNK, memoryview(png)
    while at < len(png):
        end = at + 8 + int.from_bytes(view[at : at + 4])  # of the data, which its checksum follows
        if int.from_bytes(view[end : end + 4]) != zlib.crc32(view[at + 4 : end]) or end + 4 > len(png):
            raise ValueError(f"expected a whole PNG, got {len(png)} bytes, damaged in the chunk at byte {at}")
        at = end + 4
    return size


def without_rest(png: bytes) -> bytes:
    """Return a PNG without the bytes after its last chunk, which viewers ignore and some programs leave."""
    chunks, trailer, _ = png.partition(TRAILER)
    return chunks + trailer


FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
"""Formats of pictures that are opened. For some others Pillow starts a program that runs what it reads, as
Ghostscript does with EPS, and a data set may come from elsewhere."""


@contextmanager
def opened_picture(source: Path | IO[bytes]) -> "Iterator[Image]":
    """Open a picture of one of `FORMATS`. Pillow decodes it when its pixels are first used.

    Raises OSError, SyntaxError or ValueError when the picture cannot be read, and ValueError when it has more
    than `MOST_PIXELS`.
    """
    from PIL.Image import DecompressionBombError
    from PIL.Image import open as open_image

    try:
        with open_image(source, formats=FORMATS) as picture:
            refuse_huge(*picture.size)
            yield picture
    except DecompressionBombError as error:
        raise ValueError(str(error)) from error
