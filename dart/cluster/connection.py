"""The connection to a Ray cluster. A cluster that asks for no token is refused unless its network is trusted.

Anyone who can reach the ports of a Ray cluster can run any program on all its machines. Ray's token
authentication (RAY_AUTH_MODE=token) keeps others out; it is off unless the cluster was started with it.
"""

import os
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec

from dart.cluster.node_names import cluster_nodes
from dart.cluster.plan import ClusterNode
from dart.core.errors import ConfigurationError, DartError, TemporaryError, UnavailableError
from dart.core.module_command import module_command

NAMESPACE = "dartrl"
"""The namespace in Ray in which the agents of all runs have their names."""

AUTO = "auto"

REACH_S = 5.0
"""Longest time in seconds to open a connection to the port of the cluster's head."""

WITHOUT_TOKEN_S = 60.0
"""Longest time in seconds of an attempt to use the cluster without a token. It starts a Python with Ray."""

UNTRUSTED = (
    "the Ray cluster at {address} answers without a token: anyone who can reach its ports can run any "
    "program on all its machines. Make a token with `ray get-auth-token --generate`, copy ~/.ray/auth_token "
    "to all machines, and start Ray everywhere with RAY_AUTH_MODE=token; or set trusted_network = true in "
    "the cluster file if only you can reach these ports"
)


def require_ray() -> None:
    """Raise UnavailableError if Ray is not installed."""
    if find_spec("ray") is None:
        raise UnavailableError("not installed: ray, which a cluster needs; pip install 'dartrl[cluster]'")


@contextmanager
def connected(address: str, *, trusted_network: bool) -> Iterator[list[ClusterNode]]:
    """Connect to a cluster while the block lasts, and yield its living nodes.

    raises   ConfigurationError if the cluster asks for no token and `trusted_network` is false
             TemporaryError if there is no cluster at this address, because its head may still start
             UnavailableError if Ray is not installed, is of another version, or refuses the token
    """
    require_ray()
    _require_listener(address)
    is_open = answers_without_token(address)
    if is_open and not trusted_network:
        raise ConfigurationError(UNTRUSTED.format(address=address))
    # Both sides must agree, because a client with a token refuses the calls of a cluster without one.
    # Ray reads the variable when it is imported.
    os.environ["RAY_AUTH_MODE"] = "disabled" if is_open else "token"
    import ray

    try:
        ray.init(
            address=address,
            namespace=NAMESPACE,
            logging_level="ERROR",
            log_to_driver=False,
            configure_logging=False,
        )
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise _not_connected(address, error) from error
    try:
        yield living_nodes()
    finally:
        ray.shutdown()


def living_nodes(known: Mapping[str, str] | None = None) -> list[ClusterNode]:
    """Return the living nodes of the cluster to which this process is connected.

    known   names that nodes have already, by Ray's node ids; these nodes keep their names
    """
    import ray

    return cluster_nodes(ray.nodes(), ray.get_runtime_context().get_node_id(), known)


def answers_without_token(address: str) -> bool:
    """Return whether the cluster at an address serves a client without a token.

    False also means that no cluster answers. A process of its own tries it, because this process may have a
    token. Raises TemporaryError if that process takes longer than WITHOUT_TOKEN_S.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    command = [*module_command("ray.scripts.scripts"), "health-check", "--address", address]
    try:
        ran = subprocess.run(
            [*command, "--skip-version-check"],
            env=environment | {"RAY_AUTH_MODE": "disabled"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=WITHOUT_TOKEN_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TemporaryError(
            f"the Ray cluster at {address} did not answer a client without a token within "
            f"{WITHOUT_TOKEN_S:g} s, so it is unknown whether the cluster asks for a token; try again"
        ) from error
    return ran.returncode == 0


def listens(address: str) -> bool:
    """Return whether something listens at an address of the form host:port. Raises ConfigurationError."""
    try:
        _require_listener(address)
    except TemporaryError:
        return False
    return True


def _require_listener(address: str) -> None:
    """Raise TemporaryError if nothing listens at an address. Without this check, Ray waits for a minute.

    Raises ConfigurationError if the address is neither "auto" nor host:port. Nothing is checked for "auto".
    """
    if address == AUTO:
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigurationError(f"engine.address must be host:port or auto, got {address!r}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
    except OSError as error:
        why = error.strerror or str(error)
        raise TemporaryError(
            f"no Ray cluster answers at {address}: {why}; start its head with "
            f"`ray start --head --port={port}` (with engine.ssh, `dartrl up` starts it), or correct "
            "engine.address"
        ) from error


def _not_connected(address: str, error: Exception) -> DartError:
    """Return the error for a cluster that could not be joined, with the remedy.

    It is temporary unless Ray names a reason that lasts: its head may still start, as after a power failure.
    """
    kind: type[DartError] = TemporaryError
    if isinstance(error, ValueError) or "version mismatch" in str(error).lower():
        kind = UnavailableError
    first = str(error).strip().splitlines()[:1]
    remedy = (
        "start Ray on this machine, with `ray start --head` for a new cluster or "
        "`ray start --address=HEAD:PORT` for an existing cluster, because the control node has to be a node "
        "of the cluster"
    )
    if "token" in str(error).lower():
        kind = UnavailableError
        remedy = "put the cluster's token into ~/.ray/auth_token, RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH"
    return kind(f"cannot join the Ray cluster {address}: {' '.join(first)}; {remedy}")
