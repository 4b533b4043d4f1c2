"""Actors and supervisors side by side: this project, its peers, and the limits, in turns, in one run.

    python -m benchmarks.actors                     # three rounds, about ten minutes
    python -m benchmarks.actors --quick             # one small round
    python -m benchmarks.actors --only messages --peers ours plain_thespian
    python -m benchmarks.actors --resume            # go on with a run that was broken off

Each measurement of each peer is a program of its own (`benchmarks/peers/`), run by the interpreter that has
the peer; within a round every peer has its turn at a measurement before the next measurement begins. Every
answer is written to `benchmarks/out/actors.json` as soon as it is there. A peer that is not installed is left
out, with the words that install it. Every process of a measurement carries a mark in its environment and is
killed by it at the end, however the end came.

Exit code 1 when a figure of this project misses its target or was not measured, 130 when the run was broken
off. With `--quick` the targets are printed and not judged: so few samples on a busy machine prove nothing.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers.protocol import MARK, marked_pids

REPOSITORY = Path(__file__).resolve().parent.parent
OUT = Path(__file__).parent / "out" / "actors.json"
PEERS_PYTHON = "/tmp/peers/bin/python"
OURS = "ours"

BROKEN_OFF = 130
"""The exit code of what Ctrl-C ended."""

VERSION_S = 60.0
MEASUREMENT_S = 150.0
"""A measurement that takes longer is killed and says so."""


# ---- who is measured ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Someone to compare with."""

    name: str
    module: str
    install: str
    """What makes it available."""
    own_python: bool = True
    """It runs with the peers' interpreter, not with this one."""
    most_children: int = 1000
    """More are not started: they would not fit into a small machine, or take minutes."""
    kills: int = 1000
    """At most so many kills one after the other, where each takes seconds."""
    speed: float = 1.0
    """How many messages it is sent, relative to the others, so that each takes about as long."""
    environment: dict[str, str] = field(default_factory=dict)
    remark: str = ""
    """What a reader of its figures must know."""


_SETUP = "make bench-actors, or scripts/setup-peers.sh"
PEERS = (
    Peer(name=OURS, module="ours", install="make setup", own_python=False),
    Peer(name="plain_thespian", module="plain_thespian", install="make setup", own_python=False, speed=0.05),
    Peer(name="ray", module="on_ray", install=_SETUP, most_children=4, kills=4, speed=0.2),
    Peer(name="monarch", module="on_monarch", install=_SETUP, most_children=2, kills=1, speed=0.05),
    Peer(
        name="monarch_tuned",
        module="on_monarch",
        install=_SETUP,
        most_children=2,
        kills=4,
        speed=0.05,
        environment={"HYPERACTOR_MESH_SUPERVISION_POLL_FREQUENCY": "200ms"},
    ),
    Peer(
        name="pykka",
        module="on_pykka",
        install=_SETUP,
        speed=2.0,
        remark="its actors are threads of one process; 300 KB by reference is the object itself",
    ),
    Peer(
        name="otp",
        module="on_otp",
        install="apt-get install erlang-base",
        speed=5.0,
        remark="its processes are light ones inside one real one: exit(Pid, kill) stands for SIGKILL, "
        "and 300 KB by reference is a binary they share",
    ),
    Peer(name="zeromq", module="bare_zeromq", install="make setup", own_python=False, speed=5.0),
    Peer(name="pipe", module="bare_pipe", install="part of Python", own_python=False, speed=5.0),
)


# ---- what is measured ----


@dataclass(frozen=True, slots=True)
class Task:
    """One measurement with its parameters, before a peer's own limits."""

    key: str
    measurement: str
    params: dict[str, Any]
    peers_once: bool = False
    """The others are measured in the first round only: it takes long, and hardly varies."""

    def is_due(self, round_: int, peer: Peer) -> bool:
        """Whether this peer has its turn at it in this round."""
        return round_ == 1 or peer.name == OURS or not self.peers_once


def tasks(children: Sequence[int], quick: bool) -> list[Task]:
    """All measurements of one round, in order."""
    kills = dict.fromkeys(children, 3 if quick else 30)
    most = max(children)
    plan = [
        Task(f"restart_{count}", "restart", {"children": count, "kills": kills[count], "faults": 3})
        for count in children
    ]
    hang = {"children": 8, "stops": 2 if quick else 6, "loops": 1 if quick else 3, "hang_deadline_s": 1.0}
    plan.append(Task("hang", "hang", hang))
    trips, stream = (500, 5_000) if quick else (3_000, 40_000)
    plan.append(Task("messages", "messages", {"round_trips": trips, "stream": stream, "references": 100}))
    idle = {"children": most, "seconds": 2.0 if quick else 20.0}
    plan.append(Task(f"idle_{most}", "idle", idle, peers_once=True))
    return plan


