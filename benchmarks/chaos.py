"""A training run under faults of every kind, beside the same run without any: what is lost, how slow is it?

    python -m benchmarks.chaos                  # 30 minutes, at least 300 faults
    python -m benchmarks.chaos --minutes 3      # the short one; its throughput is told, not judged
    python -m benchmarks.chaos --keep runs/soak # keep both run directories

Two `dartrl train` with configs/chaos.toml start at the same moment on the same machine: real browsers behind
the latencies of virtual machines, which keep the processors unsaturated. One is left in peace. In the other

  * every environment has faults by a plan with a seed: crash 2 %, hang 1 %, lost and doubled action 1 %
    each, frozen frame 1 %, failed reset 2 %, bad evaluation 1 % of episodes (`environments.faults`)
  * every kind of actor is SIGKILLed and SIGSTOPped: environments, rollout actors, store, curator,
    weight_sync, trainer, and the supervisors of both pools
  * the disk of the run is filled for a while, and its database is locked for a while. The disk is a small
    tmpfs; where none may be mounted this is said, and only the lock remains

It prints what it does, and at the end a table; the same goes to OUT as JSON. Exit code 0 when the run under
faults finished, nothing was lost or doubled, no process was left behind, no attempt that met a fault became
a trajectory, every victim served again, and (from 20 minutes on) there were at least ten faults a minute and
the useful throughput was at least 85 % of that of the run beside it. Ctrl-C drains both runs and removes
everything.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from actors.board import ActorState, Board, Vitals
from benchmarks import runs
from benchmarks.actors import BROKEN_OFF, machine
from dart.environments.faulty import Injected, Injection, read_injections
from dart.store.reader import StoreReader

REPOSITORY = Path(__file__).resolve().parent.parent
CONFIG = REPOSITORY / "configs" / "chaos.toml"
OUT = Path(__file__).parent / "out" / "chaos.json"

THROUGHPUT_GOAL = 0.85
FAULTS_PER_MINUTE = 10.0
JUDGED_FROM_MINUTES = 20.0
"""A shorter run has too few updates to compare throughputs, and its faults are denser."""

AROUND_MINUTES = 1.5
"""The runs last this much longer than asked for: to start, to come to rest, and for the last update."""

REST_S = 35.0
"""At the end of training nothing new is done to the run, so that the last victims can serve again."""

GAP_S = 3.0
"""Nothing is done sooner than this after the last."""

START_DEADLINE_S = 180.0
DISK_MIB = 512
DISK_FULL, LOCKED = "disk full", "database locked"
LASTS_S = {DISK_FULL: 15.0, LOCKED: 8.0}
POLL_S = 0.1


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
    for victim, every_s in (("env-", 40.0), ("rollout-", 150.0)):
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
    slot: int = -1
    incarnation: int = 0
    ready_after_s: float | None = None
    """Until the next incarnation took work."""
    served_after_s: float | None = None
    """Until it did some, where the board shows that."""


class Injector:
    """Carries the plan out on a living run and watches its victims come back."""

    def __init__(self, run: runs.Run, faults: Sequence[Planned], seed: int) -> None:
        self._run = run
        self._board = Board(run.paths.board)
        self._plan = list(faults)
        self._draw = random.Random(f"victims/{seed}")
        self._taken: tuple[Fault, Callable[[], None]] | None = None
        """Disk or database, and what gives it back; at most one at a time."""
        self._last_s = -GAP_S
        self.done: list[Fault] = []

    def tick(self, now_s: float) -> None:
        """What is due, `now_s` seconds after training began."""
        self.watch()
        if self._taken is not None and now_s >= self._taken[0].at_s + LASTS_S[self._taken[0].kind]:
            self.give_back()
        if now_s < self._last_s + GAP_S:
            return
        due = (fault for fault in self._plan if fault.at_s <= now_s)
        done = next((fault for fault in due if self._carry_out(fault, now_s)), None)
        if done is not None:
            self._plan.remove(done)
            self._last_s = now_s

    def give_back(self) -> None:
        """Disk or database, now."""
        if self._taken is not None:
            fault, release = self._taken
            release()
            fault.unix_s = time.time()
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
        fault = Fault(planned.kind, victim.name, now_s, time.time(), victim.slot, victim.incarnation)
        with suppress(ProcessLookupError):
            os.kill(victim.pid, signal.Signals[planned.kind])
            self._note(fault)
        return True

    def _take(self, planned: Planned, now_s: float) -> bool:
        if self._taken is not None:
            return False
        fault = Fault(planned.kind, "", now_s, time.time())
        is_disk = planned.kind == DISK_FULL
        release = fill_disk(self._run.directory.parent) if is_disk else lock_database(self._run.paths.store)
        self._taken = fault, release
        self._note(fault)
        return True

    def _note(self, fault: Fault) -> None:
        self.done.append(fault)
        print(f"{fault.at_s:7.1f} s  {fault.kind} {fault.victim}".rstrip(), flush=True)

    def watch(self) -> None:
        """Look who is back."""
        rows = {row.slot: row for row in self._rows()}
        newest = max((row.gauge_version for row in rows.values() if row.name == "trainer"), default=0)
        engines = [row.gauge_version for row in rows.values() if is_any(row.name, "rollout-") and is_up(row)]
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
        return all(
            is_up(row) for row in self._rows() if not row.name.endswith("~") and row.parent != "launcher"
        )

    def _is_meant(self, row: Vitals, victim: str) -> bool:
        return is_any(row.name, victim) if victim.endswith("-") else row.name == victim


def is_any(name: str, prefix: str) -> bool:
    """Whether it is one of a pool's children: `rollout-0` of `rollout-`, and not its supervisor."""
    return name.startswith(prefix) and name.removeprefix(prefix).isdigit()


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


