"""What `benchmarks.chaos` does to a run: a plan with a seed, and the hand that carries it out."""

import os
import random
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from actors.board import ActorState, Board, Vitals
from benchmarks import runs
from dart.telemetry.board_gauges import Gauge

JUDGED_FROM_MINUTES = 20.0
"""A shorter run has too few updates to compare throughputs, and its faults are denser."""

GAP_S = 3.0
"""Nothing is done sooner than this after the last."""

DISK_MIB = 512
DISK_FULL, LOCKED = "disk full", "database locked"
LASTS_S = {DISK_FULL: 15.0, LOCKED: 8.0}
UNNOTICED_S = 60.0
"""Longest extra time that the disk stays full or the record locked until an actor waits for it. On a busy
machine a run may write nothing for longer than `LASTS_S`."""

# ---- the plan ----


@dataclass(frozen=True, slots=True)
class Planned:
    """Something that is to be done to the run."""

    at_s: float
    """After training began."""
    kind: str
    """SIGKILL, SIGSTOP, disk full, database locked."""
    victim: str = ""
    """An actor, or `env-` and `rollout-` for any of them."""
    below: str = ""
    """Not the actor itself: the process below it that has this in its command line."""


CENTRAL = ("store", "trainer", "environment_pool", "curator", "rollout_pool", "weight_sync")
SIGNALS = ("SIGKILL", "SIGSTOP")


def plan(minutes: float, seed: int, *, has_small_disk: bool) -> list[Planned]:
    """What is done when. Each central actor is killed and then stopped, as far as time allows."""
    draw = random.Random(seed)
    end_s = 60.0 * minutes
    found = []
    pairs = [(kind, victim) for kind in SIGNALS for victim in CENTRAL]
    apart_s = max(20.0, end_s / (len(pairs) + 1))
    for number, (kind, victim) in enumerate(pairs, start=1):
        found.append(Planned(number * apart_s, kind, victim))
    for victim, every_s in (("env-", 35.0), ("rollout-", 150.0)):
        every_s = max(every_s * min(1.0, minutes / 30.0), every_s / 5)
        for number in range(1, int(end_s / every_s) + 1):
            kind = SIGNALS[number - 1] if number <= 2 else draw.choices(SIGNALS, weights=(2, 1))[0]
            found.append(Planned((number - 0.5) * every_s, kind, victim))
    for share in (0.3, 0.7) if minutes >= JUDGED_FROM_MINUTES else (0.5,):
        if has_small_disk:
            found.append(Planned(share * end_s, DISK_FULL))
        found.append(Planned((share + 0.15) * end_s, LOCKED))
    return sorted((fault for fault in found if fault.at_s < end_s), key=lambda fault: fault.at_s)


# ---- doing it ----


@dataclass(slots=True)
class Fault:
    """Something that was done to the run."""

    kind: str
    victim: str
    at_s: float
    unix_s: float
    """Of the signal; of a disk or a lock: when it was given back."""
    below: str = ""
    """The victim's process that was hit; empty: its own."""
    slot: int = -1
    incarnation: int = 0
    ready_after_s: float | None = None
    """Until the next incarnation took work."""
    served_after_s: float | None = None
    """Until it did some, where the board shows that."""
    lasted_s: float = 0.0
    """Of a disk or a lock: how long it was held."""

    @property
    def what(self) -> str:
        """In words: SIGKILL env-003, SIGSTOP VLLM::EngineCore of rollout-0."""
        return f"{self.kind} {self.below}{' of ' if self.below else ''}{self.victim}".rstrip()


