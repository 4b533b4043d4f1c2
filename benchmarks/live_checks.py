"""Every command of `dartrl` asked about a run that goes on, and its answer held against what it is about.

The truth is read without this project's own reader: the record by SQLite itself, processes by psutil, files
by their folders. The run goes on meanwhile, so a figure has to lie between what it was before the command and
what it was after.
"""

import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from typer.main import get_command

from dart.cli.main import app
from dart.core.run_directory import RunPaths
from dart.store.run_blobs import local_blobs
from dart.store.serialization import unpack_steps

PATIENCE_S = 240.0
"""For a command to end: some wait for something to be done, some load torch, and the machine is busy."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that has ended."""

    words: tuple[str, ...]
    code: int
    out: str
    err: str
    processor_s: float
    """User and system, of the whole process."""
    wall_s: float

    def json(self) -> Any:
        return json.loads(self.out)

    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


def dartrl(*words: str | Path) -> Ran:
    """Run a command to its end."""
    command = tuple(map(str, words))
    before, began_s = _children_s(), time.perf_counter()
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "dart", *command],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
        )
    except subprocess.TimeoutExpired:
        return Ran(command, -1, "", f"it did not end within {PATIENCE_S:g} s", 0.0, PATIENCE_S)
    wall_s = time.perf_counter() - began_s
    return Ran(command, ended.returncode, ended.stdout, ended.stderr, _children_s() - before, wall_s)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# ---- the truth ----

COUNTS = {
    "trajectories": "SELECT count(*) FROM trajectories",
    "steps": "SELECT coalesce(sum(num_steps), 0) FROM trajectories",
    "issued": "SELECT count(*) FROM rollouts",
    "version": "SELECT max(version) FROM versions",
    "events": "SELECT coalesce(max(event_id), 0) FROM events",
}
Counts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Truth:
    """What a run is, seen past the commands."""

    paths: RunPaths
    pid: int
    """Of its main process."""

    def rows(self, sql: str, *values: Any) -> list[Any]:
        with closing(sqlite3.connect(f"{self.paths.store.as_uri()}?mode=ro", uri=True)) as connection:
            return connection.execute(sql, values).fetchall()

    def one(self, sql: str, *values: Any) -> Any:
        found = self.rows(sql, *values)
        return found[0][0] if found else None

    def counts(self) -> Counts:
        return {name: self.one(sql) for name, sql in COUNTS.items()}

    def below(self) -> dict[int, psutil.Process]:
        """Every process of the run by pid."""
        return {one.pid: one for one in psutil.Process(self.pid).children(recursive=True)}


Check = Callable[[Ran, Truth, Counts, Counts], Iterator[str]]
"""What is wrong with an answer; the run's counts before and after."""


def between(what: str, value: float, before: float, after: float) -> Iterator[str]:
    if not before <= value <= after:
        yield f"{what} is {value}, but was {before} before and {after} after"


def same(what: str, told: object, true: object) -> Iterator[str]:
    if told != true:
        yield f"{what} is told as {told!r}, and is {true!r}"


# ---- looking ----


def status(ran: Ran, truth: Truth, before: Counts, after: Counts) -> Iterator[str]:
    told = ran.json()
    yield from same("pid", told["pid"], truth.pid)
    for name in ("trajectories", "steps"):
        yield from between(name, told[name], before[name], after[name])
    yield from between("policy_version", told["policy_version"], before["version"], after["version"])
    books = told["conservation"]
    yield from between("issued", books["issued"], before["issued"], after["issued"])
    places = books["trained"] + books["dropped"] + books["stored"] + books["leased"]
    yield from same("trained + dropped + stored + leased", places, books["issued"])
    yield from same("exit code for healthy", ran.code, 0 if told["healthy"] else 1)
    yield from processes(told["actors"], truth)


