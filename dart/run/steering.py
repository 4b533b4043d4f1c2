"""Send requests to a run: by its control socket, or for a mirror to the control node of the run."""

from pathlib import Path

from dart.core.run_directory import RunPaths
from dart.run import control_socket
from dart.run.control_protocol import ControlAnswer, Request


def request(run_dir: Path, call: Request) -> ControlAnswer:
    """Send a request to a run and return the answer of its control endpoint.

    run_dir   a run directory of this machine, or a mirror
    raises    NotRunningError if the run does not run, SilentError if no answer came
    """
    if RunPaths(run_dir).mirror_of.exists():
        from dart.run.mirror import mirror_in

        if (mirror := mirror_in(run_dir)) is not None:
            return mirror.control(call)
    return control_socket.request(run_dir, call)
