"""The files that start a Ray cluster."""

import json
import subprocess
from pathlib import Path

import pytest

from dart.cluster.manifests import RAY_VARIABLES, head_address, local_provider_yaml, ray_job
from dart.config.cluster import ClusterConfig, EngineSettings

DOCUMENTATION = Path(__file__).resolve().parents[3] / "docs" / "cluster.md"


def engine(**values: object) -> EngineSettings:
    return EngineSettings.model_validate(values)


def test_the_first_machine_is_the_head_and_the_others_join_it() -> None:
    found = json.loads(local_provider_yaml(engine(ssh=["a", "b", "c"]), trusted_network=False))
    assert found["provider"] == {"type": "local", "head_ip": "a", "worker_ips": ["b", "c"]}
    assert "ray start --head --port=6379" in found["head_start_ray_commands"][-1]
    assert "ray start --address=$RAY_HEAD_IP:6379" in found["worker_start_ray_commands"][-1]
    assert found["min_workers"] == found["max_workers"] == 2
    assert head_address(engine(ssh=["a", "b"])) == "a:6379"
    assert head_address(engine(address="auto")) == "auto"


def test_ray_starts_with_token_authentication_unless_the_network_is_trusted() -> None:
    commands = ("head_start_ray_commands", "worker_start_ray_commands")
    safe, trusted = (
        json.loads(local_provider_yaml(engine(ssh=["a", "b"]), trusted_network=is_trusted))
        for is_trusted in (False, True)
    )
    assert all("RAY_AUTH_MODE=token ray start" in safe[key][-1] for key in commands)
    assert not any("RAY_AUTH_MODE" in trusted[key][-1] for key in commands)


def test_ray_kills_no_agent_when_a_machine_has_little_memory_left() -> None:
    variables = ("RAY_memory_monitor_refresh_ms", "RAY_worker_oom_score_adjustment")
    assert [RAY_VARIABLES[name] for name in variables] == ["0", "0"]
    found = json.loads(local_provider_yaml(engine(ssh=["a", "b"]), trusted_network=True))
    for key in ("head_start_ray_commands", "worker_start_ray_commands"):
        assert all(f"{name}=0 " in found[key][-1].partition("ray start")[0] for name in variables)


def test_the_documentation_starts_ray_by_hand_with_the_same_variables() -> None:
    lines = DOCUMENTATION.read_text(encoding="utf-8").splitlines()
    (export,) = (line for line in lines if line.startswith("export RAY_AUTH_MODE"))
    assert export.split()[2:] == [f"{name}={value}" for name, value in RAY_VARIABLES.items()]


def test_setup_commands_run_in_the_shell_that_starts_ray() -> None:
    found = json.loads(local_provider_yaml(engine(ssh=["a"], setup=["source x"]), trusted_network=True))
    assert all(line.startswith("source x && ") for line in found["head_start_ray_commands"])


@pytest.mark.parametrize("is_trusted", [False, True])
def test_a_shell_starts_ray_with_nice_0_and_the_core_limit_of_its_machine_and_not_after_a_failed_setup(
    tmp_path: Path, is_trusted: bool
) -> None:
    said = "$1, $RAY_worker_niceness, $RAY_memory_monitor_refresh_ms, $(ulimit -c)"
    (tmp_path / "ray").write_text(f'#!/bin/sh\necho "{said}" >> {tmp_path}/started\n')
    (tmp_path / "ray").chmod(0o700)

    def started(setup: str) -> str:
        machines = engine(ssh=["a"], setup=[setup])
        found = json.loads(local_provider_yaml(machines, trusted_network=is_trusted))
        line = found["head_start_ray_commands"][-1]
        (tmp_path / "started").write_text("")
        in_shell = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        shell = ["bash", "-c", f"ulimit -S -c 0; {line}"]
        subprocess.run(shell, env=in_shell, capture_output=True, check=False)
        return (tmp_path / "started").read_text()

    assert started("true") == "start, 0, 0, 0\n"
    assert started("false") == ""


def test_the_user_for_ssh_is_your_own_and_a_key_is_left_out_unless_they_are_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = json.loads(
        local_provider_yaml(engine(ssh=["a"], ssh_user="me", ssh_key="k"), trusted_network=True)
    )
    assert found["auth"] == {"ssh_user": "me", "ssh_private_key": "k"}
    monkeypatch.setenv("LOGNAME", "own")
    without = json.loads(local_provider_yaml(engine(ssh=["a"]), trusted_network=True))
    assert without["auth"] == {"ssh_user": "own"}, "Ray requires a user"


def test_a_ray_job_runs_up_in_the_head_pod_with_passwords_from_the_secret_alone() -> None:
    pods = {"image": "registry/dartrl:1", "workers": 3, "gpus": 8, "secret": "keys", "namespace": "rl"}
    cluster = ClusterConfig.model_validate({"engine": {"kubernetes": pods}})
    text = ray_job(cluster, "dartrl-7", cluster_toml="C", run_toml="R", resume=False)
    files, job = (json.loads(part) for part in text.split("---\n")[1:])
    assert files["data"] == {"cluster.toml": "C", "run.toml": "R"}
    assert job["metadata"]["name"] == "dartrl-7"
    spec = job["spec"]
    assert spec["entrypoint"] == "dartrl up /etc/dartrl/cluster.toml --run-dir /var/tmp/dartrl/run"
    assert spec["rayClusterSpec"]["authOptions"] == {"mode": "token"}
    (workers,) = spec["rayClusterSpec"]["workerGroupSpecs"]
    assert (workers["replicas"], workers["minReplicas"], workers["maxReplicas"]) == (3, 3, 3)
    for template in (workers["template"], spec["rayClusterSpec"]["headGroupSpec"]["template"]):
        (container,) = template["spec"]["containers"]
        assert {one["name"]: one["value"] for one in container["env"]} == RAY_VARIABLES
        assert container["envFrom"] == [{"secretRef": {"name": "keys"}}]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
        assert template["spec"]["volumes"][0]["configMap"]["name"] == files["metadata"]["name"]


def test_a_ray_job_continues_a_run_only_if_that_is_asked_for() -> None:
    def entrypoint(*, resume: bool) -> str:
        text = ray_job(ClusterConfig(), "dartrl-7", cluster_toml="C", run_toml="R", resume=resume)
        job = json.loads(text.split("---\n")[2])
        return str(job["spec"]["entrypoint"])

    assert entrypoint(resume=True) == f"{entrypoint(resume=False)} --resume"
