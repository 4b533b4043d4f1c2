"""`dartrl web` shows a run in the browser; `dartrl metrics` gives its metrics to Prometheus."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dart.cli.options import RunDir, chosen, followed, reads_run, shown, trouble_in
from dart.cli.output import say

if TYPE_CHECKING:
    from dart.core.run_directory import RunPaths

PORT = 8700


def web(
    run_dir: RunDir = None,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen at. An address that other machines can reach needs --token-file."
        ),
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option(help="Port to listen at; 0: any free port.", min=0, max=65535)] = PORT,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the access token that clients need; created with mode 0600 if missing."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Another host name under which browsers may open the page, such as that of a proxy; may be "
            "repeated."
        ),
    ] = None,
) -> None:
    """Show a run in the browser: curves, the supervision tree, tasks, and every trajectory step by step.

    The run may be running or have ended. With a token, the page can also pause, resume and drain a running
    run, restart its actors and end quarantines. Ctrl-C ends the page, never the run.

    **Examples**

    * `dartrl web`
    * `dartrl web --run-dir runs/laptop --port 0`
    * `dartrl web --host 0.0.0.0 --token-file ~/.dartrl-token`
    """
    from dart.core.run_directory import RunPaths, holder
    from dart.web.app import web_app
    from dart.web.auth import access_for
    from dart.web.server import address, listen, own_names, serve, token_of

    folder = chosen(run_dir)
    paths = RunPaths(folder.resolve())
    holder(paths.root)  # raises NotRunningError when there is no run
    if trouble := trouble_in(paths.root)[0]:
        say(f"note: {trouble}", err=True)
    token = None
    if token_file is not None:
        token, is_new = token_of(token_file.expanduser())
        say(f"the token is in {token_file}" + (", created now" if is_new else ""), err=True)
    access = access_for(host, token, [*(allow_host or []), *own_names(host)])
    listener = listen(host, port, "--port 0")
    place = address(host, listener.getsockname()[1])
    say(f"{place} shows the run in {paths.title}; Ctrl-C ends the page, not the run")
    with followed(paths.root):
        serve(web_app(paths, access), listener)


@reads_run
def metrics(
    run_dir: RunDir = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve /metrics, /livez and /readyz at this address until Ctrl-C, without a token.",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="With --listen: another host name by which scrapers may reach the address, such as the name "
            "of a service or a proxy; may be repeated. IP addresses and the name of this machine need none."
        ),
    ] = None,
) -> None:
    """Print every metric of a run in the format of Prometheus. With `--listen`, serve the metrics and the
    health of the run over HTTP.

    Each scrape reads the board and the record, so it works while actors hang. docs/reference/metrics.md
    describes each metric; contrib/grafana/dartrl.json is a dashboard.

    **Examples**

    * `dartrl metrics | grep dartrl_staleness`
    * `dartrl metrics --listen 127.0.0.1:9109`
    * `dartrl metrics --listen 0.0.0.0:9109 --allow-host trainer.example`
    """
    from dart.config.config import kept_config
    from dart.inspect.metrics import exposition
    from dart.inspect.snapshot_reader import SnapshotReader

    paths = shown(run_dir)
    if listen is not None:
        _serve_metrics(paths, *address_of(listen), allow_host or [])
        return
    with SnapshotReader(paths, kept_config(paths.config)) as reader:
        say(exposition(reader.read()).rstrip("\n"))


def address_of(text: str) -> tuple[str, int]:
    """Split an address such as `127.0.0.1:9109` or `[::1]:9109` into host and port.

    An empty host becomes 127.0.0.1.

    raises    typer.BadParameter for any other text
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise typer.BadParameter(f"expected HOST:PORT such as 127.0.0.1:9109, got {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)


def _serve_metrics(paths: "RunPaths", host: str, port: int, allow_hosts: list[str]) -> None:
    from dart.web.auth import open_access
    from dart.web.scrape_pages import scrape_app
    from dart.web.server import address, listen, own_names, serve

    listener = listen(host, port, "--listen HOST:0")
    url = address(host, listener.getsockname()[1])
    say(f"serving /metrics, /livez and /readyz of {paths.title} on {url}", err=True)
    with followed(paths.root):
        serve(scrape_app(paths, open_access(host, [*allow_hosts, *own_names(host)])), listener)
