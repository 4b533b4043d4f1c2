"""Where errors become messages and exit codes: the outermost frame of every command."""

import errno
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import typer

from dart.cli.exit_codes import ExitCode, exit_code_of
from dart.core.errors import DartError
from dart.inspect.terminal_safe import printable

WRONG_PATHS = (errno.ENAMETOOLONG, errno.ELOOP)
"""Names that no file can have: too long, or links that lead in a circle."""

DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)
"""Failures of the machine's storage; any other OSError here is a defect and keeps its traceback."""

ENDS = (typer.Exit, typer.Abort, typer.BadParameter)
"""Errors by which a command ends on purpose."""


@contextmanager
def errors_as_exit_codes(place: Path | None = None, damage: Callable[[], str] = lambda: "") -> Iterator[None]:
    """End the command with one message and its exit code for every error a person can do something about.

    place    where the command writes, for failures of the disk that do not say it themselves
    damage   describes damaged data that the command reads; called for any other error, because code that
             reads a damaged row can fail anywhere
    Any other error is a defect: it propagates, prints its traceback and ends the command with 1.
    """
    try:
        yield
    except DartError as error:
        end(str(error), exit_code_of(error))
    except KeyboardInterrupt:
        end("interrupted", ExitCode.INTERRUPTED)
    except PermissionError as error:
        end(
            f"{error.strerror}: {error.filename or place}; a run is for the user who started it: "
            "be that user, or name another place",
            ExitCode.IO_ERROR,
        )
    except OSError as error:
        if error.errno in WRONG_PATHS:
            end(
                f"{error.strerror}: {str(error.filename or place)[:200]}; name another place",
                ExitCode.CANNOT_CREATE,
            )
        if error.errno not in DISK_ERRORS:
            raise
        end(
            f"{error.strerror} at {error.filename or place}; everything stored before is kept: "
            "make room, then go on with --resume",
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
