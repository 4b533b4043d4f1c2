"""The files that start a Ray cluster."""

import json

from dart.cluster.manifests import head_address, local_provider_yaml, ray_job
from dart.config.cluster import ClusterConfig, EngineSettings


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


def test_setup_commands_run_in_the_shell_that_starts_ray() -> None:
    found = json.loads(local_provider_yaml(engine(ssh=["a"], setup=["source x"]), trusted_network=True))
    assert all(line.startswith("source x && ") for line in found["head_start_ray_commands"])


def test_user_and_key_are_written_when_they_are_given() -> None:
    found = json.loads(
        local_provider_yaml(engine(ssh=["a"], ssh_user="me", ssh_key="k"), trusted_network=True)
    )
    assert found["auth"] == {"ssh_user": "me", "ssh_private_key": "k"}
    assert json.loads(local_provider_yaml(engine(ssh=["a"]), trusted_network=True))["auth"] == {}


def test_a_ray_job_runs_up_in_the_head_pod_with_passwords_from_the_secret_alone() -> None:
    pods = {"image": "registry/dartrl:1", "workers": 3, "gpus": 8, "secret": "keys", "namespace": "rl"}
    cluster = ClusterConfig.model_validate({"engine": {"kubernetes": pods}})
    text = ray_job(cluster, cluster_toml="C", run_toml="R")
    files, job = (json.loads(part) for part in text.split("---\n")[1:])
    assert files["data"] == {"cluster.toml": "C", "run.toml": "R"}
    spec = job["spec"]
    assert spec["entrypoint"].startswith("dartrl up /etc/dartrl/cluster.toml")
    assert spec["rayClusterSpec"]["authOptions"] == {"mode": "token"}
    (workers,) = spec["rayClusterSpec"]["workerGroupSpecs"]
    assert (workers["replicas"], workers["minReplicas"], workers["maxReplicas"]) == (3, 3, 3)
    for template in (workers["template"], spec["rayClusterSpec"]["headGroupSpec"]["template"]):
        (container,) = template["spec"]["containers"]
        assert container["envFrom"] == [{"secretRef": {"name": "keys"}}]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
        assert template["spec"]["volumes"][0]["configMap"]["name"] == files["metadata"]["name"]
