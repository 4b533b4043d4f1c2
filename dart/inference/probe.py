"""The question an engine must answer before it may serve: a blank screen and a plain instruction."""

import io
from pathlib import Path

from PIL import Image

from dart.core.types import GenerateRequest
from dart.store.blobs import BlobStore

WIDTH, HEIGHT = 160, 210
"""The pixel frame of the MiniWoB++ pages."""


def probe_request(blobs_dir: Path) -> GenerateRequest:
    """A request any engine of this policy can answer; its screenshot is put among the blobs."""
    picture = io.BytesIO()
    Image.new("RGB", (WIDTH, HEIGHT), "white").save(picture, "PNG")
    blobs = BlobStore(blobs_dir)
    sha256 = blobs.put(picture.getvalue())
    return GenerateRequest(
        screenshot_path=str(blobs.path(sha256)),
        screenshot_sha256=sha256,
        instruction="Click the button.",
        history=(),
        temperature=1.0,
    )
