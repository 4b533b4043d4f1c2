"""Malformed and unauthenticated requests into the page of a run, by the hundred thousand.

A token is asked for. Half of the requests come without it and try everything else: addresses that lead out
of the blobs, names that are none, forged cookies, foreign hosts and origins, methods that would change
something, bodies without an end. A quarter come with the token, so that the same values reach the pages. A
quarter are no HTTP at all, or end in the middle.

What is held: the process lives and answers a good request as before; no answer is a server error; without the
token nothing of the run is in any answer, and the token is in none at all; no file of the run changes; the
process has not grown.

``python -m benchmarks.web_fuzz --run-dir runs/smoke --requests 100000 --seed 1`` prints a table, writes
``benchmarks/out/web_fuzz.json`` and exits with 1 when something does not hold.
"""

import argparse
import contextlib
import json
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import quote_from_bytes

import psutil

from dart.config.config import load_config
from dart.core.run_directory import RunPaths

OUT = Path(__file__).parent / "out" / "web_fuzz.json"
PATIENCE_S = 10.0
GROWTH_MIB = 64.0
WARM_UP = 500
"""Requests before memory is first looked at."""

PATHS = ("/", "/tree", "/actor", "/tasks", "/task", "/trajectories", "/trajectory", "/compare", "/export")
PATHS += (
    "/login",
    "/logout",
    "/stream",
    "/confirm",
    "/do",
    "/nothing",
    "/static/app.js",
    "/static/../../config.toml",
    "/blobs/",
)
NAMES = ("id", "a", "b", "name", "page", "window", "task", "outcome", "result", "before", "token", "do")
METHODS = (
    "GET",
    "GET",
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "G\x7fT",
    "get",
)
VALUES = (
    b"",
    b"0",
    b"-1",
    b"1e9",
    b"9" * 30,
    b"../../key",
    b"%00",
    b"' OR 1=1 --",
    b"<script>",
    b"\xff\xfe",
    b"None",
)
HEADERS = ("Host", "Origin", "Cookie", "Authorization", "Sec-Fetch-Site", "Sec-Fetch-Mode", "Content-Length")
HEADERS += ("Transfer-Encoding", "Expect", "Upgrade", "Range", "X-Forwarded-For", "X-Forwarded-Proto")


@dataclass
class Result:
    """What came of it."""

    requests: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    leaks: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    grown_mib: float = 0.0
    seconds: float = 0.0
    is_alive: bool = False

    @property
    def holds(self) -> bool:
        found = self.leaks or self.errors or self.changed
        return self.is_alive and not found and self.grown_mib < GROWTH_MIB


class Forger:
    """Requests nobody should make."""

    def __init__(self, seed: int, authority: str, token: str) -> None:
        self._random = random.Random(seed)
        self._authority = authority
        self._token = token

    def next(self) -> tuple[bytes, bool, bool]:
        """The bytes of one request, whether the token is in it, and whether it is whole."""
        draw = self._random.random()
        if draw < 0.25:
            return self._garbage(), False, False
        return self._request(has_token=draw > 0.75), draw > 0.75, True

    def _garbage(self) -> bytes:
        noise = self._random.randbytes(self._random.randrange(1, 400))
        if self._random.random() < 0.5:
            return noise
        request = bytearray(self._request(has_token=False))
        request[self._random.randrange(len(request))] ^= 1 << self._random.randrange(8)
        return bytes(request[: self._random.randrange(1, len(request) + 1)])

    def _request(self, *, has_token: bool) -> bytes:
        method, path = self._random.choice(METHODS), self._random.choice(PATHS)
        if path == "/blobs/":
            path += quote_from_bytes(self._value()) + self._random.choice(("", ".png"))
        query = "&".join(f"{self._random.choice(NAMES)}={quote_from_bytes(self._value())}" for _ in range(2))
        lines = [f"{method} {path}?{query} HTTP/1.1".encode()]
        lines.append(
            f"Host: {self._authority}".encode() if self._random.random() < 0.9 else b"Host: evil.example"
        )
        if has_token:
            lines.append(f"Authorization: Bearer {self._token}".encode())
        for _ in range(self._random.randrange(3)):
            lines.append(self._random.choice(HEADERS).encode() + b": " + self._value())
        return b"\r\n".join([*lines, b"Connection: close", b"", b""]) + self._body()

    def _body(self) -> bytes:
        return self._random.randbytes(self._random.randrange(200)) if self._random.random() < 0.2 else b""

    def _value(self) -> bytes:
        if self._random.random() < 0.7:
            return self._random.choice(VALUES)
        return self._random.randbytes(self._random.randrange(40)).replace(b"\n", b"").replace(b"\r", b"")