def processes(actors: Sequence[Mapping[str, Any]], truth: Truth) -> Iterator[str]:
    """Who is told to run has a process, in the state that is told, below that of its supervisor."""
    living = truth.below()
    pid_of = {one["name"]: one["pid"] for one in actors}
    for one in actors:
        process = living.get(one["pid"])
        if one["state"] != "running":
            continue
        if process is None:
            if one["process"] != "gone":
                yield f"{one['name']} is told to run as {one['pid']}, which is no process of the run"
            continue
        is_stopped = process.status() == psutil.STATUS_STOPPED
        yield from same(f"{one['name']} suspended", one["process"] == "suspended", is_stopped)
        if one["parent"] in pid_of:
            above = {parent.pid for parent in process.parents()}
            if pid_of[one["parent"]] not in above:
                yield f"{one['name']} is told to be below {one['parent']}, its process is not"


def tree(ran: Ran, truth: Truth, _: Counts, __: Counts) -> Iterator[str]:
    told = ran.json()
    yield from processes(told, truth)
    wanted = {"root", "store", "curator", "rollout_pool", "weight_sync", "environment_pool", "trainer"}
    yield from same("missing of the tree", sorted(wanted - {one["name"] for one in told}), [])


def top(ran: Ran, truth: Truth, _: Counts, __: Counts) -> Iterator[str]:
    for name in ("root", "store", "curator", "weight_sync", "trainer", "env-000", "rollout-0"):
        if name not in ran.out:
            yield f"{name} is not on the screen"


def actors_list(ran: Ran, truth: Truth, _: Counts, __: Counts) -> Iterator[str]:
    yield from processes(ran.lines(), truth)


def actors_show(ran: Ran, truth: Truth, _: Counts, __: Counts) -> Iterator[str]:
    vitals = ran.json()["vitals"]
    process = truth.below().get(vitals["pid"])
    if process is None:
        yield f"pid {vitals['pid']} is no process of the run"
        return
    yield from between("rss_bytes", vitals["rss_bytes"], 0, 2 * process.memory_info().rss)
    times = process.cpu_times()
    yield from between("cpu_s", vitals["cpu_s"], 0.0, times.user + times.system + 0.02)


def actors_logs(ran: Ran, truth: Truth, _: Counts, __: Counts) -> Iterator[str]:
    kept = [json.loads(line) for line in (truth.paths.logs / "store.jsonl").read_text().splitlines()]
    known = {line["event"] for line in kept}
    yield from same("events that no line of the file has", {x["event"] for x in ran.lines()} - known, set())


def actors_stack(ran: Ran, truth: Truth, _: Counts, __: Counts) -> Iterator[str]:
    if ran.code == 0 and "Thread" not in ran.out:
        yield "no thread is shown"
    if ran.code != 0 and "py-spy" not in ran.err:
        yield f"it does not say what is missing: {ran.err}"


def events(ran: Ran, truth: Truth, before: Counts, after: Counts) -> Iterator[str]:
    told = [(one["kind"], one["unix_s"]) for one in ran.lines() if one["kind"] != "child_terminated"]
    kept = set(truth.rows("SELECT kind, unix_s FROM events"))
    reported = {"child_quarantined", "shutdown", "retired", "start_error", "shutdown_error"}
    yield from same("not in the record", [x for x in told if x not in kept and x[0] not in reported], [])


def metrics(ran: Ran, truth: Truth, before: Counts, after: Counts) -> Iterator[str]:
    values = dict(line.rsplit(" ", 1) for line in ran.out.splitlines() if not line.startswith("#"))
    for metric, count in (
        ("dartrl_trajectories_total", "trajectories"),
        ("dartrl_environment_steps_total", "steps"),
        ("dartrl_issued_rollouts_total", "issued"),
        ("dartrl_policy_version", "version"),
    ):
        yield from between(metric, float(values[metric]), before[count], after[count])
    if 'dartrl_actor_well{actor="env-000"}' not in values:
        yield "env-000 is not among the actors"


def tasks_list(ran: Ran, truth: Truth, before: Counts, after: Counts) -> Iterator[str]:
    told = sum(one["finished"] for one in ran.json())
    yield from between("finished episodes of all tasks", told, before["trajectories"], after["trajectories"])


