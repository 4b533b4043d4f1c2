"""A training run of hours, and whether anything of it grows: memory, descriptors, threads, files.

    python -m benchmarks.longevity                           # configs/laptop.toml for two hours
    python -m benchmarks.longevity --minutes 20 --out runs/watched
    python -m benchmarks.longevity --report --out runs/watched   # what was measured, judged and drawn again

One `dartrl up` trains for as long as asked, with an evaluation before and after and checkpoints that are
pruned as the configuration says. Every ten seconds all its processes are looked at, each by the role of its
actor (browsers belong to environments): the memory that no other process holds (USS), so that other programs
with the same libraries open change nothing; open descriptors, threads; and what the run has on the disk and
in its record. The memory of all processes together counts shared pages by shares (PSS).

A line for each look goes to OUT/samples.jsonl at once. At the end the slopes after the warm-up are fitted,
judged and drawn: OUT/report.json and OUT/longevity.png. Ctrl-C and SIGTERM drain the run and report what was
measured; the same command goes on with the run that is in OUT. Exit code 1 when something grows that is not
explained by what was played, or when the run ended with an error; 130 when it was broken off.
"""

import argparse
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

from actors.board import Board
from benchmarks import longevity_report as report
from benchmarks import runs
from benchmarks.actors import BROKEN_OFF, machine
from benchmarks.chaos import as_pair
from benchmarks.peers.protocol import marked_pids
from dart.core.run_directory import RunPaths, mail_dir
from dart.store.reader import StoreReader

REPOSITORY = Path(__file__).resolve().parent.parent
CONFIG = REPOSITORY / "configs" / "laptop.toml"
OUT = Path(__file__).parent / "out" / "longevity"

MINUTES = 120.0
EVERY_S = 10.0

SCREENSHOTS_EVERY = 6
"""Looks from one count of the screenshots to the next: there are hundreds of thousands of files."""

START_DEADLINE_S = 120.0
OVERTIME_S = 300.0
"""A run that has not ended this long after it should have hangs."""


class NotStarted(RuntimeError):
    """The run did not come to start its actors."""


# ---- one look ----


def processes_of(mark: str) -> dict[int, int]:
    """Every process of the run: pid to that of its parent.

    A browser's processes write over their environment, so what descends from a marked one counts too.
    """
    parents = {process.pid: process.info["ppid"] for process in psutil.process_iter(["ppid"])}
    ours = set(marked_pids(mark)) & parents.keys()
    while born := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= born
    return {pid: parents[pid] for pid in ours}


def names_on(board: Path) -> dict[int, str]:
    """Which actor each process is, as the board has it."""
    opened = Board(board)
    try:
        return {row.pid: row.name for row in opened.rows() if row.pid and row.name != report.LAUNCHER}
    finally:
        opened.close()


def look_at(parents: Mapping[int, int], names: Mapping[int, str], launcher: int) -> dict[str, dict[str, int]]:
    """What the processes of each role hold together. One that ends meanwhile is left out."""
    found: dict[str, dict[str, int]] = {}
    for pid in parents:
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
            process = psutil.Process(pid)
            memory = process.memory_full_info()
            held = {
                "processes": 1,
                "pss_bytes": memory.pss,
                "uss_bytes": memory.uss,
                "fds": process.num_fds(),
                "threads": process.num_threads(),
            }
            of_role = found.setdefault(report.role_of(pid, parents, names, launcher), dict.fromkeys(held, 0))
            for what, value in held.items():
                of_role[what] += value
    return found


def bytes_below(places: Iterable[Path]) -> tuple[int, int]:
    """Bytes and number of the files in some folders; those that vanish meanwhile are left out."""
    size, count = 0, 0
    for place in places:
        for folder, _, files in os.walk(place):
            for name in files:
                with suppress(FileNotFoundError):
                    size += (Path(folder) / name).lstat().st_size
                    count += 1
    return size, count


def disk_of(run: runs.Run, with_screenshots: bool) -> dict[str, int]:
    """Bytes of each part of the run directory, and files where their number says something."""
    paths = run.paths
    checkpoints, kept = bytes_below([paths.checkpoints])
    logs, log_files = bytes_below([paths.logs, paths.crash, paths.root / "reports"])
    sizes = {
        "record_bytes": sum(file.stat().st_size for file in paths.root.glob("store.db*")),
        "checkpoints_bytes": checkpoints,
        "checkpoint_files": kept,
        "logs_bytes": logs + os.fstat(run.log.fileno()).st_size,
        "log_files": log_files,
        "scratch_bytes": bytes_below([paths.scratch])[0],
        "mail_files": bytes_below([mail_dir(paths.root)])[1],
    }
    if with_screenshots:
        sizes["screenshots_bytes"], sizes["screenshot_files"] = bytes_below([paths.blobs])
    return sizes


def counts_of(store: StoreReader) -> dict[str, int]:
    """How far the run is."""
    newest, totals, last = store.latest_version(), store.totals(), store.find_events(limit=1)
    return {
        "updates": 0 if newest is None else newest.version,
        "trajectories": totals.trajectories,
        "steps": totals.steps,
        "evaluated": len(store.evaluations()),
        "events": last[0].event_id if last else 0,
    }


def restarts_on(board: Path) -> int:
    opened = Board(board)
    try:
        return sum(row.restarts for row in opened.rows())
    finally:
        opened.close()


# ---- the run ----


