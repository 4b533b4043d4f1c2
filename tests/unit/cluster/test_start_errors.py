"""With which exit code the start of a run on a cluster fails: whether a service manager tries it again."""

import json
import os
import socket
from dataclasses import replace
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest

from dart.cli.exit_codes import ExitCode, exit_code_of
from dart.cluster import connection, launcher, probes, site
from dart.cluster.launcher import LaunchJob, failure_of
from dart.cluster.node_facts import NodeFacts, Roles
from dart.cluster.plan import ClusterNode, DoesNotFit
from dart.core.errors import ConfigurationError, DartError, TemporaryError, UnavailableError

FACTS = NodeFacts(node="a", user=os.getuid(), python="3.11.7", source="1", packages={}, free_bytes=2**30)


def test_a_head_that_does_not_listen_yet_is_tried_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(DartError, match="no Ray cluster answers") as refused:
        connection._require_listener(f"127.0.0.1:{port}")
    assert exit_code_of(refused.value) is ExitCode.TEMPORARY
    assert not connection.listens(f"127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionError("Could not find any running Ray instance."), TemporaryError),
        (RuntimeError("Failed to connect to GCS."), TemporaryError),
        (RuntimeError("Version mismatch: The cluster was started with: Ray 2.59"), UnavailableError),
        (RuntimeError("InvalidAuthToken"), UnavailableError),
        (ValueError("no address"), UnavailableError),
    ],
)
def test_a_cluster_that_cannot_be_joined_is_tried_again_unless_the_reason_lasts(
    error: Exception, kind: type[DartError]
) -> None:
    assert type(connection._not_connected("auto", error)) is kind


@pytest.mark.parametrize(
    ("of_b", "kind"),
    [
        ({"clock_offset_s": 3.0}, TemporaryError),
        ({"unreachable": ("db.example:5432 cannot be reached",)}, TemporaryError),
        ({"source": "2"}, UnavailableError),
        ({"clock_offset_s": 3.0, "missing": ("no browser",)}, UnavailableError),
    ],
)
def test_a_probe_that_may_pass_by_itself_is_tried_again(of_b: dict[str, Any], kind: type[DartError]) -> None:
    results = probes.node_results((FACTS, replace(FACTS, node="b", **of_b)))
    with pytest.raises(DartError) as refused:
        probes.refuse_failed(results)
    assert type(refused.value) is kind


@pytest.mark.parametrize(
    ("error", "kind"),
    [(TemporaryError("no worker"), TemporaryError), (UnavailableError("no dartrl"), UnavailableError)],
)
def test_nodes_that_do_not_answer_are_tried_again(
    monkeypatch: pytest.MonkeyPatch, error: DartError, kind: type[DartError]
) -> None:
    def facts_of(node: ClusterNode, roles: Roles, folder: str) -> NodeFacts:
        if node.is_control:
            return FACTS
        raise error if node.name == "b" else TemporaryError("lost")

    monkeypatch.setattr(probes, "_facts_of", facts_of)
    nodes = [ClusterNode(name="a", is_control=True), ClusterNode(name="b"), ClusterNode(name="c")]
    with pytest.raises(DartError, match=f"b: {error}\nc: lost") as refused:
        probes.gather(nodes, {}, dict.fromkeys("abc", "/"))
    assert type(refused.value) is kind


def test_machines_on_which_ray_does_not_run_yet_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "living_nodes", lambda: [ClusterNode(name="a", address="10.0.0.1")])
    monkeypatch.setattr(launcher, "NODES_S", -1.0)
    with pytest.raises(TemporaryError, match="Ray runs on 1 "):
        launcher._nodes_when_there(2)


def joined(answer: dict[str, Any]) -> None:
    """Have the main process of a run read this answer of its launcher."""
    read_end, write_end = os.pipe()
    os.write(write_end, json.dumps(answer).encode() + b"\n")
    os.close(write_end)
    with os.fdopen(read_end, "rb") as stdout:
        process: Any = SimpleNamespace(stdin=BytesIO(), stdout=stdout)
        site._joined(process, LaunchJob(cluster={}, run={}, run_dir="", run_id="", parent_pid=1))


def test_a_run_that_does_not_fit_ends_as_a_wrong_configuration() -> None:
    with pytest.raises(ConfigurationError, match="5 need 2 gpu") as refused:
        joined(failure_of(DoesNotFit("engines: 5 need 2 gpu each"), is_continued=False))
    assert exit_code_of(refused.value) is ExitCode.CONFIGURATION


def test_a_run_that_was_there_before_is_tried_again_until_its_nodes_are_back() -> None:
    with pytest.raises(TemporaryError, match="if nodes of the run are not back yet"):
        joined(failure_of(DoesNotFit("engines: 5 need 2 gpu each"), is_continued=True))
