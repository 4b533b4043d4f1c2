"""Wait for free disk space or for a server while data of the run are read or written.

While the database itself refuses writes, the store actor waits (`dart.store.actor`).
"""

import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar, overload

from actors.actor import Actor
from dart.core.disk_errors import FULL_DISK
from dart.core.errors import DiskError
from dart.store.blobs import BlobStore
from dart.store.errors import StoreBusy
from dart.telemetry.board_gauges import Gauge
from dart.telemetry.emit import Data, emit
from dart.telemetry.events import PAUSED

T = TypeVar("T")

ROOM_RETRY_S = 1.0

STORAGE_DEADLINE_S = 60.0
"""Deadline of one try with object storage. `dart.store.object_storage` normally gives up sooner."""


@overload
async def await_room(actor: Actor, what: str, work: Callable[[], Awaitable[T]]) -> T: ...


@overload
async def await_room(actor: Actor, what: str, work: Callable[[], T]) -> T: ...


async def await_room(actor: Actor, what: str, work: Callable[[], T | Awaitable[T]]) -> T:
    """Call `work`, and repeat it while the disk is full or a server of record or blobs does not answer.

    Returns the result of `work`, and raises its other errors. `work` must leave nothing half-written when it
    fails. There is no time limit, because only a person can free space. During the wait the log names `what`,
    which is read or written, and the board shows the actor as not ready and when it last waited. The end of
    the wait is an event of the record.
    """
    began_s: float | None = None
    reason = ""
    while True:
        try:
            result = work()
            done: T = await result if inspect.isawaitable(result) else result
        except (OSError, DiskError, RuntimeError) as error:  # RuntimeError: libraries that lose the number
            if not is_no_room(error):
                raise
            if began_s is None:
                began_s, reason = actor.clock.monotonic_s(), str(error)
                actor.log.error("waits_for_room", what=what, reason=reason)
                actor.set_ready(False)
            actor.set_gauges({Gauge.WAITED_UNIX_S: int(actor.clock.unix_s())})
            await actor.sleep(ROOM_RETRY_S)
            continue
        if began_s is not None:
            actor.set_ready(True)
            _say_it_goes_on(actor, f"{what}: {reason}", actor.clock.monotonic_s() - began_s)
        return done


async def put_blob(actor: Actor, blobs: BlobStore, what: str, content: bytes) -> str:
    """Store a blob and return its sha256. Waits as `await_room` does.

    what   what this kind of blob is called in the log
    """
    return await in_storage(actor, blobs, what, lambda: blobs.put(content))


async def in_storage(actor: Actor, blobs: BlobStore, what: str, work: Callable[[], T]) -> T:
    """Call `work`, in a thread if `blobs` are on another machine, and repeat it as `await_room` does."""
    if not blobs.is_remote:
        return await await_room(actor, what, work)
    return await await_room(
        actor, what, lambda: actor.in_thread(work, name=what, deadline_s=STORAGE_DEADLINE_S)
    )


def is_no_room(error: BaseException) -> bool:
    """Whether an error, or one of its causes, is a full disk or StoreBusy."""
    return any(
        isinstance(cause, StoreBusy)
        or (isinstance(cause, OSError) and cause.errno in FULL_DISK)
        or "No space left on device" in str(cause)  # libraries that lose the number
        for cause in _causes(error)
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _say_it_goes_on(actor: Actor, reason: str, paused_s: float) -> None:
    data: Data = {
        "began_unix_s": actor.clock.unix_s() - paused_s,
        "paused_s": paused_s,
        "reason": reason,
    }
    emit(actor, PAUSED, actor.identity.name, data)
