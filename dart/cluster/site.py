"""A run on a cluster, as seen by its main process: the launcher, and the tree of the control node.

root                     rest_for_one, as on one machine
├─ store                 writes the record
├─ curator               decides what is played and what is trained
├─ machine-HOST          connects this node to the others, and decides which node carries which shard
├─ weight_sync           takes a new version through the engines
├─ trainer               transient, significant
└─ exploration           owner of the exploration graph; only if idle environments explore

The shards of both pools (`dart.cluster.pool_shard`) are placed on nodes by `hosts` below `machine-HOST`.
"""

import json
import os
import select
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from actors.board import LIVING
from actors.errors import ActorDied
from actors.system import ActorSystem, RootSpec
from dart.cluster.engine_start import start_by_ssh
from dart.cluster.launcher import Joined, LaunchJob, followers_stop_s, rows_of
from dart.cluster.node_folder import run_id_of
from dart.cluster.plan import ClusterNode, plan_cluster, trainer_gpus
from dart.cluster.shards import engine_gpus
from dart.config.cluster import ClusterFile
from dart.config.config import Config
from dart.core import errors
from dart.core.errors import TemporaryError
from dart.core.module_command import module_command
from dart.core.run_directory import RunPaths, make_private
from dart.inference.gpu_leases import publish_gpus
from dart.run.app import refuse_early_end
from dart.run.site import OTHERS_STOP_S, SHORTEST_STOP_S, longest_shutdown_s
from dart.run.tree import engine_names, environment_names, exploration_owner, root_of, single_children
from supervision import placement_failure
from supervision.child_spec import Budget
from supervision.host_messages import HOSTS, Displace
from supervision.host_specs import leader_spec
from supervision.messages import TerminateChild
from supervision.placement import PlacedSpec

JOIN_S = 600.0
"""Longest wait in seconds until all agents have started; each node starts two Python processes."""

END_S = 20.0
"""Longest wait in seconds for the launcher to end after the followers have stopped."""

SERVICES = ("store", "curator", "weight_sync", "trainer", "exploration")
"""Names of actors of the control node that the actors of every node can send messages to. The actor
`exploration` runs only if idle environments explore (`exploration.enabled`)."""

PARK_ROOM_S = 15.0
"""How many seconds longer than their actors shards may take to end when a run drains. The order crosses the
network, and is sent again after ten seconds without an answer."""


class ClusterSite:
    """A run whose pools are on the nodes of a cluster."""

    def __init__(self, found: ClusterFile, joined: Joined, launcher: "subprocess.Popen[bytes]") -> None:
        self._run = found.run
        self._place = found.cluster.place
        self._joined = joined
        self._launcher = launcher
        self._stop_by_s = 0.0
        self._shards: tuple[str, ...] = ()
        has_gpus = any(node.gpus for node in joined.nodes)
        self._trainer_gpus = trainer_gpus(self._place, found.run, has_gpus=has_gpus)
        self.rows = rows_of(found.run, len(joined.nodes))

    def prepare(self, paths: RunPaths) -> None:
        """Publish which GPUs of the control node engines may use: those that the trainer does not use.

        The failures of shards in an earlier start are forgotten.
        """
        placement_failure.forget(paths.root)
        publish_gpus(paths.root, self._joined.gpus[: self._gpus_for_engines()])

    def tree_of(self, config: Config, args: Mapping[str, Any]) -> RootSpec:
        """Return the tree of the control node. Its child `machine-HOST` places all shards on nodes."""
        nodes, place = self._joined.nodes, self._place
        dealt = self._with_trainer_gpus(config)
        gpus = engine_gpus(place, config, has_gpus=any(node.gpus for node in nodes))
        run = {**args, "config": dealt.model_dump(mode="json"), "engine_gpus": gpus}
        plan = plan_cluster(nodes, place, config, run)
        self._shards = tuple(spec.name for spec in plan.shards)
        control = next(node for node in nodes if node.is_control)
        store, curator, weight_sync, trainer = single_children(dealt, run)
        machine = leader_spec(
            host=control.name,
            wire=Path(self._joined.wire),
            placed=plan.shards,
            awaits=tuple(node.name for node in nodes),
            capabilities=plan.capabilities[control.name],
            services=SERVICES,
            failures=_failures(config, plan.shards),
        )
        owner = exploration_owner(dealt, run)
        return root_of(config, (store, curator, machine, weight_sync, trainer, *owner))

    def poll(self) -> None:
        """Raise an error if the launcher or the shards have failed.

        If the launcher has ended, all agents have ended, too: TemporaryError. If shards have failed too
        often, the error is the same as for a tree that has given up for their reason.
        """
        paths = RunPaths(self._run.run.dir)
        code = self._launcher.poll()
        if code is not None:
            raise TemporaryError(
                f"the process that is connected to Ray ended with exit code {code}, and with it all agents; "
                "logs/cluster.stderr of the run directory says why. Nothing that was stored is lost: go on "
                f"with `{paths.up_command}`"
            )
        reason = placement_failure.read(paths.root)
        if reason:
            remedy = "nothing that was stored is lost: repair the cause, and go on with"
            refuse_early_end(reason, paths, f"{remedy} `{paths.up_command}`")

    def stop_deadline_s(self, config: Config) -> float:
        """Return the seconds for the trainer and the shards, and those for the others after them."""
        trainer_s = longest_shutdown_s(config, ("trainer",))
        return max(SHORTEST_STOP_S, max(trainer_s, park_s(config)) + OTHERS_STOP_S)

    def stop(self, system: ActorSystem) -> bool:
        """Stop the run, without waiting. Call this again until it returns True: the tree is then stopping.

        First the shards are ended, while the store can still take their parked episodes, and the trainer
        beside them. The tree follows when all shards have ended, or after `park_s`.
        """
        now_s = time.monotonic()
        if not self._stop_by_s:
            self._stop_by_s = now_s + park_s(self._run)
            system.tell(system.root.name, TerminateChild(id="trainer"))
            for name in self._shards:
                system.tell(HOSTS, Displace(name=name))
        if now_s < self._stop_by_s and any(_lives(system, name) for name in self._shards):
            return False
        system.stop()
        return True

    # ---- inside ----

    def _with_trainer_gpus(self, config: Config) -> Config:
        """Return the configuration with the trainer's GPUs by name: the last ones of the control node.

        Without any, the trainer is on the CPU. An empty `training.gpus` alone would mean all GPUs.
        """
        names = self._joined.gpus[self._gpus_for_engines() :]
        device = config.training.device if names or config.training.device != "auto" else "cpu"
        training = config.training.model_copy(update={"gpus": names, "device": device})
        return config.model_copy(update={"training": training})

    def _gpus_for_engines(self) -> int:
        return len(self._joined.gpus) - self._trainer_gpus


