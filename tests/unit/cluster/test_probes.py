"""What the probes of nodes make of what the nodes say."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from dart.cluster.node_facts import NodeFacts, NodeProbe, Roles, missing_here, room_in, source_hash, versions
from dart.cluster.plan import ClusterNode, ClusterPlan, NodePlan
from dart.cluster.probes import (
    NODE_LOG_BYTES,
    ProbeResult,
    gather,
    meaning_of,
    node_results,
    roles_of,
    servers_of,
)
from dart.config.cluster import load_cluster
from dart.config.config import Config
from dart.core.errors import TemporaryError, UnavailableError
from dart.preflight.requirements import TRACKERS

CONTROL = NodeFacts(
    node="a",
    user=os.getuid(),
    python="3.11.7",
    source="0.1.0+abc",
    packages={"torch": "2.9.0", "ray": "2.60.0"},
    free_bytes=10 * 2**30,
)


def result(name: str, *facts: NodeFacts) -> ProbeResult:
    return next(one for one in node_results(facts) if one.name == name)


def test_nodes_that_are_alike_pass_every_probe() -> None:
    assert [one.text for one in node_results([CONTROL, replace(CONTROL, node="b")]) if not one.is_well] == []


def test_a_clock_that_differs_fails_and_is_named() -> None:
    found = result("clocks", CONTROL, replace(CONTROL, node="b", clock_offset_s=-3.0, clock_error_s=0.01))
    assert not found.is_well
    assert "b by -3.0 s; run a time service there" in found.text


def test_a_difference_that_the_round_trip_explains_is_none() -> None:
    assert result("clocks", CONTROL, replace(CONTROL, clock_offset_s=1.5, clock_error_s=0.8)).is_well


def test_other_versions_fail_with_both_versions() -> None:
    other = replace(CONTROL, node="b", source="0.1.0+def", packages={"torch": "2.8.0"})
    found = result("versions", CONTROL, other)
    assert not found.is_well
    assert "dartrl is 0.1.0+def on b, and 0.1.0+abc on a" in found.text
    assert "torch is 2.8.0 on b, and 2.9.0 on a" in found.text
    assert "ray is none on b, and 2.60.0 on a" in found.text


def test_too_little_space_and_missing_things_are_named_with_their_node() -> None:
    other = replace(CONTROL, node="b", lacking_bytes=2**30, missing=("no browser: install it",))
    assert "b lacks 1.0 GiB beside the 10.0 GiB that are free; make room" in (
        result("disk space", CONTROL, other).text
    )
    found = result("requirements", CONTROL, other)
    assert (found.is_well, found.text) == (False, "b: no browser: install it")


def test_too_little_space_names_the_folders_of_ended_runs() -> None:
    left = tuple(f"/var/tmp/dartrl/{number:012x}/b" for number in range(7))
    other = replace(CONTROL, node="b", lacking_bytes=2**30, idle_folders=left)
    text = result("disk space", CONTROL, other).text
    assert "make room (ended runs left logs in /var/tmp/dartrl/000000000000/b on b, " in text
    assert "000000000004/b on b and 2 more), lower run.cache_bytes" in text


def test_the_control_node_must_run_as_this_user() -> None:
    found = result("user", replace(CONTROL, user=os.getuid() + 1))
    assert not found.is_well
    assert "run `dartrl up` as the user who started Ray" in found.text


def test_a_node_describes_itself() -> None:
    facts = NodeProbe().facts("b", Roles(config=Config().model_dump(mode="json")), "/var/tmp/none/of/it")
    assert facts.packages["pydantic"]
    assert facts.source.endswith(source_hash())
    assert facts.free_bytes > 0


def test_a_folder_that_cannot_be_written_is_missing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (text,) = NodeProbe().facts("b", Roles(), str(tmp_path / "file" / "b")).missing
    assert f"{tmp_path / 'file' / 'b'} cannot be used" in text
    assert text.endswith("set engine.node_dir to a folder that Ray's user can write into")
    assert NodeProbe().facts("b", Roles(), str(tmp_path / "run" / "b")).missing == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_that_another_user_made_before_where_everyone_can_is_missing(tmp_path: Path) -> None:
    everyones = tmp_path / "tmp"
    everyones.mkdir()
    everyones.chmod(0o1777)
    (made := everyones / "dartrl").mkdir(mode=0o755)
    folder = made / "0123456789ab" / "b"
    assert NodeProbe().facts("b", Roles(), str(folder)).missing == ()
    os.chown(made, 65534, 65534)
    (text,) = NodeProbe().facts("b", Roles(), str(folder)).missing
    assert text.startswith(f"{folder} is not safe, because user 65534 made {made}, where everyone may make ")
    assert text.endswith("set engine.node_dir to a folder of your own")


def test_a_node_without_a_browser_that_is_to_carry_environments_says_so(tmp_path: Path) -> None:
    config = Config.model_validate({"environments": {"executable": "/no/such/browser"}}).model_dump(
        mode="json"
    )
    with_role = NodeProbe().facts("b", Roles(has_environments=True, config=config), str(tmp_path))
    assert any("/no/such/browser" in text for text in with_role.missing)
    assert NodeProbe().facts("b", Roles(config=config), str(tmp_path)).missing == ()


def facts_of_node(node: ClusterNode, roles: Roles, folder: str) -> NodeFacts:
    """Stands for a node's answer over Ray: what its roles lack in a process of Ray."""
    return replace(
        NodeProbe().facts(node.name, roles, folder), missing=("asked over Ray",) * bool(roles.config)
    )


