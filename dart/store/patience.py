"""How long readers wait for a record that is busy, for instance because its server does not answer."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from dart.store.errors import StoreBusy

T = TypeVar("T")

RETRY_S = 0.25

CONNECT_S = 2
"""Longest time of an attempt to connect to a server, for each of its addresses."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a reader waits while the record is busy, before it raises StoreBusy.

    `open_s` applies to opening the record, `read_s` to each transaction.
    """

    open_s: float = 0.0
    read_s: float = 0.0


IMPATIENT = Patience()
"""For commands: do not wait, because the person who called the command can repeat it."""

IN_HANDLER = Patience(open_s=7.0, read_s=7.0)
"""For an actor in a message handler: less than the shortest hang deadline, 8 s."""

AT_START = Patience(open_s=25.0, read_s=7.0)
"""For an actor that starts: less than the shortest start deadline, 30 s, but long enough that an outage of
minutes does not spend the restart budget of its supervisor."""


def patiently(
    work: Callable[[], T],
    wait_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Return the result of `work`. Repeat `work` for `wait_s` while it raises StoreBusy; then raise that.

    An attempt to connect can last CONNECT_S, so none is started that could end after `wait_s`.
    """
    last_start_s = clock() + wait_s - CONNECT_S

    def is_over(*_: object) -> bool:
        return clock() + RETRY_S > last_start_s

    try:
        return work()
    except StoreBusy:
        if is_over():
            raise
    sleep(RETRY_S)
    from tenacity import Retrying, retry_if_exception_type, wait_fixed  # most commands do not wait

    again = Retrying(
        retry=retry_if_exception_type(StoreBusy),
        stop=is_over,
        wait=wait_fixed(RETRY_S),
        sleep=sleep,
        reraise=True,
    )
    return again(work)
