"""Send requests to a run: by its control socket, or to the control node whose run directory is mirrored."""

from pathlib import Path

from dart.core.run_directory import RunPaths
from dart.run import control_socket
from dart.run.control_protocol import ControlAnswer, Request


def request(run_dir: Path, call: Request) -> ControlAnswer:
    """Send a request and return the answer of the run's main process. Raises NotRunningError, SilentError."""
    if RunPaths(run_dir).mirror_of.exists():
        from dart.run.mirror import mirror_in

        if (mirror := mirror_in(run_dir)) is not None:
            return mirror.control(call)
    return control_socket.request(run_dir, call)
