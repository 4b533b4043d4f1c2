"""The cluster file: the addresses and the places of a run on many machines.

`dartrl up FILE` takes a run file or a cluster file and tells them apart by their keys. A cluster file names a
run file and says where its record, its blobs and its parts are. Unknown keys are refused as in a run file,
and all problems are reported at once.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from dart.config.bundled import configuration_file
from dart.config.config import Config, ConfigError, Contradiction, home_problems, is_cluster_table, resolve
from dart.config.layers import Layer, file_layer, merge
from dart.config.problems import (
    Problem,
    describe,
    dotted,
    explain,
    shortened,
    without_refused,
)
from dart.config.sections import Count, Processes, Section
from dart.core.blob_address import EXPECTED, check_blob_address
from dart.core.record_address import ServerAddress

KUBERNETES_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""Matches a DNS label (RFC 1123), the form that Kubernetes requires of a name."""

Gpus = Annotated[int, Field(ge=-1, le=1024)]
Amount = Annotated[int, Field(ge=0, le=10**6)]


class KubernetesSettings(Section):
    """A Ray cluster that KubeRay starts for this run: `dartrl up` writes the manifest of a RayJob."""

    image: str = ""
    """Container image of every pod; it contains dartrl with its extras `cluster` and `train`. If this key is
    given, the run uses Kubernetes."""
    namespace: str = "default"
    """Namespace of the job."""
    secret: str = "dartrl"
    """Name of the Secret whose entries become environment variables of every pod: PGPASSWORD,
    AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and any others that the run needs."""
    workers: Processes = 1
    """Number of worker pods. Each of them is one node of the cluster; the head pod is one more."""
    cpus: Count = 16
    """Number of processors of each pod."""
    memory: str = "64Gi"
    """Memory of each pod, in the notation of Kubernetes, such as `64Gi`."""
    gpus: Annotated[int, Field(ge=0, le=1024)] = 0
    """Number of GPUs of each pod."""


