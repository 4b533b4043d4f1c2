"""What the inspection endpoint of a control node answers to other machines, in msgpack over HTTP.

    GET  /state?about=ACTOR   `MachineState`: what readers of the run directory need
    GET  /file                a part of a report, log or crash file: `folder`, `name`, `inode`, `offset`
    POST /control             a frame of `dart.run.control_protocol`, answered by one
    POST /end                 end the run: drained, or with `now=1` at once

Every request sends the token of the endpoint, which is in the record, as `Authorization: Bearer`.
"""

import msgspec
from msgspec import Struct

FOLDERS = ("reports", "logs", "crash")
"""The folders of the run directory whose files can be read."""

FILE_BYTES = 1 << 20
"""Most bytes of a file in one answer."""

FRAME_TYPE = "application/msgpack"


class FileState(Struct, frozen=True):
    """A file that grows, until another one takes its name."""

    folder: str
    name: str
    inode: int
    size_bytes: int


class SidecarState(Struct, frozen=True):
    """The status of a sidecar (`dart.inspect.sidecar_status`)."""

    name: str
    is_well: bool
    text: str


class EndingState(Struct, frozen=True):
    """The signals that the main process received (`dart.inspect.signals`)."""

    signal: int
    since_unix_s: float
    count: int


class MachineState(Struct, frozen=True, kw_only=True):
    """A run and its processes as the control node's machine shows them, at one moment."""

    pid: int
    """The main process; 0 while it starts."""
    main_is: str
    """What is wrong with the main process: `suspended`, or an empty text."""
    began_unix_s: float
    """When the main process took the run directory."""
    board_bytes: int
    """Size of the board's file; 0 before there is one."""
    board_ns: int
    """The clock of the board when it was read."""
    board: bytes
    """The named rows of the board, compressed by zlib."""
    processes: dict[int, tuple[int, str, int, float]]
    """By pid: start time in ticks, state, resident bytes, seconds of processor time."""
    launcher: str
    """The file `processes.json`; empty where there is none."""
    session: str
    """The file `session.json`; empty where there is none."""
    config: str
    """The file `config.toml`."""
    sidecars: tuple[SidecarState, ...]
    ending: EndingState | None
    files: tuple[FileState, ...]
    """All reports, and the logs and crash files of the actors that were asked about."""


_state = msgspec.msgpack.Decoder(MachineState)
encode_state = msgspec.msgpack.Encoder().encode


def decode_state(content: bytes) -> MachineState:
    """Decode a state. Raises msgspec.MsgspecError."""
    return _state.decode(content)
