"""What a node says of itself before a run: its clock, its versions, what it lacks. Runs on that node."""

import hashlib
import os
import platform
import shutil
import socket
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from re import split

from dart import __version__
from dart.config.config import Config
from dart.preflight.requirements import (
    TRAIN_PACKAGES,
    Check,
    missing_browser,
    missing_packages,
)

REACH_S = 5.0
"""Time for a connection to a server that the node needs."""

OWN_PACKAGES = ("actors", "supervision", "dart")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """One node."""

    node: str
    user: int
    """Number of the user as whom Ray runs there."""
    python: str
    source: str
    """Version of dartrl and a hash of its source: two checkouts of one version differ."""
    packages: dict[str, str]
    """Versions of what dartrl uses, by name."""
    free_bytes: int
    """Free space where the node keeps its part of the run."""
    missing: tuple[str, ...] = ()
    """What the node lacks for what it is to carry, each with its remedy."""
    clock_offset_s: float = 0.0
    """Its clock minus that of the control node."""
    clock_error_s: float = 0.0
    """Half of the round trip in which the offset was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """What a node is to carry."""

    has_trainer: bool = False
    has_engines: bool = False
    has_environments: bool = False
    config: dict[str, object] = field(default_factory=dict)
    """The run's configuration as plain data."""
    servers: tuple[tuple[str, int], ...] = ()
    """Host and port of servers that the node must reach."""


class NodeProbe:
    """Answers for its node. Made a Ray actor by `dart.cluster.probes`."""

    def facts(self, node: str, roles: Roles, folder: str) -> NodeFacts:
        """Describe this node.

        folder   where the node would keep its part of the run
        """
        return NodeFacts(
            node=node,
            user=os.getuid(),
            python=platform.python_version(),
            source=f"{__version__}+{source_hash()}",
            packages=dict(versions()),
            free_bytes=shutil.disk_usage(_nearest(Path(folder))).free,
            missing=tuple(_missing(roles)),
        )

    def unix_s(self) -> float:
        """The time of this node's clock."""
        return time.time()


def _nearest(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(one for one in (folder, *folder.parents) if one.exists())


def _missing(roles: Roles) -> Iterator[str]:
    """What this node lacks for its roles."""
    config = Config.model_validate(roles.config)
    checks: list[Check] = []
    if roles.has_trainer or roles.has_engines:
        checks.append(missing_packages)
    if roles.has_environments:
        checks.append(missing_browser)
    for check in checks:
        yield from check(config)
    for host, port in roles.servers:
        try:
            socket.create_connection((host, port), REACH_S).close()
        except OSError as error:
            yield (
                f"{host}:{port} cannot be reached ({error.strerror or error}); open the way from here, or "
                "name the server by an address that all nodes reach"
            )


def versions() -> Iterator[tuple[str, str]]:
    """The versions of the packages that dartrl's own metadata name, and of the rest that a run uses."""
    required = {split(r"[^A-Za-z0-9_.-]", one)[0].lower() for one in metadata.requires("dartrl") or ()}
    for name in sorted({*required, *TRAIN_PACKAGES, "ray", "vllm"} - {"dartrl"}):
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue


def source_hash(packages: Collection[str] = OWN_PACKAGES) -> str:
    """Twelve letters of a hash over all Python files of dartrl."""
    found = hashlib.sha256()
    for package in packages:
        spec = find_spec(package)
        root = Path(str(spec.origin)).parent if spec else Path()
        for file in sorted(root.rglob("*.py")):
            found.update(f"{package}/{file.relative_to(root)}\0".encode())
            found.update(file.read_bytes())
    return found.hexdigest()[:12]
