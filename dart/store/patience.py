"""Waiting for a record whose server is away, in places that cannot wait otherwise."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from dart.store.errors import StoreBusy

T = TypeVar("T")

RETRY_S = 0.25


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a reader waits while the record is busy, before it raises StoreBusy."""

    open_s: float = 0.0
    read_s: float = 0.0


IMPATIENT = Patience()
"""A command's: the person who asked tries again."""

IN_HANDLER = Patience(open_s=5.0, read_s=5.0)
"""An actor's in a message handler: less than the shortest hang deadline, 8 s."""

AT_START = Patience(open_s=25.0, read_s=5.0)
"""A starting actor's: less than the shortest start deadline, 30 s, and so long that an outage of minutes does
not spend the restarts of its supervisor."""


def patiently(work: Callable[[], T], wait_s: float) -> T:
    """Do `work`, again and again for `wait_s` while it raises StoreBusy; then raise its last error."""
    try:
        return work()
    except StoreBusy:
        if wait_s <= 0:
            raise
    from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

    again = Retrying(
        retry=retry_if_exception_type(StoreBusy),
        stop=stop_after_delay(wait_s),
        wait=wait_fixed(RETRY_S),
        reraise=True,
    )
    return again(work)
