"""The files that start a Ray cluster: the file of `ray up` for machines with SSH, and KubeRay's RayJob.

Both files are YAML. They are written as JSON, which is valid YAML and needs no library.
"""

import getpass
import json
from typing import Any

from dart.config.cluster import ClusterConfig, EngineSettings

RAY_PORT = 6379
"""Port of Ray's head."""

RAYJOB_VERSION = "ray.io/v1"

CONFIG_FOLDER = "/etc/dartrl"
"""Folder in the pods with the cluster file and the run file."""

RUN_DIR = "/var/tmp/dartrl/run"
"""Run directory in the head pod. It is lost with the pod; record and blobs are on servers."""

RAY_VARIABLES = {
    "RAY_worker_niceness": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_worker_oom_score_adjustment": "0",
}
"""Environment variables with which Ray starts on each node.

An actor system inherits the nice value of Ray's workers, and Ray's default of 15 would starve it. Ray's
memory monitor kills Ray workers when a machine has little memory left. The only one on a node is the agent,
with which all actors of the node end. Without the monitor, the kernel ends one process: the one that takes
most, as long as Ray does not name its workers as the first ones to end (`oom_score_adj`, 1000 by default).
"""


def head_address(engine: EngineSettings) -> str:
    """Return the address, `host:port` or "auto", at which `dartrl up` joins the cluster."""
    return f"{engine.ssh[0]}:{RAY_PORT}" if engine.ssh else engine.address


def local_provider_yaml(engine: EngineSettings, *, trusted_network: bool) -> str:
    """Return the text of the file for `ray up` that starts Ray on the machines of `engine.ssh`.

    The first machine becomes the head. Unless `trusted_network` is true, clients need a token.
    """
    start = _start(trusted_network=trusted_network)
    head, *workers = engine.ssh
    # Ray requires a user, but no key.
    auth = {"ssh_user": engine.ssh_user or getpass.getuser(), "ssh_private_key": engine.ssh_key}
    cluster: dict[str, Any] = {
        "cluster_name": "dartrl",
        "provider": {"type": "local", "head_ip": head, "worker_ips": workers},
        "auth": {name: value for name, value in auth.items() if value},
        "min_workers": len(workers),
        "max_workers": len(workers),
        "setup_commands": [],
        "head_start_ray_commands": [
            *_each(engine.setup, "ray stop"),
            *_each(
                engine.setup,
                f"{start} --head --port={RAY_PORT} --autoscaling-config=~/ray_bootstrap_config.yaml",
            ),
        ],
        "worker_start_ray_commands": [
            *_each(engine.setup, "ray stop"),
            *_each(engine.setup, f"{start} --address=$RAY_HEAD_IP:{RAY_PORT}"),
        ],
    }
    return json.dumps(cluster, indent=2) + "\n"


def _start(*, trusted_network: bool) -> str:
    """Return the shell command that starts Ray, for the end of a line of setup commands.

    The limit of core files stays that of the machine. A core file of an engine or a trainer is as large as
    its memory, and holds the keys of the run.
    """
    token = "" if trusted_network else "RAY_AUTH_MODE=token "
    variables = " ".join(f"{name}={value}" for name, value in RAY_VARIABLES.items())
    return f"{variables} {token}ray start"


def _each(setup: tuple[str, ...], command: str) -> list[str]:
    """Join the setup commands and a command into one shell line, because each line has its own shell."""
    return [" && ".join([*setup, command])]


def ray_job(cluster: ClusterConfig, name: str, *, cluster_toml: str, run_toml: str, resume: bool) -> str:
    """Return the manifests of a ConfigMap with both files and of a RayJob that runs `dartrl up`.

    name           name of the job, and the beginning of that of the ConfigMap. KubeRay starts a job that has
                   ended never again, so each start needs a new name
    cluster_toml   the cluster file for the head pod, in which `engine.address` is "auto"
    run_toml       the run file
    resume         whether the job only continues a run (`dartrl up --resume`)
    """
    pods = cluster.engine.kubernetes
    command = f"dartrl up {CONFIG_FOLDER}/cluster.toml --run-dir {RUN_DIR}"
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _files_of(name), "namespace": pods.namespace},
        "data": {"cluster.toml": cluster_toml, "run.toml": run_toml},
    }
    job = {
        "apiVersion": RAYJOB_VERSION,
        "kind": "RayJob",
        "metadata": {"name": name, "namespace": pods.namespace},
        "spec": {
            "entrypoint": f"{command} --resume" if resume else command,
            "shutdownAfterJobFinishes": True,
            "rayClusterSpec": {
                **({} if cluster.trusted_network else {"authOptions": {"mode": "token"}}),
                "headGroupSpec": {"rayStartParams": {}, "template": _pod(cluster, "head", name)},
                "workerGroupSpecs": [
                    {
                        "groupName": "workers",
                        "replicas": pods.workers,
                        "minReplicas": pods.workers,
                        "maxReplicas": pods.workers,
                        "rayStartParams": {},
                        "template": _pod(cluster, "worker", name),
                    }
                ],
            },
        },
    }
    return "".join(f"---\n{json.dumps(document, indent=2)}\n" for document in (config_map, job))


def _files_of(job: str) -> str:
    """Return the name of the ConfigMap of a job."""
    return f"{job}-files"


def _pod(cluster: ClusterConfig, role: str, job: str) -> dict[str, Any]:
    """Return the template of a pod of a job. Its variables, such as passwords, come from a Secret."""
    pods = cluster.engine.kubernetes
    amounts: dict[str, Any] = {"cpu": str(pods.cpus), "memory": pods.memory}
    if pods.gpus:
        amounts["nvidia.com/gpu"] = str(pods.gpus)
    container = {
        "name": f"ray-{role}",
        "image": pods.image,
        "env": [{"name": name, "value": value} for name, value in RAY_VARIABLES.items()],
        "envFrom": [{"secretRef": {"name": pods.secret}}],
        "resources": {"limits": amounts, "requests": amounts},
        "volumeMounts": [{"name": "files", "mountPath": CONFIG_FOLDER, "readOnly": True}],
    }
    volumes = [{"name": "files", "configMap": {"name": _files_of(job)}}]
    return {"spec": {"containers": [container], "volumes": volumes}}