def main() -> int:
    options = _options()
    result = Result()
    with (
        tempfile.TemporaryDirectory() as folder,
        _served(options.run_dir, Path(folder)) as (page, port, token),
    ):
        _fuzz(result, options, page, port, token)
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(asdict(result), indent=1))
    for name, value in asdict(result).items():
        print(f"{name:10} {value}")
    return 0 if result.holds else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run-dir", type=Path, required=True, help="a run that has ended")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


@contextlib.contextmanager
def _served(run_dir: Path, folder: Path) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """`dartrl web` with a token, its port and the token."""
    file = folder / "token"
    command = [sys.executable, "-m", "dart", "web", "--run-dir", str(run_dir), "--port", "0"]
    with subprocess.Popen(
        [*command, "--token-file", str(file)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as page:
        assert page.stdout is not None
        said = re.search(r":(\d+)/ shows", page.stdout.readline())
        if said is None:
            raise SystemExit("dartrl web did not say where it is")
        yield page, int(said[1]), file.read_text().strip()
        page.send_signal(signal.SIGINT)
        page.wait(PATIENCE_S)


def _fuzz(
    result: Result, options: argparse.Namespace, page: subprocess.Popen[str], port: int, token: str
) -> None:
    forger = Forger(options.seed, f"127.0.0.1:{port}", token)
    shown = [task.encode() for task in load_config(RunPaths(options.run_dir).config).tasks.train]
    before, memory = _files(options.run_dir), psutil.Process(page.pid)
    started_s, base = time.monotonic(), 0
    for number in range(options.requests):
        if number == min(WARM_UP, options.requests - 1):
            base = memory.memory_info().rss
        request, has_token, is_whole = forger.next()
        answer = _send(port, request, is_whole=is_whole)
        result.requests += 1
        status = answer[9:12].decode(errors="replace") if answer.startswith(b"HTTP/1.1 ") else "hung up"
        result.statuses[status] = result.statuses.get(status, 0) + 1
        if status.startswith("5") and status != "503":
            result.errors.append(f"{status}: {request!r}")
        if token.encode() in answer or (not has_token and any(name in answer for name in shown)):
            result.leaks.append(repr(request))
    result.seconds = round(time.monotonic() - started_s, 1)
    result.grown_mib = round((memory.memory_info().rss - base) / 2**20, 1)
    good = (
        f"GET /tree HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    )
    result.is_alive = _send(port, good.encode()).startswith(b"HTTP/1.1 200")
    after = _files(options.run_dir)
    result.changed = sorted(
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    )


def _send(port: int, request: bytes, *, is_whole: bool = True) -> bytes:
    """One request over a connection of its own; what came back, up to its first MiB.

    After half a request nothing more is sent, which it is told; a whole one that waits for more is given up.
    """
    answer = b""
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", port), PATIENCE_S) as connection,
    ):
        connection.sendall(request)
        if not is_whole:
            connection.shutdown(socket.SHUT_WR)
        while len(answer) < 1 << 20 and (part := connection.recv(65536)):
            answer += part
            connection.settimeout(PATIENCE_S)
    return answer


def _files(run_dir: Path) -> dict[str, int]:
    """Name and time of change of every file; readers share an index beside the record, which is none."""
    files = (file for file in run_dir.rglob("*") if not file.name.startswith("store.db-"))
    return {str(file): file.stat().st_mtime_ns for file in files if file.is_file()}


if __name__ == "__main__":
    sys.exit(main())