class EngineSettings(Section):
    """How the machines become one cluster. Give exactly one of `address`, `ssh` and `kubernetes.image`."""

    kind: Literal["ray"] = "ray"
    """The system that knows the machines, places actors on them and starts processes there; always Ray."""
    address: str = ""
    """Address of a running Ray cluster, `host:port`; `auto`: the cluster that this machine is part of."""
    ssh: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Machines on which Ray is started over SSH. The first one is Ray's head node; run `dartrl up` there."""
    ssh_user: str = ""
    """User name for SSH; empty: your own."""
    ssh_key: str = ""
    """File with the private key for SSH; empty: the key of your SSH configuration or agent."""
    setup: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Shell commands that run on each machine of `ssh` before Ray starts there, such as
    `source /opt/dartrl/bin/activate`."""
    node_dir: Annotated[Path, Field(strict=False)] = Path("/var/tmp/dartrl")
    """Folder on the local disk of each node for the logs and the blob cache of the actors on this node. Nodes
    do not share it."""
    kubernetes: KubernetesSettings = KubernetesSettings()
    """A cluster that KubeRay starts."""


class TrainerPlace(Section):
    """Resources of the trainer. It always runs on the control node: the machine on which `dartrl up` runs."""

    gpus: Gpus = -1
    """Number of GPUs of the trainer; -1: one for each rank, or none in a cluster without GPUs and
    for a trainer on the CPU (training.device)."""


class RolloutPlace(Section):
    """Where the engines run, and what each of them takes."""

    gpus: Gpus = -1
    """Number of GPUs of one engine; -1: `rollout.vllm.tensor_parallel` for vLLM, 1 for transformers and 0 for
    other engines; none in a cluster without GPUs."""
    per_node: Processes = 64
    """Largest number of engines on one node."""
    needs: dict[str, Amount] = Field(default_factory=dict)
    """Custom Ray resources that a node must have, each with the amount that one engine takes. An amount of 0
    requires the resource without taking any of it."""


class EnvironmentsPlace(Section):
    """Where the environments run, and what each of them takes."""

    per_node: Processes = 256
    """Largest number of environments on one node."""
    needs: dict[str, Amount] = Field(default_factory=dict)
    """Custom Ray resources that a node must have, each with the amount that one environment takes. An amount
    of 0 requires the resource without taking any of it: with `{ vm_host = 0 }` environments run only on nodes
    that declare the resource `vm_host`."""


class PlaceSettings(Section):
    """On which nodes the parts of the run may be placed."""

    trainer: TrainerPlace = TrainerPlace()
    """Resources of the trainer."""
    rollout: RolloutPlace = RolloutPlace()
    """Nodes and resources of the engines."""
    environments: EnvironmentsPlace = EnvironmentsPlace()
    """Nodes and resources of the environments."""


class ClusterConfig(Section):
    """A run on many machines."""

    run: str = ""
    """The run file: a path relative to the cluster file, or the name of a bundled configuration."""
    record: str = ""
    """Address of the PostgreSQL database that holds the record, without a password:
    `postgresql://user@host/database`. The password comes from PGPASSFILE or PGPASSWORD."""
    blobs: str = ""
    """Where screenshots, steps and checkpoints are stored: `s3://bucket/prefix`, or `file:///folder` on a
    file system that all machines share."""
    trusted_network: bool = False
    """Whether a Ray cluster without token authentication is accepted. Anyone who can reach its ports can run
    any program on all machines."""
    engine: EngineSettings = EngineSettings()
    """How the machines become one cluster."""
    place: PlaceSettings = PlaceSettings()
    """On which nodes the parts of the run may be placed."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Values that replace those of the run file, as `--set` does: `count = 4` below `[set.rollout]` sets
    `rollout.count`."""


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """A cluster file and the run that it names, both checked."""

    path: Path
    cluster: ClusterConfig
    run: Config


def is_cluster_file(given: Path) -> bool:
    """Whether a file has the keys of a cluster file. A file that cannot be read counts as a run file."""
    layer, _ = file_layer(given)
    return is_cluster_table(layer.data)


def load_cluster(given: Path, overrides: Sequence[str] = ()) -> ClusterFile:
    """Read a cluster file and the run file that it names, with `--set` overrides of the run.

    raises    ConfigError with every problem of the cluster file or, if it has none, of the run file
    """
    layer, problems = file_layer(given)
    cluster, more = _checked(layer)
    if problems or more:
        raise ConfigError([*problems, *more])
    run_file = run_file_of(given, cluster)
    changes = Layer(f"{given} [set]", cluster.set)
    places = Layer(str(given), {"run": {"record": cluster.record, "blobs": cluster.blobs}})
    run, _ = resolve(run_file, overrides, above_file=(changes, places))
    given_again = [
        Problem("--set", f"run.{key}", f"cannot be set for a cluster; change `{key}` in {given}")
        for key in ("record", "blobs")
        if getattr(run.run, key) != getattr(cluster, key)
    ]
    if given_again:
        raise ConfigError(given_again)
    return ClusterFile(given, cluster, run)


def run_file_of(given: Path, cluster: ClusterConfig) -> Path:
    """Return the run file that a cluster file names: the path relative to the cluster file if that exists,
    else the name as it is given, for instance of a bundled configuration."""
    beside = configuration_file(given).resolve().parent / cluster.run
    return beside if beside.is_file() else Path(cluster.run)


def _checked(layer: Layer) -> tuple[ClusterConfig, list[Problem]]:
    """Return the values of a cluster file, and its problems. A refused value is replaced by its default."""
    defaults = ClusterConfig().model_dump(mode="json")
    data, origins = merge([Layer("default", defaults), layer])
    problems: list[Problem] = []
    try:
        cluster = ClusterConfig.model_validate(data)
    except ValidationError as error:
        problems = explain(error, ClusterConfig, origins, defaults)
        cluster = ClusterConfig.model_validate(without_refused(data, error, defaults))
    refused = {problem.key for problem in problems}
    for keys, text in _contradictions(cluster):
        if keys[0] not in refused:
            problems.append(Problem(layer.origin, keys[0], text))
    return cluster, problems


def _contradictions(cluster: ClusterConfig) -> Iterator[Contradiction]:
    if not cluster.run:
        yield ("run",), "is missing: name a run file, or a bundled configuration such as 'laptop'"
    yield from home_problems(cluster)
    yield from _record_problems(cluster.record)
    yield from _blobs_problems(cluster.blobs)
    yield from _engine_problems(cluster.engine)


def _record_problems(record: str) -> Iterator[Contradiction]:
    if not record:
        yield (
            ("record",),
            "is missing: the machines of a cluster share no file; name a database as "
            "postgresql://USER@HOST:PORT/DATABASE",
        )
        return
    try:
        ServerAddress(record)
    except ValueError as error:
        yield ("record",), f"is wrong: {error}"


def _blobs_problems(blobs: str) -> Iterator[Contradiction]:
    if not blobs:
        yield ("blobs",), f"is missing: the machines of a cluster share no folder; {EXPECTED}"
        return
    try:
        check_blob_address(blobs)
    except ValueError as error:
        yield ("blobs",), f"is wrong: {error}"


def _engine_problems(engine: EngineSettings) -> Iterator[Contradiction]:
    ways = {
        "engine.address": bool(engine.address),
        "engine.ssh": bool(engine.ssh),
        "engine.kubernetes.image": bool(engine.kubernetes.image),
    }
    given = [key for key, is_given in ways.items() if is_given]
    if not given:
        yield (
            ("engine.address",),
            "is missing: give the address of a running Ray cluster, or else engine.ssh or "
            "engine.kubernetes.image",
        )
    if len(given) > 1:
        yield (given[1],), f"and {given[0]} are both given; give only one of them"
    for host, times in {host: engine.ssh.count(host) for host in engine.ssh}.items():
        if times > 1:
            yield ("engine.ssh",), f"names {shortened(repr(host))} {times} times; name each machine once"
    for key in ("namespace", "secret"):
        name = getattr(engine.kubernetes, key)
        if not KUBERNETES_NAME.fullmatch(name):
            yield (
                (f"engine.kubernetes.{key}",),
                "must have at most 63 lower-case letters, digits and hyphens, with no hyphen at either end, "
                f"got {shortened(repr(name))}",
            )


def cluster_field_rows() -> Iterator[tuple[str, str, Any]]:
    """Yield every key of a cluster file in its order: (dotted key, description, default)."""
    for key, default in dotted(ClusterConfig().model_dump(mode="json")):
        yield key, describe(ClusterConfig, key), default
