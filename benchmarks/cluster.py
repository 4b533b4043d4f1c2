"""Nodes of a cluster are killed, frozen and cut off in the middle of a run: what is lost, and for how long?

    python -m benchmarks.cluster --rounds 20   # 20 of each kind, about an hour
    python -m benchmarks.cluster --quick       # one of each, two nodes beside the control node

Every node is a network namespace of this machine with a Ray node of its own, on Ray's default settings; the
control node also has PostgreSQL and an S3 server. Environments, engines and trainer are simulated, all else
is real. The kinds, in an order that is drawn:

    kill     SIGKILL of every process of a node; then Ray is started there again
    freeze   SIGSTOP of every process of a node; SIGCONT after a time that is drawn
    cut      the node's link is down, and up again after such a time
    stale    an engine cannot load new versions until the others serve a newer one; these come first

Measured from the fault on: `noticed`, until the run calls the node lost; `unrouted`, until no board of a
living node lets environments send requests to its engines; `serving`, until all that it carried is up
elsewhere, engines take requests and every environment has a new lease. Two leases after a node is back,
nothing that was placed on it before may live, and no report under a lease that it held may be taken any more.

A node that was lost again and again gets no work for a while, which would hide these figures. So a place that
was lost twice under one name is given a new name, as a new machine would have. So is a place that is started
again after a kill, since Ray may not have noticed the end of the node before it.

Exit code 1 when a rollout was lost or doubled, the data are not sound, a late report was taken, a process was
left behind, a stale engine was asked, or something was not noticed, left routing or was never replaced. Times
are printed beside their goals and not judged. Needs root and ip(8); exit code 77 without them.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from actors.link import LEASE_S
from benchmarks.actors import BROKEN_OFF, machine
from benchmarks.chaos_report import books_line
from benchmarks.cluster_nodes import CONTROL, RESOURCE, TIED, Node, Nodes, running_nodes
from benchmarks.cluster_watch import Carried, Lease, Watch, wait_for
from benchmarks.live_checks import dartrl
from benchmarks.runs import audit, median_and_quartiles
from dart.core.run_directory import RunPaths
from dart.testing.postgresql_server import running_server
from dart.testing.s3_server import BUCKET, running_s3_server
from supervision.placement import HOST_BREAKER
from tests.fault import network
from tests.fault.network import Network

OUT = Path(__file__).parent / "out" / "cluster.json"

KILL, FREEZE, CUT, STALE = "kill", "freeze", "cut", "stale"
LOSSES = (FREEZE, CUT, KILL)

NOTICED_GOAL_S, UNROUTED_GOAL_S, SERVING_GOAL_S = 4.0, 3.0, 10.0

ROUNDS, STALE_ROUNDS = 20, 5
STALENESS = 1000
"""So wide that the curator has work for every environment: one that waits for a slow group serves, too."""

LOSSES_PER_NAME = HOST_BREAKER.max_failures - 1

UP_DEADLINE_S = 600.0
FAULT_DEADLINE_S = 120.0
DRAIN_DEADLINE_S = 240.0
STEADY_S = 2.0
"""A run is as it should be if it has been for so long."""

LEAVES_S = 20.0
"""Time for the processes of a Ray node that has ended to end with it."""

SETTLED_S = 1.5
"""Longer than it takes a gauge to reach another node, and an engine to record what it answered."""

POLL_S, RECORD_POLL_S = 0.02, 0.2
CANNOT_RUN = 77

CLUSTER_FILE = """\
run = "decoupling"
record = "{record}"
blobs = "s3://{bucket}/trials"

[engine]
address = "{address}"
node_dir = "{node_dir}"

[place.environments]
needs = {{ {resource} = 0 }}

[place.rollout]
needs = {{ {resource} = 0 }}

[set.run]
cache_bytes = 1_000_000_000 # of each node, all on one disk
minutes = 0.0

[set.web]
enabled = false

[set.environments]
count = {environments}

[set.environments.latency]
scale = {latency_scale}

[set.rollout]
count = {engines}

[set.curation]
rollouts_per_group = {rollouts}
poll_s = 0.2
staleness = {staleness}

