"""Start a PostgreSQL server for tests, benchmarks and demonstrations on one machine.

PostgreSQL refuses to run as root. If this process is root, the server runs as the user `postgres`, which the
operating system's package of PostgreSQL creates.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

USER = "postgres"
"""Name of the superuser of the databases, and of the operating system's user that runs the server if this
process is root."""

START_DEADLINE_S = 60.0
"""Longest wait for the server to accept connections. After a kill it replays its write-ahead log first."""
STOP_DEADLINE_S = 30.0
POLL_S = 0.02

SAFE = ()
"""PostgreSQL's default settings, with which committed data survive a crash of the machine."""
FAST = ("fsync=off", "full_page_writes=off")
"""Settings with which committed data survive a kill of the server, but not a crash of the machine."""


class PostgresqlServer:
    """A PostgreSQL server whose data, socket and log are in `folder`, which must not exist yet.

    settings   settings of postgresql.conf, as `name=value`
    port       TCP port on which the server listens besides its socket; None: only the socket. The server asks
               for no password: any machine in the networks of this one can connect to the port, so give a
               port only if these networks are your own. Only the server's user and root can open the socket.
    """

    def __init__(self, folder: Path, settings: Sequence[str] = FAST, port: int | None = None) -> None:
        self.folder = folder
        self._programs = server_programs()
        self._settings = settings
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(mode=0o700)
        if os.geteuid() == 0:
            shutil.chown(folder, USER, USER)
        initdb = (
            "initdb",
            "-D",
            self._data,
            "-U",
            USER,
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        )
        self._run(*map(str, initdb), **_as_user())
        if port is not None:
            with (self._data / "pg_hba.conf").open("a") as rules:
                rules.write("host all all samenet trust\n")

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def start(self) -> None:
        """Start the server and wait until it accepts connections.

        raises   RuntimeError with the end of the server's log if it does not start within START_DEADLINE_S
        """
        listen = "" if self._port is None else "*"
        settings = (f"listen_addresses={listen}", f"unix_socket_directories={self.folder}", *self._settings)
        options = [word for setting in settings for word in ("-c", setting)]
        command = (self._program("postgres"), "-D", str(self._data), "-p", str(self._port or 5432), *options)
        with (self.folder / "log").open("ab") as log:
            # QUIT ends a server at once, with all its processes, when the process that started it dies.
            tied = ("setpriv", "--pdeathsig", "QUIT", "--", *command)
            self._process = subprocess.Popen(
                tied, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **_as_user()
            )
        self._wait_until_ready(time.monotonic() + START_DEADLINE_S)

    def _wait_until_ready(self, deadline_s: float) -> None:
        assert self._process is not None
        while not self._accepts():
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                log = (self.folder / "log").read_text(errors="replace")
                raise RuntimeError(f"the PostgreSQL server in {self.folder} did not start:\n{log[-2000:]}")
            time.sleep(POLL_S)

    def _accepts(self) -> bool:
        asked = (self._program("pg_isready"), "-q", "-h", str(self.folder), "-p", str(self._port or 5432))
        return subprocess.run(asked, check=False).returncode == 0

    def stop(self) -> None:
        """End all connections, let the server write a checkpoint, and end the server."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Kill every process of the server with SIGKILL, as a crash would. `start` then recovers the data."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        server = psutil.Process(self._process.pid)
        backends = server.children(recursive=True)  # each in a process group of its own
        server.send_signal(number)
        self._process.wait(STOP_DEADLINE_S)
        self._process = None
        if number is signal.SIGKILL:
            for backend in backends:
                with suppress(psutil.NoSuchProcess):
                    backend.kill()
            _await_end(backends)

    def make_database(self, name: str, template: str = "template0") -> str:
        """Make a database as a copy of the database `template`, and return its address.

        PostgreSQL refuses this while anything is connected to `template`.
        """
        self._sql(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return self.address(name)

    def drop_database(self, name: str) -> None:
        """Drop a database, and end the connections to it."""
        self._sql(f'DROP DATABASE "{name}" WITH (FORCE)')

    def _sql(self, statement: str) -> None:
        self._run("psql", "-q", "-v", "ON_ERROR_STOP=1", "-d", self.address("postgres"), "-c", statement)

    def address(self, database: str, host: str | None = None) -> str:
        """Return the address of a database: by the socket or, if `host` is given, by TCP. TCP needs a server
        with a port."""
        if host is not None:
            return f"postgresql://{USER}@{host}:{self._port}/{database}"
        return f"postgresql://{USER}@/{database}?host={self.folder}&port={self._port or 5432}"

    def _program(self, name: str) -> str:
        return str(self._programs / name)

    def _run(self, name: str, *words: str, **options: Any) -> None:
        """Run a program of PostgreSQL to its end, with `options` of `subprocess.run`.

        Only the server's own programs get another user (`_as_user`), because Python then copies the page
        tables of this process before it starts the program. psql may run as root.
        """
        ended = subprocess.run(
            (self._program(name), *words), check=False, capture_output=True, text=True, cwd="/", **options
        )
        if ended.returncode:
            raise RuntimeError(f"{name} ended with exit code {ended.returncode}: {ended.stderr.strip()}")


@contextmanager
def running_server(settings: Sequence[str] = FAST, port: int | None = None) -> Iterator[PostgresqlServer]:
    """Start a server in a temporary folder and yield it; at the end kill it and delete the folder."""
    with tempfile.TemporaryDirectory(prefix="dartrl-postgresql-", ignore_cleanup_errors=True) as parent:
        Path(parent).chmod(0o711)  # the server's user looks for its folder in there
        server = PostgresqlServer(Path(parent) / "server", settings, port)
        try:
            server.start()
            yield server
        finally:
            server.kill()


def server_programs() -> Path:
    """Return the folder with initdb, postgres and psql of the newest PostgreSQL on this machine.

    raises   FileNotFoundError if no PostgreSQL server is installed
    """
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("postgres")
    if on_path is None:
        raise FileNotFoundError(
            "no PostgreSQL server is installed: there is neither /usr/lib/postgresql/*/bin/postgres nor "
            "`postgres` in PATH; install one, on Debian with: apt-get install postgresql"
        )
    return Path(on_path).resolve().parent


def _await_end(processes: Iterable[psutil.Process]) -> None:
    """Wait until processes have ended, at most `STOP_DEADLINE_S`. Zombies count as ended.

    The next server cannot use their shared memory before.
    """
    give_up_s = time.monotonic() + STOP_DEADLINE_S
    while any(_runs(process) for process in processes) and time.monotonic() < give_up_s:
        time.sleep(POLL_S)


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _as_user() -> dict[str, Any]:
    """Return the arguments of `subprocess.run` that start a program as USER if this process is root; else
    no arguments."""
    return {"user": USER, "group": USER, "extra_groups": ()} if os.geteuid() == 0 else {}
