"""Pictures as PNG files."""

import io
import struct
import zlib

from PIL import Image


def png_of(picture: Image.Image) -> bytes:
    """Return a picture as a PNG file."""
    made = io.BytesIO()
    picture.save(made, "PNG")
    return made.getvalue()


def png(width: int, height: int, colour: int | tuple[int, int, int] = 0) -> bytes:
    """Return the PNG file of a picture of one colour or of one level of grey."""
    return png_of(Image.new("L" if isinstance(colour, int) else "RGB", (width, height), colour))


def png_of_data(data: bytes) -> bytes:
    """Return a PNG file of 16x16 grey levels with these bytes as its compressed data, and right checksums."""
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", 16, 16, 8, 0, 0, 0, 0)), (b"IDAT", data), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks
    )