def trajectories_list(ran: Ran, truth: Truth, before: Counts, after: Counts) -> Iterator[str]:
    for one in ran.lines():
        kept = truth.rows(
            "SELECT task_id, reward, num_steps, outcome FROM trajectories WHERE rollout_id = ?",
            one["rollout_id"],
        )
        told = (one["task_id"], one["reward"], one["num_steps"], one["outcome"])
        yield from same(f"rollout {one['rollout_id']}", [told], kept)
    newest = truth.one("SELECT max(rollout_id) FROM trajectories")
    yield from between("the newest", max((one["rollout_id"] for one in ran.lines()), default=0), 1, newest)


def trajectories_show(ran: Ran, truth: Truth, _: Counts, __: Counts) -> Iterator[str]:
    told = ran.json()["trajectory"]
    query = "SELECT steps_sha256 FROM trajectories WHERE rollout_id = ?"
    packed = local_blobs(truth.paths.root).steps.read(truth.one(query, told["rollout_id"]))
    kept = unpack_steps(packed)
    yield from same("answers", [step["answer"] for step in told["steps"]], [step.answer for step in kept])


def trajectories_export(ran: Ran, truth: Truth, _: Counts, __: Counts) -> Iterator[str]:
    file = Path(ran.words[ran.words.index("--html") + 1])
    yield from same("a page of its own", "</html>" in file.read_text(), True)


def policy_versions(ran: Ran, truth: Truth, before: Counts, after: Counts) -> Iterator[str]:
    told = [one["version"] for one in ran.lines()]
    yield from between("the newest version", max(told), before["version"], after["version"])


def checkpoints_list(ran: Ran, truth: Truth, _: Counts, __: Counts) -> Iterator[str]:
    for one in ran.json():
        if one["is_complete"] and not Path(one["folder"]).name.startswith("v"):
            yield f"{one['folder']} is no checkpoint"


def pool_list(ran: Ran, truth: Truth, _: Counts, __: Counts) -> Iterator[str]:
    yield from same("demonstrations", len(ran.json()), truth.one("SELECT count(*) FROM pool"))


def doctor(ran: Ran, truth: Truth, _: Counts, __: Counts) -> Iterator[str]:
    found = {one["topic"]: one for one in ran.json()}
    yield from same("the run", f"process {truth.pid}" in found["run"]["found"], True)
    yield from same("the record", found["record"]["verdict"], "fine")


def doctor_data(ran: Ran, truth: Truth, before: Counts, after: Counts) -> Iterator[str]:
    told = ran.json()
    yield from same("findings", told["findings"], [])
    yield from between("issued", told["books"]["issued"], before["issued"], after["issued"])


def config_show(ran: Ran, truth: Truth, _: Counts, __: Counts) -> Iterator[str]:
    kept = tomllib.loads(truth.paths.config.read_text())
    yield from same("training", tomllib.loads(ran.out)["training"], kept["training"])


def config_schema(ran: Ran, truth: Truth, _: Counts, __: Counts) -> Iterator[str]:
    yield from same("a schema of an object", ran.json()["type"], "object")


# ---- changing ----


def held(ran: Ran, truth: Truth, _: Counts, __: Counts) -> Iterator[str]:
    yield from same("is_held", _is_held(truth), True)


def going_on(ran: Ran, truth: Truth, _: Counts, __: Counts) -> Iterator[str]:
    yield from same("is_held", _is_held(truth), False)


def _is_held(truth: Truth) -> bool:
    newest = truth.one("SELECT data FROM events WHERE kind = 'work_held' ORDER BY event_id DESC LIMIT 1")
    return bool(newest and json.loads(newest)["is_held"])


def drained(ran: Ran, truth: Truth, _: Counts, __: Counts) -> Iterator[str]:
    yield from held(ran, truth, _, __)
    before = truth.one(COUNTS["trajectories"])
    time.sleep(1.0)
    yield from same("trajectories a second later", truth.one(COUNTS["trajectories"]), before)


def scaled(ran: Ran, truth: Truth, _: Counts, __: Counts) -> Iterator[str]:
    wanted = int(next(word for word in ran.words if word.startswith("environments=")).partition("=")[2])
    told = dartrl("tree", "-o", "json", "--run-dir", truth.paths.root).json()
    there = [one["name"] for one in told if one["parent"] == "environment_pool"]
    yield from same("environments", len(there), wanted)