[set.training]
updates = 0
groups_per_update = {groups}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large a cluster and its run are, and how long things take."""

    places: tuple[str, ...] = ("b", "c", "d")
    environments: int = 12
    away_s: tuple[float, float] = (4.0, 25.0)
    """Range of the time for which a node is frozen or cut off. Ray itself calls it dead after 13 to 15 s."""
    stale_for_s: float = 8.0
    """How long a stale engine is watched."""
    latency_scale: float = 0.2
    rollouts: int = 4
    """Of a group."""
    groups: int = 2
    """Of an update."""


QUICK = Size(
    places=("b", "c"),
    environments=4,
    away_s=(4.0, 5.0),
    stale_for_s=3.0,
    latency_scale=0.1,
    groups=1,
)


@dataclass(slots=True, kw_only=True)
class Trial:
    """One fault and what came of it. Times are seconds since the fault; None: it did not happen."""

    number: int
    kind: str
    node: str
    engines: Sequence[str]
    environments: Sequence[str]
    away_s: float = 0.0
    noticed_s: float | None = None
    unrouted_s: float | None = None
    serving_s: float | None = None
    left_behind: Sequence[str] = ()
    """Command lines of processes that were placed there before, two leases after it was back."""
    late_taken: int = 0
    """Trajectories that were stored after it was back, under leases that it held before."""
    late_frames: int = 0
    """Frames of it that the control node refused because its session was over."""
    fenced: int = 0
    """Reports that the store refused because their lease was over."""
    routed_to: Sequence[str] = ()
    """Where a stale engine was seen to take requests."""
    answered: int = 0
    """Requests that it answered all the same."""

    def problems(self) -> Iterator[str]:
        """What must not be."""
        if self.kind in LOSSES:
            for what in ("noticed_s", "unrouted_s", "serving_s"):
                if getattr(self, what) is None:
                    yield f"not {what.removesuffix('_s')} within {FAULT_DEADLINE_S:g} s"
        if self.left_behind:
            yield f"{len(self.left_behind)} processes left behind: {self.left_behind[0]}"
        if self.late_taken:
            yield f"{self.late_taken} late reports taken"
        if self.routed_to:
            yield f"requests would go to the stale engine: {self.routed_to[0]}"
        if self.answered:
            yield f"the stale engine answered {self.answered} requests"

    def __str__(self) -> str:
        carried = f"{len(self.engines)} engines, {len(self.environments)} environments"
        if self.kind == STALE:
            told = [f"{len(self.routed_to)} boards route to it", f"{self.answered} requests answered"]
        else:
            times = ("noticed", "unrouted", "serving")
            told = [f"{time} {_seconds(getattr(self, f'{time}_s'))}" for time in times]
            told += [f"back after {self.away_s:.1f} s" if self.kind != KILL else "started again"]
            told += [f"{len(self.left_behind)} left behind, {self.late_taken} late reports taken"]
            told += [f"refused: {self.late_frames} late frames, {self.fenced} reports"]
        return (
            f"{self.number:3} {self.kind:6} {self.node} ({carried}): {'; '.join([*told, *self.problems()])}"
        )


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.2f} s"


# ---- the run ----


class ClusterRun:
    """One `dartrl up` on the control node, while nodes come and go."""

    def __init__(self, nodes: Nodes, folder: Path, record: str, size: Size) -> None:
        self.nodes = nodes
        self.paths = RunPaths(folder / "run")
        self._node_dir = folder / "nodes"
        self._record = record
        self._file = folder / "cluster.toml"
        self._output = folder / "up.output"
        self._shards = 2 * len(nodes.workers)
        """An engine and a share of the environments for each worker."""
        self._file.write_text(
            CLUSTER_FILE.format(
                record=record,
                bucket=BUCKET,
                address=nodes.address,
                node_dir=self._node_dir,
                resource=RESOURCE,
                environments=size.environments,
                engines=len(nodes.workers),
                latency_scale=size.latency_scale,
                rollouts=size.rollouts,
                groups=size.groups,
                staleness=STALENESS,
            )
        )
        self._process: subprocess.Popen[bytes]
        self.watch: Watch
        self.stuck: list[str] = []
        """Actor systems that did not end with their Ray node."""

    def start(self) -> None:
        """Start `dartrl up` when every node has joined Ray, and wait until all is up."""
        self._await_nodes()
        up = (sys.executable, "-m", "dart", "up", str(self._file), "--run-dir", str(self.paths.root))
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                (*TIED, *up), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        self._wait(self.paths.board.exists, "there is no board")
        self._wait(self.paths.control.exists, "there is no control socket")
        self.watch = Watch(self.paths, self._node_dir, self._record)
        self.settle()

    def settle(self) -> None:
        """Wait until every node is there and everything is up, and start Ray where it has ended."""
        steady_since_s, give_up_s = time.monotonic(), time.monotonic() + UP_DEADLINE_S
        while time.monotonic() - steady_since_s < STEADY_S:
            self._check_runs()
            why = self._why_unsettled()
            if why:
                steady_since_s = time.monotonic()
            if time.monotonic() > give_up_s:
                raise RuntimeError(f"after {UP_DEADLINE_S:g} s {why}; the run's output:\n{self.last_words()}")
            time.sleep(0.1)
        self.watch.forget_boards()

    def renew_names(self) -> None:
        """Give every place that was lost often a new name. Needs a settled run, and leaves one."""
        often = [node for node in self.nodes.workers.values() if self._is_lost_often(node)]
        for node in often:
            self.nodes.start_again(node)
        if often:
            self.settle()

    def start_again(self, node: Node) -> None:
        """Start Ray again where it has ended."""
        self.nodes.start_again(node)

    def names(self, but: str = "") -> list[str]:
        """The names of the worker nodes."""
        return [node.name for node in self.nodes.workers.values() if node.name != but]

    def drain(self) -> int | None:
        """End the run; its exit code, None if it did not end."""
        self._process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(DRAIN_DEADLINE_S)
        return None

    def close(self) -> None:
        if hasattr(self, "watch"):
            self.watch.close()
        if hasattr(self, "_process"):
            self._process.kill()
            self._process.wait()

    def last_words(self) -> str:
        return self._output.read_text(errors="replace")[-2000:]

    # ---- inside ----

    def _why_unsettled(self) -> str:
        for node in self.nodes.workers.values():
            if node.has_ended:
                self._await_followers_end(node)
                self.start_again(node)
            if not self.watch.is_there(node.name):
                return f"node {node.name} is not there"
        return self.watch.why_not_up(self._shards)

    def _is_lost_often(self, node: Node) -> bool:
        return self.watch.losses(node.name) >= LOSSES_PER_NAME

    def _await_followers_end(self, node: Node) -> None:
        """Note it if the actor system of a Ray node outlives that node."""
        if wait_for(lambda: not followers_at(self.nodes, node.place), LEAVES_S) is None:
            self.stuck.append(f"the actor system of {node.name} outlived its Ray node by {LEAVES_S:g} s")

    def _await_nodes(self) -> None:
        code = (
            "import ray, sys, time\n"
            "ray.init(address=sys.argv[1], logging_level='ERROR')\n"
            "while sum(node['Alive'] for node in ray.nodes()) < int(sys.argv[2]): time.sleep(0.2)\n"
        )
        count = str(1 + len(self.nodes.workers))
        give_up_s = time.monotonic() + UP_DEADLINE_S
        while time.monotonic() < give_up_s:  # until the head listens, a client ends with an error
            with contextlib.suppress(subprocess.TimeoutExpired):
                command = [sys.executable, "-c", code, self.nodes.address, count]
                ran = subprocess.run(command, capture_output=True, timeout=UP_DEADLINE_S, check=False)
                if ran.returncode == 0:
                    return
            time.sleep(1.0)
        raise RuntimeError(f"not all nodes joined Ray within {UP_DEADLINE_S:g} s")

    def _wait(self, holds: Any, why_not: str) -> None:
        give_up_s = time.monotonic() + UP_DEADLINE_S
        while not holds():
            self._check_runs()
            if time.monotonic() > give_up_s:
                raise RuntimeError(f"{why_not} after {UP_DEADLINE_S:g} s:\n{self.last_words()}")
            time.sleep(0.1)

    def _check_runs(self) -> None:
        if self._process.poll() is not None:
            raise RuntimeError(f"the run ended with {self._process.returncode}:\n{self.last_words()}")


# ---- the trials ----


class Trials:
    """Makes faults one after another, each on a run that is as it should be."""

    def __init__(self, run: ClusterRun, seed: int, size: Size) -> None:
        self._run = run
        self._nodes = run.nodes
        self._draw = random.Random(seed)
        self._size = size
        self._number = 0

    def make(self, kind: str) -> Trial:
        """Make one trial of a kind."""
        self._run.settle()
        self._run.renew_names()
        self._number += 1
        node, carried = self._victim()
        trial = Trial(
            number=self._number,
            kind=kind,
            node=node.name,
            engines=carried.engines,
            environments=carried.environments,
        )
        if kind == STALE:
            self._make_stale(trial, node)
        else:
            self._lose(trial, node, carried)
        return trial

    def _victim(self) -> tuple[Node, Carried]:
        """A node that carries engines and environments."""
        carried = {
            place: self._run.watch.carried_by(node.name) for place, node in self._nodes.workers.items()
        }
        able = [place for place, each in carried.items() if each.engines and each.environments]
        place = self._draw.choice(able or [place for place, each in carried.items() if each.incarnations])
        return self._nodes.workers[place], carried[place]

    # ---- the loss of a node ----

    def _lose(self, trial: Trial, node: Node, carried: Carried) -> None:
        watch = self._run.watch
        trial.away_s = self._draw.uniform(*self._size.away_s)
        late, fenced = watch.late_frames(), watch.fenced()
        self._await_routed(trial.engines)
        losses, began_s = watch.losses(node.name), time.monotonic()
        self._fault(trial.kind, node)
        held = {name: lease for name, lease in watch.leases().items() if name in carried.environments}
        self._watch_loss(trial, carried, losses, held, began_s)
        time.sleep(max(0.0, trial.away_s - (time.monotonic() - began_s)))
        trial.away_s = time.monotonic() - began_s
        back_unix_s = time.time()
        self._repair(trial.kind, node)
        time.sleep(2 * LEASE_S)
        trial.left_behind = [str(process) for process in carried.processes if process.lives]
        trial.late_taken = len(watch.stored_since(back_unix_s) & set(held.values()))
        trial.late_frames = watch.late_frames() - late
        trial.fenced = watch.fenced() - fenced

    def _await_routed(self, engines: Sequence[str]) -> None:
        """Wait until requests go to one of these engines: to one that loads a version they do not."""
        watch = self._run.watch
        rows = [row for engine in engines if (row := watch.row(engine))]
        now = {row.name: row.incarnation for row in rows}
        if wait_for(lambda: bool(watch.routable_on(now, [])), FAULT_DEADLINE_S) is None:
            raise RuntimeError(f"{', '.join(engines)} took no requests within {FAULT_DEADLINE_S:g} s")

    def _fault(self, kind: str, node: Node) -> None:
        if kind == CUT:
            self._nodes.net.cut(node.place)
        else:
            self._nodes.signal_all(node.place, signal.SIGKILL if kind == KILL else signal.SIGSTOP)

    def _repair(self, kind: str, node: Node) -> None:
        if kind == CUT:
            self._nodes.net.heal(node.place)
        elif kind == FREEZE:
            self._nodes.signal_all(node.place, signal.SIGCONT)
        else:
            self._run.start_again(node)

    def _watch_loss(
        self, trial: Trial, carried: Carried, losses: int, held: Mapping[str, Lease], began_s: float
    ) -> None:
        """Until the loss is noticed and repaired, or FAULT_DEADLINE_S have passed."""
        watch, others = self._run.watch, self._run.names(but=trial.node)
        engines = {name: carried.incarnations[name] for name in carried.engines}
        while (now_s := time.monotonic() - began_s) < FAULT_DEADLINE_S:
            if trial.noticed_s is None and watch.losses(trial.node) > losses:
                trial.noticed_s = now_s
            if trial.unrouted_s is None and not watch.routable_on(engines, others):
                trial.unrouted_s = now_s
            if trial.noticed_s is not None and self._serves(carried, held):
                trial.serving_s = time.monotonic() - began_s
            if trial.serving_s is not None and trial.unrouted_s is not None:
                return
            time.sleep(POLL_S)

    def _serves(self, lost: Carried, held: Mapping[str, Lease]) -> bool:
        """Whether all that was lost works again elsewhere."""
        watch = self._run.watch
        if not watch.is_replaced(lost):
            return False
        now = watch.leases()
        time.sleep(RECORD_POLL_S - POLL_S)
        return all(name in now and now[name] != held.get(name) for name in lost.environments)

    # ---- an engine that cannot load ----

    def _make_stale(self, trial: Trial, node: Node) -> None:
        """Put a file in the place of the folder in which the node keeps versions."""
        watch, others = self._run.watch, self._run.names()
        cache = watch.folder_of(node.name) / "cache" / "policies"
        aside = cache.with_name("aside")
        cache.rename(aside)
        cache.touch()
        engine = trial.engines[0]
        try:
            self._await_stale(engine, others)
            time.sleep(SETTLED_S)
            self._watch_stale(trial, engine, others)
        finally:
            cache.unlink()
            aside.rename(cache)

    def _await_stale(self, engine: str, nodes: list[str]) -> None:
        give_up_s = time.monotonic() + FAULT_DEADLINE_S
        while not self._run.watch.is_stale_everywhere(engine, nodes):
            if time.monotonic() > give_up_s:
                raise RuntimeError(f"{engine} was not stale within {FAULT_DEADLINE_S:g} s")
            time.sleep(POLL_S)

    def _watch_stale(self, trial: Trial, engine: str, nodes: list[str]) -> None:
        watch = self._run.watch
        row = watch.row(engine)
        assert row is not None, "it was stale a moment ago"
        before, until_s = watch.answered(engine), time.monotonic() + self._size.stale_for_s
        routed: set[str] = set()
        while time.monotonic() < until_s:
            routed |= set(watch.routable_on({engine: row.incarnation}, nodes))
            time.sleep(POLL_S)
        trial.routed_to = sorted(routed)
        trial.answered = watch.answered(engine) - before


# ---- from start to end ----


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All trials and the end of the run."""
    size = QUICK if options.quick else Size()
    rounds = options.rounds or (1 if options.quick else ROUNDS)
    losses = [kind for _ in range(rounds) for kind in LOSSES]
    if not options.quick:  # there a node that was killed need not be waited for in the end
        random.Random(options.seed).shuffle(losses)
    kinds = [STALE] * min(rounds, STALE_ROUNDS) + losses
    trials: list[Trial] = []
    with (
        Network(CONTROL, *size.places) as net,
        net.inside(CONTROL),
        running_s3_server(net.address(CONTROL)) as s3,
        running_server(port=5432) as postgresql,
        running_nodes(net, size.places, folder) as nodes,
    ):
        os.environ.update(nodes.environment | dict(s3.variables))
        postgresql.make_database("trials")
        record = postgresql.address("trials", net.address(CONTROL))
        run = ClusterRun(nodes, folder, record, size)
        try:
            run.start()
            making = Trials(run, options.seed, size)
            for kind in kinds:
                trials.append(making.make(kind))
                print(trials[-1], flush=True)
            problems = [f"trial {trial.number}: {why}" for trial in trials for why in trial.problems()]
            return {
                "trials": [asdict(trial) for trial in trials],
                "problems": [*problems, *run.stuck],
                **conclude_run(run),
            }
        finally:
            run.close()


