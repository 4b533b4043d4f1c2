"""Screenshots on disk, each named by the sha256 of its bytes.

A blob is written to a temporary file beside its place and then renamed, so that a reader sees all of it or
nothing, and two writers of the same screenshot do no harm. There is no fsync: what a process has written
outlives the process. If the machine crashes a blob can be lost, which `read` detects by its hash.
"""

import errno
import hashlib
import tempfile
from pathlib import Path

from dart.core.run_directory import make_private
from dart.store.errors import BlobCorrupt, BlobMissing, StoreBusy, StoreUnavailable

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class BlobStore:
    """Content-addressed PNG files: <root>/ab/abcd….png. Any number of processes may share it."""

    def __init__(self, root: Path, *, read_only: bool = False) -> None:
        self.root = root
        if read_only:
            return
        try:
            make_private(root)
            for first in range(256):
                (root / f"{first:02x}").mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise unavailable(root, error) from error

    def path(self, sha256: str) -> Path:
        """The path of a blob, whether or not the file exists."""
        return self.root / sha256[:2] / f"{sha256}.png"

    def put(self, content: bytes) -> str:
        """Store a screenshot and return its sha256 in hex.

        A screenshot that is stored already is written again only if its file has another size.
        """
        sha256 = hashlib.sha256(content).hexdigest()
        path = self.path(sha256)
        if not is_file_of(path, len(content)):
            write_whole(path, content)
        return sha256

    def read(self, sha256: str) -> bytes:
        """The bytes of a blob. Raises BlobMissing or BlobCorrupt."""
        path = self.path(sha256)
        try:
            content = path.read_bytes()
        except FileNotFoundError as error:
            raise BlobMissing(
                sha256,
                f"screenshot {path} is missing: restore it from a copy of the run's blobs folder; "
                "without it the groups that name it are dropped instead of trained",
            ) from error
        except OSError as error:
            raise unavailable(path, error) from error
        found = hashlib.sha256(content).hexdigest()
        if found != sha256:
            raise BlobCorrupt(
                sha256,
                f"screenshot {path} has {len(content)} bytes with sha256 {found}: delete it and restore a "
                "copy; without it the groups that name it are dropped instead of trained",
            )
        return content

    def remove_leftovers(self) -> None:
        """Remove the temporary files of killed writers. Call it only while no process writes."""
        for left_over in self.root.glob("*/.*.part"):
            left_over.unlink()


def is_file_of(path: Path, size_bytes: int) -> bool:
    """Whether a file of this size exists; a crash of the machine can cut a file."""
    try:
        return path.stat().st_size == size_bytes
    except FileNotFoundError:
        return False


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that no reader sees a part of it. Raises StoreUnavailable, leaving nothing behind."""
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", suffix=".part", delete=False) as file:
            temporary = Path(file.name)
            file.write(content)
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise unavailable(path, error) from error


def unavailable(path: Path, error: OSError) -> StoreUnavailable:
    kind = StoreBusy if error.errno in NO_ROOM else StoreUnavailable
    return kind(
        f"{path} cannot be read or written: {error.strerror} (errno {error.errno}): "
        "free space there, or fix the rights of the folder"
    )
