"""Paths that a task or a guest names, kept inside the folder they belong to."""

from pathlib import Path


def inside(folder: Path, name: str) -> Path:
    """The file ``name`` of a folder, links followed.

    Raises ValueError for a name that leads out of the folder, is the folder itself or is no name: absolute,
    with ``..``, through a link.
    """
    try:
        root = folder.resolve()
        path = (root / name).resolve()
    except (OSError, RuntimeError, TypeError, ValueError):  # a loop of links, no text, a NUL
        path = root
    is_loop = any(one.is_symlink() for one in (path, *path.parents))  # Python 3.13 leaves it as it is
    if is_loop or root not in path.parents:
        raise ValueError(f"{name!r} leads out of the folder {folder}, by itself or through a link")
    return path
