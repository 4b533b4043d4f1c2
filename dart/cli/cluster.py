"""How `dartrl up` shows the plan of a cluster file."""

from typing import TYPE_CHECKING

from dart.cli.exit_codes import ExitCode, end
from dart.cli.output import Format, print_list, say, say_left_out
from dart.inspect.tables import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dart.cluster.plan import ClusterPlan
    from dart.cluster.probes import ProbeResult
    from dart.config.cluster import ClusterFile
    from dart.config.config import Config


def show_cluster_plan(found: "ClusterFile", gpu_gib: float | None) -> None:
    """Print which node carries which actors, what each GPU holds, and the result of each probe.

    If a probe fails, the command ends with exit code 69. For a cluster of Kubernetes pods nothing is probed.

    gpu_gib   memory of each GPU in GiB; None: unknown, so the sums are shown without a limit
    raises    DoesNotFit, ConfigurationError, UnavailableError or TemporaryError
    """
    from dart.cluster.dry_run import plan_on_pods, probe_cluster
    from dart.cluster.manifests import head_address
    from dart.preflight.idle_environments import idle_lines

    engine = found.cluster.engine
    for line in idle_lines(found.run):
        say(line)
    if engine.kubernetes.image:
        _show_plan(plan_on_pods(found))
        _show_gpus(found, plan_on_pods(found), gpu_gib)
        say("nothing was probed: the job probes the pods, the record and the blobs when Kubernetes runs it")
        return
    plan, results = probe_cluster(found, head_address(engine))
    _show_plan(plan)
    _show_gpus(found, plan, gpu_gib)
    _show_disk(found.run)
    _show_probes(results)
    say_left_out_of_cluster(found.run)
    say("everything that the cluster needs is there")


def say_left_out_of_cluster(run: "Config") -> None:
    """Say on standard error which tasks of a run give no result, and why.

    Nothing is said on a control node without what environments need: it then has none, and cannot know what
    the nodes that have some can play.
    """
    from dart.preflight.requirements import missing_browser

    if not any(missing_browser(run)):
        say_left_out(run)


def _show_plan(plan: "ClusterPlan") -> None:
    from dart.cluster.dry_run import PlanRow, plan_rows

    columns: tuple[Column[PlanRow], ...] = (
        Column("node", lambda row: row.node),
        Column("part", lambda row: row.part),
        Column("GPUs", lambda row: row.gpus),
        Column("actors", lambda row: row.actors),
    )
    print_list(list(plan_rows(plan.nodes)), columns, Format.TABLE)


def _show_gpus(found: "ClusterFile", plan: "ClusterPlan", gpu_gib: float | None) -> None:
    from dart.cli.gpu_plan import lines_of_nodes

    for line in lines_of_nodes(found.run, plan.nodes, gpu_gib):
        say(line)


def _show_disk(run: "Config") -> None:
    """Say what checkpoints take on this machine, the control node; the probes sum up what each node needs."""
    from dart.preflight.disk_need import disk_lines

    if lines := disk_lines(run):
        say("\n".join(lines))


def _show_probes(results: "Sequence[ProbeResult]") -> None:
    for result in results:
        say(f"{'ok    ' if result.is_well else 'FAILED'}  {result.name}: {result.text}")
    failed = [result.name for result in results if not result.is_well]
    if failed:
        end(f"the cluster is not ready: {', '.join(failed)}", ExitCode.UNAVAILABLE)