def gathered(monkeypatch: pytest.MonkeyPatch, **of_control: Any) -> list[NodeFacts]:
    """The facts of the control node `a` with these roles, and of a node `b`."""
    monkeypatch.setattr("dart.cluster.probes._facts_of", facts_of_node)
    nodes = [ClusterNode(name="b"), ClusterNode(name="a", is_control=True)]
    return gather(nodes, {"a": Roles(**of_control)}, {"a": "/no/such/folder", "b": "/"})


def test_a_trainer_without_its_policy_or_tracker_is_refused_before_the_run_begins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(TRACKERS, "wandb", "no_such_package")
    config = Config.model_validate(
        {"training": {"policy": str(tmp_path)}, "tracking": {"writers": ["wandb"]}}
    ).model_dump(mode="json")
    control, _ = gathered(monkeypatch, has_trainer=True, config=config)
    assert any(f"no policy checkpoint in {tmp_path}" in text for text in control.missing)
    assert any("no_such_package" in text for text in control.missing)
    assert "asked over Ray" not in control.missing, "its actors are started by `dartrl up`"


def pooled(monkeypatch: pytest.MonkeyPatch, **of_control: str) -> list[Roles]:
    """The roles of two nodes with OSWorld's environments, for a control node with these variables."""
    for name in ("DARTRL_POOL_TOKEN", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in of_control.items():
        monkeypatch.setenv(name, value)
    config = Config.model_validate({"environments": {"kind": "osworld", "osworld": {"provider": "pool"}}})
    nodes = [NodePlan(node=name, is_control=name == "a", environments=("env-000",)) for name in ("a", "b")]
    roles = roles_of(ClusterPlan(nodes=tuple(nodes), shards=(), capabilities={}), config)
    monkeypatch.delenv("DARTRL_POOL_TOKEN", raising=False)
    return [replace(one, servers=()) for one in roles.values()]


def test_a_node_needs_room_for_logs_its_cache_and_what_its_engines_and_trainer_store(tmp_path: Path) -> None:
    layout = {"weight": np.zeros((1000, 1000), dtype=np.float32)}
    save_file(layout, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    config = Config.model_validate(
        {"run": {"cache_bytes": 10**6}, "training": {"policy": str(tmp_path), "checkpoints_kept": 2}}
    )
    nodes = (
        NodePlan(node="a", is_control=True),
        NodePlan(node="b", is_control=False, engines={"rollout-0": ("0",)}),
        NodePlan(node="c", is_control=False, environments=("env-000",)),
    )
    roles = roles_of(ClusterPlan(nodes=nodes, shards=(), capabilities={}), config)
    least, weights = NODE_LOG_BYTES + 10**6, 4 * 10**6
    assert {name: role.disk_bytes - least for name, role in roles.items()} == {
        "a": 3 * 3 * weights,
        "b": 2 * weights,
        "c": 0,
    }


@pytest.mark.parametrize("is_control", [True, False])
def test_the_bundled_cluster_job_of_a_laptop_needs_little_room_on_each_node(is_control: bool) -> None:
    config = load_cluster(Path("cluster")).run
    node = NodePlan(node="a", is_control=is_control, engines={"rollout-0": ()}, environments=("env-000",))
    roles = roles_of(ClusterPlan(nodes=(node,), shards=(), capabilities={}), config)
    assert roles["a"].disk_bytes < 5 * 10**9


def test_what_a_run_has_in_its_folder_already_takes_no_more_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=100))
    run = tmp_path / "run"
    assert room_in(run, 1000) == (100, 900)
    for part in ("cache/blobs", "checkpoints", "logs"):
        (run / part).mkdir(parents=True)
        (run / part / "file").write_bytes(b"x" * 300)
    assert room_in(run, 1000) == (100, 300)
    assert room_in(run, 500) == (100, 0)


