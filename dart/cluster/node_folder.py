"""Where each node of a cluster keeps its part of a run."""

import hashlib
import socket
from pathlib import Path

from dart.cluster.plan import ClusterNode


def run_id_of(run_dir: Path) -> str:
    """Return the name of a run that is unique among all runs of a cluster.

    run_dir   the run directory on this machine, the control node
    """
    return hashlib.sha256(f"{socket.gethostname()}{run_dir}".encode()).hexdigest()[:12]


def node_folder(node: ClusterNode, run_dir: Path, node_dir: Path) -> Path:
    """Return the folder on a node for its part of a run; on the control node, the run directory.

    run_dir    the run directory on this machine, the control node
    node_dir   the folder of all runs on the other nodes, `engine.node_dir`
    """
    return run_dir if node.is_control else node_dir / run_id_of(run_dir) / node.name
