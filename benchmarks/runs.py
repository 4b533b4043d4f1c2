"""Training runs as programs of their own, for the benchmarks: start one, watch it, read it, leave nothing.

Every process of a run carries a mark in its environment; whoever still carries it at the end was left behind.
"""

import os
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any

from benchmarks.peers.protocol import MARK, marked_pids
from benchmarks.utilisation import FinishedEpisode, Utilisation, utilisation
from dart.core.record_address import RecordAddress
from dart.core.records import Event
from dart.core.run_directory import RunPaths, mail_dir
from dart.inspect.utilisation import TimeWindow
from dart.store.reader import StoreReader
from dart.telemetry.load_meter import LOAD

REPOSITORY = Path(__file__).resolve().parent.parent

DRAIN_S = 60.0
"""A run that was told to end and has not after this long is killed."""

TRAJECTORIES = """
    SELECT t.rollout_id, t.stored_unix_s, v.version, v.created_unix_s
    FROM trajectories t JOIN rollouts r ON r.rollout_id = t.rollout_id
    LEFT JOIN batches b ON b.batch_id = r.batch_id AND r.state = 'trained'
    LEFT JOIN versions v ON v.version = b.version
"""
STEPS = "SELECT rollout_id, steps_sha256 FROM trajectories"


@dataclass(slots=True)
class Run:
    """One `dartrl train` or `dartrl up`, as a process."""

    directory: Path
    mark: str
    process: "subprocess.Popen[bytes]"
    log: IO[bytes]

    @property
    def paths(self) -> RunPaths:
        return RunPaths(self.directory)

    @property
    def is_over(self) -> bool:
        return self.process.poll() is not None

    def left_behind(self, patience_s: float = 5.0) -> dict[int, str]:
        """Processes of the run that still live `patience_s` after its end: pid to command line."""
        give_up_s = time.monotonic() + patience_s
        while (left := marked_processes(self.mark)) and time.monotonic() < give_up_s:
            time.sleep(0.1)
        return left

    def last_words(self, lines: int = 5) -> str:
        """The end of what it printed."""
        self.log.flush()
        return "\n".join(Path(self.log.name).read_text(errors="replace").splitlines()[-lines:])


@contextmanager
def training(
    config: Path,
    directory: Path,
    overrides: Mapping[str, Any],
    verb: str = "train",
    repository: Path = REPOSITORY,
) -> Iterator[Run]:
    """A run while the block lasts. Afterwards, however the block ended, none of its processes lives.

    verb         `train`, or `up`, which goes on with a run that is in the directory
    repository   the checkout whose code runs
    A block that is left while the run goes on (Ctrl-C, SIGTERM) drains it first.
    """
    mark = uuid.uuid4().hex
    directory.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "dart", verb, str(config), "--run-dir", str(directory)]
    for key, value in overrides.items():
        command += ["--set", f"{key}={toml_value(value)}"]
    environment = os.environ | {MARK: mark, "PYTHONPATH": str(repository), "NO_COLOR": "1"}
    log_path = directory.with_name(directory.name + ".out")
    with log_path.open("ab" if verb == "up" else "wb") as log:
        # A session of its own: Ctrl-C reaches this program alone, which then drains the run.
        process = subprocess.Popen(
            command, cwd=repository, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
        run = Run(directory, mark, process, log)
        try:
            with sigterm_as_exit():
                yield run
        finally:
            _end(run)


@contextmanager
def sigterm_as_exit() -> Iterator[None]:
    """SIGTERM raises SystemExit in the block, so that what follows it is still done.

    Has no effect outside of the main thread, or if the program handles SIGTERM itself.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _exit(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _end(run: Run) -> None:
    if not run.is_over:
        run.process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            run.process.wait(DRAIN_S)
    while pids := marked_pids(run.mark):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        run.process.poll()  # a child that is not waited for stays, as a zombie without an environment
        time.sleep(0.01)
    run.process.wait()


def discard(run: Run) -> None:
    """Remove what a run left on the disk."""
    shutil.rmtree(mail_dir(run.directory), ignore_errors=True)
    shutil.rmtree(run.directory, ignore_errors=True)
    Path(run.log.name).unlink(missing_ok=True)


def marked_processes(mark: str) -> dict[int, str]:
    """Every living process that carries the mark: pid to command line."""
    return {pid: _command_of(pid) for pid in marked_pids(mark)}


def _command_of(pid: int) -> str:
    with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""


def toml_value(value: Any) -> str:
    """A value for `--set`."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    return f'"{value}"' if isinstance(value, str) else f"{value}"


# ---- what a run did ----


def load_events(store: Path) -> list[Event]:
    """What the actors of a run counted, as the record has it."""
    with StoreReader(store) as reader:
        return list(reader.find_events(kinds=[LOAD], limit=10**9))


def finished_trajectories(store: Path) -> list[FinishedEpisode]:
    """Every stored trajectory, and by which update it was trained."""
    with (
        closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection,
        StoreReader(store) as reader,
    ):
        versions: dict[int, list[int]] = {}
        tokens: dict[int, int] = {}
        for rollout_id, sha256 in connection.execute(STEPS):
            steps = reader.steps(sha256)
            versions[rollout_id] = [step.policy_version for step in steps]
            tokens[rollout_id] = sum(len(step.token_ids) for step in steps)
        return [
            FinishedEpisode(
                step_versions=tuple(versions.get(rollout_id, ())),
                tokens=tokens.get(rollout_id, 0),
                stored_unix_s=stored,
                trained_unix_s=trained_unix_s,
                trained_version=version,
            )
            for rollout_id, stored, version, trained_unix_s in connection.execute(TRAJECTORIES)
        ]


def commit_times(store: Path) -> list[float]:
    """When each version was committed, version 0 first."""
    with StoreReader(store) as reader:
        return [version.created_unix_s for version in reader.versions()]


def between_updates(store: Path, warm_up: int) -> TimeWindow:
    """From the commit of update number `warm_up` to the last commit: whole updates, no start, no end.

    Raises ValueError when there were not more updates than that.
    """
    committed = commit_times(store)
    first = committed[min(warm_up, len(committed) - 1)]
    return TimeWindow(begins_unix_s=first, ends_unix_s=committed[-1])


def figures_of(store: Path, window: TimeWindow, *, environments: int, engines: int) -> Utilisation:
    """The figures of a run that has ended."""
    return utilisation(
        load_events(store), finished_trajectories(store), window, environments=environments, engines=engines
    )


def audit(store: RecordAddress, staleness_bound: int | None = None) -> dict[str, Any]:
    """The books: lost and doubled rollouts, and every contradiction the record's own audit finds.

    Doubled is counted from two sides that know nothing of each other: where rollouts are, and how many
    trajectories each update says it was given.
    """
    with StoreReader(store) as reader:
        books = reader.conservation()
        violations = [str(finding) for finding in reader.integrity(staleness_bound)]
        told = sum(version.metrics.get("trajectories", 0.0) for version in reader.versions())
    in_places = books.trained + books.dropped + books.stored + books.leased
    return {
        "issued": books.issued,
        "trained": books.trained,
        "dropped": books.dropped,
        "stored": books.stored,
        "leased": books.leased,
        "lost": max(0, books.issued - in_places),
        "doubled": max(0, in_places - books.issued, round(told) - books.trained),
        "trained_by_updates": round(told),
        "violations": violations,
    }


def median_and_quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """(median, lower, upper quartile), interpolated; one value is all three."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return median, low, high


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, smallest and largest value."""
    figures = {"median": statistics.median(values), "min": min(values), "max": max(values)}
    return {name: round(value, 4) for name, value in figures.items()}