def conclude_run(run: ClusterRun) -> dict[str, Any]:
    """Drain the run and judge its data."""
    fenced, late = run.watch.fenced(), run.watch.late_frames()
    code = run.drain()

    def followers() -> list[int]:
        return [pid for place in run.nodes.workers for pid in followers_at(run.nodes, place)]

    wait_for(lambda: not followers(), LEAVES_S)  # one may just have been started
    checked = dartrl("doctor", "--data", "--full", "--run-dir", run.paths.root)
    return {
        "exit_code": code,
        "audit": audit(run.paths.record),
        "doctor": {"code": checked.code, "text": (checked.out + checked.err).strip()[-2000:]},
        "followers_left": len(followers()),
        "late_frames": late,
        "fenced": fenced,
    }


def followers_at(nodes: Nodes, place: str) -> list[int]:
    """The actor systems at a place."""
    return [pid for pid in nodes.net.pids(place) if b"dart.cluster.follower" in _command_line(pid)]


def _command_line(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def broken(found: Mapping[str, Any]) -> Iterator[str]:
    """Everything that must not be."""
    yield from found["problems"]
    books = found["audit"]
    for what in ("lost", "doubled"):
        if books[what]:
            yield f"{books[what]} rollouts {what}"
    yield from books["violations"]
    if found["doctor"]["code"]:
        yield f"doctor --data --full ends with {found['doctor']['code']}: {found['doctor']['text']}"
    if found["exit_code"] != 0:
        yield f"the drained run ended with {found['exit_code']}"
    if found["followers_left"]:
        yield f"{found['followers_left']} actor systems of nodes were left after the drain"


def figures(trials: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Median and worst of each time, by kind."""
    goals = {"noticed_s": NOTICED_GOAL_S, "unrouted_s": UNROUTED_GOAL_S, "serving_s": SERVING_GOAL_S}
    found = []
    for kind in LOSSES:
        for what, goal_s in goals.items():
            own = [one[what] for one in trials if one["kind"] == kind and one["engines"]]
            known = [value for value in own if value is not None]
            if known:
                median, _, _ = median_and_quartiles(known)
                worst = max(known)
                found.append(
                    {
                        "kind": kind,
                        "what": what.removesuffix("_s"),
                        "count": len(known),
                        "median_s": median,
                        "worst_s": worst,
                        "goal_s": goal_s,
                        "is_met": worst <= goal_s and len(known) == len(own),
                    }
                )
    return found


def table(found: Mapping[str, Any]) -> str:
    """For people."""
    lines = [f"{'':8}{'':10}{'count':>6}{'median s':>10}{'worst s':>10}{'goal s':>8}"]
    for one in found["figures"]:
        lines.append(
            f"{one['kind']:8}{one['what']:10}{one['count']:6}{one['median_s']:10.2f}{one['worst_s']:10.2f}"
            f"{one['goal_s']:8g}  {'met' if one['is_met'] else 'not met'}"
        )
    stale = [one for one in found["trials"] if one["kind"] == STALE]
    books = found["audit"]
    lines += [
        f"stale engines: {len(stale)}; requests that they answered: {sum(one['answered'] for one in stale)}",
        f"{books_line(books)}; lost {books['lost']}, doubled {books['doubled']}",
        f"late frames refused: {found['late_frames']}; late reports refused by the store: {found['fenced']}",
        f"left behind: {sum(len(one['left_behind']) for one in found['trials'])} processes; "
        f"late reports taken: {sum(one['late_taken'] for one in found['trials'])}",
        *(f"BROKEN  {why}" for why in found["broken"]),
    ]
    return "\n".join(lines)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=0, help=f"of each kind; default {ROUNDS}, 1 with --quick"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of the order, the nodes and how long they are away"
    )
    parser.add_argument("--quick", action="store_true", help="two nodes, one trial of each kind")
    parser.add_argument("--out", type=Path, default=OUT)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    if why_not := network.why_not():
        print(f"NOT RUN: {why_not}", file=sys.stderr)
        return CANNOT_RUN
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cl-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        try:
            found = measure(options, Path(folder))
        except KeyboardInterrupt:
            print("broken off; nothing was written", file=sys.stderr)
            return BROKEN_OFF
    found |= {"figures": figures(found["trials"])}
    found |= {"broken": list(broken(found))}
    print(table(found))
    whole = {
        "command": " ".join(["python -m benchmarks.cluster", *sys.argv[1:]]),
        "machine": machine(),
        "seed": options.seed,
        "lease_s": LEASE_S,
        "minutes": (time.monotonic() - began_s) / 60.0,
        **found,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(whole, indent=1) + "\n")
    print(f"written to {options.out}")
    return int(bool(found["broken"]))


if __name__ == "__main__":
    sys.exit(main())
