"""A mirror: a temporary copy of what readers need of a run directory that is on another machine.

Readers reach the record directly. The record has the address of the control node's inspection endpoint
(`dart.store.control_node`). From this endpoint the mirror gets the board, the processes, the reports and the
logs. In the mirror, the process that made it stands for the main process: it holds the lock, and the status
files of the sidecars have its pid.

If the endpoint does not answer, the mirror shows what the record has, and says what is missing.
"""

import atexit
import fcntl
import json
import os
import shutil
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from actors.board import Board
from actors.board_copy import BoardCopy, write_copy
from actors.process import is_alive
from dart import __version__
from dart.config.layers import to_toml
from dart.core.errors import (
    DartError,
    DiskError,
    NotRunningError,
    SilentError,
    TemporaryError,
    UnavailableError,
)
from dart.core.record_address import ServerAddress
from dart.core.run_directory import RunPaths
from dart.inspect import signals
from dart.inspect.formatting import age, clock
from dart.inspect.processes import UNREACHABLE, write_table
from dart.inspect.sidecar_status import INSPECTION, NAMES, Sidecar, remove_sidecar, write_sidecar
from dart.run.control_protocol import ControlAnswer, Request
from dart.run.ending import still_runs
from dart.run.inspection_client import ANSWER_S, InspectionClient, Unreachable
from dart.run.inspection_protocol import (
    FILE_BYTES,
    FILE_BYTES_MOST,
    FILES_MOST,
    FOLDERS,
    FileState,
    MachineState,
    rows_of_board,
)
from dart.store.control_node import ControlNode, read_control_node

REFRESH_S = 1.0
"""Seconds between two refreshes while a view follows a run."""

END_POLL_S = 0.5

PREFIX = "dartrl-mirror-"
"""First part of the name of a mirror's folder. The pid of the process that made the mirror follows."""

LOCK_DEADLINE_S = 5.0
"""Longest wait for the lock of the mirror. Readers hold it for a moment while they test whether it is
free."""


