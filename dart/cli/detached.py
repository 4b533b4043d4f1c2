"""How `dartrl up --detach` starts a run in the background."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dart.cli.continued import look_at_run
from dart.cli.exit_codes import ExitCode, end
from dart.cli.output import say, say_left_out
from dart.cli.start_plan import what_it_would_do

if TYPE_CHECKING:
    from dart.config.config import Config
    from dart.config.sections import WebSettings
    from dart.core.run_directory import RunPaths

UP_WAIT_S = 180.0
"""Seconds that `up --detach` waits by default until the run is up. A slower run continues to start."""

PAGE_WAIT_S = 10.0
"""Longest wait in seconds for the address of the page once the run is up."""

POLL_S = 0.1


def start_detached(
    settings: "Config",
    log_file: Path | None,
    arguments: Sequence[str],
    wait_s: float | None,
    *,
    resume: bool = False,
    is_local: bool = True,
) -> None:
    """Start `dartrl up` with these arguments in a process of its own, and wait until the run is up.

    arguments   words of the command line after `up`, without --detach, --wait and --log
    wait_s      longest wait; UP_WAIT_S if it is None
    is_local    whether the whole run is on this machine, so that what the run needs is fetched and checked
                here
    """
    import subprocess

    from dart.core.module_command import module_command
    from dart.core.run_directory import RunPaths, make_private
    from dart.preflight.hub_fetch import fetch_if_allowed
    from dart.preflight.requirements import require_installation

    paths = RunPaths(settings.run.dir.resolve())
    what_it_would_do(settings, paths, resume=resume)
    if paths.config.exists():
        look_at_run(settings, paths)
    if is_local:
        fetch_if_allowed(settings, say)
        require_installation(settings)
        say_left_out(settings)
    make_private(paths.root, paths.logs)
    log = log_file or paths.daemon_log
    began = {file: file.stat().st_size if file.exists() else 0 for file in (log, paths.daemon_output)}
    with paths.daemon_output.open("ab") as output:
        process = subprocess.Popen(
            [*module_command("dart"), "up", *arguments, "--log", str(log)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    shown_by = f"`dartrl status {paths.option}` shows its progress"
    if not is_local:
        shown_by += f", {paths.logs / 'cluster.jsonl'} how it joins its cluster once Ray has been started"
    code = _await_up(paths.root, process.poll, UP_WAIT_S if wait_s is None else wait_s, shown_by)
    if code:
        end(
            "\n".join(["the run did not come up:", *filter(None, map(_new_text, began, began.values()))]),
            next((known for known in ExitCode if known == code), ExitCode.FAILED),
        )
    state = "is up" if code is None else "has ended already"
    say(f"the run in {paths.root} {state}, process {process.pid}; its log is {log}")
    if code is None and settings.web.enabled:
        say(_where_the_page_is(paths, settings.web))


def arguments_of_up(
    config: Path | None, overrides: Sequence[str], run_dir: Path | None, *, resume: bool
) -> list[str]:
    """Return the arguments of the `dartrl up` that another process is to run."""
    sets = [word for override in overrides for word in ("--set", override)]
    place = ["--run-dir", str(run_dir)] if run_dir else []
    return [*([str(config)] if config else []), *sets, *place, *(["--resume"] if resume else [])]


def _await_up(root: Path, poll: Callable[[], int | None], wait_s: float, shown_by: str) -> int | None:
    """Wait until the root supervisor answers, or until the process of the run ends.

    poll       returns the exit code of the process; None while it runs
    shown_by   what shows the progress of the start, for the error

    Returns None if the supervisor answers, else the exit code of the process. Raises TemporaryError if
    neither happens within `wait_s`.
    """
    from dart.core.errors import NotRunningError, SilentError, TemporaryError
    from dart.core.run_directory import RunPaths
    from dart.run.control_protocol import ControlOutcome, Ping
    from dart.run.control_socket import request

    give_up_s = time.monotonic() + wait_s
    while (code := poll()) is None:
        try:
            if request(root, Ping()).outcome is ControlOutcome.DONE:
                return None
        except (NotRunningError, SilentError):
            pass  # the control endpoint is not up yet
        if time.monotonic() > give_up_s:
            raise TemporaryError(
                f"the run in {root} is not up after {wait_s:g} s and is still starting; "
                f"{shown_by}, `dartrl down --now {RunPaths(root).option}` ends it, and "
                "`dartrl up --detach --wait SECONDS` waits for longer at the next start"
            )
        time.sleep(POLL_S)
    return code


def _where_the_page_is(paths: "RunPaths", web: "WebSettings") -> str:
    """Wait until the page of a run has an address, and say what it is and who can read the page."""
    from dart.inspect.sidecar_status import WEB, read_sidecar
    from dart.web.auth import is_open_here

    give_up_s = time.monotonic() + PAGE_WAIT_S
    while (page := read_sidecar(paths, WEB)) is None:
        if time.monotonic() > give_up_s:
            return "its page is not up yet; `dartrl status` shows the address as soon as it is"
        time.sleep(POLL_S)
    if not page.is_well:
        return f"its page is not up: {page.text}"
    open_to_all = " (every user of this machine can read it; web.token_file requires a token)"
    return f"its page is {page.text}{open_to_all if is_open_here(web) else ''}"


def _new_text(file: Path, began_bytes: int) -> str:
    """Return the text of a file after its first `began_bytes`; the whole text if the file is shorter."""
    content = file.read_bytes() if file.exists() else b""
    return content[began_bytes if len(content) >= began_bytes else 0 :].decode(errors="replace").strip()
