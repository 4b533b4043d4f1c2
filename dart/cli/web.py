"""`dartrl web`: a run in the browser."""

from pathlib import Path
from typing import Annotated

import typer

from dart.cli.boundary import errors_as_exit_codes
from dart.cli.options import RunDir
from dart.cli.output import say
from dart.cli.record import chosen

PORT = 8700


def web(
    run_dir: RunDir = None,
    host: Annotated[
        str, typer.Option(help="Address to listen at; one that other machines reach needs a token.")
    ] = ("127.0.0.1"),
    port: Annotated[
        int, typer.Option(help="Port to listen at; 0 takes a free one.", min=0, max=65535)
    ] = PORT,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the token that clients need (mode 0600); created if missing."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Another host name of the page, such as a proxy's; may be repeated."),
    ] = None,
) -> None:
    """Show a run in the browser: curves, the supervision tree, tasks, and every trajectory step by step.

    Works on a running run and on one that has ended. With a token the page can also pause, resume and drain
    a running one, restart actors and end quarantines. Ctrl-C ends the page, never the run.

    **Examples**

    * `dartrl web`
    * `dartrl web --run-dir runs/laptop --port 0`
    * `dartrl web --host 0.0.0.0 --token-file ~/.dartrl-token`
    """
    with errors_as_exit_codes():
        _web(chosen(run_dir), host, port, token_file, allow_host or [])


def _web(run_dir: Path, host: str, port: int, token_file: Path | None, names: list[str]) -> None:
    from dart.core.run_directory import RunPaths, holder
    from dart.web.app import web_app
    from dart.web.auth import access_for
    from dart.web.server import address, listen, own_names, serve, token_of

    holder(run_dir)  # raises NotRunningError when there is no run
    token = None
    if token_file is not None:
        token, is_new = token_of(token_file.expanduser())
        say(f"the token is in {token_file}" + (", created now" if is_new else ""), err=True)
    access = access_for(host, token, [*names, *own_names(host)])
    listener = listen(host, port)
    place = address(host, listener.getsockname()[1])
    say(f"{place} shows the run in {run_dir}; Ctrl-C ends the page, not the run")
    serve(web_app(RunPaths(run_dir.resolve()), access), listener)
