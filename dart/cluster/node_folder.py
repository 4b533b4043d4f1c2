"""Where each node of a cluster keeps its part of a run, and what becomes of the parts of earlier runs.

A node's actor system holds a lock on its folder (`held`). A folder without a lock is idle: its run has ended,
and may be continued.
"""

import hashlib
import shutil
import socket
from collections.abc import Iterator
from glob import escape
from pathlib import Path

from dart.cluster.plan import ClusterNode
from dart.core.run_directory import RunPaths, held_by_none
from dart.store.run_blobs import CACHE

RUN_ID_DIGITS = 12


def run_id_of(run_dir: Path) -> str:
    """Return the name of a run that is unique among all runs of a cluster.

    run_dir   the run directory on this machine, the control node
    """
    return hashlib.sha256(f"{socket.gethostname()}{run_dir}".encode()).hexdigest()[:RUN_ID_DIGITS]


def node_folder(node: ClusterNode, run_dir: Path, node_dir: Path) -> Path:
    """Return the folder on a node for its part of a run; on the control node, the run directory.

    run_dir    the run directory on this machine, the control node
    node_dir   the folder of all runs on the other nodes, `engine.node_dir`
    """
    return run_dir if node.is_control else node_dir / run_id_of(run_dir) / node.name


def idle_folders(folder: Path) -> list[Path]:
    """Return the idle folders of other runs on this node.

    folder   the folder of this run
    """
    return sorted(one for one in _folders_of_other_runs(folder) if _is_idle(one))


def remove_idle_caches(folder: Path) -> None:
    """Remove the caches of other runs whose folders are idle. What is in them can be fetched again.

    folder   the folder of this run
    """
    for one in _folders_of_other_runs(folder):
        with held_by_none(one) as is_idle:
            if is_idle:
                shutil.rmtree(one / CACHE, ignore_errors=True)


def _folders_of_other_runs(folder: Path) -> Iterator[Path]:
    """Yield those of this node. On shared storage, the folders of other nodes lie beside them."""
    node_dir, run = folder.parent.parent, folder.parent
    for one in node_dir.glob(f"{'[0-9a-f]' * RUN_ID_DIGITS}/{escape(folder.name)}"):
        if one.parent != run and RunPaths(one).config.is_file():
            yield one


def _is_idle(folder: Path) -> bool:
    with held_by_none(folder) as is_idle:
        return is_idle