def test_where_enough_is_free_nobody_counts_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(folder: Path) -> int:
        raise AssertionError(f"the files below {folder} were counted")

    monkeypatch.setattr("dart.cluster.node_facts.bytes_below", never)
    _, lacking_bytes = room_in(Path("/"), 0)
    assert lacking_bytes == 0


def test_only_nodes_with_environments_must_reach_the_server_of_their_machines() -> None:
    environments = {
        "kind": "osworld",
        "osworld": {"provider": "pool", "pool": {"server": "http://pool.example"}},
    }
    nodes = (NodePlan(node="a", is_control=True), NodePlan(node="b", is_control=False, environments=("e",)))
    plan = ClusterPlan(nodes=nodes, shards=(), capabilities={})
    roles = roles_of(plan, Config.model_validate({"environments": environments}))
    assert ("pool.example", 80) in roles["b"].servers
    assert ("pool.example", 80) not in roles["a"].servers


@pytest.mark.parametrize(
    ("hosts", "probed"),
    [
        ("db", [("db", 5432)]),
        ("db:5433", [("db", 5433)]),
        ("db1,db2", []),
        ("db1:5432,db2:5433", []),
    ],
)
def test_an_address_with_several_hosts_is_not_probed_as_one(
    hosts: str, probed: list[tuple[str, int]]
) -> None:
    config = Config.model_validate({"run": {"record": f"postgresql://me@{hosts}/run"}})
    assert list(servers_of(config, {})) == probed


def lacks_token(roles: Roles) -> bool:
    return any("DARTRL_POOL_TOKEN is empty" in text for text in missing_here(roles))


def test_a_token_that_the_control_node_passes_on_is_not_missing_on_another_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, other = pooled(monkeypatch, DARTRL_POOL_TOKEN="secret")
    assert not lacks_token(other)
    assert "secret" not in repr(other), "Ray gets names, no values"
    monkeypatch.setenv("DARTRL_POOL_TOKEN", "")
    assert lacks_token(other), "a node keeps its own value"


@pytest.mark.parametrize("value", [{}, {"DARTRL_POOL_TOKEN": ""}])
def test_a_token_that_the_control_node_lacks_is_missing_everywhere(
    monkeypatch: pytest.MonkeyPatch, value: dict[str, str]
) -> None:
    assert all(lacks_token(one) for one in pooled(monkeypatch, **value))


def test_a_node_with_engines_needs_the_prompt_and_no_policy(tmp_path: Path) -> None:
    config = Config.model_validate(
        {"training": {"policy": str(tmp_path)}, "context": {"prompt": str(tmp_path / "prompt.txt")}}
    ).model_dump(mode="json")
    (text,) = NodeProbe().facts("b", Roles(has_engines=True, config=config), str(tmp_path)).missing
    assert "prompt.txt" in text


def test_versions_name_what_dartrl_itself_requires() -> None:
    assert {"pydantic", "sqlalchemy"} <= {name for name, _ in versions()}


def test_an_error_of_ray_says_whether_the_node_is_lost_or_dartrl_does_not_run_on_it() -> None:
    ray = pytest.importorskip("ray", reason="the errors are Ray's: pip install 'dartrl[cluster]'")
    errors = ray.exceptions
    failed = errors.RayTaskError("facts", "Traceback\nModuleNotFoundError: dart", ValueError())
    lost = (
        errors.ActorUnschedulableError("the node is gone"),
        errors.NodeDiedError("the node is gone"),
        errors.ActorDiedError(),
        errors.ActorUnavailableError("no answer", None),
    )
    not_running = (failed, errors.ActorDiedError(failed), errors.RuntimeEnvSetupError("no such package"))
    for error in lost:
        assert "the node was lost while it was probed" in str(meaning_of(error))
        assert type(meaning_of(error)) is TemporaryError
    for error in (errors.RaySystemError("x"), errors.WorkerCrashedError(), errors.OutOfMemoryError("x")):
        assert "Ray failed while it was probed" in str(meaning_of(error)), "which may pass"
        assert type(meaning_of(error)) is TemporaryError
    for error in not_running:
        assert "dartrl does not run on the node" in str(meaning_of(error))
        assert type(meaning_of(error)) is UnavailableError
    assert "started no Ray worker within" in str(meaning_of(errors.GetTimeoutError()))