def lock_database(store: Path) -> Callable[[], None]:
    """Hold the write lock of the record, as a second writer would; returns what lets it go."""
    connection = sqlite3.connect(store, timeout=5.0, isolation_level=None, check_same_thread=False)
    with suppress(sqlite3.OperationalError):
        connection.execute("BEGIN IMMEDIATE")
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


# ---- what came of it ----


@dataclass(frozen=True, slots=True)
class Episode:
    """One stored trajectory."""

    environment: str
    began_unix_s: float
    """When its start screen was there: the environment worked."""
    stored_unix_s: float


def recovery_s(fault: Fault, episodes: Sequence[Episode], commits: Sequence[float]) -> float | None:
    """From a fault to the first real work after it; None when there was none.

    An environment shows the first screen of an episode that gets stored; so does any environment after the
    store, the curator or a supervisor was hit. The trainer commits an update (its wait for a batch included);
    a rollout actor has proved itself by a generate and has requests again; weight_sync has every engine at
    the newest version; after a full disk or a lock, a trajectory is stored.
    """
    if fault.kind in LASTS_S:
        return _first(fault.unix_s, (episode.stored_unix_s for episode in episodes), fault.unix_s)
    if fault.ready_after_s is None:
        return None
    if is_any(fault.victim, "rollout-") or fault.victim == "weight_sync":
        return fault.served_after_s
    back_unix_s = fault.unix_s + fault.ready_after_s
    if fault.victim == "trainer":
        return _first(back_unix_s, commits, fault.unix_s)
    starts = (
        episode.began_unix_s
        for episode in episodes
        if not is_any(fault.victim, "env-") or episode.environment == fault.victim
    )
    return _first(back_unix_s, starts, fault.unix_s)


def injected_recovery_s(injection: Injection, episodes: Sequence[Episode]) -> float | None:
    """From a fault inside an environment to the first screen of its next episode that gets stored."""
    own = (episode.began_unix_s for episode in episodes if episode.environment == injection.environment)
    return _first(injection.unix_s, own, injection.unix_s)


def _first(after: float, moments: Any, since: float) -> float | None:
    later = [moment for moment in moments if moment >= after]
    return min(later) - since if later else None


def group_name(victim: str) -> str:
    """`env-003` and its like under one name."""
    return next((prefix + "N" for prefix in ("env-", "rollout-") if is_any(victim, prefix)), victim)


