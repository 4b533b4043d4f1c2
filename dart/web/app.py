"""The web page of a run as an ASGI application. Its addresses:

/             overview            /trajectories   list, newest first
/tree         supervision tree    /trajectory     one trajectory, step by step
/actor        one actor           /compare        two trajectories side by side
/tasks        all tasks           /export         one trajectory, as a file
/task         one task            /blobs/…        screenshots, by their sha256
/exploration  the graph of what was explored
/stream       the changes of an open page, as server-sent events
/confirm      asks for confirmation of a change of the run
/do           makes a change of the run, as a command would
/metrics, /livez, /readyz   for scrapers and health checks (`dart.web.scrape_pages`)
"""

import asyncio
import json
import re
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from urllib.parse import parse_qs, urlencode

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from dart.core.errors import (
    DartError,
    DiskError,
    NotRunningError,
    RunDirectoryError,
    TemporaryError,
    UsageError,
)
from dart.core.run_directory import RunPaths
from dart.run.control_protocol import ControlOutcome
from dart.run.steering import request as control
from dart.store.errors import BlobDamage, StoreError
from dart.store.run_blobs import blobs_of
from dart.web import actions
from dart.web import auth as rules
from dart.web.actions import RequestedAction
from dart.web.auth import Access
from dart.web.blocking import BlockingPool
from dart.web.middleware import Guard, asked_of
from dart.web.pages import HEAD, PAGES, STILL, PagePart, Values, WebPage, page_of
from dart.web.render import STATIC, render, static, static_address
from dart.web.run_view import RunView
from dart.web.scrape_pages import scrape_routes
from dart.web.trajectory_pages import episode_key, trajectory_html

UNROUTED = ("head", "overview")
"""Pages that get no address of their own name. `head` is a part of every page, and `overview` is at `/`."""

STREAMS_MOST = 32
"""Largest number of streams at a time. Each page that is open in a browser has one stream."""

STREAM_S = 600.0
"""Seconds after which a stream ends. The page then opens a new one, and the login is checked again."""

EVENT_STREAM = "text/event-stream"

POLL_S = 0.1
GOOD_FOR = 0.8
"""Share of `PagePart.every_s` for which the HTML of a part is kept and sent to further clients.

The share is below 1, so that kept HTML has expired when the next rendering is due.
"""

KEEP_ALIVE_S = 15.0
"""Seconds without a change after which a stream sends the event `alive`. After 40 s without an event, a page
says that it does not follow the run (`SILENT_MS` of app.js)."""

GZIP_LEVEL = 1
"""Level of zlib at which pages and streams are compressed. The lowest makes the tree of 200 environments a
twentieth, and takes the least time from the run beside it."""

FORM_BYTES = 4096
FORM_S = 5.0
"""Longest time that a client may take to send a form. After that, the request fails with status 408."""

FOREVER = "private, max-age=31536000, immutable"
BLOB = re.compile(r"[0-9a-f]{64}")


