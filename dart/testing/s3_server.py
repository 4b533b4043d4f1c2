"""Start an S3 server for tests and demonstrations on one machine: moto's, in memory, in its own environment.

`scripts/setup-cluster.sh` installs it. It honours create-only puts, and it checks no credentials.
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
"""Before a command: it ends when the process that started it dies."""

LOOPBACK = "127.0.0.1"

BUCKET = "dartrl-tests"

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "tests",
    "AWS_SECRET_ACCESS_KEY": "tests-secret",
    "AWS_REGION": "us-east-1",
}


class S3Server:
    """An S3 server on a free port of this machine, whose objects live as long as it runs.

    host   the address of this machine at which it listens
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
        """What a client of this server has in its environment."""
        return {**CREDENTIALS, "AWS_ENDPOINT_URL": self.endpoint}

    def start(self) -> None:
        """Start the server with an empty bucket. Raises TimeoutError if it does not answer in time."""
        self._process = subprocess.Popen(
            [*TIED, str(server_program()), "-H", self.host, "-p", str(self.port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        give_up_s = time.monotonic() + START_DEADLINE_S
        while not self._has_bucket():
            if time.monotonic() > give_up_s:
                raise TimeoutError(
                    f"the S3 server at {self.endpoint} did not answer in {START_DEADLINE_S:g} s"
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
        """End the server; its objects are gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_DEADLINE_S)
            self._process = None


def server_program() -> Path:
    """The program of the server. Raises FileNotFoundError, which says how to install it."""
    folder = Path(os.environ.get("S3_VENV", Path(__file__).resolve().parents[2] / ".venv-s3"))
    program = folder / "bin" / "moto_server"
    if not program.exists():
        raise FileNotFoundError(f"{program} does not exist: scripts/setup-cluster.sh installs it")
    return program


@contextmanager
def running_s3_server(host: str = LOOPBACK) -> Iterator[S3Server]:
    """An S3 server while the block lasts."""
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
