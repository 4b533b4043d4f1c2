"""Paths from tasks and guests, restricted to the folder that they belong to."""

from pathlib import Path


def inside(folder: Path, name: str) -> Path:
    """Return the path of the file ``name`` in a folder, with symbolic links resolved.

    Raises ValueError for a name that is not a path, that names the folder itself, or that leads out of it: an
    absolute path, a path with ``..`` or a path through a symbolic link.
    """
    try:
        root = folder.resolve()
        path = (root / name).resolve()
    except (OSError, RuntimeError, TypeError, ValueError):  # a loop of links, not a text, a NUL
        path = root
    is_loop = any(
        one.is_symlink() for one in (path, *path.parents)
    )  # Python 3.13 resolves loops without error
    if is_loop or root not in path.parents:
        raise ValueError(f"{name!r} leads out of the folder {folder}, by itself or through a link")
    return path
