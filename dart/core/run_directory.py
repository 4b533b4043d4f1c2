"""The run directory: the identity of a run, and the place of all its files.

A run is running as long as the lock on its directory is held; there is no pid file that could be stale. The
lock is an flock, which every process of the run inherits. So it is free when the last of them has ended.

    config.toml   the resolved configuration        checkpoints/  one folder per policy version
    lock          held by a running run; its pid    logs/         one file per actor
    key           32 random bytes, mode 0600        crash/        last output of actors that died
    board         vitals of all actors              report.json   the final table
    control.sock  socket of the control endpoint    session.json  how much of its time is used
    store.db      the record                        curve.png     the learning curve
    blobs/        screenshots, steps: by hash           scratch/      browser profiles, deleted at the end
    web.token     token for changes by the page     tracking/     for TensorBoard and the like
    crash.earlier/  what crash/ was when the run was started last
    judgements/   scores of OSWorld's evaluators, and what they read
    machines/     machines of a server that environments hold, one file for each environment
    signals       the signals by which the run was asked to end
    placed_actors_failed  why shards of a cluster failed too often
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import shlex
import shutil
import stat
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.process import is_alive, is_running, start_ticks
from actors.scratch import held
from dart.core.disk_errors import FULL_DISK
from dart.core.errors import ConfigurationError, NotRunningError, RunDirectoryError
from dart.core.record_address import RecordAddress, parse_record_address
from dart.core.utf8 import is_utf8

SOCKET_PATH_BYTES = 108
"""Largest path of a Unix socket, its final NUL included (sun_path in unix(7))."""

SOCKET_NAME_BYTES = 56
"""Bytes of a socket's path that are reserved for its name, below the mail folder or an engine's folder."""

LOCK_WAIT_S = 0.2
"""Seconds to wait for the lock: a process that checks whether the run is running holds it for a moment."""

ORPHANS_END_S = 6.0
"""Seconds to wait for the processes of a killed run, which end within 5 s and hold the lock until then."""


class RunPaths:
    """The paths of all files in the run directory `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = root / "config.toml"
        self.lock = root / "lock"
        self.key = root / "key"
        self.board = root / "board"
        self.control = root / "control.sock"
        self.store = root / "store.db"
        """The file of the record, unless the record is in a database on a server."""
        self.record_files = tuple(root / f"store.db{ending}" for ending in ("", "-wal", "-shm", "-journal"))
        """The file of the record, and SQLite's files beside it; the journal only while it makes a new one."""
        self.blobs = root / "blobs"
        self.checkpoints = root / "checkpoints"
        self.logs = root / "logs"
        self.crash = root / "crash"
        self.folders = (self.blobs, self.checkpoints, self.logs, self.crash)
        self.scratch = root / "scratch"
        self.session = root / "session.json"
        self.report = root / "report.json"
        self.curve = root / "curve.png"
        self.tracking = root / "tracking"
        self.daemon_log = self.logs / "daemon.jsonl"
        """Log of `dartrl up --detach`."""
        self.daemon_output = self.logs / "daemon.output"
        """What the daemon's processes printed and is not in their logs."""
        self.cluster = root / "cluster"
        """A file that only a run on a cluster has. It holds the path of the cluster file."""
        self.mirror_of = root / "mirror_of"
        """A file that only a mirror has, the copy of another machine's run directory. It holds the address of
        the record."""

    @property
    def title(self) -> str:
        """The name of the run for people: its directory, or in a mirror the address of its record."""
        try:
            return self.mirror_of.read_text(encoding="utf-8")
        except FileNotFoundError:
            return str(self.root)

    @property
    def option(self) -> str:
        """The option that names the directory in a command, quoted where a shell would split or change it."""
        return f"--run-dir {shlex.quote(str(self.root))}"

    @property
    def up_command(self) -> str:
        """The command that starts the run again where it was the last time: here, or on a cluster."""
        file = f"{shlex.quote(self.cluster.read_text(encoding='utf-8'))} " if self.cluster.exists() else ""
        return f"dartrl up {file}{self.option}"

    @property
    def record(self) -> RecordAddress:
        """The address of the run's record. Raises ConfigurationError if config.toml is damaged."""
        try:
            return self.record_at(self.kept().get("run", {}).get("record", ""))
        except FileNotFoundError:
            return self.store
        except ValueError as error:
            raise ConfigurationError(f"{self.config} is damaged: {error}; restore it from a copy") from error

    def kept(self) -> dict[str, Any]:
        """Return the table in config.toml. Raises FileNotFoundError; ValueError if the file is damaged."""
        return tomllib.loads(self.config.read_text(encoding="utf-8"))

    def record_at(self, given: str) -> RecordAddress:
        """The address of the record for a value of the key run.record; if it is empty, the file `store`.

        Raises ValueError for a text that is no address.
        """
        return parse_record_address(given) if given else self.store


@dataclass(frozen=True, slots=True)
class LockHolder:
    """The main process of a run, as it describes itself in the lock of the run directory."""

    pid: int
    """0 while the run starts."""
    ticks: int
    """When it started (`actors.process.start_ticks`); 0 if unknown, as in a mirror's lock or an earlier
    version's."""

    @property
    def is_shown_here(self) -> bool:
        """Whether the process runs and this machine, or this container, shows it.

        In another container with the same run directory, its pid is that of another process, or of none.
        """
        return is_running(self.pid, self.ticks) if self.ticks else is_alive(self.pid)


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """A run directory whose lock this process holds."""

    paths: RunPaths
    mail: Path
    """Folder for Unix sockets with a short path, mode 0700, deleted at the end."""


@contextlib.contextmanager
def locked(root: Path, *, resume: bool) -> Iterator[None]:
    """Make the run directory if it is missing, and hold its lock while the block lasts.

    raises   RunDirectoryError if the directory cannot be made, if another run holds it, if it contains a run
             and `resume` is false, or if it contains no run and `resume` is true. Files of an earlier run are
             then unchanged. OSError if the disk is full or fails
    """
    paths = RunPaths(root.resolve())
    if not paths.lock.exists():  # a folder that is no run's: check it before anything is created there
        refuse_unfit(paths, resume=resume)
    with contextlib.ExitStack() as at_end:
        try:
            make_private(paths.root)
            lock_fd = os.open(paths.lock, os.O_RDWR | os.O_CREAT, 0o644)
            at_end.callback(os.close, lock_fd)
            _wait_for_lock(lock_fd, paths)
        except OSError as error:
            raise _cannot_make(paths.root, error) from error
        refuse_unfit(paths, resume=resume)
        os.ftruncate(lock_fd, 0)
        os.pwrite(lock_fd, f"{os.getpid()} {start_ticks(os.getpid())}\n".encode(), 0)
        yield


@contextlib.contextmanager
def claimed(
    root: Path,
    *,
    resume: bool,
    config_toml: str,
    make_record: Callable[[RunPaths], None] = lambda _: None,
    is_locked: bool = False,
) -> Iterator[RunDirectory]:
    """Create or resume the run directory and hold its lock while the block lasts.

    At the end the folder `scratch/` and the folder of the sockets are deleted; the directory itself stays.
    Raises what `locked` raises.

    make_record   makes the record of a new run, or raises an error when the record of an earlier run is
                  missing. It is called before files of an earlier run change, and before config.toml is
                  written, whose presence means that a run exists
    is_locked     whether the caller holds the lock already (`locked`)
    """
    paths = RunPaths(root.resolve())
    with contextlib.ExitStack() as at_end:
        if not is_locked:
            at_end.enter_context(locked(root, resume=resume))
        make_private(*paths.folders)
        make_record(paths)
        mail = at_end.enter_context(own_mail_dir(paths.root))
        keep_config(paths, config_toml)  # last, because its presence means that the run exists
        at_end.callback(shutil.rmtree, paths.scratch, ignore_errors=True)
        yield RunDirectory(paths, mail)


def make_private(*folders: Path) -> None:
    """Create folders that only their owner can ever enter, whatever the umask is.

    Missing parent folders are created with a mode that lets everybody pass through. Raises OSError, also for
    a folder or a link of another user: in /tmp anyone can make one before, which root could change.
    """
    for folder in folders:
        _make_passable(folder.parent)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        for owner in (folder.lstat().st_uid, folder.stat().st_uid):
            if owner != os.geteuid():
                raise PermissionError(errno.EPERM, f"it belongs to user {owner}", str(folder))
        folder.chmod(0o700)  # it was there before, or the umask takes rights from its owner


def _make_passable(folder: Path) -> None:
    if not folder.exists():
        _make_passable(folder.parent)
        folder.mkdir(mode=0o755, exist_ok=True)


def refuse_unfit(paths: RunPaths, *, resume: bool) -> None:
    """Raise RunDirectoryError if a new run cannot use this directory or, with `resume`, no run is in it."""
    try:
        paths.root.stat()
    except FileNotFoundError:
        pass  # it will be made
    except OSError as error:  # below a file, or links that lead in a circle
        raise _cannot_make(paths.root, error) from error
    whole = str(paths.root.resolve())
    if not is_utf8(whole):  # a name may be that of the working directory
        raise RunDirectoryError(
            f"run directory {whole!r} has a path that is not UTF-8 text; choose another directory with "
            "--run-dir"
        )
    if paths.root.exists() and not paths.root.is_dir():
        raise RunDirectoryError(f"run directory {paths.root} is a file; choose a folder with --run-dir")
    _refuse_other_owner(paths.root)
    if paths.config.exists() and not resume:
        raise RunDirectoryError(
            f"run directory {paths.root} holds a run already; continue it with --resume, "
            "or start a new one elsewhere with --run-dir"
        )
    if resume and not paths.config.exists():
        raise RunDirectoryError(
            f"run directory {paths.root} holds no run to resume; start one with a configuration and without "
            "--resume, or name the directory of a run with --run-dir"
        )
    found = set(paths.root.iterdir()) if paths.root.is_dir() else set()
    foreign = sorted(path.name for path in found - _left_by_interrupted_start(paths))
    if foreign and not paths.config.exists():
        raise RunDirectoryError(
            f"run directory {paths.root} holds files that do not belong to a run ({', '.join(foreign[:3])}); "
            "choose an empty or a new one with --run-dir"
        )


def is_own(root: Path) -> bool:
    """Whether a run directory belongs to the user of this process.

    The configuration of another user's run names programs and servers. Do not start them, and send no token.
    """
    return root.stat().st_uid == os.geteuid()


def _refuse_other_owner(root: Path) -> None:
    """Raise RunDirectoryError for a folder of another user, in which no actor may keep its files.

    Root could write into it, and would leave files that its owner cannot use.
    """
    if root.exists() and not is_own(root):
        owner = root.stat().st_uid
        raise RunDirectoryError(
            f"run directory {root} belongs to user {owner}, not to user {os.geteuid()}, who starts the run; "
            "start it as that user, or choose another directory with --run-dir"
        )


def _left_by_interrupted_start(paths: RunPaths) -> set[Path]:
    """Return the files and folders that a start or a takeover may leave when it ends before config.toml."""
    kept = (paths.config, paths.cluster)
    return {paths.lock, paths.cluster, *map(temporary_of, kept), *paths.folders, *paths.record_files}


def refuse_at_once(paths: RunPaths, *, resume: bool) -> None:
    """Raise RunDirectoryError if `refuse_unfit` does, or if the run of this directory is running.

    Call this first when a run is started. Remaining processes of a killed run are no reason to refuse,
    because `claimed` waits for them.
    """
    found = lock_holder(paths.root) if paths.lock.exists() else None
    if found is not None and (not found.pid or found.is_shown_here):
        raise taken(paths.root, found)
    refuse_unfit(paths, resume=resume)


def config_to_resume(paths: RunPaths) -> Path:
    """Return the configuration of a run to resume. Raises RunDirectoryError if there is no run to resume."""
    if not paths.config.exists():
        refuse_at_once(paths, resume=True)
    return paths.config


def refuse_without_cluster_file(paths: RunPaths) -> None:
    """Raise RunDirectoryError if a run is on a cluster: call this to continue a run by its config.toml alone.

    config.toml does not name the machines of the cluster, so all actors would start on this machine.
    """
    if paths.cluster.exists():
        raise RunDirectoryError(
            f"the run in {paths.root} is on a cluster: continue it with `{paths.up_command}`; to continue it "
            "on this machine alone, name a run file"
        )


def _cannot_make(root: Path, error: OSError) -> Exception:
    """Return the error of a full or failing disk unchanged, and any other error as RunDirectoryError."""
    if error.errno in (*FULL_DISK, errno.EIO):
        return error
    return RunDirectoryError(
        f"run directory {root} cannot be made: {error.strerror}; "
        "choose a place you can write to with --run-dir"
    )


def _wait_for_lock(fd: int, paths: RunPaths) -> None:
    started_s = time.monotonic()
    while not _try_lock(fd, fcntl.LOCK_EX):
        found = _recorded(fd)
        limit_s = LOCK_WAIT_S if not found.pid or found.is_shown_here else ORPHANS_END_S
        if time.monotonic() - started_s > limit_s:
            raise taken(paths.root, found)
        time.sleep(0.02)


def taken(root: Path, found: LockHolder) -> RunDirectoryError:
    """Return the error for a run directory whose lock another process holds."""
    if found.pid and not found.is_shown_here:
        return RunDirectoryError(
            f"{still_held(root, found.pid)}. You can also choose another directory with --run-dir"
        )
    who = f"process {found.pid}" if found.pid else "another process"
    return RunDirectoryError(
        f"run directory {root} is taken by {who}; look at that run with `dartrl status "
        f"{RunPaths(root).option}`, end it, or choose another directory with --run-dir"
    )


