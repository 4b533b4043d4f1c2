"""Transfers the files of one version, several at a time. After an error, no further transfer begins."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

TRANSFERS = 4
"""Number of files of one version that are put or fetched at the same time."""


def transfer_each(transfer: Callable[[T], None], files: Iterable[T]) -> None:
    """Call `transfer` for each file, `TRANSFERS` at a time.

    A version that lacks one file is lost. So if a call raises, the files that are queued are skipped. The
    error is raised when the calls under way have ended; of several errors, that of the first file.
    """
    is_over = threading.Event()

    def transfer_unless_over(file: T) -> None:
        if is_over.is_set():
            return
        try:
            transfer(file)
        except BaseException:
            is_over.set()  # before this thread takes the next file
            raise

    with ThreadPoolExecutor(max_workers=TRANSFERS) as threads:
        try:
            for done in [threads.submit(transfer_unless_over, file) for file in files]:
                done.result()
        finally:
            is_over.set()
