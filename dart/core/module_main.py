"""What the commands `python -m dart.…` have in common.

They print an error that a person can fix as `dartrl` does: its message, without a traceback.
"""

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dart.core.errors import DartError


def new_folder(text: str) -> Path:
    """Read an argument that names a folder to be made. argparse refuses a folder that exists."""
    folder = Path(text)
    if folder.exists():
        raise ArgumentTypeError(f"expected a new folder, but {folder} exists already; name another one")
    return folder


@contextmanager
def errors_as_messages(parser: ArgumentParser) -> Iterator[None]:
    """End the command on an error that a person can fix with its message and code 2, on Ctrl-C with 130."""
    try:
        yield
    except DartError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        parser.exit(130, "interrupted\n")
