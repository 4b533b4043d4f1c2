"""Errors a person can do something about, sorted by what there is to do.

Every one of them is printed as one message without a traceback, and ends a command with the exit code that
`dart.cli.exit_codes` gives its class. Anything else that reaches the command line is a defect and keeps its
traceback.

    DartError
    ├── ConfigurationError    the configuration is wrong: edit it, trying again will not help
    ├── UsageError            something was named that is not there: name another
    ├── UnavailableError      something needed is missing: a browser, a package, a checkpoint
    ├── RunDirectoryError     the run directory cannot be created or is taken
    ├── NotRunningError       the run that was asked about is not running
    ├── SilentError           it runs and does not answer
    ├── DiskError             reading or writing failed: a full disk, a corrupt file
    └── TemporaryError        it may work the next time: a restart budget is spent, a machine is too busy

The text of an error says what happened, to which named thing, with which value, and what to do.
"""


class DartError(Exception):
    """What happened and what to do about it, in words for the person at the keyboard."""


class ConfigurationError(DartError):
    """The configuration cannot be used; it has to be edited."""


class UsageError(DartError):
    """The command line names something that is not there."""


class UnavailableError(DartError):
    """Something the system needs is not there."""


class RunDirectoryError(DartError):
    """The run directory cannot be created, or another run holds it."""


class NotRunningError(DartError):
    """The run that was asked about is not running."""


class SilentError(DartError):
    """The run is there and does not answer: nothing is known of what was asked."""


class DiskError(DartError):
    """Reading or writing failed: a full disk, a corrupt or unreadable file."""


class TemporaryError(DartError):
    """It failed now and may work the next time."""
