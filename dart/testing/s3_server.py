"""Start an S3 server for tests and demonstrations on one machine.

The server is moto's. It keeps objects in memory, honours create-only puts, and accepts any credentials.
`scripts/setup-cluster.sh` installs it into a Python environment of its own.
"""

import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

START_DEADLINE_S = 60.0
STOP_DEADLINE_S = 10.0
POLL_S = 0.05

TIED = ("setpriv", "--pdeathsig", "KILL", "--")
"""Prefix of a command: the command is killed when the process that started it dies."""

LOOPBACK = "127.0.0.1"

BUCKET = "dartrl-tests"

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "tests",
    "AWS_SECRET_ACCESS_KEY": "tests-secret",
    "AWS_REGION": "us-east-1",
}


class S3Server:
    """An S3 server on a free port of this machine. Its objects are lost when it ends.

    host   the address of this machine on which the server listens
    """

    def __init__(self, host: str = LOOPBACK) -> None:
        self.host = host
        self.port = _free_port(host)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment variables that a client of this server needs."""
        return {**CREDENTIALS, "AWS_ENDPOINT_URL": self.endpoint}

    def start(self) -> None:
        """Start the server with the empty bucket `BUCKET`.

        Raises TimeoutError if the server does not answer within START_DEADLINE_S, and FileNotFoundError if it
        is not installed.
        """
        self._process = subprocess.Popen(
            [*TIED, str(server_program()), "-H", self.host, "-p", str(self.port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        give_up_s = time.monotonic() + START_DEADLINE_S
        while not self._has_bucket():
            if time.monotonic() > give_up_s:
                raise TimeoutError(
                    f"the S3 server at {self.endpoint} did not answer within {START_DEADLINE_S:g} s"
                )
            time.sleep(POLL_S)

    def _has_bucket(self) -> bool:
        made = urllib.request.Request(f"{self.endpoint}/{BUCKET}", method="PUT")
        try:
            with urllib.request.urlopen(made, timeout=STOP_DEADLINE_S):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def stop(self) -> None:
        """End the server. Its objects are lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_DEADLINE_S)
            self._process = None


def server_program() -> Path:
    """Return the path of the server's program.

    The program is in the Python environment S3_VENV (default `.venv-s3` in the repository). Raises
    FileNotFoundError if it is not installed.
    """
    folder = Path(os.environ.get("S3_VENV", Path(__file__).resolve().parents[2] / ".venv-s3"))
    program = folder / "bin" / "moto_server"
    if not program.exists():
        raise FileNotFoundError(f"{program} does not exist; install it with scripts/setup-cluster.sh")
    return program


@contextmanager
def running_s3_server(host: str = LOOPBACK) -> Iterator[S3Server]:
    """Start an S3 server, yield it, and end it after the `with` block."""
    server = S3Server(host)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
