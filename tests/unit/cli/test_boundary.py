"""Errors a person can act on become one message and their exit code; defects keep their traceback."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from dart.cli.exit_codes import ExitCode, errors_as_exit_codes, exit_code_of
from dart.core import errors
from dart.core.import_guard import EXIT_CONFIGURATION
from tests.recorded_run import record_run


def code_after(error: BaseException) -> int:
    with pytest.raises(typer.Exit) as caught, errors_as_exit_codes():
        raise error
    return caught.value.exit_code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.DartError("x"), 1),
        (errors.UsageError("x"), 2),
        (errors.NotRunningError("x"), 3),
        (errors.SilentError("x"), 4),
        (errors.UnavailableError("x"), 69),
        (errors.RunDirectoryError("x"), 73),
        (errors.DiskError("x"), 74),
        (errors.TemporaryError("x"), 75),
        (errors.ConfigurationError("x"), 78),
        (KeyboardInterrupt(), 130),
        (OSError(errno.ENOSPC, "No space left on device", "/runs/x/store.db"), 74),
        (PermissionError(errno.EACCES, "Permission denied", "/runs/x/lock"), 74),
        (OSError(errno.ENAMETOOLONG, "File name too long", "x" * 300), 73),
        (OSError(errno.ELOOP, "Too many levels of symbolic links", "/runs/x"), 73),
    ],
)
def test_every_kind_of_error_has_its_exit_code(error: BaseException, code: int) -> None:
    assert code_after(error) == code


def test_a_subclass_has_the_exit_code_of_its_class() -> None:
    class BrowserMissing(errors.UnavailableError):
        pass

    assert exit_code_of(BrowserMissing("x")) is ExitCode.UNAVAILABLE


def test_each_line_of_a_message_is_marked_as_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    code_after(errors.ConfigurationError("first\nsecond"))

    assert capsys.readouterr() == ("", "error: first\nerror: second\n")


def test_a_full_disk_says_where_and_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    code_after(OSError(errno.ENOSPC, "No space left on device", "/runs/x/store.db"))

    text = capsys.readouterr().err
    assert "No space left on device at /runs/x/store.db" in text
    assert "--resume" in text


def test_a_disk_failure_without_a_file_names_the_place_the_command_writes_to(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(typer.Exit), errors_as_exit_codes(Path("runs/x")):
        raise OSError(errno.ENOSPC, "No space left on device")

    assert "No space left on device at runs/x;" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], ["status", "--help"], ["status", "--run-dir", "RUN"]], ids=" ".join
)
def test_output_to_a_full_disk_is_no_failure_of_the_run(words: list[str], tmp_path: Path) -> None:
    run = record_run(tmp_path / "run").root if "RUN" in words else tmp_path
    command = [sys.executable, "-m", "dart", *(str(run) if word == "RUN" else word for word in words)]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)

    assert ended.returncode == ExitCode.IO_ERROR
    assert ended.stderr.startswith("error: writing the output failed: No space left on device; ")
    assert len(ended.stderr.splitlines()) == 1
    assert "--resume" not in ended.stderr


def test_a_working_directory_that_was_deleted_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(typer.Exit) as ended, errors_as_exit_codes():
        Path("runs/x").resolve()

    assert ended.value.exit_code == ExitCode.CANNOT_CREATE
    assert "the working directory was deleted; change to another one" in capsys.readouterr().err


STREAMS = """
import os, subprocess, sys
from dart.cli.main import main
SHOW = "import os; os.write(3, ' '.join(os.readlink(f'/proc/self/fd/{fd}') for fd in (0, 1, 2)).encode())"
sys.argv = ["dartrl", "--version"]
try:
    main()
finally:
    exec(SHOW)
    os.write(3, b" ")
    subprocess.run([sys.executable, "-c", SHOW], pass_fds=[3])
"""
"""Starts the program and another process, which write to descriptor 3 where their standard streams lead."""


def test_neither_a_command_without_standard_streams_nor_its_processes_open_files_in_their_place() -> None:
    closed = ["sh", "-c", 'exec "$@" 3>&1 <&- >&- 2>&-', "sh", sys.executable, "-c", STREAMS]

    assert subprocess.check_output(closed, text=True).split() == ["/dev/null"] * 6


def test_an_error_that_cannot_be_printed_keeps_its_exit_code(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "dart", "status", "--run-dir", str(tmp_path)]
        assert subprocess.run(command, stderr=full, check=False).returncode == ExitCode.NOT_RUNNING


def test_output_in_an_encoding_without_a_character_is_printed_with_a_question_mark(tmp_path: Path) -> None:
    run = record_run(tmp_path / "run").root
    ended = subprocess.run(
        [sys.executable, "-m", "dart", "status", "--run-dir", str(run)],
        env=os.environ | {"PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        encoding="latin-1",
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (ExitCode.NOT_RUNNING, "")
    assert "(serving ?)" in ended.stdout


@pytest.mark.parametrize("defect", [ValueError("x"), FileNotFoundError(errno.ENOENT, "x")])
def test_a_defect_is_not_caught(defect: Exception) -> None:
    with pytest.raises(type(defect)), errors_as_exit_codes():
        raise defect


@pytest.mark.parametrize("ending", [typer.Exit(3), typer.Abort(), typer.BadParameter("x")])
def test_the_data_are_not_looked_at_where_a_command_ends_as_it_means_to(ending: Exception) -> None:
    with pytest.raises(type(ending)), errors_as_exit_codes(damage=lambda: "asked"):
        raise ending


def test_the_guard_ends_with_the_code_of_a_wrong_configuration() -> None:
    assert EXIT_CONFIGURATION == ExitCode.CONFIGURATION