def recoveries(
    faults: Sequence[Fault],
    injections: Sequence[Injection],
    episodes: Sequence[Episode],
    commits: Sequence[float],
) -> dict[str, list[float | None]]:
    """Times to recovery by kind."""
    found: defaultdict[str, list[float | None]] = defaultdict(list)
    for fault in faults:
        found[f"{fault.kind} {group_name(fault.victim)}".strip()].append(recovery_s(fault, episodes, commits))
    for injection in injections:
        found[f"injected {injection.kind.value}"].append(injected_recovery_s(injection, episodes))
    return dict(sorted(found.items()))


def faulted_and_stored(store: Path, injections: Sequence[Injection]) -> list[tuple[int, int]]:
    """Leases (rollout, fence) in which a fault struck and which became a trajectory all the same.

    A reset that fails strikes no episode: it is tried again, from nothing, before there is one.
    """
    struck = {
        (injection.rollout_id, injection.fence)
        for injection in injections
        if injection.rollout_id and injection.kind is not Injected.FAILED_RESET
    }
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
        stored = set(connection.execute("SELECT rollout_id, fence FROM trajectories"))
    return sorted(struck & stored)


def episodes_of(store: Path) -> list[Episode]:
    query = """
        SELECT t.environment, t.started_unix_s + s.observe_ms / 1000, t.stored_unix_s
        FROM trajectories t JOIN steps s ON s.rollout_id = t.rollout_id AND s.step = 0
    """  # what was observed first is the screen after the reset
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
        return [Episode(*row) for row in connection.execute(query)]


