"""The run directory: one run at a time, nothing of an earlier one touched, remedies in every refusal."""

import errno
import fcntl
import os
import re
import shlex
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from actors.process import start_ticks
from dart.core.errors import NotRunningError, RunDirectoryError
from dart.core.run_directory import (
    LockHolder,
    RunPaths,
    claimed,
    holder,
    latest_run,
    mail_dir,
    refuse_at_once,
    taken,
)

HOLD = """
import sys, time
from pathlib import Path
from dart.core.run_directory import claimed
with claimed(Path(sys.argv[1]), resume=False, config_toml="seed = 1"):
    print("claimed", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held_by_another_process(root: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process holds the run directory while the block lasts."""
    command = [sys.executable, "-c", HOLD, str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "claimed\n"
            yield process
        finally:
            process.kill()


def test_a_claimed_directory_holds_what_a_run_needs(tmp_path: Path) -> None:
    with claimed(tmp_path / "runs" / "new", resume=False, config_toml="seed = 1\n") as directory:
        paths = directory.paths

        assert paths.config.read_text() == "seed = 1\n"
        assert all(folder.is_dir() for folder in paths.folders)
        assert paths.lock.read_text() == f"{os.getpid()} {start_ticks(os.getpid())}\n"


def test_a_command_that_a_message_names_is_one_that_a_shell_takes(tmp_path: Path) -> None:
    root = tmp_path / 'it\'s a "run" for $HOME; #1'
    root.mkdir()
    for command in (RunPaths(root).up_command, str(taken(root, LockHolder(0, 0))).split("`")[1]):
        assert shlex.split(command, comments=True)[-2:] == ["--run-dir", str(root)]
    RunPaths(root).cluster.write_text(file := f"{root}/two nodes.toml")
    assert shlex.split(RunPaths(root).up_command)[2:] == [file, "--run-dir", str(root)]


def test_the_mail_folder_is_private_short_and_gone_at_the_end(tmp_path: Path) -> None:
    deep = tmp_path / ("long" * 40)
    with claimed(deep, resume=False, config_toml="") as directory:
        assert directory.mail == mail_dir(deep)
        assert stat.S_IMODE(directory.mail.stat().st_mode) == 0o700
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(directory.mail / ("a" * 40))[:107])

    assert not mail_dir(deep).exists()


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    """A descriptor of a folder."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


def test_the_mail_folder_of_a_run_is_locked_so_that_no_cleaner_of_tmp_deletes_its_sockets(
    tmp_path: Path,
) -> None:
    with claimed(tmp_path / "run", resume=False, config_toml="") as directory, opened(directory.mail) as fd:
        with pytest.raises(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)


def test_a_start_empties_the_mail_folder_that_a_killed_run_and_its_engines_left(tmp_path: Path) -> None:
    (mail_dir(tmp_path / "run") / "engine-4").mkdir(parents=True, mode=0o700)
    mail_dir(tmp_path / "run").chmod(0o700)
    (mail_dir(tmp_path / "run") / "3").touch()

    with claimed(tmp_path / "run", resume=False, config_toml="") as directory:
        assert list(directory.mail.iterdir()) == []


def test_the_mail_folder_outlives_the_last_logout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/dev/shm")
    assert mail_dir(tmp_path).parent == Path("/tmp")


def test_the_mail_folder_is_below_the_runtime_folder_of_the_service_if_that_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNTIME_DIRECTORY", "/dev/shm:/run/second")
    assert mail_dir(tmp_path).parent == Path("/dev/shm")

    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path / ("x" * 90)))
    assert mail_dir(tmp_path).parent == Path("/tmp")


def test_a_mail_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    mail_dir(tmp_path / "run").mkdir(mode=0o755)
    try:
        with (
            pytest.raises(RunDirectoryError, match="mode 0700"),
            claimed(tmp_path / "run", resume=False, config_toml=""),
        ):
            pass
    finally:
        mail_dir(tmp_path / "run").rmdir()

    assert holder(tmp_path / "run") is None


def test_two_runs_have_two_mail_folders(tmp_path: Path) -> None:
    assert mail_dir(tmp_path / "a") != mail_dir(tmp_path / "b")


def test_a_directory_that_holds_a_run_is_not_started_again(tmp_path: Path) -> None:
    with claimed(tmp_path / "run", resume=False, config_toml="first"):
        pass

    with (
        pytest.raises(RunDirectoryError, match=r"holds a run already.*--resume.*--run-dir"),
        claimed(tmp_path / "run", resume=False, config_toml="second"),
    ):
        pass

    assert RunPaths(tmp_path / "run").config.read_text() == "first"


def test_a_run_is_resumed_with_its_files(tmp_path: Path) -> None:
    with claimed(tmp_path / "run", resume=False, config_toml="first") as directory:
        directory.paths.store.write_text("record")

    with claimed(tmp_path / "run", resume=True, config_toml="second") as directory:
        assert directory.paths.store.read_text() == "record"
        assert directory.paths.config.read_text() == "second"


def test_there_is_nothing_to_resume_in_an_empty_directory(tmp_path: Path) -> None:
    with (
        pytest.raises(RunDirectoryError, match="holds no run to resume"),
        claimed(tmp_path, resume=True, config_toml=""),
    ):
        pass


def test_a_start_that_was_killed_before_it_began_does_not_block_the_next(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("1\n")
    (tmp_path / "logs").mkdir()

    with claimed(tmp_path, resume=False, config_toml="") as directory:
        assert directory.paths.config.exists()


def test_a_start_that_was_killed_while_sqlite_made_its_record_does_not_block_the_next(tmp_path: Path) -> None:
    making = (
        "import os, signal, sqlite3, sys\n"
        "record = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "record.execute('BEGIN IMMEDIATE')\n"
        "record.execute('CREATE TABLE steps (id)')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", making, tmp_path / "store.db"], check=False)
    assert {path.name for path in tmp_path.iterdir()} == {"store.db", "store.db-journal"}

    with claimed(tmp_path, resume=False, config_toml="") as directory:
        assert directory.paths.config.exists()


def test_what_a_start_or_a_takeover_leaves_when_it_is_killed_does_not_block_the_next_start(
    tmp_path: Path,
) -> None:
    left = tmp_path / ".config.toml.new"
    (tmp_path / "lock").write_text("1\n")
    left.write_text("{}")

    with claimed(tmp_path, resume=False, config_toml="") as directory:
        assert directory.paths.config.exists()
        assert not left.exists()


def test_a_full_disk_leaves_no_half_written_file_in_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full_disk:
        full_disk.setattr(os, "fsync", refuse)
        with pytest.raises(OSError, match="No space left"), claimed(tmp_path, resume=False, config_toml=""):
            pass
    assert not list(tmp_path.glob(".*"))

    with claimed(tmp_path, resume=False, config_toml="") as directory:
        assert directory.paths.config.exists()


def test_a_directory_whose_holder_has_not_written_its_pid_yet_is_refused_at_once(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(RunDirectoryError, match="is taken by another process"):
            refuse_at_once(RunPaths(tmp_path), resume=False)


def test_a_folder_with_somebody_elses_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()

    with (
        pytest.raises(RunDirectoryError, match=r"holds files that do not belong to a run \(thesis.tex\)"),
        claimed(tmp_path, resume=False, config_toml=""),
    ):
        pass

    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_directory_of_another_user_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)

    with (
        pytest.raises(RunDirectoryError, match=rf"belongs to user {owner}, not to user {owner + 1}"),
        claimed(tmp_path, resume=False, config_toml=""),
    ):
        pass

    assert list(tmp_path.iterdir()) == []


def test_a_file_is_no_run_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with (
        pytest.raises(RunDirectoryError, match="is a file"),
        claimed(tmp_path / "file", resume=False, config_toml=""),
    ):
        pass


def test_a_place_that_cannot_be_written_to_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with (
        pytest.raises(RunDirectoryError, match=r"cannot be made: Not a directory.*--run-dir"),
        claimed(tmp_path / "file" / "run", resume=False, config_toml=""),
    ):
        pass


def test_an_occupied_directory_names_the_process_and_the_remedy(tmp_path: Path) -> None:
    with held_by_another_process(tmp_path / "run") as process:
        with (
            pytest.raises(
                RunDirectoryError, match=rf"taken by process {process.pid}.*dartrl status.*--run-dir"
            ),
            claimed(tmp_path / "run", resume=True, config_toml=""),
        ):
            pass
        assert holder(tmp_path / "run") == process.pid
        assert latest_run(tmp_path) == tmp_path / "run"


def test_a_directory_is_free_again_when_its_process_is_killed(tmp_path: Path) -> None:
    with held_by_another_process(tmp_path / "run"):
        pass

    assert holder(tmp_path / "run") is None
    with claimed(tmp_path / "run", resume=True, config_toml=""):
        assert holder(tmp_path / "run") == os.getpid()


def test_asking_about_a_run_that_never_was_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotRunningError, match="there is no run in"):
        holder(tmp_path)
    with pytest.raises(NotRunningError, match="there is no run in"):
        latest_run(tmp_path)


def test_a_relative_directory_without_a_run_is_named_with_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    remedy = f"name its directory with --run-dir \\(the working directory is {tmp_path}\\)$"
    with pytest.raises(NotRunningError, match=f"^there is no run in runs/laptop; {remedy}"):
        holder(Path("runs/laptop"))
    with pytest.raises(NotRunningError, match=f"^there is no run in runs/; {remedy}"):
        latest_run(Path("runs"))
    with pytest.raises(NotRunningError, match=r"; name its directory with --run-dir$"):
        holder(tmp_path / "runs" / "laptop")


def test_the_latest_run_is_found_when_none_is_running(tmp_path: Path) -> None:
    for name, started in (("old", 100), ("new", 200), ("older", 50)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "lock").touch()
        os.utime(tmp_path / name / "lock", (started, started))

    assert latest_run(tmp_path) == tmp_path / "new"


@pytest.fixture
def in_unfit_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory whose name is Latin-1, which is not UTF-8."""
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this file system has names in UTF-8 only")
    monkeypatch.chdir(folder)
    return folder


def test_a_run_directory_below_a_name_that_is_not_utf8_is_refused_before_anything_is_made(
    in_unfit_folder: Path,
) -> None:
    says = r"caf\udce9/run' has a path that is not UTF-8 text; choose another directory with --run-dir"
    with pytest.raises(RunDirectoryError, match=re.escape(says)):
        refuse_at_once(RunPaths(Path("run")), resume=False)
    with (
        pytest.raises(RunDirectoryError, match="not UTF-8"),
        claimed(Path("run"), resume=False, config_toml=""),
    ):
        pass
    assert list(in_unfit_folder.iterdir()) == []