def params_for(peer: Peer, task: Task) -> dict[str, Any] | str:
    """The task cut to what this peer can do, or why it is left out."""
    params = dict(task.params)
    if "children" in params and params["children"] > peer.most_children:
        if task.measurement == "restart":
            return f"not measured: more than {peer.most_children} of its actors take minutes or gigabytes"
        params["children"] = peer.most_children
    if "kills" in params:
        params["kills"] = min(params["kills"], peer.kills)
    if "stream" in params:
        params["stream"] = max(500, int(params["stream"] * peer.speed) // 250 * 250)
        params["round_trips"] = max(200, int(params["round_trips"] * min(1.0, 4 * peer.speed)))
    return params


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the report."""

    title: str
    task: str
    key: str
    """In the figures a peer answers with."""
    unit: str
    take: Callable[[Any], float]
    """From one round's samples to one value."""
    target: "Target | None" = None
    is_rate: bool = False
    """More is better."""


@dataclass(frozen=True, slots=True)
class Target:
    """What this project must reach: at most (a rate: at least) `limit`, or `limit` times what `of` has."""

    limit: float
    of: str = ""

    def bound(self, medians: dict[str, float]) -> float | None:
        """The number to compare with; None when the peer it depends on was not measured."""
        if not self.of:
            return self.limit
        return self.limit * medians[self.of] if self.of in medians else None


def median(samples: Any) -> float:
    return float(statistics.median(samples))


def p99(samples: Any) -> float:
    """The 99th percentile by nearest rank: with fewer than 100 samples the highest."""
    ordered = sorted(samples)
    return float(ordered[-(-99 * len(ordered) // 100) - 1])


def length(value: Any) -> float:
    return float(len(value))


def figures(children: Sequence[int]) -> list[Figure]:
    """All lines of the report, in order."""
    lines = [line for count in children for line in _restart_figures(count)]
    return [
        *lines,
        *_fault_figures(max(children)),
        *_hang_figures(),
        *_message_figures(),
        *_idle_figures(max(children)),
    ]


def _restart_figures(count: int) -> list[Figure]:
    task, title = f"restart_{count}", f"SIGKILL of one of {count} -> answers"
    return [
        Figure(f"{title}, median", task, "kill_ms", "ms", median, Target(1.5, of="plain_thespian")),
        Figure(f"{title}, p99", task, "kill_ms", "ms", p99, Target(100)),
        Figure(f"SIGKILL of all {count} -> all back", task, "mass_ms", "ms", max),
        Figure(f"missed, of {count}", task, "missed", "", float, Target(0)),
        Figure(f"wrong reasons of exits, of {count}", task, "wrong_reasons", "", length, Target(0)),
        Figure(
            f"reasons written after the replacement answered, of {count}", task, "late_reasons", "", float
        ),
    ]


def _fault_figures(most: int) -> list[Figure]:
    task = f"restart_{most}"
    return [
        Figure(f"segfault of one of {most} -> answers, worst", task, "segfault_ms", "ms", max, Target(100)),
        Figure(f"exit code 3 of one of {most} -> answers, worst", task, "exit_ms", "ms", max, Target(100)),
        Figure(
            f"SIGKILL, then exit in on_start, of one of {most} -> answers, worst",
            *(task, "exit_in_start_ms", "ms", max, Target(100)),
        ),
    ]


def _hang_figures() -> list[Figure]:
    late = Target(250)
    return [
        Figure("SIGSTOP found after the liveness deadline, worst", "hang", "stop_beyond_ms", "ms", max, late),
        Figure("loop found after the liveness deadline, worst", "hang", "loop_beyond_ms", "ms", max, late),
    ]


def _message_figures() -> list[Figure]:
    task, trip = "messages", "round trip of 100 bytes"
    return [
        Figure(f"{trip}, median", task, "round_trip_us", "us", median, Target(200)),
        Figure(f"{trip}, p99", task, "round_trip_us", "us", p99),
        Figure(f"{trip}, CPU a message", task, "round_trip_cpu_us", "us", float),
        Figure(
            "stream of 100 bytes, handled", task, "stream_per_s", "/s", float, Target(50_000), is_rate=True
        ),
        Figure("stream of 100 bytes, CPU a message", task, "stream_cpu_us", "us", float),
        Figure("300 KB by reference, median", task, "reference_us", "us", median, Target(1000)),
    ]


def _idle_figures(most: int) -> list[Figure]:
    task = f"idle_{most}"
    return [
        Figure(f"idle CPU of {most} actors", task, "idle_cpu_percent", "% of a core", float, Target(1.0)),
        Figure(f"private memory an actor, of {most}", task, "private_mib", "MiB", median, Target(5.0)),
    ]


# ---- the report ----


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure of one peer over the rounds."""

    median: float
    low: float
    high: float
    rounds: int


def cell(figure: Figure, answers: Sequence[dict[str, Any]]) -> Cell | None:
    """Median and spread over the rounds that have this figure."""
    values = [
        figure.take(answer["figures"][figure.key])
        for answer in answers
        if answer.get("figures", {}).get(figure.key) not in (None, [])
        or (figure.take is length and figure.key in answer.get("figures", {}))
    ]
    if not values:
        return None
    return Cell(statistics.median(values), min(values), max(values), len(values))


def verdict(figure: Figure, cells: dict[str, Cell | None]) -> tuple[str, bool | None]:
    """The target in words, and whether this project meets it (None: there is none, or nothing to judge)."""
    ours = cells.get(OURS)
    if figure.target is None:
        return "", None
    bound = figure.target.bound({name: cell.median for name, cell in cells.items() if cell is not None})
    times = f" ({figure.target.limit:g} x {figure.target.of})" if figure.target.of else ""
    if bound is None:
        return f"{figure.target.limit:g} x {figure.target.of}, which was not measured", None
    words = f"{'at least' if figure.is_rate else 'at most'} {number(bound)} {figure.unit}{times}".rstrip()
    if ours is None:
        return words, None
    return words, ours.median >= bound if figure.is_rate else ours.median <= bound


def number(value: float) -> str:
    """Three digits that matter."""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"


def ratio(cell: Cell, ours: Cell | None) -> str:
    """How this compares with the project: 2.0 x is twice its figure."""
    if ours is None or ours.median <= 0:
        return ""
    return f"{number(cell.median / ours.median)} x ours"


def report(runs: Sequence[dict[str, Any]], lines: Sequence[Figure]) -> Iterator[dict[str, Any]]:
    """One entry for each figure anyone was asked for: cells by peer, target, verdict, why some have none."""
    for line in lines:
        of_task = [run for run in runs if run["task"] == line.task]
        names = list(dict.fromkeys(run["peer"] for run in of_task))
        answers = {name: [run["answer"] for run in of_task if run["peer"] == name] for name in names}
        cells = {name: cell(line, answers[name]) for name in names}
        if not any(cells.values()):
            continue
        target, is_met = verdict(line, cells)
        yield {
            "title": line.title,
            "unit": line.unit,
            "target": target,
            "met": is_met,
            "cells": {name: asdict(found) for name, found in cells.items() if found is not None},
            "children": _children(of_task),
            "none": {name: _why_none(answers[name]) for name, found in cells.items() if found is None},
        }


def unmeasured(runs: Sequence[dict[str, Any]], planned: Sequence[Task]) -> list[str]:
    """The measurements that gave no figure of this project, each with the reason."""
    answers = {run["task"]: run["answer"] for run in runs if run["peer"] == OURS}
    return [
        f"{task.key}: {_why_none([answers.get(task.key, {'failed': 'it was not started'})])}"
        for task in planned
        if "figures" not in answers.get(task.key, {})
    ]


def _children(runs: Sequence[dict[str, Any]]) -> dict[str, int]:
    """How many actors each peer had: some get fewer than asked for."""
    asked = {run["peer"]: run.get("params") for run in runs}
    return {
        name: params["children"]
        for name, params in asked.items()
        if isinstance(params, dict) and "children" in params
    }


def _why_none(answers: Sequence[dict[str, Any]]) -> str:
    for answer in answers:
        for key in ("failed", "unsupported"):
            if key in answer:
                return str(answer[key])
    return "it has no such figure"


def table(entries: Sequence[dict[str, Any]]) -> str:
    """For people: each figure with one line for each peer."""
    text = []
    for entry in entries:
        is_met = {True: "met", False: "NOT MET", None: ""}[entry["met"]]
        target = f"   target {entry['target']}: {is_met}".rstrip(": ") if entry["target"] else ""
        text.append(f"{entry['title']}{target}")
        ours = Cell(**entry["cells"][OURS]) if OURS in entry["cells"] else None
        for name, values in entry["cells"].items():
            found = Cell(**values)
            spread = f"{number(found.low)} to {number(found.high)}"
            compared = "" if name == OURS else ratio(found, ours)
            if (of := entry["children"].get(name, 0)) != max(entry["children"].values(), default=0):
                compared += f" (of {of} only)"
            text.append(
                f"    {name:15} {number(found.median):>10} {entry['unit']:12} {spread:22} {compared}".rstrip()
            )
        if entry["none"]:
            text.append(f"    without: {', '.join(entry['none'])}")
        text.append("")
    named = {name for entry in entries for name in entry["cells"]}
    text += [f"{peer.name}: {peer.remark}" for peer in PEERS if peer.name in named and peer.remark]
    return "\n".join(text)


# ---- running ----


class Run:
    """What was measured so far, kept in a file."""

    def __init__(self, out: Path, settings: dict[str, Any], resume: bool) -> None:
        self.out = out
        self.settings = settings
        self.peers: dict[str, dict[str, Any]] = {}
        self.runs: list[dict[str, Any]] = []
        if resume and out.exists():
            earlier = json.loads(out.read_text())
            if earlier["settings"] == settings:
                self.runs = [run for run in earlier["runs"] if "failed" not in run["answer"]]
            else:
                raise SystemExit(
                    f"{out} holds a run with other settings ({earlier['settings']}, now {settings}); "
                    "leave out --resume to begin anew"
                )

    def has(self, round_: int, task: str, peer: str) -> bool:
        return any((r["round"], r["task"], r["peer"]) == (round_, task, peer) for r in self.runs)

    def unsupported(self, task: str, peer: str) -> str | None:
        """Why this peer has nothing to measure there, as it said in an earlier round."""
        of_task = (r["answer"] for r in self.runs if (r["task"], r["peer"]) == (task, peer))
        return next((answer["unsupported"] for answer in of_task if "unsupported" in answer), None)

    def add(self, **run: Any) -> None:
        self.runs.append(run)
        self.write([])

    def write(self, entries: list[dict[str, Any]]) -> None:
        """Everything, samples included; in one piece, so that a run broken off leaves a whole file."""
        self.out.parent.mkdir(exist_ok=True)
        whole = {
            "command": " ".join(["python -m benchmarks.actors", *sys.argv[1:]]),
            "settings": self.settings,
            "machine": machine(),
            "peers": self.peers,
            "report": entries,
            "runs": self.runs,
        }
        beside = self.out.with_suffix(".part")
        beside.write_text(json.dumps(whole, indent=1) + "\n")
        beside.replace(self.out)


def machine() -> dict[str, Any]:
    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "commit": _commit(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def _commit() -> str:
    git = shutil.which("git")
    if git is None:
        return ""
    asked = subprocess.run(
        [git, "describe", "--always", "--dirty"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    return asked.stdout.strip()


def ask_peer(
    peer: Peer, python: str, measurement: str, params: dict[str, Any], deadline_s: float
) -> dict[str, Any]:
    """Run one measurement as a program of its own. Never raises for what the program does."""
    mark = uuid.uuid4().hex
    command = [python, "-m", f"benchmarks.peers.{peer.module}", measurement, json.dumps(params)]
    environment = os.environ | peer.environment | {MARK: mark, "PYTHONUNBUFFERED": "1"}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err, cleaned_up(mark):
        # Files, not pipes: daemons that outlive the program would hold a pipe open.
        try:
            ended = subprocess.run(
                command, cwd=REPOSITORY, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                check=False, timeout=deadline_s,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return {"failed": str(error)}
        out.seek(0)
        err.seek(0)
        return answer_of(out.read(), err.read(), ended.returncode)


def answer_of(out: str, err: str, code: int) -> dict[str, Any]:
    """What the program printed, or what it died of."""
    if code == 0:
        for line in reversed(out.splitlines()):  # a library may have had a last word after it
            with suppress(json.JSONDecodeError):
                answer = json.loads(line)
                if isinstance(answer, dict):
                    return answer
    last = (err.strip().splitlines() or ["no words"])[-1]
    return {"failed": f"exit code {code}: {last}"}


@contextmanager
def cleaned_up(mark: str) -> Iterator[None]:
    """Kill everything that carries the mark, however the block ends; some may be forking meanwhile."""
    try:
        yield
    finally:
        while pids := [pid for pid in marked_pids(mark) if pid != os.getpid()]:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        for left in Path("/dev/shm").glob("benchmark-*"):
            left.unlink(missing_ok=True)


def present(peers: Sequence[Peer], peers_python: str) -> Iterator[tuple[Peer, str, dict[str, Any]]]:
    """Each peer, its interpreter, and its version or why it is not there."""
    for peer in peers:
        python = peers_python if peer.own_python else sys.executable
        answer = ask_peer(peer, python, "version", {}, VERSION_S)
        if "failed" in answer:
            answer["install"] = peer.install
        yield peer, python, answer


def measure(run: Run, round_: int, task: Task, peer: Peer, python: str) -> None:
    """One peer's turn at one measurement."""
    params = params_for(peer, task)
    began_s, load = time.monotonic(), os.getloadavg()[0]
    if isinstance(params, dict) and (said_before := run.unsupported(task.key, peer.name)) is not None:
        params = said_before
    if isinstance(params, str):
        answer: dict[str, Any] = {"unsupported": params}
    else:
        answer = ask_peer(peer, python, task.measurement, params, MEASUREMENT_S)
    took_s = round(time.monotonic() - began_s, 1)
    run.add(
        round=round_, task=task.key, peer=peer.name, params=params, answer=answer, seconds=took_s,
        load_average=round(load, 2),
    )  # fmt: skip
    said = answer.get("failed") or answer.get("unsupported") or "measured"
    say(f"round {round_}  {task.key:12} {peer.name:15} {took_s:6.1f} s  load {load:.1f}  {said}")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line. Ends with exit code 2 and the reason when it makes no sense."""
    names, kinds = [peer.name for peer in PEERS], ["restart", "hang", "messages", "idle"]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--children", type=int, nargs="+", default=[1, 100, 400])
    parser.add_argument(
        "--only", nargs="+", choices=kinds, default=kinds, metavar="MEASUREMENT", help=", ".join(kinds)
    )
    parser.add_argument(
        "--peers", nargs="+", choices=names, default=names, metavar="PEER", help=", ".join(names)
    )
    parser.add_argument("--peers-python", default=os.environ.get("PEERS_PYTHON", PEERS_PYTHON))
    parser.add_argument("--quick", action="store_true", help="one small round, to see that all of it works")
    parser.add_argument(
        "--resume", action="store_true", help="keep what an earlier run with these settings measured"
    )
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.children = 1, [1, 20]
    if options.rounds < 1:
        parser.error(f"--rounds must be at least 1, got {options.rounds}")
    if min(options.children) < 1:
        parser.error(f"--children must be at least 1, got {min(options.children)}")
    options.children = sorted(set(options.children))
    return options


def main() -> int:
    """Measure, print the table; 1 when a target is missed or a figure of this project is missing."""
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    settings = {"children": options.children, "quick": options.quick}
    run = Run(options.out, settings, options.resume)
    there = []
    for peer, python, version in present([p for p in PEERS if p.name in options.peers], options.peers_python):
        run.peers[peer.name] = version
        if "failed" in version:
            say(f"{peer.name} is not here ({version['failed']}); to have it: {peer.install}")
        else:
            there.append((peer, python))
            say(f"{peer.name}: {version.get('version')}")
    planned = [task for task in tasks(options.children, options.quick) if task.measurement in options.only]
    is_broken_off = False
    try:
        for round_ in range(1, options.rounds + 1):
            for task in planned:
                for peer, python in there:
                    if task.is_due(round_, peer) and not run.has(round_, task.key, peer.name):
                        measure(run, round_, task, peer, python)
    except KeyboardInterrupt:
        is_broken_off = True
        say("broken off; --resume goes on from here")
    entries = list(report(run.runs, figures(options.children)))
    run.write(entries)
    print(table(entries))
    met, missed = (
        [entry["title"] for entry in entries if entry["met"] is verdict] for verdict in (True, False)
    )
    print(
        f"written to {options.out}; {len(met)} targets met, {len(missed)} not met: {'; '.join(missed) or '-'}"
    )
    missing = unmeasured(run.runs, planned) if OURS in options.peers else []
    for reason in missing:
        say(f"not measured: {reason}")
    is_judged = bool(missed) and not options.quick
    return BROKEN_OFF if is_broken_off else int(is_judged or bool(missing))


if __name__ == "__main__":
    sys.exit(main())
