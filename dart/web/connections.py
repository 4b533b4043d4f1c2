"""Limits on the time and the number of connections that send no request.

uvicorn counts every connection against its limit and has no deadline for a request to arrive, so idle
connections could keep out the pages that follow the run.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 5.0
"""For the first line and the headers of a request to arrive on a connection that serves none."""

WAITING_MOST = 48
"""Most connections without a request; when one more comes, the oldest of them is closed."""


class BoundedHttp(H11Protocol):
    """uvicorn's HTTP/1.1, with a deadline for each request to arrive."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._request_due: asyncio.TimerHandle | None = None
        """Runs while no request is under way."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._request_came()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_asked():
            self._request_came()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._is_asked() and not self.transport.is_closing():
            self._await_request()

    def _is_asked(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _await_request(self) -> None:
        self._request_came()
        self._request_due = self.loop.call_later(HEAD_S, self._give_up)
        waiting = [one for one in self.connections if isinstance(one, BoundedHttp) and one._request_due]
        if len(waiting) > WAITING_MOST:
            min(waiting, key=_due_s)._give_up()

    def _request_came(self) -> None:
        if self._request_due is not None:
            self._request_due.cancel()
            self._request_due = None

    def _give_up(self) -> None:
        self._request_came()
        self.transport.close()


def _due_s(waiting: BoundedHttp) -> float:
    return waiting._request_due.when() if waiting._request_due else 0.0
