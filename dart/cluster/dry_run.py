"""The plan of a run on a cluster and the probes of nodes, record and blobs, for `dartrl up --dry-run`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dart.cluster.connection import connected
from dart.cluster.node_folder import node_folder
from dart.cluster.plan import ClusterNode, ClusterPlan, NodePlan, plan_cluster
from dart.cluster.probes import ProbeResult, gather, node_results, roles_of
from dart.cluster.storage_probes import probe_blobs, probe_record
from dart.config.cluster import ClusterFile
from dart.core.run_directory import RunPaths


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One line of the plan: a part of the run on a node."""

    node: str
    part: str
    gpus: str
    actors: str


def probe_cluster(found: ClusterFile, address: str) -> tuple[ClusterPlan, list[ProbeResult]]:
    """Join the cluster, plan the run on its nodes, and probe every node, the record and the blobs.

    raises   DoesNotFit, ConfigurationError, UnavailableError or TemporaryError
    """
    with connected(address, trusted_network=found.cluster.trusted_network) as nodes:
        plan = plan_cluster(nodes, found.cluster.place, found.run)
        run_dir, node_dir = found.run.run.dir.resolve(), found.cluster.engine.node_dir
        folders = {node.name: str(node_folder(node, run_dir, node_dir)) for node in nodes}
        facts = gather(nodes, roles_of(plan, found.run), folders)
    paths = RunPaths(found.run.run.dir)
    return plan, [*node_results(facts), probe_record(found.run, paths), probe_blobs(found.run)]


def plan_on_pods(found: ClusterFile) -> ClusterPlan:
    """Plan the run on the pods that the cluster file asks Kubernetes for. Raises DoesNotFit."""
    pods = found.cluster.engine.kubernetes
    head = ClusterNode(name="head", gpus=pods.gpus, is_control=True)
    workers = [ClusterNode(name=f"worker-{number}", gpus=pods.gpus) for number in range(1, pods.workers + 1)]
    return plan_cluster([head, *workers], found.cluster.place, found.run)


def plan_rows(nodes: Sequence[NodePlan]) -> Iterator[PlanRow]:
    """Yield the lines of the plan: for each node its actors with their GPUs, then the GPUs that stay free."""
    for node in nodes:
        if node.is_control:
            yield PlanRow(node.node, "store, curator, weight_sync", "", "")
            yield PlanRow(node.node, "trainer", ", ".join(node.trainer_gpus), "")
        for name, gpus in node.engines.items():
            yield PlanRow(node.node, "engine", ", ".join(gpus), name)
        if node.environments:
            names = node.environments
            shown = names[0] if len(names) == 1 else f"{len(names)}: {names[0]} … {names[-1]}"
            yield PlanRow(node.node, "environments", "", shown)
        if node.free_gpus:
            yield PlanRow(node.node, "free", ", ".join(node.free_gpus), "")