def measure(config: Path, out: Path, overrides: Mapping[str, Any], every_s: float) -> int:
    """Run it to its end and write down every look; the exit code of the run. Raises NotStarted."""
    samples = out / "samples.jsonl"
    stretch = 1 + max((one["stretch"] for one in read_samples(samples)), default=0)
    with runs.training(config, out / "run", overrides, verb="up") as run, ExitStack() as stack:
        began_s = time.monotonic()
        await_actors(run)
        store = stack.enter_context(StoreReader(run.paths.store))
        file = stack.enter_context(samples.open("a"))
        give_up_s = began_s + 60.0 * overrides["run.minutes"] + OVERTIME_S
        for number in itertools.count():
            used_s = time.process_time()
            counts = counts_of(store)
            sample = {
                "stretch": stretch,
                "t_s": round(time.monotonic() - began_s, 2),
                "unix_s": round(time.time(), 2),
                "training": counts["steps"] > 0 and not has_ended_training(run.paths),
                "roles": look_at(processes_of(run.mark), names_on(run.paths.board), run.process.pid),
                "disk": disk_of(run, with_screenshots=number % SCREENSHOTS_EVERY == 0),
                "counts": counts | {"restarts": restarts_on(run.paths.board)},
            }
            sample["look_cpu_s"] = round(time.process_time() - used_s, 4)
            file.write(json.dumps(sample) + "\n")
            file.flush()
            if number % SCREENSHOTS_EVERY == 0:
                print(report.line(sample), flush=True)
            if not sleep_while(run, began_s + (number + 1) * every_s):
                break
            if time.monotonic() > give_up_s:
                print(f"it still runs; its last words:\n{run.last_words()}", file=sys.stderr)
                return 1
        return int(run.process.returncode)


def await_actors(run: runs.Run) -> None:
    """Until the run has its board and its control socket, made anew. Raises NotStarted."""
    began_unix_s, give_up_s = time.time() - 1.0, time.monotonic() + START_DEADLINE_S
    while not is_newer(run.paths.control, began_unix_s):
        if run.is_over or time.monotonic() > give_up_s:
            why = "ended" if run.is_over else f"did not start its actors within {START_DEADLINE_S:g} s"
            raise NotStarted(f"the run in {run.directory} {why}; its last words:\n{run.last_words()}")
        time.sleep(0.2)


def is_newer(file: Path, than_unix_s: float) -> bool:
    with suppress(FileNotFoundError):
        return file.lstat().st_mtime >= than_unix_s
    return False


def has_ended_training(paths: RunPaths) -> bool:
    """Whether what is left of the time is for the evaluation."""
    session = json.loads((paths.root / "session.json").read_text())
    return time.time() >= float(session["training_ends_unix_s"])


def sleep_while(run: runs.Run, until_s: float) -> bool:
    """Sleep until a moment of the monotonic clock; False as soon as the run is over."""
    while (left_s := until_s - time.monotonic()) > 0 and not run.is_over:
        time.sleep(min(left_s, 0.5))
    return not run.is_over


def read_samples(file: Path) -> list[dict[str, Any]]:
    """Every look that was written down whole."""
    return list(_whole_lines(file)) if file.exists() else []


def _whole_lines(file: Path) -> Iterator[dict[str, Any]]:
    for line in file.read_text().splitlines():
        with suppress(json.JSONDecodeError):  # the last one of a program that was killed
            yield json.loads(line)


# ---- the program ----


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line. Ends with exit code 2 and the reason when it makes no sense."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=MINUTES, help="how long the run lasts")
    parser.add_argument("--every", type=float, default=EVERY_S, metavar="SECONDS", help="between two looks")
    parser.add_argument("--config", type=Path, default=CONFIG)
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FOLDER")
    parser.add_argument("--report", action="store_true", help="start nothing; judge and draw what is there")
    options = parser.parse_args(arguments)
    if options.minutes <= 0 or options.every <= 0:
        parser.error("--minutes and --every must be above 0")
    for override in options.overrides:
        if "=" not in override:
            parser.error(f"--set expects KEY=VALUE, got {override!r}")
    return options


def break_off(*_: int | FrameType | None) -> None:
    """Ctrl-C or SIGTERM: once; while the run drains a second one changes nothing."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> int:
    """Run, judge, draw; 1 when something grows or the run failed."""
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    # Both are set here: a shell starts what it puts in the background with SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, break_off)
    overrides = {
        "run.minutes": options.minutes,
        "training.updates": 0,
        **dict(as_pair(one) for one in options.overrides),
    }
    code: int | None = None
    try:
        if not options.report:
            code = measure(options.config, options.out, overrides, options.every)
    except KeyboardInterrupt:
        print("broken off; the run was drained", file=sys.stderr)
        code = BROKEN_OFF
    except NotStarted as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    grows = conclude(options.out, code)
    return code or int(grows)


def conclude(out: Path, code: int | None) -> bool:
    """Judge, print, write and draw what was measured; whether something grows without a reason."""
    samples = read_samples(out / "samples.jsonl")
    judged = report.judge(samples)
    print(report.table(judged))
    whole = {
        "command": " ".join(["python -m benchmarks.longevity", *sys.argv[1:]]),
        "machine": machine(),
        "exit_code_of_the_run": code,
        **asdict(judged),
    }
    (out / "report.json").write_text(json.dumps(whole, indent=1) + "\n")
    if samples:
        report.draw(samples, judged, out / "longevity.png")
    print(f"written to {out}")
    return bool(judged.growing)


if __name__ == "__main__":
    sys.exit(main())
