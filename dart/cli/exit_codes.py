"""What the exit code of every command means, and which error ends a command with which code.

The codes of `status` are those that the LSB (Linux Standard Base) defines for it. The others are from
sysexits.h where a code of it fits. A service manager should restart a run after code 75, and must not restart
it after 2 and 78.
"""

import errno
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import IntEnum
from pathlib import Path
from typing import NoReturn

import typer

from dart.core import errors
from dart.core.disk_errors import DISK_ERRORS, FULL_DISK
from dart.inspect.terminal_safe import printable


class ExitCode(IntEnum):
    """Exit codes of `dartrl`, each with its meaning for docs/reference/exit-codes.md."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> "ExitCode":
        made = int.__new__(cls, code)
        made._value_ = code
        made.meaning = meaning
        return made

    OK = 0, "done; for `status`: running and healthy; for `doctor`: sound"
    FAILED = (
        1,
        "failed; a run in which no episode was played has failed, too; for `status`: running, but degraded: "
        "an actor is down or not ready, or a stall, an alarm or a pause stands; for `doctor`: something is "
        "wrong; for `config diff`: the configurations differ",
    )
    USAGE = 2, "the command line is wrong, or names a task or a demonstration that does not exist"
    NOT_RUNNING = 3, "the run is not running"
    UNKNOWN = (
        4,
        "cannot tell: the run holds its lock but does not show its state, or does not answer a request",
    )
    UNAVAILABLE = 69, "something needed is missing, such as a browser, a package or a usable checkpoint"
    CANNOT_CREATE = (
        73,
        "the run directory cannot be created, exists already, is taken by another run, or was deleted or "
        "moved while the run used it",
    )
    IO_ERROR = 74, "reading or writing failed, such as a full disk; what was stored before is kept"
    TEMPORARY = (
        75,
        "failed, and may succeed if tried again, for instance because a restart budget was spent; "
        "or a request was not done within `--wait` and is still being carried out",
    )
    CONFIGURATION = 78, "the configuration or the installation is wrong; trying again will not help"
    INTERRUPTED = 130, "ended by SIGINT before it was done"
    TERMINATED = 143, "ended by SIGTERM before it was done"


OF_ERROR: Mapping[type[errors.DartError], ExitCode] = {
    errors.DartError: ExitCode.FAILED,
    errors.ConfigurationError: ExitCode.CONFIGURATION,
    errors.UsageError: ExitCode.USAGE,
    errors.UnavailableError: ExitCode.UNAVAILABLE,
    errors.RunDirectoryError: ExitCode.CANNOT_CREATE,
    errors.NotRunningError: ExitCode.NOT_RUNNING,
    errors.SilentError: ExitCode.UNKNOWN,
    errors.DiskError: ExitCode.IO_ERROR,
    errors.TemporaryError: ExitCode.TEMPORARY,
}

WRONG_PATHS = (errno.ENAMETOOLONG, errno.ELOOP)
"""Error numbers for a path that no file can have: a name is too long, or symbolic links form a loop."""

ENDS = (typer.Exit, typer.Abort, typer.BadParameter)
"""Exceptions by which a command ends on purpose."""


def exit_code_of(error: errors.DartError) -> ExitCode:
    """Return the exit code of the error's class or, if the class has none, of its nearest base class."""
    return next(OF_ERROR[kind] for kind in type(error).__mro__ if kind in OF_ERROR)


@contextmanager
def errors_as_exit_codes(place: Path | None = None, damage: Callable[[], str] = lambda: "") -> Iterator[None]:
    """End the command with one message and an exit code if the block raises an error that a user can fix.

    These are DartError, Ctrl-C, a missing permission, an impossible path (`WRONG_PATHS`), a working directory
    that was deleted, and a failing disk (`DISK_ERRORS`). Another OSError counts as a defect and propagates.
    Any other exception can come from damaged data, so `damage` is called: if it describes damage, the command
    ends with this description and code 74; if not, the exception is a defect and propagates.

    place    where the command writes; messages name it if the error names no file. None for a command that
             writes only its output: an error of a full disk that names no file is then about the output
    damage   returns a description of the damage of the data that the command reads; empty if there is none
    """
    somewhere = place or "the run directory"
    try:
        yield
    except errors.DartError as error:
        end(str(error), exit_code_of(error))
    except KeyboardInterrupt:
        end("interrupted", ExitCode.INTERRUPTED)
    except PermissionError as error:
        end(
            f"{error.strerror}: {error.filename or somewhere}; only the user who started a run can use it: "
            "run this command as that user, or name another folder",
            ExitCode.IO_ERROR,
        )
    except OSError as error:
        if error.errno in WRONG_PATHS:
            end(
                f"{error.strerror}: {str(error.filename or somewhere)[:200]}; name another path",
                ExitCode.CANNOT_CREATE,
            )
        if error.errno == errno.ENOENT and _is_working_directory_gone():
            end(
                "the working directory was deleted; change to another one and repeat the command",
                ExitCode.CANNOT_CREATE,
            )
        if error.errno not in DISK_ERRORS:
            raise
        if place is None and error.filename is None and error.errno in FULL_DISK:
            end(
                f"writing the output failed: {error.strerror}; this affects no run: free some space, or "
                "write the output elsewhere",
                ExitCode.IO_ERROR,
            )
        end(
            f"{error.strerror} at {error.filename or somewhere}; everything stored before is kept: "
            "free some space or repair the disk, then continue with --resume, or begin again if nothing was "
            "stored yet",
            ExitCode.IO_ERROR,
        )
    except Exception as error:
        if not isinstance(error, ENDS) and (found := damage()):
            end(f"{type(error).__name__}: {error}; {found}", ExitCode.IO_ERROR)
        raise


def _is_working_directory_gone() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def end(message: str, code: ExitCode) -> NoReturn:
    """Print a message on standard error, each line after "error: ", and end the command with this code.

    If standard error refuses the message, the code alone says why the command ended.
    """
    with suppress(OSError):
        for line in printable(message).splitlines():
            typer.echo(f"error: {line}", err=True)
    raise typer.Exit(code)


def end_stopped(number: int, command: str = "", *, during: str = "") -> NoReturn:
    """End a command that a signal stopped before it was done. The message is no error: a person asked for it.

    command   the command that goes on with what was stored; "" if nothing was
    during    in which part of its work the command was stopped, such as " in the stage train"
    """
    remedy = f"nothing that was stored is lost. Go on with: {command}" if command else "nothing was kept"
    typer.echo(printable(f"stopped by {signal_words(number)}{during}; {remedy}"), err=True)
    raise typer.Exit(code_of_signal(number))


def signal_words(number: int) -> str:
    """Return the name of a signal, or for that of a key the key."""
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


def code_of_signal(number: int) -> ExitCode:
    """Return the exit code of a run that this signal ended before it was done."""
    return ExitCode.INTERRUPTED if number == signal.SIGINT else ExitCode.TERMINATED
