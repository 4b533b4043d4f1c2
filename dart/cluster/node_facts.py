"""The facts about a node that are probed before a run: clock, versions, missing parts. Runs on that node."""

import hashlib
import os
import platform
import shutil
import socket
import stat
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from re import split

from dart import __version__
from dart.cluster.node_folder import idle_folders
from dart.config.config import Config
from dart.preflight.disk_need import bytes_below, existing_part
from dart.preflight.requirements import (
    TRAIN_PACKAGES,
    Check,
    missing_browser,
    missing_packages,
    missing_policy,
    missing_trackers,
    not_for_vllm,
    policy_without_hints,
    unreadable_prompt,
)
from dart.store.run_blobs import CACHE

REACH_S = 5.0
"""Longest time in seconds to open a connection to a server that the node needs."""

OWN_PACKAGES = ("actors", "supervision", "dart")

CHECKS_OF_ENGINES: tuple[Check, ...] = (missing_packages, unreadable_prompt)
CHECKS_OF_TRAINER: tuple[Check, ...] = (
    *CHECKS_OF_ENGINES,
    missing_policy,
    policy_without_hints,
    not_for_vllm,
    missing_trackers,
)
"""What the control node needs. It imports demonstrations, which takes the prompt, and writes to trackers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """The facts about one node."""

    node: str
    user: int
    """User id with which Ray runs on the node."""
    python: str
    source: str
    """Version of dartrl and a hash of its source, because two checkouts can have the same version."""
    packages: dict[str, str]
    """Versions of the installed packages that dartrl uses, by name."""
    free_bytes: int
    """Free bytes on the disk of the folder for the node's part of the run."""
    lacking_bytes: int = 0
    """Bytes that the node's part of the run needs beside what is free, what it has already, and what its
    start makes free."""
    idle_folders: tuple[str, ...] = ()
    """If room is lacking, the folders in which earlier runs left logs and reports on the node."""
    missing: tuple[str, ...] = ()
    """What the node lacks for its roles, each with a remedy."""
    unreachable: tuple[str, ...] = ()
    """Servers that the node does not reach, each with a remedy."""
    clock_offset_s: float = 0.0
    """The node's clock minus that of the control node."""
    clock_error_s: float = 0.0
    """Largest error of `clock_offset_s`: half of the round trip in which it was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """Which parts of a run a node is planned to carry, and what they need."""

    has_trainer: bool = False
    has_engines: bool = False
    has_environments: bool = False
    config: dict[str, object] = field(default_factory=dict)
    """The run's configuration as plain data."""
    forwarded: tuple[str, ...] = ()
    """Names of the environment variables that the control node passes to the node's actors."""
    disk_bytes: int = 0
    """Room that the node's part of the run needs on its disk."""
    servers: tuple[tuple[str, int], ...] = ()
    """Host and port of servers that the node must reach."""


class NodeProbe:
    """Collects the facts about its node. `dart.cluster.probes` makes it a Ray actor."""

    def facts(self, node: str, roles: Roles, folder: str) -> NodeFacts:
        """Return the facts about this node, without those about its clock.

        What is missing is what a process of Ray lacks, from which the actors of a node inherit.

        node     name of the node
        folder   folder in which the node would keep its part of the run
        """
        idle = idle_folders(Path(folder))
        free_bytes, lacking_bytes = room_in(Path(folder), roles.disk_bytes, idle)
        return NodeFacts(
            node=node,
            user=os.getuid(),
            python=platform.python_version(),
            source=f"{__version__}+{source_hash()}",
            packages=dict(versions()),
            free_bytes=free_bytes,
            lacking_bytes=lacking_bytes,
            idle_folders=tuple(map(str, idle)) if lacking_bytes else (),
            missing=(*_unwritable(Path(folder)), *_made_by_another(Path(folder)), *missing_here(roles)),
            unreachable=tuple(unreachable_here(roles)),
        )

    def unix_s(self) -> float:
        """Return the Unix time of this node's clock in seconds."""
        return time.time()


def room_in(folder: Path, needed_bytes: int, idle: Sequence[Path] = ()) -> tuple[int, int]:
    """Return the free bytes on the disk of a folder, and how many are lacking there for `needed_bytes`.

    What a run has in the folder already, its checkpoints and its caches, takes no more room. Files are
    counted only where too little is free, because that takes long in a large folder.

    idle   folders of other runs, whose caches the start of the run removes
    """
    free_bytes = shutil.disk_usage(existing_part(folder)).free
    if needed_bytes <= free_bytes:
        return free_bytes, 0
    counted = (folder / "checkpoints", *(one / CACHE for one in (folder, *idle)))
    return free_bytes, max(0, needed_bytes - sum(map(bytes_below, counted)) - free_bytes)


def _unwritable(folder: Path) -> Iterator[str]:
    """Yield a message if this process cannot make a folder, or cannot write into one that exists."""
    there = existing_part(folder)
    if not os.access(there, os.W_OK | os.X_OK):
        yield (
            f"{folder} cannot be used: user {os.getuid()} may not write into {there}; set "
            "engine.node_dir to a folder that Ray's user can write into"
        )


def _made_by_another(folder: Path) -> Iterator[str]:
    """Yield a message if another user made a folder, or one around it, in a place where everyone may.

    The default is below /var/tmp, so anyone can make it before this user does, and replace what is put there
    later. A node's actors run what they find there: the configuration names functions.
    """
    place = existing_part(folder)
    for one in (place, *place.parents):
        owner = one.lstat().st_uid
        is_everyones = one.parent.stat().st_mode & stat.S_IWOTH and not one.is_mount()
        if is_everyones and owner not in (0, os.getuid()):
            yield (
                f"{folder} is not safe, because user {owner} made {one}, where everyone may make one: set "
                "engine.node_dir to a folder of your own"
            )


def missing_here(roles: Roles) -> Iterator[str]:
    """Yield what this process lacks for the roles of its node, each with a remedy."""
    config = Config.model_validate(roles.config)
    for check in _checks_of(roles):
        yield from check(config)


def unreachable_here(roles: Roles) -> Iterator[str]:
    """Yield which servers this process does not reach, each with a remedy."""
    for host, port in roles.servers:
        try:
            socket.create_connection((host, port), REACH_S).close()
        except OSError as error:
            yield (
                f"{host}:{port} cannot be reached ({error.strerror or error}); start the server, allow "
                "connections from this node, or name the server by an address that all nodes can reach"
            )


def _checks_of(roles: Roles) -> Iterator[Check]:
    if roles.has_trainer:
        yield from CHECKS_OF_TRAINER
    elif roles.has_engines:
        yield from CHECKS_OF_ENGINES
    if roles.has_environments:
        yield partial(missing_browser, forwarded=roles.forwarded)


def versions() -> Iterator[tuple[str, str]]:
    """Yield name and version of the installed packages that a run uses."""
    required = {split(r"[^A-Za-z0-9_.-]", one)[0].lower() for one in metadata.requires("dartrl") or ()}
    for name in sorted({*required, *TRAIN_PACKAGES, "ray", "vllm"} - {"dartrl"}):
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue


def source_hash(packages: Collection[str] = OWN_PACKAGES) -> str:
    """Return the first twelve hexadecimal digits of a sha256 over all Python files of these packages."""
    found = hashlib.sha256()
    for package in packages:
        spec = find_spec(package)
        root = Path(str(spec.origin)).parent if spec else Path()
        for file in sorted(root.rglob("*.py")):
            found.update(f"{package}/{file.relative_to(root)}\0".encode())
            found.update(file.read_bytes())
    return found.hexdigest()[:12]
