"""Wait for free disk space or for a server while data of the run are read or written.

While the database itself refuses writes, the store actor waits (`dart.store.actor`).
"""

import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Self, TypeVar, overload

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

MAY_BE_NO_ROOM = (OSError, DiskError, RuntimeError)
"""Classes of errors that may mean a full disk; RuntimeError is that of libraries that lose the number."""

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
    the wait, also by another error, is an event of the record.
    """
    with _Wait(actor, what) as wait:
        while True:
            try:
                result = work()
                done: T = await result if inspect.isawaitable(result) else result
                return done
            except MAY_BE_NO_ROOM as error:
                if not is_no_room(error):
                    raise
                wait.note(str(error))
            await actor.sleep(ROOM_RETRY_S)


class _Wait:
    """The wait of an actor, as its log, the board and the record show it."""

    def __init__(self, actor: Actor, what: str) -> None:
        self._actor = actor
        self._what = what
        self._began_s: float | None = None
        self._reason = ""

    def note(self, reason: str) -> None:
        """Show that the actor waits. The first reason is the one that is shown."""
        if self._began_s is None:
            self._began_s, self._reason = self._actor.clock.monotonic_s(), reason
            self._actor.log.error("waits_for_room", what=self._what, reason=reason)
            self._actor.set_ready(False)
        self._actor.set_gauges({Gauge.WAITED_UNIX_S: int(self._actor.clock.unix_s())})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Show that the actor goes on, if it has waited. A coroutine that is closed goes on no more."""
        if self._began_s is None or kind is GeneratorExit:
            return
        self._actor.set_ready(True)
        paused_s = self._actor.clock.monotonic_s() - self._began_s
        data: Data = {
            "began_unix_s": self._actor.clock.unix_s() - paused_s,
            "paused_s": paused_s,
            "reason": f"{self._what}: {self._reason}",
        }
        emit(self._actor, PAUSED, self._actor.identity.name, data)


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