def useful_actions(store: Path, begins_unix_s: float, ends_unix_s: float) -> int:
    """Environment steps that entered updates committed in this time."""
    return sum(
        episode.num_steps
        for episode in runs.finished_trajectories(store)
        if episode.trained_unix_s is not None and begins_unix_s < episode.trained_unix_s <= ends_unix_s
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was promised of one thing, and whether it was kept."""

    what: str
    found: str
    is_kept: bool


def verdicts(outcome: Mapping[str, Any], minutes: float) -> list[Verdict]:
    """Everything that must hold."""
    books, left = outcome["audit"], outcome["left_behind"]
    never_back = [kind for kind, times in outcome["recovery_s"].items() if None in times]
    is_long = minutes >= JUDGED_FROM_MINUTES
    wanted = int(FAULTS_PER_MINUTE * minutes)
    ratio = outcome["throughput_ratio"]
    code = outcome["exit_code"]
    faulted = outcome["faulted_and_stored"]
    found = [
        Verdict(what="the run under faults finishes", found=f"exit code {code}", is_kept=code == 0),
        Verdict(what="rollouts lost: 0", found=str(books["lost"]), is_kept=books["lost"] == 0),
        Verdict(what="rollouts doubled: 0", found=str(books["doubled"]), is_kept=books["doubled"] == 0),
        Verdict(
            what="the record's audit finds nothing",
            found="; ".join(books["violations"]) or "nothing",
            is_kept=not books["violations"],
        ),
        Verdict(what="processes left behind: 0", found=str(list(left.values()) or 0), is_kept=not left),
        Verdict(what="faulted attempts stored: 0", found=str(faulted or 0), is_kept=not faulted),
        Verdict(
            what="every victim serves again", found=", ".join(never_back) or "yes", is_kept=not never_back
        ),
    ]
    if is_long:
        found += [
            Verdict(
                what=f"at least {wanted} faults",
                found=str(outcome["faults"]),
                is_kept=outcome["faults"] >= wanted,
            ),
            Verdict(
                what=f"useful throughput at least {THROUGHPUT_GOAL:.0%} of the run beside it",
                found="not known" if ratio is None else f"{ratio:.1%}",
                is_kept=ratio is not None and ratio >= THROUGHPUT_GOAL,
            ),
        ]
    return found


# ---- the program ----


class NotStarted(RuntimeError):
    """A run did not come to train."""


def await_training(both: Sequence[runs.Run]) -> None:
    """Until each has committed its first update. Raises NotStarted, with its last words."""
    give_up_s = time.monotonic() + START_DEADLINE_S
    waiting = list(both)
    while waiting:
        run = waiting[0]
        if has_trained(run):
            waiting.pop(0)
            continue
        if run.is_over or time.monotonic() > give_up_s:
            why = "ended" if run.is_over else f"made no update within {START_DEADLINE_S:g} s"
            raise NotStarted(f"the run in {run.directory} {why}; its last words:\n{run.last_words()}")
        time.sleep(0.5)


def has_trained(run: runs.Run) -> bool:
    if not run.paths.board.exists():  # made after the record
        return False
    with StoreReader(run.paths.store) as reader:
        newest = reader.latest_version()
    return newest is not None and newest.version > 0


def torment(calm: runs.Run, struck: runs.Run, injector: Injector, seconds: float) -> None:
    """Carry the plan out, tell how it goes, and wait until both runs have ended."""
    began_s, told_s = time.monotonic(), 0.0
    while not struck.is_over:
        now_s = time.monotonic() - began_s
        if now_s <= seconds:
            injector.tick(now_s)
        else:
            injector.give_back()
            injector.watch()
        if now_s - told_s >= 30.0:
            told_s = now_s
            print(
                f"{now_s:7.1f} s  {len(injector.done)} faults so far, {told(struck)}; beside it {told(calm)}",
                flush=True,
            )
        time.sleep(POLL_S)
    injector.give_back()
    while not calm.is_over:
        time.sleep(POLL_S)


def told(run: runs.Run) -> str:
    """How far a run is."""
    try:
        with StoreReader(run.paths.store) as reader:
            newest, totals = reader.latest_version(), reader.totals()
    except Exception as error:  # a database that is locked or has no room is what this program is about
        return f"unreadable now ({type(error).__name__})"
    return f"{0 if newest is None else newest.version} updates, {totals.trajectories} trajectories"


def chaos(
    minutes: float, seed: int, overrides: Mapping[str, Any], folder: Path, keep: Path | None
) -> dict[str, Any]:
    """Both runs from start to end; everything found. Raises NotStarted."""
    told_both = {"run.minutes": minutes + AROUND_MINUTES, "run.seed": seed, **overrides}
    told_struck = {**told_both, "environments.faults.enabled": True, "environments.faults.seed": seed}
    with ExitStack() as stack:
        has_disk = stack.enter_context(small_disk(folder / "struck"))
        stack.enter_context(small_disk(folder / "calm"))
        if keep is not None:
            stack.callback(shutil.copytree, folder, keep, dirs_exist_ok=True)
        if not has_disk:
            print(
                "no disk may be mounted here: the disk is not filled, only the database is locked", flush=True
            )
        struck = stack.enter_context(runs.training(CONFIG, folder / "struck" / "run", told_struck))
        calm = stack.enter_context(runs.training(CONFIG, folder / "calm" / "run", told_both))
        await_training((struck, calm))
        begins_unix_s = time.time()
        seconds = training_ends_unix_s(struck) - REST_S - begins_unix_s
        injector = Injector(struck, plan(seconds / 60.0, seed, has_small_disk=has_disk), seed)
        torment(calm, struck, injector, seconds)
        return outcome_of(struck, calm, injector.done, (begins_unix_s, begins_unix_s + seconds))


def training_ends_unix_s(run: runs.Run) -> float:
    """When a run stops to train, as it says itself."""
    return float(json.loads((run.directory / "session.json").read_text())["training_ends_unix_s"])


def outcome_of(
    struck: runs.Run, calm: runs.Run, faults: Sequence[Fault], window: tuple[float, float]
) -> dict[str, Any]:
    """What the two runs show when both have ended."""
    left = struck.left_behind()
    store = struck.paths.store
    injections = read_injections(struck.directory / "faults")
    useful, beside = useful_actions(store, *window), useful_actions(calm.paths.store, *window)
    # Environments have faults to the very end; whoever met one in the last seconds has nothing left to serve.
    in_time = [injection for injection in injections if injection.unix_s <= window[1]]
    times = recoveries(faults, in_time, episodes_of(store), runs.commit_times(store))
    return {
        "exit_code": struck.process.returncode,
        "last_words": struck.last_words() if struck.process.returncode else "",
        "exit_code_beside": calm.process.returncode,
        "minutes": (window[1] - window[0]) / 60.0,
        "faults": len(faults) + len(injections),
        "faults_by_kind": dict(Counter(kind for kind, found in times.items() for _ in found)),
        "audit": runs.audit(store),
        "left_behind": {str(pid): command for pid, command in left.items()},
        "faulted_and_stored": faulted_and_stored(store, injections),
        "useful_actions": useful,
        "useful_actions_beside": beside,
        "throughput_ratio": useful / beside if beside else None,
        "recovery_s": times,
        "signals": [asdict(fault) for fault in faults],
    }


def table(outcome: Mapping[str, Any], judged: Sequence[Verdict]) -> str:
    """For people."""
    minutes = outcome["minutes"]
    lines = [
        f"{outcome['faults']} faults in {minutes:.1f} minutes; seconds until the first real work after each:"
    ]
    lines.append(f"    {'':30}{'count':>7}{'median':>9}{'worst':>9}")
    for kind, times in outcome["recovery_s"].items():
        known = [found for found in times if found is not None]
        if known:
            median, _, _ = runs.median_and_quartiles(known)
            lines.append(f"    {kind:30}{len(times):7}{median:9.2f}{max(known):9.2f}")
        else:
            lines.append(f"    {kind:30}{len(times):7}{'never':>9}")
    ratio = outcome["throughput_ratio"]
    per_minute = outcome["useful_actions"] / minutes, outcome["useful_actions_beside"] / minutes
    lines.append(
        f"useful actions a minute: {per_minute[0]:.1f}; beside it, without faults: {per_minute[1]:.1f}"
        + ("" if ratio is None else f" ({ratio:.1%})")
    )
    books = outcome["audit"]
    lines.append(
        f"issued {books['issued']} = trained {books['trained']} + dropped {books['dropped']} + "
        f"stored {books['stored']} + leased {books['leased']}"
    )
    lines += [f"{'kept  ' if v.is_kept else 'BROKEN'}  {v.what}: {v.found}" for v in judged]
    return "\n".join(lines)


def as_pair(override: str) -> tuple[str, Any]:
    """`key=value`; the value is TOML, and a bare word is a string."""
    key, _, value = override.partition("=")
    with suppress(tomllib.TOMLDecodeError):
        return key, tomllib.loads(f"value = {value}")["value"]
    return key, value


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line. Ends with exit code 2 and the reason when it makes no sense."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="about how long faults are injected")
    parser.add_argument("--seed", type=int, default=0, help="of the runs, the faults and their victims")
    parser.add_argument(
        "--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE", help="for both runs"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the run directories here")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    if options.minutes < 1:
        parser.error(f"--minutes must be at least 1, got {options.minutes:g}")
    for override in options.overrides:
        if "=" not in override:
            parser.error(f"--set expects KEY=VALUE, got {override!r}")
    return options


def main() -> int:
    """Run, print, write; 1 when something is broken."""
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    overrides = dict(as_pair(override) for override in options.overrides)
    with tempfile.TemporaryDirectory(prefix="chaos-", dir="/tmp", ignore_cleanup_errors=True) as name:
        try:
            outcome = chaos(options.minutes, options.seed, overrides, Path(name), options.keep)
        except KeyboardInterrupt:
            print("broken off; both runs were drained", file=sys.stderr)
            return BROKEN_OFF
        except NotStarted as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    judged = verdicts(outcome, options.minutes)
    print(table(outcome, judged))
    whole = {
        "command": " ".join(["python -m benchmarks.chaos", *sys.argv[1:]]),
        "machine": machine(),
        "seed": options.seed,
        "verdicts": [asdict(verdict) for verdict in judged],
        **outcome,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(whole, indent=1) + "\n")
    print(f"written to {options.out}")
    return int(not all(verdict.is_kept for verdict in judged))


if __name__ == "__main__":
    sys.exit(main())
