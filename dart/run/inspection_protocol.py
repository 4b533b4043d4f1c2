"""The protocol of the inspection endpoint, which other machines ask for a run: msgpack over HTTP.

    GET  /state?about=ACTOR   return a `MachineState`: what readers of the run directory need
    GET  /file                return a part of a file; parameters: `folder`, `name`, `inode`, `offset`
    POST /control             take a request frame of `dart.run.control_protocol` and return an answer frame
    POST /end                 end the run: after a drain, or with `now=1` at once

Every request must send the access token of the endpoint as `Authorization: Bearer`. The token is in the
record.
"""

import zlib

import msgspec
from msgspec import Struct

from dart.inspect.sidecar_status import Sidecar
from dart.inspect.signals import Ending

FOLDERS = ("reports", "logs", "crash")
"""The folders of the run directory whose files can be read."""

FILE_BYTES = 1 << 20
"""Largest number of bytes of a file in one answer."""

FRAME_TYPE = "application/msgpack"

ANSWER_BYTES_MOST = 64 << 20
"""Largest answer that is read. The record names the endpoint, and others may write into it."""

FILE_BYTES_MOST = 64 << 20
"""Largest file that is copied. Logs, reports and crash files are renamed or cut long before."""

FILES_MOST = 20_000
"""Largest number of files in a mirror. An actor has two logs and ten crash files, seldom more, and a run has
at most `ACTORS_MOST` environments and engines."""

BOARD_BYTES_MOST = 256 << 20
"""Largest size of a board that is unpacked; that of a run with `ACTORS_MOST` actors fits in."""


class FileState(Struct, frozen=True):
    """A file of the run directory. It only grows, until another file, with another inode, gets its name."""

    folder: str
    name: str
    inode: int
    size_bytes: int


class MachineState(Struct, frozen=True, kw_only=True):
    """A run and its processes as the control node's machine shows them, at one moment."""

    pid: int
    """Pid of the main process; 0 while the main process starts."""
    main_is: str
    """What is wrong with the main process: `suspended` or `gone`; empty if nothing is."""
    began_unix_s: float
    """When the main process took the lock of the run directory."""
    board_bytes: int
    """Size of the board's file; 0 if there is no board yet."""
    board_ns: int
    """Time on the clock of the board, in nanoseconds, when the board was read."""
    board: bytes
    """The named rows of the board, compressed by zlib."""
    processes: dict[int, tuple[int, str, int, float]]
    """The actors' processes by pid: start time in ticks, state, resident bytes, seconds of processor time."""
    launcher: str
    """Content of the file `processes.json`; empty if there is no such file."""
    session: str
    """Content of the file `session.json`; empty if there is no such file."""
    sidecars: tuple[Sidecar, ...]
    ending: Ending | None
    """The signals that the main process received."""
    files: tuple[FileState, ...]
    """All files of reports, and the logs and crash files of the actors that the request names in `about`."""


_state = msgspec.msgpack.Decoder(MachineState)
encode_state = msgspec.msgpack.Encoder().encode


def decode_state(content: bytes) -> MachineState:
    """Decode a `MachineState`. Raises msgspec.MsgspecError if the content is not one."""
    return _state.decode(content)


def rows_of_board(state: MachineState) -> bytes:
    """Unpack the rows of the board. Raises ValueError if they are too large or cannot be unpacked."""
    unpacking = zlib.decompressobj()
    try:
        rows = unpacking.decompress(state.board, BOARD_BYTES_MOST)
    except zlib.error as error:
        raise ValueError(f"the board cannot be unpacked: {error}") from error
    if unpacking.unconsumed_tail or not 0 <= state.board_bytes <= BOARD_BYTES_MOST:
        raise ValueError(f"the board has more than {BOARD_BYTES_MOST} bytes")
    return rows
