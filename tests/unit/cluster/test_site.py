"""What the main process of a run on a cluster keeps of its cluster, and what it says when it is lost."""

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
from dart.core.run_directory import RunPaths


def site_of(file: Path, launcher: Any = None) -> ClusterSite:
    found = ClusterFile(path=file, cluster=ClusterConfig(), run=load_config(None))
    node = ClusterNode(name="a", is_control=True)
    return ClusterSite(found, Joined(nodes=(node,), wire="wire", gpus=()), launcher)


def test_a_run_keeps_which_cluster_file_started_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    paths = RunPaths(tmp_path)

    site_of(Path("c.toml")).prepare(paths)

    assert paths.up_command == f"dartrl up {tmp_path / 'c.toml'} --run-dir {tmp_path}"


def test_a_run_without_its_launcher_ends_and_names_the_cluster_file(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    launcher = SimpleNamespace(poll=lambda: 1)
    with pytest.raises(TemporaryError, match=f"go on with `dartrl up {file}`"):
        site_of(file, launcher).poll()
