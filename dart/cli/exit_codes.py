"""What the exit code of every command means, and which error ends a command with which code.

The codes are from sysexits.h where one fits, and from the LSB's codes for `status`. A service manager should
restart after 75 and must not after 2 and 78.
"""

import errno
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import NoReturn

import typer

from dart.core import errors
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
        "failed; a run in which no episode was played has failed, too; for `status`: running, but some part "
        "is down or starves; for `doctor`: something is wrong; for `config diff`: they differ",
    )
    USAGE = 2, "the command line is wrong, or names a task or a demonstration that does not exist"
    NOT_RUNNING = 3, "the run is not running"
    UNKNOWN = (
        4,
        "cannot tell: the run holds its lock but does not show its state, or does not answer a request",
    )
    UNAVAILABLE = 69, "something needed is missing: a browser, a package, a usable checkpoint"
    CANNOT_CREATE = (
        73,
        "the run directory cannot be created, exists already, or is taken by another run",
    )
    IO_ERROR = 74, "reading or writing failed, such as a full disk; what was stored before is kept"
    TEMPORARY = (
        75,
        "failed now and may succeed the next time, for instance because a restart budget was spent; "
        "or the request is under way and was not done within `--wait`",
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
"""Errors for a path that no file can have: a name that is too long, or links that lead in a circle."""

DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)
"""Failures of the machine's storage; any other OSError here is a defect and keeps its traceback."""

ENDS = (typer.Exit, typer.Abort, typer.BadParameter)
"""Errors by which a command ends on purpose."""


def exit_code_of(error: errors.DartError) -> ExitCode:
    """Return the exit code of an error: that of its class, or of the nearest base class that has a code."""
    return next(OF_ERROR[kind] for kind in type(error).__mro__ if kind in OF_ERROR)


@contextmanager
def errors_as_exit_codes(place: Path | None = None, damage: Callable[[], str] = lambda: "") -> Iterator[None]:
    """End the command with one message and its exit code for every error a person can do something about.

    place    where the command writes; the message names it if the disk fails and the error names no file
    damage   returns a description of damage of the data that the command reads, or an empty text
    Any error can come from damaged data, so `damage` is called for each error that is not one of those above.
    If it finds no damage, the error is a defect: it propagates with its traceback, and the exit code is 1.
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
            "run this as that user, or name another place",
            ExitCode.IO_ERROR,
        )
    except OSError as error:
        if error.errno in WRONG_PATHS:
            end(
                f"{error.strerror}: {str(error.filename or somewhere)[:200]}; name another place",
                ExitCode.CANNOT_CREATE,
            )
        if error.errno not in DISK_ERRORS:
            raise
        end(
            f"{error.strerror} at {error.filename or somewhere}; everything stored before is kept: "
            "make room, then go on with --resume, or begin again if nothing was stored yet",
            ExitCode.IO_ERROR,
        )
    except Exception as error:
        if not isinstance(error, ENDS) and (found := damage()):
            end(f"{type(error).__name__}: {error}; {found}", ExitCode.IO_ERROR)
        raise


def end(message: str, code: ExitCode) -> NoReturn:
    """Print one message on stderr and end the command."""
    for line in printable(message).splitlines():
        typer.echo(f"error: {line}", err=True)
    raise typer.Exit(code)


def code_of_signal(number: int) -> ExitCode:
    """The exit code of a run that was ended by a signal."""
    return ExitCode.INTERRUPTED if number == signal.SIGINT else ExitCode.TERMINATED
