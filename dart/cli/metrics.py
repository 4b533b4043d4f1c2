"""`dartrl metrics`: the figures of a run for Prometheus."""

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from dart.cli.options import RunDir
from dart.cli.output import say
from dart.cli.record import explained, shown


def metrics(
    run_dir: RunDir = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve /metrics, /livez and /readyz there until Ctrl-C, to anybody who reaches it.",
        ),
    ] = None,
) -> None:
    """Print every metric of a run in Prometheus's format, or serve them with its health.

    Read from the board and the record at each scrape: works while actors hang. What each means:
    docs/reference/metrics.md; a dashboard: contrib/grafana/dartrl.json.

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
    from dart.config.config import load_config
    from dart.inspect import scrape
    from dart.inspect.metrics import exposition
    from dart.inspect.snapshot_reader import SnapshotReader

    paths = shown(run_dir)
    with SnapshotReader(paths, load_config(paths.config)) as reader:
        if listen is None:
            say(exposition(reader.read()).rstrip("\n"))
            return
        with scrape.Server(address_of(listen), paths, reader.read) as server:
            say(f"serving /metrics, /livez and /readyz of {paths.root} on {server.url}", err=True)
            with contextlib.suppress(KeyboardInterrupt):
                server.serve_forever()
