"""The pages for scrapers and health checks: /metrics, /livez and /readyz.

The web page serves them among its own pages; `dartrl metrics --listen` serves them alone.
"""

import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from dart.core.errors import DartError
from dart.core.run_directory import RunPaths
from dart.inspect import scrape
from dart.inspect.snapshot import RunSnapshot
from dart.web.blocking import BlockingPool
from dart.web.run_view import RunView

FRESH_S = 1.0
"""Requests within this time share one answer."""


def scrape_routes(paths: RunPaths, blocking: BlockingPool) -> list[Route]:
    """The three pages of a run, for any Starlette application."""

    def route(path: str, job: Callable[[], scrape.Reply]) -> Route:
        async def answer(_: Request) -> Response:
            reply = await blocking.shared(path, FRESH_S, job)
            return Response(reply.text, reply.status, media_type=reply.content_type)

        return Route(path, answer)

    return [
        route("/metrics", partial(scrape.metrics, partial(_snapshot, paths))),
        route("/livez", partial(scrape.livez, paths)),
        route("/readyz", partial(scrape.readyz, paths)),
    ]


def scrape_app(paths: RunPaths) -> Starlette:
    """An ASGI application of the three pages alone. It asks for no token."""
    blocking = BlockingPool()
    routes = scrape_routes(paths, blocking)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        blocking.close()

    async def not_found(_: Request, __: Exception) -> Response:
        return PlainTextResponse(f"the pages are {', '.join(route.path for route in routes)}\n", 404)

    async def unavailable(_: Request, error: Exception) -> Response:
        return PlainTextResponse(f"{error}\n", 503)

    handlers = {404: not_found, DartError: unavailable}
    return Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)


def _snapshot(paths: RunPaths) -> RunSnapshot:
    with RunView(paths) as run:
        return run.snapshot
