"""What the main process of a run on a cluster says when the cluster is lost."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dart.cluster.launcher import Joined
from dart.cluster.plan import ClusterNode
from dart.cluster.site import ClusterSite
from dart.config.cluster import ClusterConfig, ClusterFile
from dart.config.config import load_config
from dart.core.errors import TemporaryError
from dart.core.run_directory import RunPaths, keep_cluster_file


def test_a_run_without_its_launcher_ends_and_names_the_cluster_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    keep_cluster_file(RunPaths(tmp_path), Path("c.toml"))
    run = load_config(None, [f"run.dir={str(tmp_path)!r}"])
    found = ClusterFile(path=Path("c.toml"), cluster=ClusterConfig(), run=run)
    joined = Joined(nodes=(ClusterNode(name="a", is_control=True),), wire="wire", gpus=())
    launcher: Any = SimpleNamespace(poll=lambda: 1)
    with pytest.raises(
        TemporaryError, match=f"go on with `dartrl up {tmp_path}/c.toml --run-dir {tmp_path}`"
    ):
        ClusterSite(found, joined, launcher).poll()