class Mirror:
    """The mirror of one run. Several threads may use it.

    Making and refreshing a mirror raises StoreUnavailable if the record cannot be read, NotRunningError if
    the record has no run, and UnavailableError if the run has another version of dartrl. If the mirror cannot
    be written, making it and fetching logs raise DiskError, and `refresh` raises OSError.

    record       address of the run's record
    now_unix_s   the clock by which the age of the control node's announcement is computed
    answer_s     longest wait, in seconds, for an answer of the control node
    """

    def __init__(
        self,
        record: ServerAddress,
        now_unix_s: Callable[[], float] = time.time,
        answer_s: float = ANSWER_S,
    ) -> None:
        self._answer_s = answer_s
        self._record = record
        self._now_unix_s = now_unix_s
        self._about: set[str] = set()
        self._known: dict[tuple[str, str], FileState] = {}
        self._lock = threading.Lock()
        self._lock_fd = -1
        self._processes: dict[int, tuple[int, str, int, float]] = {}
        self._is_closed = False
        self.trouble = ""
        """Why only the record can be shown; empty if the whole run can be shown."""
        self.has_ended = False
        with _errors_of_temporary_folder(), ExitStack() as on_failure:
            _remove_abandoned()
            self.paths = RunPaths(Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-")).resolve())
            on_failure.callback(self.close)
            for folder in FOLDERS:
                (self.paths.root / folder).mkdir(mode=0o700)
            self.paths.mirror_of.write_text(str(record))
            self.refresh()
            on_failure.pop_all()

    def close(self) -> None:
        """Remove the mirror from the disk. Waits for a refresh that is under way."""
        with self._lock:
            self._is_closed = True
            if self._lock_fd >= 0:
                os.close(self._lock_fd)
            shutil.rmtree(self.paths.root, ignore_errors=True)

    def fetch_logs(self, actor: str) -> None:
        """Fetch the log and the crash files of an actor. Later refreshes fetch what is new in these files."""
        if actor not in self._about:
            self._about.add(actor)
            with _errors_of_temporary_folder():
                self.refresh()

    def refresh(self) -> None:
        """Bring the mirror up to date. Does nothing after `close`."""
        with self._lock:
            if self._is_closed:
                return
            node = self._node()
            self._write("config.toml", self._with_own_address(node.config))
            if node.ended_unix_s is not None:
                self._show_end(node)
                return
            try:
                self._show(self._client(node))
            except (Unreachable, SilentError) as error:
                self._show_record_only(node, error)

    def show_stale(self, error: OSError) -> None:
        """Make the mirror say that a refresh could not write it, so that it shows an earlier state."""
        with self._lock:
            self.trouble = (
                f"the copy of the run in {self.paths.root} cannot be written ({error.strerror}), so an "
                "earlier state is shown: free space there"
            )
            with suppress(OSError):
                remove_sidecar(self.paths, INSPECTION)  # on a full disk, this is the space for the new status
                write_sidecar(self.paths, Sidecar(name=INSPECTION, is_well=False, text=self.trouble))

    def control(self, call: Request) -> ControlAnswer:
        """Send a request to the control socket of the run.

        raises   NotRunningError if the run has ended, SilentError if the control node does not answer
        """
        try:
            return self._client(self._running()).control(call)
        except Unreachable as error:
            raise SilentError(self.trouble_of(self._node(), error)) from error

    def end(self, *, now: bool, deadline_s: float) -> None:
        """Ask the run to end and wait until the record says that it has.

        raises   NotRunningError if the run has ended already, SilentError if the control node does not
                 answer, TemporaryError if the run still runs after `deadline_s`
        """
        node = self._running()
        try:
            self._client(node).end(now=now)
        except Unreachable as error:
            raise SilentError(self.trouble_of(node, error)) from error
        give_up_s = time.monotonic() + deadline_s
        while (later := self._node()).ended_unix_s is None and later.began_unix_s == node.began_unix_s:
            if time.monotonic() > give_up_s:
                raise TemporaryError(still_runs(node.pid, f"of {self._record}", deadline_s))
            time.sleep(END_POLL_S)

    def _client(self, node: ControlNode) -> InspectionClient:
        return InspectionClient(node, self._answer_s)

    def trouble_of(self, node: ControlNode, error: Exception) -> str:
        """Say that a control node cannot be reached, why, since when, and what to do."""
        seen = f"{clock(node.seen_unix_s)}, {age(max(0.0, self._now_unix_s() - node.seen_unix_s))} ago"
        name = f"the control node at {node.address}"
        check = "check that its machine runs and that this one reaches that address"
        if not node.address:
            name, check = "the control node", "`dartrl status` on its machine says why it cannot listen"
        return (
            f"{name} {error}; it was last seen at {seen}: {check} (inspection.host, "
            "inspection.port); if the machine is lost, continue the run on another one with `dartrl up FILE "
            "--resume` and the file that started it"
        )

    # the record

    def _node(self) -> ControlNode:
        """Read from the record what the control node has announced.

        raises   NotRunningError if the record has no announcement, UnavailableError for another version of
                 dartrl
        """
        node = read_control_node(self._record)
        if node is None:
            raise NotRunningError(
                f"no control node has announced itself in the record {self._record}: the run has not begun, "
                "or it is starting; ask again in a moment"
            )
        if node.version != __version__:
            raise UnavailableError(
                f"the run of {self._record} is run by dartrl {node.version}, and this is dartrl "
                f"{__version__}: install the version of the run here"
            )
        return node

    def _running(self) -> ControlNode:
        node = self._node()
        if node.ended_unix_s is not None:
            raise NotRunningError(
                f"the run of {self._record} is not running; start it with `dartrl up FILE --resume` and the "
                "file that started it"
            )
        return node

    def _with_own_address(self, config: str) -> str:
        """Return a configuration, in TOML, with the address by which this machine reaches the record."""
        tables = tomllib.loads(config)
        tables.setdefault("run", {})["record"] = str(self._record)
        return to_toml(tables, {})

    # showing

    def _show(self, client: InspectionClient) -> None:
        state = client.state(sorted(self._about))
        self._remove_unlisted(state.files)
        for file in state.files:
            self._fetch(client, file)
        if state.board_bytes:
            write_copy(self.paths.board, BoardCopy(state.board_bytes, state.board_ns, _rows_of(state)))
        self._processes = state.processes
        write_table(self.paths.root, state.main_is, self._processes)
        for name, content in (("processes.json", state.launcher), ("session.json", state.session)):
            if content:
                self._write(name, content)
        self._write_sidecars(state)
        self._write_ending(state.ending)
        self._hold(state.pid, state.began_unix_s)
        self.trouble, self.has_ended = "", False

    def _show_end(self, node: ControlNode) -> None:
        """Make the mirror show a run that has ended: only what the record has."""
        config = tomllib.loads(node.config)
        self._show_session(node)
        for name in NAMES:
            remove_sidecar(self.paths, name)
        write_table(self.paths.root, "", {})
        self._release()
        self.has_ended = True
        self.trouble = (
            f"the run ended at {clock(node.ended_unix_s or 0.0)}: this is what the record knows; its actors, "
            f"reports and logs are in {config['run']['dir']} on the machine "
            f"{node.address.rpartition(':')[0] or 'of its control node'}"
        )

    def _show_record_only(self, node: ControlNode, error: Exception) -> None:
        """Make the mirror show a run whose control node does not answer; earlier answers of the node stay."""
        self.trouble, self.has_ended = self.trouble_of(node, error), False
        if not self.paths.board.exists():
            self._show_session(node)
        write_table(self.paths.root, UNREACHABLE, self._processes)
        write_sidecar(self.paths, Sidecar(name=INSPECTION, is_well=False, text=self.trouble))
        self._write("processes.json", json.dumps({"launcher": [node.pid, 0]}))
        self._hold(node.pid, node.began_unix_s)

    def _show_session(self, node: ControlNode) -> None:
        if node.session:
            self._write(self.paths.session.name, node.session)
        if not self.paths.board.exists():
            Board.create(self.paths.board).close()

    def _write(self, name: str, content: str) -> None:
        """Write a file if its content differs. Otherwise its time stays, by which readers may cache it."""
        path = self.paths.root / name
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            new = path.with_name(f".{name}.new")
            new.write_text(content, encoding="utf-8")
            new.replace(path)

    def _write_sidecars(self, state: MachineState) -> None:
        """Write the status of each sidecar with the pid of this process, so that readers accept it."""
        shown = {one.name: one for one in state.sidecars if one.name in NAMES}
        for name in NAMES:
            if name in shown:
                write_sidecar(self.paths, shown[name])
            else:
                remove_sidecar(self.paths, name)

    def _write_ending(self, ending: signals.Ending | None) -> None:
        """Write the signals of the main process as if this process had received them."""
        if ending is None:
            signals.forget(self.paths)
            return
        signals.prepare(self.paths)
        for _ in range(ending.count):
            signals.note(self.paths, ending.signal, ending.since_unix_s)

    # files

    def _remove_unlisted(self, files: Sequence[FileState]) -> None:
        """Remove files that the run directory does not have any more, and what fetches that failed have left.

        Raises Unreachable for more files than a mirror may have.
        """
        if len(files) > FILES_MOST:
            raise Unreachable(
                f"sends an answer that cannot be used: it lists {len(files)} files, which is more than "
                f"{FILES_MOST}"
            )
        listed = {(file.folder, file.name) for file in files}
        for folder in FOLDERS:
            for path in (self.paths.root / folder).iterdir():
                if (folder, path.name) not in listed:
                    path.unlink()
                    self._known.pop((folder, path.name), None)

    def _fetch(self, client: InspectionClient, file: FileState) -> None:
        """Fetch the new bytes of a file that grows, or the whole file if another file took its name."""
        if file.folder not in FOLDERS or Path(file.name).name != file.name:
            return  # no name that an endpoint of this version sends
        if file.size_bytes > FILE_BYTES_MOST:
            raise Unreachable(
                f"sends an answer that cannot be used: its {file.folder}/{file.name} has {file.size_bytes} "
                f"bytes, which is more than {FILE_BYTES_MOST}"
            )
        path, key = self.paths.root / file.folder / file.name, (file.folder, file.name)
        known = self._known.get(key)
        is_grown = known is not None and known.inode == file.inode and known.size_bytes <= file.size_bytes
        offset = path.stat().st_size if is_grown else 0  # more than `known`, if the last fetch ended early
        new = path if is_grown else path.with_name(f".{file.name}.new")
        with new.open("ab" if is_grown else "wb") as written:
            while offset < file.size_bytes and (part := client.part(file, offset)):
                written.write(part[:FILE_BYTES])
                offset += len(part)
        if not is_grown:
            new.replace(path)
        self._known[key] = FileState(file.folder, file.name, file.inode, offset)

    # the lock

    def _hold(self, pid: int, began_unix_s: float) -> None:
        """Hold the lock of the mirror, as the main process holds the lock of its run directory.

        pid            pid of the main process, which is written into the lock; 0 for none
        began_unix_s   when the main process took its lock; becomes the time of the lock file
        """
        if self._lock_fd < 0:
            fd = os.open(self.paths.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._take(fd)
            self._lock_fd = fd
        os.ftruncate(self._lock_fd, 0)
        os.pwrite(self._lock_fd, f"{pid}\n".encode() if pid else b"", 0)
        os.utime(self._lock_fd, (began_unix_s, began_unix_s))

    def _take(self, fd: int) -> None:
        give_up_s = time.monotonic() + LOCK_DEADLINE_S
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > give_up_s:
                    raise TemporaryError(f"{self.paths.lock} is held by another process; try again") from None
                time.sleep(0.01)

    def _release(self) -> None:
        """Release the lock of the mirror, as a run that has ended does."""
        if self._lock_fd < 0:
            self._lock_fd = os.open(self.paths.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.close(self._lock_fd)
        self._lock_fd = -1


def _rows_of(state: MachineState) -> bytes:
    try:
        return rows_of_board(state)
    except ValueError as error:
        raise Unreachable(f"sends an answer that cannot be used: {error}") from error


@contextmanager
def _errors_of_temporary_folder() -> Iterator[None]:
    """Within the block, an OSError is that of writing a mirror, and becomes a DiskError with the remedy."""
    try:
        yield
    except OSError as error:
        raise DiskError(
            f"a copy of the run cannot be written in {tempfile.tempdir or 'any folder for temporary files'}: "
            f"{error.strerror}; free space there, or set TMPDIR to a folder that can be written"
        ) from error


def _remove_abandoned() -> None:
    """Remove the mirrors of this user whose process was killed before it could remove them."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        with suppress(OSError):
            if folder.stat().st_uid == os.geteuid() and pid.isdigit() and not is_alive(int(pid)):
                shutil.rmtree(folder, ignore_errors=True)


# ---- the mirrors of this process ----

_mirrors: dict[str, Mirror] = {}


def mirror_at(record: ServerAddress) -> Mirror:
    """Return the mirror of the run with this record.

    The first call makes the mirror. It is removed when this process ends.
    """
    found = _mirrors.get(str(record))
    if found is None:
        found = _mirrors[str(record)] = Mirror(record)
        atexit.register(found.close)
    return found


def mirror_in(run_dir: Path) -> Mirror | None:
    """Return the mirror in a folder; None if the folder is a run directory of this machine."""
    return next((mirror for mirror in _mirrors.values() if mirror.paths.root == run_dir), None)


def fetch_logs(run_dir: Path, actor: str) -> None:
    """Fetch the log of an actor into a mirror; do nothing for a run directory of this machine."""
    mirror = mirror_in(run_dir)
    if mirror is not None:
        mirror.fetch_logs(actor)


@contextmanager
def kept_fresh(run_dir: Path, every_s: float = REFRESH_S) -> Iterator[None]:
    """Refresh a mirror from a thread within the block; do nothing for a run directory of this machine."""
    mirror = mirror_in(run_dir)
    if mirror is None:
        yield
        return
    is_over = threading.Event()

    def refresh() -> None:
        while not is_over.wait(every_s):
            try:
                mirror.refresh()
            except DartError:
                pass  # the record cannot be read now, as who reads it will say
            except OSError as error:
                mirror.show_stale(error)

    thread = threading.Thread(target=refresh, name="mirror", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
