"""What is written to start a Ray cluster, and what a failure of `ray up` becomes."""

import json
import socket
import tomllib
from pathlib import Path

import pytest

from dart.cluster import engine_start, manifests
from dart.cluster.engine_start import start_by_ssh, write_job_file
from dart.config.bundled import bundled_folder
from dart.config.cluster import ClusterFile, is_cluster_file, load_cluster
from dart.core.errors import UnavailableError
from dart.core.run_directory import RunPaths

NAME_MOST = 47
"""The longest name that KubeRay takes for a RayJob."""

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


def files_of_job(given: ClusterFile) -> dict[str, str]:
    """The cluster file and the run file in the job, by name."""
    file = write_job_file(given, RunPaths(given.run.run.dir), resume=False)
    files: dict[str, str] = json.loads(file.read_text().split("---\n")[1])["data"]
    return files


def test_the_job_carries_a_cluster_file_and_a_run_file_that_mean_the_same(tmp_path: Path) -> None:
    given = found(tmp_path, '[engine.kubernetes]\nimage = "registry/dartrl"\n')
    files = files_of_job(given)
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


def test_each_start_of_each_run_is_a_job_of_its_own(tmp_path: Path) -> None:
    given = found(tmp_path, '[engine.kubernetes]\nimage = "registry/dartrl"\n')

    def names(run: str, unix_s: float) -> tuple[str, ...]:
        file = write_job_file(given, RunPaths(tmp_path / run), resume=True, unix_s=lambda: unix_s)
        return tuple(json.loads(part)["metadata"]["name"] for part in file.read_text().split("---\n")[1:])

    starts = [names("run", 1_764_000_000.0), names("run", 1_764_000_060.0), names("other", 1_764_000_000.0)]
    assert len({name for both in starts for name in both}) == 6
    assert all(len(name) <= NAME_MOST for both in starts for name in both)


@pytest.mark.parametrize("policy", ["configs/base-policy", "hf://a/b@refs/pr/1"])
def test_the_job_names_files_of_dartrl_and_of_the_hub_without_paths_of_this_machine(
    tmp_path: Path, policy: str
) -> None:
    prompt = "configs/tiny-vlm-prompt.txt"
    chosen = f'[set.training]\npolicy = "{policy}"\n[set.context]\nprompt = "{prompt}"\n'
    given = found(tmp_path, f'{chosen}[engine.kubernetes]\nimage = "registry/dartrl"\n')
    assert given.run.training.policy.is_absolute()
    job = tomllib.loads(files_of_job(given)["run.toml"])
    assert (job["training"]["policy"], job["context"]["prompt"]) == (policy, prompt)


@pytest.mark.parametrize("place", [Path("/shared"), bundled_folder().parent])
def test_the_job_keeps_the_path_of_another_policy(tmp_path: Path, place: Path) -> None:
    policy = place / "models" / "UI-TARS"
    given = found(
        tmp_path, f'[set.training]\npolicy = "{policy}"\n[engine.kubernetes]\nimage = "registry/dartrl"\n'
    )
    assert tomllib.loads(files_of_job(given)["run.toml"])["training"]["policy"] == str(policy)


@pytest.fixture
def by_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterFile:
    """A cluster of `engine.ssh` whose program `ray` only notes its arguments and fails."""
    program = tmp_path / "ray"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/given\necho no route to "$@"\nexit 3\n')
    program.chmod(0o700)
    monkeypatch.setattr(engine_start.sys, "executable", str(tmp_path / "python"))
    return found(tmp_path, '[engine]\nssh = ["127.0.0.1", "10.0.0.2"]\n')


def test_what_ray_up_says_is_in_the_error(tmp_path: Path, by_ssh: ClusterFile) -> None:
    with pytest.raises(UnavailableError, match=r"exit code 3: no route to .*/logs/ray-cluster\.yaml"):
        start_by_ssh(by_ssh, RunPaths(tmp_path / "run"))


def test_ray_is_started_where_nothing_listens_at_the_head(
    tmp_path: Path, by_ssh: ClusterFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keeps_what_runs() -> bool:
        with pytest.raises(UnavailableError):
            start_by_ssh(by_ssh, RunPaths(tmp_path / "run"))
        return "--no-restart" in (tmp_path / "given").read_text()

    with socket.create_server(("127.0.0.1", 0)) as head:
        monkeypatch.setattr(manifests, "RAY_PORT", head.getsockname()[1])
        assert keeps_what_runs()
    assert not keeps_what_runs(), "the state of Ray still names a head whose start failed"
