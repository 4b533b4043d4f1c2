"""`dartrl metrics`: the figures of a run for Prometheus."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dart.cli.options import RunDir
from dart.cli.output import say
from dart.cli.record import explained, shown

if TYPE_CHECKING:
    from dart.core.run_directory import RunPaths


def metrics(
    run_dir: RunDir = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve /metrics, /livez and /readyz at this address until Ctrl-C; asks for no token.",
        ),
    ] = None,
) -> None:
    """Print every metric of a run in Prometheus's format, or serve them with its health.

    Each scrape reads the board and the record, so it works while actors hang. docs/reference/metrics.md says
    what each metric means; contrib/grafana/dartrl.json is a dashboard.

    **Examples**

    * `dartrl metrics | grep dartrl_staleness`
    * `dartrl metrics --listen 127.0.0.1:9109`
    """
    with explained(run_dir):
        _metrics(run_dir, listen)


def address_of(text: str) -> tuple[str, int]:
    """`127.0.0.1:9109` or `[::1]:9109` in its parts.

    raises    typer.BadParameter
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise typer.BadParameter(f"expected HOST:PORT such as 127.0.0.1:9109, got {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)


def _metrics(run_dir: Path | None, listen: str | None) -> None:
    paths = shown(run_dir)
    if listen is None:
        _print(paths)
    else:
        _serve(paths, *address_of(listen))


def _print(paths: "RunPaths") -> None:
    from dart.config.config import load_config
    from dart.inspect.metrics import exposition
    from dart.inspect.snapshot_reader import SnapshotReader

    with SnapshotReader(paths, load_config(paths.config)) as reader:
        say(exposition(reader.read()).rstrip("\n"))


def _serve(paths: "RunPaths", host: str, port: int) -> None:
    from dart.web.scrape_pages import scrape_app
    from dart.web.server import address, listen, serve

    listener = listen(host, port)
    url = address(host, listener.getsockname()[1])
    say(f"serving /metrics, /livez and /readyz of {paths.root} on {url}", err=True)
    serve(scrape_app(paths), listener)
