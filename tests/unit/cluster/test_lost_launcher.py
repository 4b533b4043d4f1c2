"""What the main process of a run on a cluster says when the cluster is lost or its shards fail."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dart.cluster.launcher import Joined
from dart.cluster.plan import ClusterNode
from dart.cluster.site import ClusterSite
from dart.config.cluster import ClusterConfig, ClusterFile
from dart.config.config import load_config
from dart.core.errors import TemporaryError, UnavailableError
from dart.core.run_directory import RunPaths, keep_cluster_file
from supervision import placement_failure


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterSite:
    monkeypatch.chdir(tmp_path)
    keep_cluster_file(RunPaths(tmp_path), Path("c.toml"))
    run = load_config(None, [f"run.dir={str(tmp_path)!r}"])
    found = ClusterFile(path=Path("c.toml"), cluster=ClusterConfig(), run=run)
    joined = Joined(nodes=(ClusterNode(name="a", is_control=True),), wire="wire", gpus=())
    launcher: Any = SimpleNamespace(code=None)
    launcher.poll = lambda: launcher.code
    return ClusterSite(found, joined, launcher)


def test_a_run_without_its_launcher_ends_and_names_the_cluster_file(
    site: ClusterSite, tmp_path: Path
) -> None:
    site._launcher.code = 1  # type: ignore[attr-defined]
    with pytest.raises(
        TemporaryError, match=f"go on with `dartrl up {tmp_path}/c.toml --run-dir {tmp_path}`"
    ):
        site.poll()


def test_a_run_whose_shards_fail_too_often_ends_with_their_reason_and_its_next_start_does_not(
    site: ClusterSite, tmp_path: Path
) -> None:
    site.poll()
    placement_failure.write(tmp_path, "placed actors failed; the last was 'rollout_pool-0' on 'b': no GPU")
    with pytest.raises(TemporaryError, match=r"'rollout_pool-0' on 'b': no GPU; .* `dartrl up .*/c\.toml"):
        site.poll()
    site.prepare(RunPaths(tmp_path))
    site.poll()


def test_engines_that_cannot_load_the_checkpoint_end_a_run_on_a_cluster_as_on_one_machine(
    site: ClusterSite, tmp_path: Path
) -> None:
    placement_failure.write(tmp_path, "placed actors failed: UnsupportedCheckpoint: no such adapter")
    with pytest.raises(UnavailableError, match="no such adapter"):
        site.poll()
