"""The pages for scrapers and health checks. They only read the run.

    /metrics   status 200 with every metric of `dart.inspect.metrics`; 503 if the run cannot be read now
    /livez     status 200 while the run works, else 503 with the reasons (`dart.inspect.health`)
    /readyz    status 200 while episodes can be played and stored, else 503 with the reasons

The web page serves them among its own pages; `dartrl metrics --listen` serves them alone, without a token but
only under its own names and addresses.
"""

from collections.abc import Callable
from functools import partial

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from dart.core.errors import DartError
from dart.core.run_directory import RunPaths
from dart.inspect.health import liveness_problems, readiness_problems
from dart.inspect.metrics import exposition
from dart.web.auth import Access
from dart.web.blocking import BlockingPool
from dart.web.middleware import Guard
from dart.web.run_view import RunView

FRESH_S = 1.0
"""Seconds during which requests to the same page share one response."""

TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"


def scrape_routes(paths: RunPaths, blocking: BlockingPool) -> list[Route]:
    """Return the routes of the three pages of a run, for a Starlette application.

    blocking   the threads in which the run is read
    """

    def route(path: str, job: Callable[[], tuple[int, str]], media_type: str = "text/plain") -> Route:
        async def respond(_: Request) -> Response:
            status, text = await blocking.shared(path, FRESH_S, job)
            return Response(text, status, media_type=media_type)

        return Route(path, respond)

    return [
        route("/metrics", partial(_metrics, paths), TEXT_FORMAT),
        route("/livez", lambda: _verdict(liveness_problems(paths))),
        route("/readyz", lambda: _verdict(readiness_problems(paths))),
    ]


def _metrics(paths: RunPaths) -> tuple[int, str]:
    try:
        with RunView(paths) as run:
            return 200, exposition(run.snapshot)
    except DartError as error:
        return 503, f"{error}\n"


def _verdict(problems: list[str]) -> tuple[int, str]:
    return (503, "".join(f"{one}\n" for one in problems)) if problems else (200, "ok\n")


def scrape_app(paths: RunPaths, access: Access) -> Guard:
    """Make an ASGI application that serves only the three pages.

    access   the rules that requests are checked against (`dart.web.auth.open_access`)
    """
    blocking = BlockingPool()
    routes = scrape_routes(paths, blocking)

    async def not_found(_: Request, __: Exception) -> Response:
        return PlainTextResponse(f"the pages are {', '.join(route.path for route in routes)}\n", 404)

    async def unavailable(_: Request, error: Exception) -> Response:
        return PlainTextResponse(f"{error}\n", 503)

    handlers = {404: not_found, DartError: unavailable}
    app = Starlette(routes=routes, exception_handlers=handlers, lifespan=blocking.lifespan)
    return Guard(app, access)
