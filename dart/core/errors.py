"""Errors that a person can fix, sorted by what to do about them.

The command line prints each of them as one message without a traceback and ends with the exit code that
`dart.cli.exit_codes` assigns to its class. Every other exception that reaches the command line is a defect
and keeps its traceback.

    DartError
    ├── ConfigurationError    the configuration is wrong: edit it; trying again will not help
    ├── UsageError            the command line names something that does not exist: name another
    ├── UnavailableError      a requirement is missing: a browser, a package, a checkpoint
    ├── RunDirectoryError     the run directory cannot be created, or another run holds it
    ├── NotRunningError       the run is not running
    ├── SilentError           the run is running but does not answer
    ├── DiskError             reading or writing failed: a full disk, a corrupt file
    └── TemporaryError        it may work the next time: a restart budget is spent, a machine is too busy

The text of an error says what happened, to which named thing, with which value, and what to do.
"""


class DartError(Exception):
    """An error that a person can fix; its message says what happened and what to do."""


class ConfigurationError(DartError):
    """The configuration is wrong and has to be edited."""


class UsageError(DartError):
    """The command line names something that does not exist."""


class UnavailableError(DartError):
    """A requirement of the system is missing."""


class RunDirectoryError(DartError):
    """The run directory cannot be created, or another run holds it."""


class NotRunningError(DartError):
    """The run is not running."""


class SilentError(DartError):
    """The run is running but does not answer, so the result of the request is unknown."""


class DiskError(DartError):
    """Reading or writing failed: a full disk, a corrupt or unreadable file."""


class TemporaryError(DartError):
    """The command failed now and may work the next time."""
