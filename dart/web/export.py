"""A trajectory as one HTML file that needs no other file. Everything here blocks."""

import base64
import hashlib
from functools import partial
from pathlib import Path

from dart.core.errors import DiskError
from dart.core.run_directory import RunPaths
from dart.store.blobs import BlobStore
from dart.store.errors import BlobDamage
from dart.web.render import render, static
from dart.web.run_view import RunView
from dart.web.trajectory_pages import EpisodePage


def trajectory_html(run: RunView, rollout_id: int) -> str:
    """The viewer's page of a rollout with its pictures, style and script inside.

    The content security policy of the file admits nothing but that style and script, by their hashes.
    raises   UsageError when there is no such rollout
    """
    style, script = (static(name).decode() for name in ("style.css", "app.js"))
    blobs = BlobStore(run.paths.blobs, read_only=True)
    return render(
        "export.html",
        episode=EpisodePage(run, rollout_id),
        run_name=run.paths.root.name,
        screenshot=partial(_as_data, blobs),
        style=style,
        script=script,
        policy=f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'",
    )


def write_trajectory(paths: RunPaths, rollout_id: int, file: Path) -> None:
    """Write a rollout of the run into a file. Raises UsageError, and DiskError when it cannot be written."""
    with RunView(paths) as run:
        html = trajectory_html(run, rollout_id)
    try:
        file.write_text(html, encoding="utf-8")
    except OSError as error:
        raise DiskError(f"{file} cannot be written: {error.strerror}; name another with --html") from error


def _as_data(blobs: BlobStore, sha256: str) -> str:
    """A screenshot as a data address; an empty one for a screenshot that is lost or damaged."""
    try:
        content = blobs.read(sha256)
    except BlobDamage:
        return "data:,"
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
