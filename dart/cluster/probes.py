"""Probes of the nodes before a run on a cluster. Each says what it found and, if it fails, what to do."""

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from dart.cluster.forwarding import forwarded
from dart.cluster.node_facts import NodeFacts, NodeProbe, Roles, missing_here, room_in, unreachable_here
from dart.cluster.plan import ClusterNode, ClusterPlan
from dart.config.config import Config
from dart.core.errors import TemporaryError, UnavailableError
from dart.inspect.formatting import size
from dart.preflight.disk_need import node_bytes

CLOCK_MOST_S = 1.0
"""Largest allowed difference in seconds between two clocks, because leases end at a Unix time."""

NODE_LOG_BYTES = 2 * 2**30
"""Room that a node needs for logs and reports."""

NODE_DEADLINE_S = 120.0
"""Longest wait in seconds for a node to start a Ray worker and to return its facts."""

CLOCK_ROUNDS = 5
"""Number of round trips to a node's clock; the shortest of them is the measurement."""

NAMED_MOST = 5

CLOCKS, SERVERS = "clocks", "servers"
"""Names of probes that may fail now and pass later without a change by a person."""

POSTGRESQL_PORT, HTTP_PORT, HTTPS_PORT = 5432, 80, 443
"""Default ports, for addresses without a port."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of one probe."""

    name: str
    is_well: bool
    text: str
    """What the probe found and, if it failed, what to do."""


def node_results(facts: Sequence[NodeFacts]) -> Iterator[ProbeResult]:
    """Yield a result for clocks, versions, user, disk space, requirements and servers of the nodes.

    facts   facts of all nodes, those of the control node first
    """
    yield _clocks(facts)
    yield _versions(facts)
    yield _users(facts)
    yield _space(facts)
    missing = [f"{one.node}: {text}" for one in facts for text in one.missing]
    yield ProbeResult(
        "requirements", not missing, "; ".join(missing) or "every node has what its actors need"
    )
    unreachable = [f"{one.node}: {text}" for one in facts for text in one.unreachable]
    yield ProbeResult(
        SERVERS, not unreachable, "; ".join(unreachable) or "every node reaches the servers that it needs"
    )


def refuse_failed(results: Iterable[ProbeResult]) -> None:
    """Raise an error with all probes that failed, if any did.

    raises   TemporaryError if only such failed as may pass by themselves, as after a power failure: a clock
             is set soon, and a server starts. UnavailableError for others
    """
    failed = [result for result in results if not result.is_well]
    if failed:
        may_pass = {result.name for result in failed} <= {CLOCKS, SERVERS}
        kind = TemporaryError if may_pass else UnavailableError
        raise kind("\n".join(f"{result.name}: {result.text}" for result in failed))


def _clocks(facts: Sequence[NodeFacts]) -> ProbeResult:
    wrong = [one for one in facts if abs(one.clock_offset_s) - one.clock_error_s > CLOCK_MOST_S]
    if wrong:
        named = ", ".join(f"{one.node} by {one.clock_offset_s:+.1f} s" for one in wrong[:NAMED_MOST])
        return ProbeResult(
            CLOCKS,
            False,
            f"{len(wrong)} clocks differ from that of the control node by more than {CLOCK_MOST_S:g} s: "
            f"{named}; run a time service there, such as chrony or systemd-timesyncd",
        )
    worst_s = max(abs(one.clock_offset_s) for one in facts)
    return ProbeResult(CLOCKS, True, f"at most {worst_s * 1000:.0f} ms apart")


def _versions(facts: Sequence[NodeFacts]) -> ProbeResult:
    control, *others = facts
    different = [text for one in others for text in _differences(control, one)]
    if different:
        more = f"; and {len(different) - NAMED_MOST} more" if len(different) > NAMED_MOST else ""
        return ProbeResult(
            "versions",
            False,
            f"{'; '.join(different[:NAMED_MOST])}{more}; install the same on every node, from the same "
            "constraints.txt, or use one image",
        )
    text = f"dartrl {control.source}, Python {control.python}, {len(control.packages)} packages"
    return ProbeResult("versions", True, f"the same on {len(facts)} nodes: {text}")