def restarted(ran: Ran, truth: Truth, _: Counts, __: Counts) -> Iterator[str]:
    if "runs again" not in ran.out:
        yield f"it does not say that it runs again: {ran.out}"
    yield from processes([vitals_of(truth, "env-000")], truth)


def stopped(ran: Ran, truth: Truth, _: Counts, __: Counts) -> Iterator[str]:
    row = vitals_of(truth, "env-001")
    yield from same("state", row["state"], "stopped")
    yield from same("its process is there", row["pid"] in truth.below(), False)


def vitals_of(truth: Truth, name: str) -> dict[str, Any]:
    shown = dartrl("actors", "show", name, "-o", "json", "--run-dir", truth.paths.root)
    found: dict[str, Any] = shown.json()["vitals"]
    return found


def nothing(ran: Ran, truth: Truth, _: Counts, __: Counts) -> Iterator[str]:
    """Its exit code says all."""
    yield from ()


# ---- all of them ----


@dataclass(frozen=True, slots=True)
class Case:
    """How one command is asked, and what is expected."""

    words: tuple[str, ...]
    """Behind its name; `{run}`, `{config}`, `{rollout}`, `{task}`, `{out}` and `{more}` are filled in."""
    check: Check = nothing
    codes: frozenset[int] = frozenset({0})
    says: str = ""
    """Part of what it prints, on either stream."""
    is_quick: bool = False
    """It only looks, and must answer within the deadline of `benchmarks.command_line`."""


RUN = ("--run-dir", "{run}")
TAKEN = frozenset({73})
HEALTH = frozenset({0, 1})

LOOKING = {
    "status": Case((*RUN, "-o", "json"), status, HEALTH, is_quick=True),
    "tree": Case((*RUN, "-o", "json"), tree, is_quick=True),
    "top": Case(RUN, top, is_quick=True),
    "actors list": Case((*RUN, "-o", "jsonl"), actors_list, is_quick=True),
    "actors show": Case(("env-000", *RUN, "-o", "json"), actors_show, is_quick=True),
    "actors logs": Case(("store", *RUN, "-o", "jsonl"), actors_logs, is_quick=True),
    "actors stack": Case(("env-000", *RUN), actors_stack, frozenset({0, 69})),
    "events": Case((*RUN, "-n", "30", "-o", "jsonl"), events, is_quick=True),
    "why": Case(("env-000", *RUN), says="env-000 is", is_quick=True),
    "metrics": Case(RUN, metrics, is_quick=True),
    "tasks available": Case(("smoke", "-o", "json"), says="miniwob/click-test-2", is_quick=True),
    "tasks list": Case((*RUN, "-o", "json"), tasks_list, is_quick=True),
    "tasks show": Case(("{task}", *RUN), says="next group", is_quick=True),
    "trajectories list": Case((*RUN, "-o", "jsonl"), trajectories_list, is_quick=True),
    "trajectories show": Case(("{rollout}", *RUN, "-o", "json"), trajectories_show, is_quick=True),
    "trajectories export": Case(("{rollout}", "--html", "{out}/one.html", *RUN), trajectories_export),
    "policy versions": Case((*RUN, "-o", "jsonl"), policy_versions, is_quick=True),
    "checkpoints list": Case((*RUN, "-o", "json"), checkpoints_list, is_quick=True),
    "quarantine list": Case(RUN, says="no actor is in quarantine", is_quick=True),
    "pool list": Case((*RUN, "-o", "json"), pool_list, is_quick=True),
    "pool show": Case(("999999", *RUN), codes=frozenset({2}), says="no demonstration 999999"),
    "eval rescore": Case(("{run}",), codes=frozenset({2}), says="has no judgements"),
    "doctor": Case((*RUN, "-o", "json"), doctor, HEALTH),
    "config check": Case(("{config}",), says="valid"),
    "config show": Case(("{run}/config.toml",), config_show, is_quick=True),
    "config schema": Case((), config_schema),
    "config diff": Case(("{run}/config.toml", "{run}/config.toml"), is_quick=True),
}
DOCTOR_OF_DATA = Case((*RUN, "-o", "json"), doctor_data)
CHANGING = {
    "pause": Case((*RUN, "--wait", "60"), held),
    "drain": Case((*RUN, "--wait", "60"), drained),
    "resume": Case((*RUN, "--wait", "60"), going_on),
    "scale": Case(("environments={more}", *RUN, "--wait", "80"), scaled),
    "actors restart": Case(("env-000", *RUN, "--wait", "80"), restarted),
    "actors stop": Case(("env-001", *RUN, "--wait", "80"), stopped),
    "quarantine release": Case(("env-000", *RUN), codes=frozenset({1}), says="neither in quarantine"),
    "pool import": Case(("{run}", *RUN), codes=TAKEN, says="is running"),
    "pool drop": Case(("1", *RUN), codes=TAKEN, says="is running"),
    "train": Case(("--resume", *RUN), codes=TAKEN, says="taken by process"),
    "up": Case(("{config}", *RUN), codes=TAKEN, says="taken by process"),
}
APART = {
    "demo": "it trains in a run of its own, for a minute and a half",
    "eval": "it measures a checkpoint in a run of its own",
    "explore": "it explores a site in browsers of its own",
    "align": "it explores a site and trains a policy there, for minutes",
    "ground train": "it trains a policy on boxes, for minutes",
    "ground eval": "it measures a checkpoint and needs no run",
    "osworld check": "it checks machines, and knows no run",
    "pretrain": "it makes a policy from nothing, for minutes",
    "policy fetch": "it fetches a checkpoint from the network, and knows no run",
    "init": "it writes a project, and knows no run",
    "setup": "it installs the browser and the pages",
}
"""Commands that are about no run; they are asked for help only."""

