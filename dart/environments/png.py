"""What has to be known of a PNG without decoding it."""

import struct


def png_size(png: bytes) -> tuple[int, int]:
    """Width and height in pixels, from the PNG's header; raises ValueError when it is none."""
    if not png.startswith(b"\x89PNG\r\n\x1a\n") or png[12:16] != b"IHDR" or len(png) < 24:
        raise ValueError(f"expected a PNG, got {len(png)} bytes that start with {png[:8]!r}")
    width, height = struct.unpack(">II", png[16:24])
    return width, height
