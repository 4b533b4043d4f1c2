"""Requests to a run over its control socket, from any process of the same user."""

from pathlib import Path

from dart.core.errors import NotRunningError, SilentError
from dart.core.run_directory import RunPaths, holder
from dart.run.control_protocol import (
    MAX_FRAME_BYTES,
    ControlAnswer,
    Malformed,
    Request,
    decode_answer,
    encode,
)
from dart.run.control_socket import connect

GRACE_S = 1.0
"""Added to the time the run has to answer, for the transfer on a busy machine."""


def request(run_dir: Path, call: Request) -> ControlAnswer:
    """Send a request and return the answer of the run's main process.

    Waits for `call.wait_ms` and GRACE_S. Raises NotRunningError, and SilentError without an answer in time.
    """
    pid = holder(run_dir)
    if pid is None:
        raise NotRunningError(f"the run in {run_dir} is not running; start it with `dartrl up`")
    timeout_s = call.wait_ms / 1000 + GRACE_S
    try:
        with connect(RunPaths(run_dir).control, timeout_s) as connection:
            connection.send(encode(call))
            return decode_answer(connection.recv(MAX_FRAME_BYTES + 1))
    except FileNotFoundError:
        raise SilentError(
            f"process {pid} holds the run in {run_dir} and does not listen: it is starting or ending; "
            "try again in a moment"
        ) from None
    except (OSError, Malformed) as error:
        raise SilentError(
            f"process {pid} runs the run in {run_dir} and does not answer ({_why(error, timeout_s)}); "
            f"`dartrl status` shows how it is, `dartrl down --now` ends it"
        ) from error


def _why(error: Exception, timeout_s: float) -> str:
    return f"nothing within {timeout_s:g} s" if isinstance(error, TimeoutError) else str(error)
