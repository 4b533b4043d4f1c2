"""Starting the Ray cluster that a cluster file asks for: by SSH, or as a job for Kubernetes."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from actors.process import die_with_parent
from dart.cluster.connection import listens
from dart.cluster.manifests import head_address, local_provider_yaml, ray_job
from dart.cluster.node_folder import run_id_of
from dart.config.cluster import ClusterFile
from dart.config.config import for_another_machine
from dart.config.layers import to_toml
from dart.core.errors import UnavailableError
from dart.core.run_directory import RunPaths, make_private

SSH_FILE, JOB_FILE = "ray-cluster.yaml", "ray-job.yaml"

START_S = 1800.0
"""Longest time in seconds of `ray up`, which waits for the machines to answer over SSH."""

SAID_CHARACTERS = 1000


def start_by_ssh(found: ClusterFile, paths: RunPaths) -> None:
    """Start Ray on the machines of `engine.ssh` with `ray up`. If its head runs already, it is not restarted.

    `ray up` ends with this process, also if it is killed while it waits (`dartrl down --now`).

    raises   UnavailableError with the last output of `ray up`
    """
    file = write_ssh_file(found, paths)
    # With --no-restart, `ray up` never starts a head that its state file names, even if that head is dead.
    keep = ["--no-restart"] if listens(head_address(found.cluster.engine)) else []
    command = [str(Path(sys.executable).with_name("ray")), "up", "--yes", *keep, str(file)]
    try:
        ran = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=START_S,
            check=False,
            preexec_fn=partial(die_with_parent, os.getpid()),
        )
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(
            f"`{' '.join(command)}` did not end within {START_S:g} s; run it by hand to see what it waits for"
        ) from error
    if ran.returncode:
        said = (ran.stdout + ran.stderr).strip()[-SAID_CHARACTERS:]
        raise UnavailableError(f"`{' '.join(command)}` ended with exit code {ran.returncode}: {said}")


def write_ssh_file(found: ClusterFile, paths: RunPaths) -> Path:
    """Write the configuration file for `ray up` to the folder logs/ of the run, and return its path."""
    make_private(paths.root, paths.logs)
    file = paths.logs / SSH_FILE
    text = local_provider_yaml(found.cluster.engine, trusted_network=found.cluster.trusted_network)
    file.write_text(text, encoding="utf-8")
    return file


def write_job_file(
    found: ClusterFile, paths: RunPaths, *, resume: bool, unix_s: Callable[[], float] = time.time
) -> Path:
    """Write the Kubernetes manifests of the RayJob to the folder logs/ of the run, and return their path.

    The name of the job has the id of the run and the present time: jobs of other runs in the namespace stay
    as they are, and so do ended jobs of this run.

    resume   whether the job only continues a run (`dartrl up --resume`)
    """
    make_private(paths.root, paths.logs)
    file = paths.logs / JOB_FILE
    plain = found.cluster.model_dump(mode="json", exclude={"set"})
    plain["run"] = "run.toml"
    plain["engine"] = {"kind": "ray", "address": "auto", "node_dir": str(found.cluster.engine.node_dir)}
    texts = {"cluster_toml": to_toml(plain, {}), "run_toml": to_toml(for_another_machine(found.run), {})}
    name = f"dartrl-{run_id_of(paths.root.resolve())}-{unix_s():.0f}"
    file.write_text(ray_job(found.cluster, name, **texts, resume=resume), encoding="utf-8")
    return file
