"""Read what the inspection endpoint answers from a run directory. No actor is asked, so all may hang."""

import errno
import os
import stat
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path

from actors.board import LIVING, rows_of
from actors.board_copy import BoardCopy, copy_of
from dart.core.errors import UsageError
from dart.core.run_directory import RunPaths, holder
from dart.inspect.processes import GONE, process_at, state_of_main
from dart.inspect.sidecar_status import read_sidecars
from dart.inspect.signals import read as read_signals
from dart.run.inspection_protocol import FILE_BYTES, FOLDERS, FileState, MachineState

QUICKLY = 1
"""Level of zlib compression of the board. The lowest is enough, because most bytes of its rows are 0."""

MOST_OFFSET = 2**62
"""No file is so long; the operating system takes offsets below 2**63."""


def machine_state(paths: RunPaths, about: Collection[str] = ()) -> MachineState:
    """Read what other machines need to show a run.

    about    names of the actors whose logs and crash files are listed
    raises   NotRunningError if there is no run in the directory, OSError if a file cannot be read
    """
    pid = holder(paths.root) or 0
    board = copy_of(paths.board) if paths.board.exists() else BoardCopy(0, 0, b"")
    return MachineState(
        pid=pid,
        main_is=state_of_main(paths.root, pid),
        began_unix_s=paths.lock.stat().st_mtime,
        board_bytes=board.file_bytes,
        board_ns=board.now_ns,
        board=zlib.compress(board.rows, QUICKLY),
        processes=dict(_processes(paths)),
        launcher=_text(paths.root / "processes.json"),
        session=_text(paths.session),
        sidecars=read_sidecars(paths),
        ending=read_signals(paths),
        files=tuple(sorted(_files(paths, about), key=lambda file: (file.folder, file.name))),
    )


def _processes(paths: RunPaths) -> Iterator[tuple[int, tuple[int, str, int, float]]]:
    for row in rows_of(paths.board):
        if row.pid and not row.route and row.state in LIVING:
            found = process_at(row.pid, row.pid_start_ticks)
            if found is not GONE:
                yield row.pid, (row.pid_start_ticks, found.state.value, found.rss_bytes, found.cpu_s)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def _files(paths: RunPaths, about: Collection[str]) -> Iterator[FileState]:
    for folder in FOLDERS:
        try:
            entries = list(os.scandir(paths.root / folder))
        except FileNotFoundError:  # nobody has written into it yet
            continue
        for entry in entries:
            if folder == "reports" or any(entry.name.startswith(f"{actor}.") for actor in about):
                found = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(found.st_mode):
                    yield FileState(folder, entry.name, found.st_ino, found.st_size)


def read_part(paths: RunPaths, file: FileState, offset: int) -> bytes:
    """Read at most FILE_BYTES of a file from an offset on.

    The bytes are empty at the end of the file, if the file is gone, and if another file took its name.

    raises   UsageError for another folder than FOLDERS, a name with a path in it, or an offset that no
             file has
    """
    is_name = file.name and "/" not in file.name and "\0" not in file.name and not file.name.startswith(".")
    if file.folder not in FOLDERS or not is_name or not 0 <= offset < MOST_OFFSET:
        raise UsageError(f"there is no file {file.name!r} in {file.folder!r}; folders: {', '.join(FOLDERS)}")
    try:
        fd = os.open(paths.root / file.folder / file.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return b""
        raise
    try:
        found = os.fstat(fd)
        if found.st_ino != file.inode or not stat.S_ISREG(found.st_mode):
            return b""
        return os.pread(fd, FILE_BYTES, offset)
    finally:
        os.close(fd)