def _failures(config: Config, shards: Sequence[PlacedSpec]) -> Budget:
    """Return how often shards may fail, all of them together.

    What is one failure of a pool on one machine may be one of each of its shards here. So the limit of the
    root is multiplied by the number of shards of the pool that has the most.
    """
    root = config.supervision.root
    of_kind = Counter(shard.child.args["pool"] for shard in shards)
    most = root.max_restarts * max(of_kind.values())
    return Budget(max_restarts=most, max_seconds=root.max_seconds)


def park_s(config: Config) -> float:
    """Return the seconds in which all shards end, and with them their environments and engines."""
    names = *environment_names(config), *engine_names(config)
    return longest_shutdown_s(config, names) + PARK_ROOM_S


def _lives(system: ActorSystem, name: str) -> bool:
    try:
        return system.vitals(name).state in LIVING
    except ActorDied:  # it was never placed
        return False


@contextmanager
def on_cluster(found: ClusterFile) -> Iterator[ClusterSite]:
    """Join the cluster, and stay connected while the block lasts; then stop the actor systems of all nodes.

    With `engine.ssh`, Ray is first started on the machines.

    raises   errors that a user can fix: ConfigurationError, UnavailableError or TemporaryError
    """
    paths = RunPaths(found.run.run.dir.resolve())
    make_private(paths.root, paths.logs)
    if found.cluster.engine.ssh:
        start_by_ssh(found, paths)
    with (paths.logs / "cluster.stderr").open("wb") as stderr:
        launcher = subprocess.Popen(
            module_command("dart.cluster.launcher"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,  # Ctrl-C is for the main process, which stops the launcher in the end
        )
    try:
        yield ClusterSite(found, _joined(launcher, _job(found, paths)), launcher)
    finally:
        _end(launcher, followers_stop_s(found.run))


def _job(found: ClusterFile, paths: RunPaths) -> LaunchJob:
    return LaunchJob(
        cluster=found.cluster.model_dump(mode="json"),
        run=found.run.model_dump(mode="json"),
        run_dir=str(paths.root),
        run_id=run_id_of(paths.root),
        parent_pid=os.getpid(),
        is_continued=paths.config.exists(),
    )


def _joined(launcher: "subprocess.Popen[bytes]", job: LaunchJob) -> Joined:
    """Give the launcher its job, wait for its answer and return it.

    Raises the error in the answer, or TemporaryError if the launcher gives none in JOIN_S or ends.
    """
    assert launcher.stdin is not None
    assert launcher.stdout is not None
    launcher.stdin.write(json.dumps(asdict(job)).encode() + b"\n")
    launcher.stdin.flush()
    if not select.select([launcher.stdout], [], [], JOIN_S)[0]:
        raise TemporaryError(
            f"the cluster was not joined within {JOIN_S:g} s; logs/cluster.jsonl of the run directory shows "
            "which steps were done"
        )
    line = launcher.stdout.readline()
    if not line:
        _end(launcher)
        raise TemporaryError(
            f"the process that joins the cluster ended with exit code {launcher.returncode}; "
            "logs/cluster.stderr of the run directory says why"
        )
    answer = json.loads(line)
    if "error" in answer:
        raise getattr(errors, answer["error"])(answer["text"])
    nodes = tuple(ClusterNode(**node) for node in answer["nodes"])
    return Joined(nodes=nodes, wire=answer["wire"], gpus=tuple(answer["gpus"]))


def _end(launcher: "subprocess.Popen[bytes]", followers_s: float = 0.0) -> None:
    """Have the launcher stop the followers and end. Kill it if it does not end in time.

    followers_s   how many seconds the followers may take; 0 if there are none
    """
    assert launcher.stdin is not None
    assert launcher.stdout is not None
    with suppress(BrokenPipeError):
        launcher.stdin.close()
    try:
        launcher.wait(followers_s + END_S)
    except subprocess.TimeoutExpired:
        launcher.kill()
        launcher.wait()
    launcher.stdout.close()
