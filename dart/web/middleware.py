"""Middleware of the web page: checks requests by the rules of `dart.web.auth`, adds headers to responses."""

import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dart.web.auth import (
    LOGIN,
    READING,
    Access,
    AccessRefusal,
    RequestFacts,
    cookie_name,
    login_address,
    refusal,
)

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


class Guard:
    """ASGI middleware around the page: refuses requests by the rules `access`, adds headers to responses."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # WebSocket is not supported
            await send({"type": "websocket.close", "code": 1003})
            return
        asked = asked_of(scope)
        refused = refusal(self._access, asked, time.time())
        answer: ASGIApp = self._app if refused is None else _response(refused, asked, scope["query_string"])
        await answer(scope, receive, _with_headers(send))


def asked_of(scope: Scope) -> RequestFacts:
    """Return the parts of a request that the rules of `dart.web.auth` use.

    A header that may occur only once, such as `Host`, counts as missing if it is repeated.
    """
    headers = Headers(scope=scope)

    def one(name: str) -> str | None:
        given = headers.getlist(name)
        return given[0] if len(given) == 1 else None

    host, origins = one("host"), headers.getlist("origin")
    return RequestFacts(
        method=scope["method"],
        path=scope["path"],
        host=host,
        origin=" ".join(origins) if origins else None,
        fetch_site=one("sec-fetch-site"),
        fetch_mode=one("sec-fetch-mode"),
        accept=one("accept"),
        authorization=one("authorization"),
        cookie=cookie_parser("; ".join(headers.getlist("cookie"))).get(cookie_name(host)),
    )


def _response(refused: AccessRefusal, asked: RequestFacts, query: bytes) -> Response:
    if refused.needs_login and _asks_for_page(asked):
        address = login_address(asked.path, query) if asked.method in READING else LOGIN
        return RedirectResponse(address, status_code=303)
    headers = {"www-authenticate": "Bearer"} if refused.needs_login else {}
    if refused.allowed:
        headers["allow"] = ", ".join(refused.allowed)
    return PlainTextResponse(refused.text + "\n", refused.status, headers=headers)


def _asks_for_page(asked: RequestFacts) -> bool:
    """Return whether a browser sends this request to show its response as a page.

    Over HTTP from another machine, browsers send no `Sec-Fetch-Mode`; then `Accept` decides.
    """
    if asked.fetch_mode is None:
        return "text/html" in (asked.accept or "")
    return asked.fetch_mode == "navigate"


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("cache-control", "no-store")  # screenshots, which never change, have another
        await send(message)

    return sending
