"""A check of the record's write-ahead log, frame by frame.

A frame of the log is a database page with a header and a checksum. SQLite reads the log up to the first frame
with a wrong checksum and silently drops the rest, because an interrupted write looks like that. So a damaged
frame in the middle loses every transaction after it.

This check tells damage from an interrupted write: no frame after an interrupted write ends a transaction. The
interrupted frame itself may be marked as the end of a transaction although its page was not written yet. In
that case the index beside the log does not count the frame.

Formats: https://www.sqlite.org/fileformat2.html#the_write_ahead_log, https://www.sqlite.org/walformat.html
"""

import filecmp
import shutil
import struct
from pathlib import Path

from dart.core.record_address import RecordAddress
from dart.store.checkpoints import DAMAGED, path_aside
from dart.store.sqlite import beside

HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24
MAGIC = (0x377F0682, 0x377F0683)
"""First word of a log, which says how its checksums read words: little endian, or big endian."""

INDEX_HEADER_BYTES = 48
"""Size of the header of the log's index, the file `-shm`. The index begins with two copies of the header."""

Sums = tuple[int, int]


def log_of(database: Path) -> Path:
    """The path of the log beside a database file."""
    return beside(database, "wal")


def damage_of_log_beside(database: Path) -> str:
    """What is wrong with the log of a database that no process writes; empty if nothing is."""
    log = log_of(database)
    content = log.read_bytes() if log.exists() else b""
    return damage_of_log(content, _counted_frames(database, content))


def keep_damaged_log(record: RecordAddress) -> None:
    """Copy the log of a record if the log is damaged and has no copy yet.

    Call this before the record is opened for writing, because SQLite then shortens a damaged log. A record on
    a server has no such log.
    """
    if not isinstance(record, Path) or not damage_of_log_beside(record):
        return
    log, copies = log_of(record), copies_of_damaged_logs(record)
    if any(filecmp.cmp(log, copy, shallow=False) for copy in copies):
        return
    partial = log.with_name(f"{log.name}.copying")
    shutil.copyfile(log, partial)
    partial.rename(path_aside(log, DAMAGED))  # a copy with its final name is whole


def copies_of_damaged_logs(database: Path) -> list[Path]:
    """Paths of the copies that `keep_damaged_log` made of the logs of a database, oldest first."""
    copies = log_of(database).parent.glob(f"{log_of(database).name}.{DAMAGED}*")
    return sorted(copies, key=lambda copy: copy.stat().st_mtime)


def damage_of_log(content: bytes, counted_frames: int | None = None) -> str:
    """What is wrong with a log that no process writes; empty if every transaction in it is whole.

    counted_frames   number of frames in whole transactions, as the log's index says; None without an index
    """
    if not content.strip(b"\0"):
        return ""
    if len(content) < HEADER_BYTES:
        return f"it ends within its header, after {len(content)} bytes"
    magic, _, page_bytes, _ = struct.unpack_from(">4I", content)
    if magic not in MAGIC:
        return "its header is damaged, so that nothing in it can be read"
    order = "<" if magic == MAGIC[0] else ">"
    sums = _add(content[:FRAME_HEADER_BYTES], (0, 0), order)
    if sums != struct.unpack_from(">2I", content, FRAME_HEADER_BYTES):
        return "its header is damaged, so that nothing in it can be read"
    return _damaged_frame(content, page_bytes, sums, order, counted_frames)


def _damaged_frame(
    content: bytes, page_bytes: int, sums: Sums, order: str, counted_frames: int | None
) -> str:
    salts, size = content[16:24], FRAME_HEADER_BYTES + page_bytes
    starts = range(HEADER_BYTES, len(content) - size + 1, size)
    for number, at in enumerate(starts, start=1):
        sums = _add(content[at : at + 8], sums, order)
        sums = _add(content[at + FRAME_HEADER_BYTES : at + size], sums, order)
        if content[at + 8 : at + 16] != salts or sums != struct.unpack_from(">2I", content, at + 16):
            lost = sum(_ends_transaction(content, later, salts) for later in starts[number - 1 :])
            is_uncounted = counted_frames is not None and number > counted_frames
            if lost == 1 and is_uncounted and _ends_transaction(content, at, salts):
                return ""
            return f"frame {number} is damaged, which loses {lost} transactions from there on" if lost else ""
    return ""


def _counted_frames(database: Path, content: bytes) -> int | None:
    """Number of frames that the log's index counts. SQLite writes the index after the frames.

    None if there is no valid index, or if the index is of another log.
    """
    index = beside(database, "shm")
    header = index.read_bytes()[: 2 * INDEX_HEADER_BYTES] if index.exists() else b""
    first, second = header[:INDEX_HEADER_BYTES], header[INDEX_HEADER_BYTES:]
    if len(header) < 2 * INDEX_HEADER_BYTES or first != second or first[32:40] != content[16:24]:
        return None
    (counted,) = struct.unpack_from("=I", first, 16)
    return int(counted)


def _ends_transaction(content: bytes, at: int, salts: bytes) -> bool:
    """Whether the frame at the offset `at` has the salts of this log and ends a transaction."""
    return content[at + 8 : at + 16] == salts and content[at + 4 : at + 8] != b"\0\0\0\0"


def _add(content: bytes, sums: Sums, order: str) -> Sums:
    """SQLite's checksum, continued from `sums` over more bytes. `order` is `<` or `>`, as in `struct`."""
    first, second = sums
    words = struct.unpack(f"{order}{len(content) // 4}I", content)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second
