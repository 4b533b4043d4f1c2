"""A copy of a board for readers on another machine.

The clocks of two machines count their nanoseconds from different moments. So every moment is shifted when a
copy is written: what was 3 s old when the board was read is 3 s old when the copy is written.
"""

import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from actors.board import SLOT_BYTES, offset_of

READ_SLOTS = 256
"""The number of rows that one read takes."""

_MOMENTS = tuple(map(offset_of, ("beat_ns", "busy_since_ns", "work_since_ns", "progress_ns")))
_NUMBER = struct.Struct("@q")


@dataclass(frozen=True, slots=True)
class BoardCopy:
    """The rows of a board that have a name, and what is needed to make a file of them."""

    file_bytes: int
    """The size of the board's file."""
    now_ns: int
    """The time of the board's clock, in nanoseconds, when the rows were read."""
    rows: bytes


def copy_of(path: Path) -> BoardCopy:
    """Read the named rows of a board. Raises OSError.

    The file is not mapped, because reading a page that was never written would allocate it.
    """
    with path.open("rb", buffering=0) as file:
        rows = b"".join(_named_rows(file.fileno()))
        return BoardCopy(os.fstat(file.fileno()).st_size, time.monotonic_ns(), rows)


def _named_rows(fd: int) -> Iterator[bytes]:
    while block := os.read(fd, READ_SLOTS * SLOT_BYTES):
        ends = (at for at in range(0, len(block), SLOT_BYTES) if not block[at])
        end = next(ends, len(block))
        yield block[:end]
        if end < len(block):
            return


def write_copy(path: Path, copy: BoardCopy) -> None:
    """Write a copy as a board (mode 0600) in place of the one at `path`. Raises OSError."""
    new = path.with_name(f".{path.name}.new")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(_shifted(copy.rows, time.monotonic_ns() - copy.now_ns))
        file.truncate(copy.file_bytes)
    new.replace(path)


def _shifted(rows: bytes, shift_ns: int) -> bytearray:
    """Return the rows with `shift_ns` added to every moment, except to 0, which means never."""
    moved = bytearray(rows)
    for row in range(0, len(moved) - SLOT_BYTES + 1, SLOT_BYTES):
        for offset in _MOMENTS:
            (moment_ns,) = _NUMBER.unpack_from(moved, row + offset)
            if moment_ns:
                _NUMBER.pack_into(moved, row + offset, moment_ns + shift_ns or 1)
    return moved
