"""What is written to start a Ray cluster, and what a failure of `ray up` becomes."""

import json
import tomllib
from pathlib import Path

import pytest

from dart.cluster import engine_start
from dart.cluster.engine_start import start_by_ssh, write_job_file
from dart.config.cluster import ClusterFile, is_cluster_file, load_cluster
from dart.core.errors import UnavailableError
from dart.core.run_directory import RunPaths

FILE = """
run = "smoke"
record = "postgresql://me@db/runs"
blobs = "s3://bucket/prefix"
[set.environments]
count = 5
[place.environments]
needs = { vm_host = 0 }
"""


def found(folder: Path, engine: str) -> ClusterFile:
    file = folder / "cluster.toml"
    file.write_text(f"{FILE}{engine}")
    return load_cluster(file, [f"run.dir={str(folder / 'run')!r}"])


def test_the_job_carries_a_cluster_file_and_a_run_file_that_mean_the_same(tmp_path: Path) -> None:
    given = found(tmp_path, '[engine.kubernetes]\nimage = "registry/dartrl"\n')
    manifests = write_job_file(given, RunPaths(tmp_path / "run"), resume=False).read_text().split("---\n")
    files = json.loads(manifests[1])["data"]
    pod = tmp_path / "pod"
    pod.mkdir()
    for name, text in files.items():
        (pod / name).write_text(text)
    assert is_cluster_file(pod / "cluster.toml")
    read = load_cluster(pod / "cluster.toml")
    assert read.cluster.engine.address == "auto"
    assert read.cluster.place == given.cluster.place
    assert read.run == given.run
    assert tomllib.loads(files["run.toml"])["environments"]["count"] == 5


def test_what_ray_up_says_is_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "ray"
    program.write_text("#!/bin/sh\necho no route to $4\nexit 3\n")
    program.chmod(0o700)
    monkeypatch.setattr(engine_start.sys, "executable", str(tmp_path / "python"))
    given = found(tmp_path, '[engine]\nssh = ["10.0.0.1", "10.0.0.2"]\n')
    with pytest.raises(UnavailableError, match=r"exit code 3: no route to .*/logs/ray-cluster\.yaml"):
        start_by_ssh(given, RunPaths(tmp_path / "run"))
