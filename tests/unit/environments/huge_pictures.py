"""Pictures that become far larger than their files."""

import struct
import zlib

HUGE_BMP = (
    b"BM" + struct.pack("<IHHI", 153, 0, 0, 54) + struct.pack("<IiiHH", 40, 60000, 60000, 1, 24) + bytes(123)
)
"""A picture in a format other than PNG that says that it has 60,000 x 60,000 pixels."""


def huge_png(width: int, height: int, *, said: tuple[int, int] | None = None) -> bytes:
    """A PNG of so many pixels, of which it holds few; ``said`` is the size in a header before its own."""
    sizes = [*([said] if said else []), (width, height)]
    headers = [_chunk(b"IHDR", struct.pack(">II", *size) + bytes((8, 6, 0, 0, 0))) for size in sizes]
    pixels = _chunk(b"IDAT", zlib.compress(b"\0" * 2**20))
    return b"\x89PNG\r\n\x1a\n" + b"".join(headers) + pixels + _chunk(b"IEND", b"")


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