def _differences(control: NodeFacts, other: NodeFacts) -> Iterator[str]:
    for what, here, there in (
        ("dartrl", control.source, other.source),
        ("Python", control.python, other.python),
        *(
            (name, control.packages.get(name, "none"), other.packages.get(name, "none"))
            for name in sorted(control.packages.keys() | other.packages.keys())
        ),
    ):
        if here != there:
            yield f"{what} is {there} on {other.node}, and {here} on {control.node}"


def _users(facts: Sequence[NodeFacts]) -> ProbeResult:
    """Check that Ray on the control node runs as this user, who alone can open the socket of its agent."""
    control = facts[0]
    if control.user != os.getuid():
        return ProbeResult(
            "user",
            False,
            f"Ray runs as user {control.user} on the control node, and you are user {os.getuid()}; run "
            "`dartrl up` as the user who started Ray there",
        )
    return ProbeResult("user", True, "Ray runs as you on the control node")


def _space(facts: Sequence[NodeFacts]) -> ProbeResult:
    full = [one for one in facts if one.lacking_bytes]
    if full:
        named = ", ".join(
            f"{one.node} lacks {size(one.lacking_bytes)} beside the {size(one.free_bytes)} that are free"
            for one in full[:NAMED_MOST]
        )
        return ProbeResult(
            "disk space",
            False,
            f"{named}; make room{_left_behind(full)}, lower run.cache_bytes, or name another folder: "
            "engine.node_dir, or on the control node --run-dir (there training.checkpoints_kept counts, too)",
        )
    least = min(one.free_bytes for one in facts)
    return ProbeResult("disk space", True, f"at least {size(least)} free on every node")


def _left_behind(full: Sequence[NodeFacts]) -> str:
    """Return in brackets which folders of ended runs take room on these nodes; empty if none does."""
    found = [f"{folder} on {one.node}" for one in full for folder in one.idle_folders]
    more = f" and {len(found) - NAMED_MOST} more" if len(found) > NAMED_MOST else ""
    return f" (ended runs left logs in {', '.join(found[:NAMED_MOST])}{more})" if found else ""


# ---- asking the nodes ----


def roles_of(plan: ClusterPlan, config: Config) -> dict[str, Roles]:
    """Return, by node, which parts of the run it carries and what they need."""
    plain = config.model_dump(mode="json")
    servers, machines = tuple(servers_of(config, os.environ)), tuple(machine_servers_of(config))
    names = tuple(name for name, value in forwarded(config, os.environ).items() if value)
    return {
        node.node: Roles(
            has_trainer=node.is_control,
            has_engines=bool(node.engines),
            has_environments=bool(node.environments),
            config=plain,
            forwarded=names,
            disk_bytes=NODE_LOG_BYTES
            + node_bytes(config, has_trainer=node.is_control, has_engines=bool(node.engines)),
            servers=(*servers, *machines) if node.environments else servers,
        )
        for node in plan.nodes
    }