def still_held(root: Path, pid: int) -> str:
    """Say that the lock of a run is held, although its main process is not shown here, and what to do."""
    return (
        f"run directory {root} is held, but its process {pid} is not on this machine or in this container: "
        "end the run where it was started; or, if the process has ended, wait for a 'dartrl down' that gives "
        f"back its machines, or find its remaining processes with 'fuser {root / 'lock'}' and end them"
    )


def _try_lock(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _recorded(fd: int) -> LockHolder:
    numbers = [int(word) for word in os.pread(fd, 64, 0).split() if word.isdigit()]
    pid, ticks = [*numbers, 0, 0][:2]
    return LockHolder(pid, ticks)


def holder(root: Path) -> int | None:
    """Return the pid of the main process of the run in `root`, if the run is running.

    Returns 0 while the run starts, and None when no process holds its lock.

    raises    NotRunningError if there is no run in this directory
    """
    found = lock_holder(root)
    return None if found is None else found.pid


def lock_holder(root: Path) -> LockHolder | None:
    """Return the main process of the run in `root`, if the run is running. Raises as `holder` does."""
    paths = RunPaths(root)
    try:
        fd = os.open(paths.lock, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        raise NotRunningError(f"there is no run in {root}; {_name_another(root)}") from None
    try:
        return None if _try_lock(fd, fcntl.LOCK_SH) else _recorded(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def kept_ended(root: Path) -> Iterator[bool]:
    """Say whether the run in `root` has ended. If so, every start of it is refused until the block ends.

    Other processes still see that the run is not running, because they share the lock (`lock_holder`). A run
    without a lock has not ended."""
    try:
        fd = os.open(RunPaths(root).lock, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        yield False
        return
    try:
        yield _try_lock(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


def latest_run(folder: Path, *, trains: bool = False) -> Path:
    """Return the directory of the run in `folder` that is running, or else of the run that started last.

    A start that failed before it wrote config.toml counts only if there is no other.

    trains    leave out explorations and evaluations
    raises    NotRunningError if there is no such run in `folder`
    """
    found = [RunPaths(lock.parent) for lock in folder.glob("*/lock")]
    runs = [run for run in found if not (trains and _untrained_kind(run))]
    if not runs:
        but = " but explorations and evaluations, which `dartrl explore` and `dartrl eval` continue"
        raise NotRunningError(f"there is no run in {folder}/{but if found else ''}; {_name_another(folder)}")
    runs.sort(key=lambda run: (run.config.exists(), run.lock.stat().st_mtime), reverse=True)
    return next((run.root for run in runs if holder(run.root) is not None), runs[0].root)


def _name_another(folder: Path) -> str:
    """Return what to do about a folder without a run, with the place where a relative path was looked up."""
    looked_up = "" if folder.is_absolute() else f" (the working directory is {Path.cwd()})"
    return f"name its directory with --run-dir{looked_up}"


def plays_tasks(paths: RunPaths) -> bool:
    """Whether a run plays tasks, as a training run does: only then a curator writes a log."""
    return (paths.logs / "curator.jsonl").exists()


def is_exploration(paths: RunPaths) -> bool:
    """Whether `dartrl explore` made a run. It plays no tasks, and the owner of its graph writes a log."""
    return (paths.logs / "exploration.jsonl").exists() and not plays_tasks(paths)


def is_evaluation(paths: RunPaths) -> bool:
    """Whether `dartrl eval` made a run. It has no learner. False if its configuration is damaged."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        return bool(paths.kept().get("training", {}).get("learner") == "none")
    return False


def _untrained_kind(paths: RunPaths) -> str:
    """Return the kind of a run that does not train, "exploration" or "evaluation"; "" for one that trains."""
    if is_exploration(paths):
        return "exploration"
    return "evaluation" if is_evaluation(paths) else ""


def refuse_untrained(paths: RunPaths) -> None:
    """Raise RunDirectoryError if a run is an exploration or an evaluation.

    An exploration that plays tasks could explore no more, and the report of an evaluation would be replaced.
    """
    if kind := _untrained_kind(paths):
        command = "explore" if kind == "exploration" else "eval"
        raise RunDirectoryError(
            f"the run in {paths.root} is an {kind}; continue it with `dartrl {command} --resume "
            f"{paths.option}`, or name the directory of another run with --run-dir"
        )


def keep_config(paths: RunPaths, config_toml: str) -> None:
    """Write config.toml atomically. Raises OSError."""
    write_atomically(paths.config, config_toml.encode(), 0o644)


def keep_cluster_file(paths: RunPaths, file: Path) -> None:
    """Write the path of the cluster file that starts the run. Raises OSError."""
    write_atomically(paths.cluster, str(file.resolve()).encode(), 0o644)


def write_atomically(path: Path, content: bytes, mode: int) -> None:
    """Replace a file atomically: after a crash it holds the old content or the new.

    Raises OSError; then the temporary file is gone.
    """
    temporary = temporary_of(path)
    temporary.unlink(missing_ok=True)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def temporary_of(path: Path) -> Path:
    """Return the file into which `write_atomically` writes the new content of `path`."""
    return path.with_name(f".{path.name}.new")


def append_line(path: Path, line: bytes) -> None:
    """Append ``line`` and a newline to a file: all of it, or nothing when the disk refuses. Raises OSError.

    A last line without a newline, which a killed writer leaves, stays a line of its own.
    """
    with path.open("a+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(size - 1)
        begins_a_line = size == 0 or file.read(1) == b"\n"
        rest = (b"" if begins_a_line else b"\n") + line + b"\n"
        try:
            while rest:  # a disk that gets full takes a part first, and refuses the next write
                rest = rest[file.write(rest) :]
        except OSError:
            file.truncate(size)
            raise


def mail_dir(root: Path) -> Path:
    """Return the mail folder: the folder for the sockets of the run in `root`.

    Its path is short. It is below the runtime folder that a service manager makes for the run and keeps until
    the run ends, or else below /tmp. XDG_RUNTIME_DIR would not do: it is deleted when its user logs out. The
    folder need not exist.
    """
    name = f"dartrl-{os.getuid()}-{hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:12]}"
    own = Path(os.environ.get("RUNTIME_DIRECTORY", "").partition(":")[0] or "/tmp")
    fits = len(str(own / name)) + SOCKET_NAME_BYTES <= SOCKET_PATH_BYTES
    return (own if fits and own.is_dir() and os.access(own, os.W_OK) else Path("/tmp")) / name


@contextlib.contextmanager
def own_mail_dir(root: Path) -> Iterator[Path]:
    """Make the mail folder, or empty it, and hold it while the block lasts; then delete it.

    Raises RunDirectoryError for a folder that others can enter or own: another user may have made it in /tmp.
    """
    folder = mail_dir(root)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise RunDirectoryError(
            f"the folder {folder} for the sockets of the run is not your own or does not have mode 0700; "
            "remove it, or choose another directory with --run-dir"
        )
    with held(folder):
        for left_over in folder.iterdir():
            if left_over.is_dir():  # an engine's
                shutil.rmtree(left_over)
            else:
                left_over.unlink()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def held_by_none(folder: Path) -> Iterator[bool]:
    """Say whether no process holds a folder (`held`). If so, none can until the block ends.

    A folder that is missing, or of another user, counts as held.
    """
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield False
        return
    try:
        yield _try_lock(fd, fcntl.LOCK_EX)
    finally:
        os.close(fd)
