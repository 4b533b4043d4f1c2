"""What the exit code of every command means.

From sysexits.h where one fits, and from the LSB's codes for `status`. A service manager should restart
after 75 and must not after 2 and 78.
"""

from collections.abc import Mapping
from enum import IntEnum

from dart.core import errors


class ExitCode(IntEnum):
    """Exit codes of `dartrl`."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_RUNNING = 3
    UNKNOWN = 4
    UNAVAILABLE = 69
    CANNOT_CREATE = 73
    IO_ERROR = 74
    TEMPORARY = 75
    CONFIGURATION = 78
    INTERRUPTED = 130
    TERMINATED = 143


MEANING: Mapping[ExitCode, str] = {
    ExitCode.OK: "done; for `status`: running and healthy; for `doctor`: sound",
    ExitCode.FAILED: "failed, a run that played nothing among others; for `status`: running, but some "
    "part is down or starves; for `doctor`: something is wrong; for `config diff`: they differ",
    ExitCode.USAGE: "the command line is wrong, or names a task or a demonstration that does not exist",
    ExitCode.NOT_RUNNING: "the run is not running",
    ExitCode.UNKNOWN: "cannot tell: the run holds its lock but does not show its state, "
    "or does not answer a request",
    ExitCode.UNAVAILABLE: "something needed is missing: a browser, a package, a usable checkpoint",
    ExitCode.CANNOT_CREATE: "the run directory cannot be created, exists already, or is taken by another run",
    ExitCode.IO_ERROR: "reading or writing failed, such as a full disk; what was stored before is kept",
    ExitCode.TEMPORARY: "it failed now and may work the next time, for instance a restart budget was spent; "
    "or it is under way and was not done within `--wait`",
    ExitCode.CONFIGURATION: "the configuration or the installation is wrong; trying again will not help",
    ExitCode.INTERRUPTED: "ended by SIGINT before it was done",
    ExitCode.TERMINATED: "ended by SIGTERM before it was done",
}
"""Descriptions, for docs/reference/exit-codes.md."""

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


def exit_code_of(error: errors.DartError) -> ExitCode:
    """The exit code of an error: that of its nearest class that has one."""
    return next(OF_ERROR[kind] for kind in type(error).__mro__ if kind in OF_ERROR)
