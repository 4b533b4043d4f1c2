"""The calls of getters that read pages of the guest's browser: the limit of each, and what is kept of it.

Such getters work over Playwright. What they read of the browser passes the parent as bytes of a connection,
which no later evaluation could read again. So the value that a call returned is kept in place of them. The
child asks `CALL` before each call. If a value was kept, the answer has it, and the getter is not called. Else
the answer is None, and after the call the child says `RETURNED`.

`dart.config.osworld_evaluation` has the limit, and how long such getters wait for a page.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from dart.environments.osworld.guest_answers import CALL, Reading
from dart.environments.osworld.scoring_process import ChildBroke

RETURNED = "returned"
"""Name of the child's message that a getter returned; it needs no answer."""


class Returned(msgspec.Struct, forbid_unknown_fields=True):
    """What the child says of a call that ended."""

    packed: bytes = b""
    """The value, as `dart.environments.osworld.scoring_child.packed` writes it."""
    unkept: str = ""
    """Why there is no value to keep; empty if there is one."""


@dataclass(frozen=True, slots=True)
class _Call:
    arguments: Mapping[str, Any]
    """Name of the getter and its parameters."""
    lacked: int
    """How many things the guest had been found to lack before the call."""


class PageCalls:
    """The calls during one evaluation. They run one after the other."""

    def __init__(self, lacks: Sequence[str], limit_s: float) -> None:
        """lacks     what the guest was found to lack, to which the answers during a call add
        limit_s   limit of each call
        """
        self._lacks = lacks
        self._limit_s = limit_s
        self._limit = asyncio.timeout(None)
        self._call: _Call | None = None

    @contextlib.asynccontextmanager
    async def limited(self) -> AsyncIterator[None]:
        """End the block by ChildBroke when a call in it exceeds its limit."""
        try:
            async with self._limit:
                yield
        except TimeoutError:
            if self._call is None or not self._limit.expired():
                raise
            raise ChildBroke(
                f"was killed: its getter {self._call.arguments['getter']} did not return within "
                f"{self._limit_s:.1f} s, the limit of a call that reads pages of the browser"
            ) from None

    def began(self, arguments: Mapping[str, Any]) -> None:
        """Start the limit of a call.

        arguments   those of `CALL`: ``getter`` and ``config``
        """
        self._call = _Call(arguments, len(self._lacks))
        self._limit.reschedule(asyncio.get_running_loop().time() + self._limit_s)

    def returned(self, arguments: Mapping[str, Any]) -> Reading:
        """End the limit of the call, and return what is kept of it: a value, or why there is none.

        Raises ChildBroke when there was no call, or for wrong arguments."""
        if self._call is None:
            raise ChildBroke("said that a getter returned, and none was called")
        try:
            said = msgspec.convert(arguments, Returned)
        except msgspec.ValidationError as error:
            raise ChildBroke(f"said something wrong of a getter that returned: {error}") from error
        answer = (
            {"unkept": said.unkept}
            if said.unkept
            else {"packed": said.packed, "lacks": list(self._lacks[self._call.lacked :])}
        )
        kept = Reading(question=CALL, arguments=self._call.arguments, answer=answer)
        self._call = None
        self._limit.reschedule(None)
        return kept
