"""What has to be known of a PNG without decoding it."""

import struct

TRAILER = b"IEND\xaeB`\x82"
"""The last chunk's name and checksum: a picture that was cut off does not end like this."""


MOST_PIXELS = 7680 * 4320
"""Of the largest screen there is."""


def png_size(png: bytes) -> tuple[int, int]:
    """Width and height in pixels, from the PNG's header; raises ValueError when it is none, or huge."""
    if not png.startswith(b"\x89PNG\r\n\x1a\n") or png[12:16] != b"IHDR" or len(png) < 24:
        raise ValueError(f"expected a PNG, got {len(png)} bytes that start with {png[:8]!r}")
    width, height = struct.unpack(">II", png[16:24])
    refuse_huge(width, height)
    return width, height


def refuse_huge(width_px: int, height_px: int) -> None:
    """Raises ValueError for more pixels than the largest screen has: decoded, they would take the memory.

    Who decodes a picture asks once more, with the size its decoder has found: a header may come twice.
    """
    if width_px * height_px > MOST_PIXELS:
        raise ValueError(f"it has {width_px}x{height_px} pixels, more than {MOST_PIXELS} in all")


def whole_png_size(png: bytes) -> tuple[int, int]:
    """As `png_size`; raises ValueError as well for a picture that was cut off."""
    size = png_size(png)
    if not png.endswith(TRAILER):
        raise ValueError(f"expected a whole PNG, got {len(png)} bytes that end with {png[-8:]!r}")
    return size
