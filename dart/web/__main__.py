"""The sidecar that serves the web page of `dartrl up`: `python -m dart.web.__main__ RUN_DIR PID`."""

import sys
import time
from functools import partial
from pathlib import Path
from socket import socket

from dart.config.config import kept_config
from dart.config.sections import WebSettings
from dart.core.errors import DartError, UnavailableError
from dart.core.run_directory import RunPaths
from dart.inspect.sidecar_status import WEB, Sidecar, beat, write_sidecar
from dart.run.sidecars import begin_sidecar
from dart.web.app import web_app
from dart.web.auth import Access, access_for
from dart.web.server import address, listen, own_names, serve, token_of

RETRY_S = 5.0


def main(arguments: list[str]) -> None:
    """Serve the web page of a run until SIGTERM. Raises DartError.

    arguments   the run directory, and the pid of the main process
    """
    paths = begin_sidecar(WEB, arguments)
    web = kept_config(paths.config).web
    access = access_of(web, paths)
    listener = _listening(web, paths)
    serve(web_app(paths, access), listener, beat=partial(beat, paths, WEB))


def access_of(web: WebSettings, paths: RunPaths) -> Access:
    """Return the access rules of the page by the section `web`; make the token file if there is none.

    raises   DiskError if the token file cannot be made or read, UsageError if other users can read it or the
             token is too short
    """
    file = Path(web.token_file).expanduser() if web.token_file else paths.root / "web.token"
    token, _ = token_of(file)
    names = [*web.allow_hosts, *own_names(web.host)]
    return access_for(web.host, token, names, is_open=not web.token_file)


def _listening(web: WebSettings, paths: RunPaths) -> socket:
    """Open the listening socket. If this fails, as on a used port, write it into the status and try again."""
    while True:
        try:
            listener = listen(web.host, web.port, "--set web.port=0")
        except UnavailableError as error:
            text = f"{error}; the web page tries again every {RETRY_S:g} s"
            write_sidecar(paths, Sidecar(name=WEB, is_well=False, text=text))
            time.sleep(RETRY_S)
            continue
        place = address(web.host, listener.getsockname()[1])
        write_sidecar(paths, Sidecar(name=WEB, is_well=True, text=place))
        return listener


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except DartError as error:
        sys.exit(str(error))