class Injector:
    """Carries the plan out on a living run and watches its victims come back."""

    def __init__(self, run: runs.Run, faults: Sequence[Planned], seed: int) -> None:
        self._run = run
        self._board = Board(run.paths.board)
        self._plan = list(faults)
        self._draw = random.Random(f"victims/{seed}")
        self._taken: tuple[Fault, Callable[[], None]] | None = None
        """Disk or database, and what gives it back; at most one at a time."""
        self._ready: dict[int, int] = {}
        """Row and incarnation of each actor that was ready when the disk was filled or the record locked."""
        self._last_s = -GAP_S
        self.done: list[Fault] = []

    @property
    def left(self) -> Sequence[Planned]:
        """What never found its moment."""
        return self._plan

    def tick(self, now_s: float) -> None:
        """What is due, `now_s` seconds after training began."""
        self.watch()
        if self._taken is not None and self._is_over(self._taken[0], now_s):
            self.give_back()
        if now_s < self._last_s + GAP_S:
            return
        done = self._first_done([fault for fault in self._plan if fault.at_s <= now_s], now_s)
        if done is not None:
            self._plan.remove(done)
            self._last_s = now_s

    def _first_done(self, due: Sequence[Planned], now_s: float) -> Planned | None:
        """Carry out the first that can be; while a central one waits until all are up, none."""
        for fault in due:
            if self._carry_out(fault, now_s):
                return fault
            if fault.victim in CENTRAL:
                return None
        return None

    def _is_over(self, fault: Fault, now_s: float) -> bool:
        """Whether to free the disk or the record: its time is up and an actor waits for it, or `UNNOTICED_S`
        more have passed."""
        over_s = now_s - fault.at_s - LASTS_S[fault.kind]
        return over_s >= UNNOTICED_S or (over_s >= 0.0 and self._does_an_actor_wait())

    def _does_an_actor_wait(self) -> bool:
        """Whether an actor that was ready before the fault is not ready now, in the same incarnation."""
        return any(
            row.state is ActorState.RUNNING and not row.ready and self._ready.get(row.slot) == row.incarnation
            for row in self._rows()
        )

    def give_back(self) -> None:
        """Disk or database, now."""
        if self._taken is not None:
            fault, release = self._taken
            release()
            given_back_unix_s = time.time()
            fault.lasted_s = given_back_unix_s - fault.unix_s
            fault.unix_s = given_back_unix_s
            self._taken = None

    def _carry_out(self, planned: Planned, now_s: float) -> bool:
        """False when it has to wait: the victim is down, or it is central and anybody is."""
        if planned.kind in LASTS_S:
            return self._take(planned, now_s)
        hit = {fault.slot for fault in self.done if fault.kind in SIGNALS and fault.ready_after_s is None}
        if planned.victim in CENTRAL and (hit or not self._all_up()):
            return False
        victims = [row for row in self._rows() if is_up(row) and self._is_meant(row, planned.victim)]
        victims = [row for row in victims if row.slot not in hit]
        if not victims:
            return False
        victim = self._draw.choice(victims)
        fault = Fault(
            planned.kind, victim.name, now_s, time.time(), planned.below, victim.slot, victim.incarnation
        )
        with suppress(ProcessLookupError):
            os.kill(process_of(victim.pid, planned.below), signal.Signals[planned.kind])
            self._note(fault)
        return True

    def _take(self, planned: Planned, now_s: float) -> bool:
        if self._taken is not None or self._does_an_actor_wait():
            return False  # an actor that still waits because of the fault before cannot show this one
        fault = Fault(planned.kind, "", now_s, time.time())
        is_disk = planned.kind == DISK_FULL
        release = fill_disk(self._run.directory.parent) if is_disk else lock_database(self._run.paths.store)
        if release is None:
            return False
        self._taken = fault, release
        self._ready = {row.slot: row.incarnation for row in self._rows() if is_up(row)}
        self._note(fault)
        return True

    def _note(self, fault: Fault) -> None:
        self.done.append(fault)
        print(f"{fault.at_s:7.1f} s  {fault.what}", flush=True)

    def watch(self) -> None:
        """Look who is back."""
        rows = {row.slot: row for row in self._rows()}
        trainers = [row for row in rows.values() if row.name == "trainer"]
        newest = max((row.gauges[Gauge.TRAINED_VERSION] for row in trainers), default=0)
        rollouts = [row for row in rows.values() if is_any(row.name, "rollout-") and is_up(row)]
        engines = [row.gauges[Gauge.SERVED_VERSION] for row in rollouts]
        for fault in self.done:
            row = rows.get(fault.slot)
            if row is None or fault.served_after_s is not None or row.incarnation <= fault.incarnation:
                continue
            if fault.ready_after_s is None and is_up(row):
                fault.ready_after_s = time.time() - fault.unix_s
            serves = row.messages > 0 if is_any(fault.victim, "rollout-") else bool(engines)
            if fault.victim == "weight_sync":
                serves = bool(engines) and min(engines) >= newest
            if fault.ready_after_s is not None and serves:
                fault.served_after_s = time.time() - fault.unix_s

    def _rows(self) -> list[Vitals]:
        return [row for row in self._board.rows() if row.state is not ActorState.FREE]

    def _all_up(self) -> bool:
        return all(is_up(row) for row in self._rows() if row.parent != "launcher")

    def _is_meant(self, row: Vitals, victim: str) -> bool:
        return is_any(row.name, victim) if victim.endswith("-") else row.name == victim


def is_any(name: str, prefix: str) -> bool:
    """Whether it is one of a pool's children: `rollout-0` of `rollout-`, and not its supervisor."""
    return name.startswith(prefix) and name.removeprefix(prefix).isdigit()


def process_of(pid: int, below: str) -> int:
    """The process of an actor, or the one below it that is meant. Raises ProcessLookupError."""
    if not below:
        return pid
    with suppress(psutil.NoSuchProcess):
        for process in psutil.Process(pid).children(recursive=True):
            if below in " ".join(process.cmdline()):
                return process.pid
    raise ProcessLookupError(f"process {pid} has no {below} below it")


def is_up(row: Vitals) -> bool:
    """It runs and takes work."""
    return row.state is ActorState.RUNNING and row.ready


def fill_disk(disk: Path) -> Callable[[], None]:
    """Take all that is free on this disk; returns what gives it back."""
    ballast = disk / "ballast"
    with ballast.open("wb") as file:
        size = 1 << 24
        while size:
            try:
                os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), size)
            except OSError:
                size //= 2
    return lambda: ballast.unlink(missing_ok=True)


def lock_database(store: Path) -> Callable[[], None] | None:
    """Hold the write lock of the record, as a second writer would; what lets it go, None if not had."""
    connection = sqlite3.connect(store, timeout=5.0, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        connection.close()
        return None
    return connection.close


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """A disk of its own at this folder, if one may be mounted; whether it was."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(folder)]
    try:
        is_mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        is_mounted = False
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=False)