class Site:
    """The request handlers, with the run and the pool of threads that they share."""

    def __init__(self, paths: RunPaths, access: Access) -> None:
        self._paths = paths
        self._access = access
        self.blocking = BlockingPool()
        self._streams = 0

    # pages

    async def page(self, request: Request, name: str) -> Response:
        """Respond with the page of this name in `dart.web.pages.PAGES`."""
        values = Values(request.query_params)
        page = page_of(name, values)
        parts = {part.name: await self._part(name, values, part) for part in page.parts}
        stream = f"/stream?{urlencode({**values, 'page': name})}"
        return self._page(request, page, parts, stream, actions.offers(name, values["name"]))

    async def _part(self, name: str, values: Values, part: PagePart) -> str:
        """Return a part of a page as HTML. For an error that may pass, return HTML with its text (`PASSING`).

        A part that is rendered only once raises the error instead.
        """
        return await part_or_error(self._html(name, values, part), () if part.every_s == STILL else PASSING)

    async def _html(self, name: str, values: Values, part: PagePart) -> str:
        """Return a part of a page as HTML, rendered once for all clients that show the page."""
        place = "every page" if part is HEAD else f"/{name}?{urlencode(sorted(values.items()))}"
        kept_s = 0.0 if part.every_s == STILL else GOOD_FOR * part.every_s
        return await self.blocking.shared(
            f"{part.name} of {place}", kept_s, lambda: self._opened(lambda run: part.render(run, values))
        )

    def _opened(self, job: Callable[[RunView], str]) -> str:
        with RunView(self._paths) as run:
            return job(run)

    def _page(
        self,
        request: Request,
        page: WebPage,
        parts: Mapping[str, str],
        stream: str = "/stream?page=head",
        offers: Sequence[RequestedAction] = (),
    ) -> HTMLResponse:
        values = {"page": page, "parts": parts, "stream": stream, "offers": offers}
        values["zone"] = time.strftime("UTC%z")
        values["run_name"] = self._paths.title
        values["login"] = _login_address(request)
        can_steer, is_known = self._access.token is not None, self._is_known(request)
        return HTMLResponse(render("page.html", **values, can_steer=can_steer, is_known=is_known))

    def _is_known(self, request: Request) -> bool:
        """Whether the client sent the access token or a valid session cookie, and so may change the run."""
        return rules.is_known(self._access, asked_of(request.scope), time.time())

    # actions

    async def confirm(self, request: Request) -> Response:
        """Respond with the page that says what a change does and has the button for it."""
        may, can = self._is_known(request), self._access.token is not None
        wanted, login = actions.wanted(request.query_params), _login_address(request)
        return await self._about(request, wanted, "_confirm.html", may=may, can=can, login=login)

    async def do(self, request: Request) -> Response:
        """Make a change of the run by the same request as the command line; respond with its outcome."""
        wanted = actions.wanted(await _form(request))
        answer = await self.blocking.run(wanted.title, partial(control, self._paths.root, wanted.request))
        tone = "" if answer.outcome in (ControlOutcome.DONE, ControlOutcome.UNDER_WAY) else "bad"
        page = await self._about(request, wanted, "_done.html", answer=answer, tone=tone)
        page.status_code = actions.STATUS[answer.outcome]
        return page

    async def _about(
        self, request: Request, wanted: RequestedAction, template: str, **values: object
    ) -> HTMLResponse:
        """Return a page about a change. While it is open, only its head is updated."""
        head = await self._part("head", Values(), HEAD)
        parts = {"head": head, "action": render(template, wanted=wanted, **values)}
        return self._page(request, WebPage(wanted.title, "", (HEAD,)), parts)

    # files

    async def export(self, request: Request) -> Response:
        id_ = request.query_params.get("id", "")
        episode_key(id_)  # a text that is no id must not get into a header
        job = partial(self._opened, partial(trajectory_html, id_=id_))
        html = await self.blocking.run(f"export of episode {id_}", job)
        disposition = f'attachment; filename="episode-{id_}.html"'
        return HTMLResponse(html, headers={"content-disposition": disposition})

    async def blob(self, request: Request) -> Response:
        """Respond with a screenshot. An address has only a sha256, so it cannot lead to another file."""
        sha256 = request.path_params["sha256"]
        if not BLOB.fullmatch(sha256):
            raise UsageError(f"expected the sha256 of a screenshot, 64 hexadecimal digits, got {sha256!r}")
        blobs = blobs_of(self._paths).screenshots
        content = await self.blocking.run("screenshot", lambda: blobs.read(sha256))
        return Response(content, media_type="image/png", headers={"cache-control": FOREVER})

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in STATIC:
            raise UsageError(f"there is no file {name!r} at /static/; there are {', '.join(STATIC)}")
        asked = f"{request.scope['path']}?{request.scope['query_string'].decode('latin-1')}"
        headers = {"cache-control": FOREVER if asked == static_address(name) else "no-cache"}
        return Response(static(name), media_type=STATIC[name], headers=headers)

    # following

    async def stream(self, request: Request) -> Response:
        values = Values(request.query_params)
        name = values.pop("page", "")
        page = page_of(name, values)
        if request.method == "HEAD":
            return Response(media_type=EVENT_STREAM)
        if self._streams >= STREAMS_MOST:
            raise TemporaryError(
                f"this page cannot follow the run, because {STREAMS_MOST} pages already do; close one of them"
            )
        self._streams += 1  # before the first await, or all requests that come at once would pass
        events = changes(page, partial(self._html, name, values))
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return _Stream(events, self._stream_ended)
        return _Stream(gzipped(events), self._stream_ended, {"content-encoding": "gzip"})

    def _stream_ended(self) -> None:
        self._streams -= 1

    # access

    async def login(self, request: Request) -> Response:
        if self._access.token is None:
            return RedirectResponse("/", status_code=303)
        if request.method != "POST":
            place = rules.own_place(request.query_params.get("next", ""))
            return HTMLResponse(render("login.html", is_wrong=False, next=place))
        form = await _form(request)
        place = rules.own_place(form.get("next", ""))
        if not rules.is_token(self._access.token, form.get("token", "").strip()):
            return HTMLResponse(render("login.html", is_wrong=True, next=place), status_code=403)
        answer = RedirectResponse(place, status_code=303)
        answer.set_cookie(
            rules.cookie_name(request.headers.get("host")),
            rules.new_session(self._access.token, time.time()),
            max_age=int(rules.SESSION_S),
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer

    async def logout(self, request: Request) -> Response:
        answer = RedirectResponse("/login", status_code=303)
        answer.delete_cookie(rules.cookie_name(request.headers.get("host")))
        return answer


class _Stream(StreamingResponse):
    """A response with server-sent events. Calls `ended` at its end, even if no event was sent."""

    def __init__(
        self,
        events: AsyncIterator[str] | AsyncIterator[bytes],
        ended: Callable[[], None],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(events, headers=headers, media_type=EVENT_STREAM)
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()


def web_app(paths: RunPaths, access: Access) -> Guard:
    """Return the web page of a run as an ASGI application that checks requests by the rules `access`."""
    site = Site(paths, access)

    routes = [
        Route("/", partial(site.page, name="overview")),
        *(Route(f"/{name}", partial(site.page, name=name)) for name in PAGES if name not in UNROUTED),
        Route("/export", site.export),
        Route("/blobs/{sha256}.png", site.blob),
        Route("/static/{name}", site.static),
        *scrape_routes(paths, site.blocking),
        Route("/stream", site.stream),
        Route("/confirm", site.confirm),
        Route(rules.STEER, site.do, methods=["POST"]),
        Route("/login", site.login, methods=["GET", "POST"]),
        Route("/logout", site.logout, methods=["POST"]),
    ]
    handlers = {DartError: _on_error, StoreError: _on_error, HTTPException: _on_error, Exception: _on_defect}
    app = Starlette(routes=routes, exception_handlers=handlers, lifespan=site.blocking.lifespan)
    return Guard(GZipMiddleware(app, compresslevel=GZIP_LEVEL), access)


async def changes(
    page: WebPage,
    html: Callable[[PagePart], Awaitable[str]],
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    now_s: Callable[[], float] = time.monotonic,
) -> AsyncIterator[str]:
    """Yield the parts of a page as server-sent events: each part when first rendered and when it has changed.

    A part that is slow to render does not delay other parts. The stream ends after `STREAM_S`; browsers then
    ask for a new stream.

    html   renders a part
    """
    sent: dict[str, str] = {}
    following = [part for part in page.parts if part.every_s < STILL]
    due_s = dict.fromkeys((part.name for part in following), now_s())
    made: dict[str, asyncio.Task[str]] = {}
    ends_s, spoke_s = now_s() + STREAM_S, now_s()
    yield "retry: 2000\n\n"
    try:
        while now_s() < ends_s:
            for part in following:
                if part.name not in made and due_s[part.name] <= now_s():
                    due_s[part.name] = now_s() + part.every_s
                    made[part.name] = asyncio.create_task(part_or_error(html(part), (DartError,)))
            await sleep(POLL_S)
            for name in [name for name, task in made.items() if task.done()]:
                text = await made.pop(name)
                if sent.get(name) != text:
                    sent[name], spoke_s = text, now_s()
                    yield f"data: {json.dumps({'name': name, 'html': text})}\n\n"
            if now_s() - spoke_s > KEEP_ALIVE_S:
                spoke_s = now_s()
                yield "event: alive\ndata:\n\n"  # a comment would not reach the script of the page
    finally:
        for task in made.values():
            task.cancel()


async def gzipped(events: AsyncIterator[str]) -> AsyncIterator[bytes]:
    """Compress a stream with gzip, so that a client can read each event as soon as it arrives."""
    packer = zlib.compressobj(GZIP_LEVEL, wbits=16 + zlib.MAX_WBITS)
    async for event in events:
        yield packer.compress(event.encode()) + packer.flush(zlib.Z_SYNC_FLUSH)
    yield packer.flush()


PASSING = (TemporaryError, DiskError, RunDirectoryError, NotRunningError)
"""Errors that may pass while a page is open. They are shown in place of a part; others in place of the
page."""


async def part_or_error(html: Awaitable[str], shown: tuple[type[DartError], ...] = PASSING) -> str:
    """Return a part of a page as HTML. An error of a class in `shown` becomes HTML with its text."""
    try:
        return await html
    except shown as error:
        return render("_trouble.html", text=str(error))


def _login_address(request: Request) -> str:
    return rules.login_address(request.scope["path"], request.scope["query_string"])


async def _form(request: Request) -> dict[str, str]:
    """Read the first value of each field of a form.

    Raises HTTPException if the form is too large, or not complete within `FORM_S`.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(FORM_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > FORM_BYTES:
                    raise HTTPException(413, f"the form has more than {FORM_BYTES} bytes")
    except TimeoutError:
        raise HTTPException(408, f"the form was not complete within {FORM_S:g} s") from None
    except ClientDisconnect:
        raise HTTPException(400, "the client disconnected before the form was complete") from None
    fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
    return {name: values[0] for name, values in fields.items()}


def status_of(error: Exception) -> int:
    """Return the HTTP status for an error: 404 for UsageError and BlobDamage, 503 for other DartErrors."""
    if isinstance(error, HTTPException):
        return error.status_code
    return 404 if isinstance(error, UsageError | BlobDamage) else 503


async def _on_error(request: Request, error: Exception) -> Response:
    text = error.detail if isinstance(error, HTTPException) else str(error)
    return HTMLResponse(render("error.html", status=status_of(error), text=text), status_of(error))


async def _on_defect(request: Request, error: Exception) -> Response:
    """Respond with a page that names an unexpected error; the server logs the traceback."""
    text = (
        f"this page cannot be shown ({type(error).__name__}): `dartrl doctor --data --full` says whether the "
        "data of the run are damaged; if not, this is a defect, and the log of the web page has the traceback"
    )
    return HTMLResponse(render("error.html", status=500, text=text), 500)
