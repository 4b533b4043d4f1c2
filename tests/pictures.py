"""Pictures as PNG files."""

import io

from PIL import Image


def png_of(picture: Image.Image) -> bytes:
    """Return a picture as a PNG file."""
    made = io.BytesIO()
    picture.save(made, "PNG")
    return made.getvalue()


def png(width: int, height: int, colour: int | tuple[int, int, int] = 0) -> bytes:
    """Return the PNG file of a picture of one colour or of one level of grey."""
    return png_of(Image.new("L" if isinstance(colour, int) else "RGB", (width, height), colour))
