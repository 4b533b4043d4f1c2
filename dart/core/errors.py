"""Errors that a person can fix, sorted by what to do about them.

The command line prints each of them as one message without a traceback and ends with the exit code that
`dart.cli.exit_codes` assigns to its class. Every other exception that reaches the command line is a defect
and keeps its traceback. The text of an error says what happened, to which named thing, with which value, and
what to do.
"""


class DartError(Exception):
    """An error that a person can fix."""


class ConfigurationError(DartError):
    """The configuration is wrong: edit it; trying again will not help."""


class UsageError(DartError):
    """The command line names something that does not exist: correct the name."""


class UnavailableError(DartError):
    """A requirement is missing: a browser, a package, a checkpoint."""


class RunDirectoryError(DartError):
    """The run directory cannot be created, or another run holds it."""


class NotRunningError(DartError):
    """The run is not running."""


class SilentError(DartError):
    """The run is running but does not reply, so the result of the request is unknown."""


class DiskError(DartError):
    """Reading or writing failed: a full disk, a corrupt or unreadable file."""


class TemporaryError(DartError):
    """The same command may work the next time: a restart budget is spent, a machine is too busy."""