BY_THE_PROGRAM = frozenset({"web", "down"})
"""Run by hand below: one serves until it is told to end, the other ends everything."""


def commands() -> list[str]:
    """Every command of `dartrl`, from the program itself."""
    return sorted(_below(get_command(app), ""))


def _below(group: Any, prefix: str) -> Iterator[str]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _below(command, f"{prefix}{name} ")
        else:
            yield prefix + name


def forgotten() -> list[str]:
    """Commands that nobody here asks."""
    return sorted(set(commands()) - {*LOOKING, *CHANGING, *APART, *BY_THE_PROGRAM})


@dataclass(frozen=True, slots=True)
class Asked:
    """One command against the run."""

    name: str
    ran: Ran
    problems: list[str] = field(default_factory=list)


def ask(name: str, case: Case, truth: Truth, filling: Mapping[str, str]) -> Asked:
    """Run one command and judge it."""
    words = [word.format_map(dict(filling)) for word in case.words]
    before = truth.counts()
    ran = dartrl(*name.split(), *words)
    after = truth.counts()
    problems = []
    if ran.code not in case.codes:
        problems.append(f"exit code {ran.code}, expected {sorted(case.codes)}: {ran.err.strip()[-300:]}")
    else:
        problems += case.check(ran, truth, before, after)
    if case.says and case.says not in ran.out + ran.err:
        problems.append(f"it does not say {case.says!r}: {(ran.out + ran.err)[:300]!r}")
    return Asked(name, ran, problems)


def ask_web(truth: Truth) -> Asked:
    """`dartrl web`: its first page, and that Ctrl-C ends it and not the run."""
    command = [sys.executable, "-m", "dart", "web", "--port", "0", "--run-dir", str(truth.paths.root)]
    began_s, problems, page = time.perf_counter(), [], ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as served:
        assert served.stdout is not None
        line = served.stdout.readline()
        if line.startswith("http"):
            with urllib.request.urlopen(line.split()[0], timeout=PATIENCE_S) as answer:
                page = answer.read().decode()
        else:
            problems.append(f"it says {line!r} instead of its address")
        served.send_signal(signal.SIGINT)
        code = served.wait(PATIENCE_S)
    problems += same("the run's name on the page", truth.paths.root.name in page, True)
    problems += same("exit code", code, 0)
    problems += same("the run goes on", psutil.pid_exists(truth.pid), True)
    return Asked("web", Ran(("web",), code, page, "", 0.0, time.perf_counter() - began_s), problems)