def servers_of(config: Config, environment: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Yield host and port of the servers of record and blobs, which every node must be able to reach.

    A server whose address names no host is left out. So is a record whose address names several hosts,
    because libpq needs only one of them.

    environment   environment variables, of which AWS_ENDPOINT_URL can name the server of the blobs
    """
    record, endpoint = urlsplit(config.run.record), urlsplit(environment.get("AWS_ENDPOINT_URL", ""))
    if record.hostname and "," not in record.netloc:
        yield record.hostname, record.port or POSTGRESQL_PORT
    if config.run.blobs.startswith("s3://"):
        yield from _web_server(endpoint)


def machine_servers_of(config: Config) -> Iterator[tuple[str, int]]:
    """Yield host and port of the server that lends OSWorld's machines to environments, if there is one."""
    osworld = config.environments.osworld
    if config.environments.kind == "osworld" and osworld.provider == "pool":
        yield from _web_server(urlsplit(osworld.pool.server))


def _web_server(url: SplitResult) -> Iterator[tuple[str, int]]:
    if url.hostname:
        yield url.hostname, url.port or (HTTPS_PORT if url.scheme == "https" else HTTP_PORT)


def gather(
    nodes: Iterable[ClusterNode], roles: Mapping[str, Roles], folders: Mapping[str, str]
) -> list[NodeFacts]:
    """Collect the facts of all nodes at the same time, and return them, those of the control node first.

    What the control node lacks is looked for in this process, because `dartrl up` starts the actors there.

    roles     what each node carries, by its name
    folders   the folder in which each node keeps its part of the run, by its name
    raises    TemporaryError with the reason for each node that does not answer, or UnavailableError if
              dartrl fails on one of them
    """
    ordered = sorted(nodes, key=lambda node: (not node.is_control, node.name))
    with ThreadPoolExecutor(min(32, len(ordered))) as threads:
        asked = [
            threads.submit(_facts_of, node, Roles(), "/")
            if node.is_control
            else threads.submit(_facts_of, node, roles.get(node.name, Roles()), folders[node.name])
            for node in ordered
        ]
    ended = [(node.name, one.exception()) for node, one in zip(ordered, asked, strict=True)]
    if failures := {name: error for name, error in ended if error is not None}:
        may_pass = all(isinstance(error, TemporaryError) for error in failures.values())
        kind = TemporaryError if may_pass else UnavailableError
        raise kind("\n".join(f"{name}: {error}" for name, error in failures.items()))
    control, *others = (one.result() for one in asked)
    role = roles.get(control.node, Roles())
    free, lacking = room_in(Path(folders[control.node]), role.disk_bytes)
    found = replace(control, missing=tuple(missing_here(role)), unreachable=tuple(unreachable_here(role)))
    return [replace(found, free_bytes=free, lacking_bytes=lacking), *others]


def refuse_unfit(control: NodeFacts, node: ClusterNode, roles: Roles, folder: str) -> None:
    """Probe a node that joins a run that is already running.

    control   facts of the control node
    raises    TemporaryError if the node does not answer; else what `refuse_failed` raises
    """
    refuse_failed(node_results((control, _facts_of(node, roles, folder))))


def _facts_of(node: ClusterNode, roles: Roles, folder: str) -> NodeFacts:
    """Return the facts of one node.

    Raises TemporaryError if the node does not answer, UnavailableError if dartrl fails there.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    where = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
    probe = ray.remote(NodeProbe).options(num_cpus=0, scheduling_strategy=where).remote()
    try:
        facts: NodeFacts = ray.get(probe.facts.remote(node.name, roles, folder), timeout=NODE_DEADLINE_S)
        offset_s, error_s = min((_clock_offset(probe) for _ in range(CLOCK_ROUNDS)), key=lambda one: one[1])
    except ray.exceptions.RayError as error:
        raise meaning_of(error) from error
    finally:
        ray.kill(probe)
    return replace(facts, clock_offset_s=offset_s, clock_error_s=error_s)


def meaning_of(error: Exception) -> TemporaryError | UnavailableError:
    """Return what an error of Ray says of the node whose probe met it."""
    from ray import exceptions

    if isinstance(error, exceptions.GetTimeoutError):
        return TemporaryError(
            f"the node started no Ray worker within {NODE_DEADLINE_S:g} s; look at Ray's logs on the node "
            "(/tmp/ray/session_latest/logs)"
        )
    of_loss = (
        exceptions.ActorUnschedulableError,
        exceptions.NodeDiedError,
        exceptions.ActorDiedError,
        exceptions.ActorUnavailableError,
    )
    of_dartrl = (exceptions.RayTaskError, exceptions.RuntimeEnvSetupError)
    if isinstance(error, of_dartrl) or getattr(error, "actor_init_failed", False):
        return UnavailableError(
            f"dartrl does not run on the node ({last_line(error)}); install the same version of dartrl as "
            "here, for the Python with which Ray runs on the node"
        )
    what = "the node was lost" if isinstance(error, of_loss) else "Ray failed"  # which may pass
    return TemporaryError(
        f"{what} while it was probed ({last_line(error)}); look whether its machine and Ray run"
    )


def _clock_offset(probe: Any) -> tuple[float, float]:
    """Return a node's clock minus this one, and the largest error (half of the round trip), in seconds."""
    import ray

    began_s = time.time()
    there_s = ray.get(probe.unix_s.remote(), timeout=NODE_DEADLINE_S)
    ended_s = time.time()
    return there_s - (began_s + ended_s) / 2, (ended_s - began_s) / 2


def last_line(error: Exception) -> str:
    """Return the last line of an error's text. Ray's errors end with what failed on the node."""
    lines = str(error).strip().splitlines()
    return lines[-1].strip() if lines else type(error).__name__
