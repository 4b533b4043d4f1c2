"""Lines of `dartrl up --dry-run` about GPUs: which actors use which GPU, and what takes its memory."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dart.cluster.plan import NodePlan
    from dart.config.config import Config

GIB = 2**30

NONE_NAMED = (
    "GPUs  none are planned, because none are here and the configuration names none; name those of the other "
    "machine with --set rollout.gpus=[0] --set training.gpus=[0]"
)


def lines_of_this_machine(settings: "Config", gpu_gib: float | None) -> list[str]:
    """Return lines that say, for each GPU of this machine or of the configuration, what takes its memory.

    gpu_gib   memory of each GPU in GiB; None: as this machine's driver says
    Returns no line if the run uses no GPU, and none was asked for with `gpu_gib`.
    """
    from dart.config.gpus import assign_gpus, describe_gpus, gpus_here
    from dart.core.errors import DartError
    from dart.preflight.gpu_memory import counted, gpu_bytes_here, gpu_lines, on_gpus

    assignment = assign_gpus(settings, gpus_here())
    dealt = describe_gpus(assignment)
    if not dealt:
        return [] if gpu_gib is None else [NONE_NAMED]
    gpu_bytes = int(gpu_gib * GIB) if gpu_gib else gpu_bytes_here()
    try:
        policy, dimensions = counted(settings)
    except FileNotFoundError as missing:
        return [f"GPUs  {dealt}", f"  their memory use cannot be estimated before {missing.filename} exists"]
    except (OSError, ValueError, DartError) as error:
        return [f"GPUs  {dealt}", f"  their memory use cannot be estimated: {error}"]
    return [
        f"GPUs  {dealt}",
        *gpu_lines(on_gpus(settings, policy, dimensions, assignment, gpu_bytes), gpu_bytes),
    ]


def lines_of_nodes(settings: "Config", nodes: "tuple[NodePlan, ...]", gpu_gib: float | None) -> Iterator[str]:
    """Yield lines that say, for each GPU of a cluster's nodes, what takes its memory.

    gpu_gib   memory of each GPU in GiB; None: unknown, so the sums are shown without a limit
    """
    from dart.config.gpus import GpuAssignment
    from dart.core.errors import DartError
    from dart.preflight.gpu_memory import counted, gpu_lines, on_gpus

    gpu_bytes = int(gpu_gib * GIB) if gpu_gib else None
    try:
        policy, dimensions = counted(settings)
    except (OSError, ValueError, DartError) as error:
        yield f"the use of the GPUs' memory cannot be estimated: {error}"
        return
    yield "GPUs"
    for node in nodes:
        shares = GpuAssignment(engines=tuple(node.engines.values()), trainer=node.trainer_gpus)
        found = on_gpus(settings, policy, dimensions, shares, gpu_bytes, names=tuple(node.engines))
        yield from gpu_lines(found, gpu_bytes, f"{node.node}, GPU")
