"""Who goes where in a cluster, and what is refused with which arithmetic."""

import random
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from actors.codec import MAX_MESSAGE_BYTES, packed_bytes
from dart.cluster.plan import ClusterNode, DoesNotFit, NodePlan, plan_cluster, spread
from dart.cluster.pool_shard import expanded
from dart.cluster.shards import SHARD_MOST, engine_shards, environment_shards
from dart.config.cluster import PlaceSettings, load_cluster
from dart.config.config import Config
from supervision.messages import start_child


def node(name: str, gpus: int = 0, *, is_control: bool = False, **resources: int) -> ClusterNode:
    return ClusterNode(name=name, gpus=gpus, is_control=is_control, resources=resources)


def run(
    *, engines: int = 1, width: int = 1, ranks: int = 1, environments: int = 8, **training: Any
) -> Config:
    return Config.model_validate(
        {
            "rollout": {"engine": "vllm", "count": engines, "vllm": {"tensor_parallel": width}},
            "training": {"ranks": ranks, **training},
            "environments": {"count": environments},
        }
    )


def place(**parts: Any) -> PlaceSettings:
    return PlaceSettings.model_validate(parts)


def refusal(nodes: list[ClusterNode], where: PlaceSettings, what: Config) -> str:
    with pytest.raises(DoesNotFit) as caught:
        plan_cluster(nodes, where, what)
    return str(caught.value)


def planned(nodes: list[ClusterNode], where: PlaceSettings, what: Config) -> tuple[NodePlan, ...]:
    return plan_cluster(nodes, where, what).nodes


def test_the_papers_job_on_two_nodes_has_its_trainer_on_one_and_its_engines_on_the_other() -> None:
    found = load_cluster(Path("osworld-uitars-7b-two-nodes"))
    control, other = planned([node("b", 8), node("a", 8, is_control=True)], found.cluster.place, found.run)
    assert (control.node, control.is_control, control.trainer_gpus) == ("a", True, tuple("01234567"))
    assert control.engines == {}
    assert other.engines == {f"rollout-{index}": (str(index),) for index in range(8)}
    names = {*control.environments, *other.environments}
    assert (len(names), len(control.environments) + len(other.environments)) == (64, 64)
    assert other.free_gpus == ()


def test_a_node_with_engines_gets_as_many_environments_as_one_without_to_within_a_shard() -> None:
    found = load_cluster(Path("osworld-uitars-7b-two-nodes"))
    nodes = [node("a", 8, is_control=True), node("b", 8)]
    plans = planned(nodes, found.cluster.place, found.run)
    assert [len(plan.engines) for plan in plans] == [0, 8]
    shares = [len(plan.environments) for plan in plans]
    assert sum(shares) == 64
    assert max(shares) - min(shares) <= SHARD_MOST


def test_engines_and_trainer_of_one_node_never_share_a_gpu() -> None:
    (only,) = planned([node("a", 8, is_control=True)], place(), run(engines=2, width=2, ranks=4))
    assert only.trainer_gpus == ("4", "5", "6", "7")
    assert only.engines == {"rollout-0": ("0", "1"), "rollout-1": ("2", "3")}


def test_engines_are_spread_and_gpus_left_over_stay_free() -> None:
    nodes = [node("a", 1, is_control=True), node("b", 4), node("c", 4)]
    plans = planned(nodes, place(), run(engines=4, environments=3))
    assert [len(plan.engines) for plan in plans] == [0, 2, 2]
    assert [plan.free_gpus for plan in plans] == [(), ("2", "3"), ("2", "3")]


def with_tasks(count: int) -> Config:
    draw = random.Random(0)
    ids = [f"osworld/libreoffice_calc/{uuid.UUID(int=draw.getrandbits(128))}" for _ in range(count)]
    return Config.model_validate({"environments": {"kind": "osworld"}, "tasks": {"train": ids}})


def test_the_ids_of_two_thousand_tasks_fit_into_the_order_to_start_a_shard() -> None:
    nodes = [node("a", 2, is_control=True), node("b")]
    what = with_tasks(2000)
    plan = plan_cluster(nodes, place(), what)
    for shard in plan.shards:
        assert packed_bytes(start_child(shard.child)) < MAX_MESSAGE_BYTES
        (first, *_) = expanded(shard.child.args)["children"]
        assert tuple(first["args"]["config"]["tasks"]["train"]) == what.tasks.train


def test_a_configuration_that_fits_into_no_order_is_refused_before_the_start() -> None:
    said = refusal([node("a", 2, is_control=True)], place(), with_tasks(9000))
    assert "room for 64,512 bytes" in said
    assert said.endswith("Name fewer tasks in tasks.train, which has 9,000")


def test_a_cluster_without_gpus_computes_on_processors() -> None:
    plans = planned([node("a", is_control=True), node("b")], place(), run(engines=2, environments=2))
    assert sorted(name for plan in plans for name in plan.engines) == ["rollout-0", "rollout-1"]
    assert {gpus for plan in plans for gpus in plan.engines.values()} == {()}
    assert plans[0].trainer_gpus == ()


@pytest.mark.parametrize("training", [{"learner": "none"}, {"learner": "simulated"}, {"device": "cpu"}])
def test_a_trainer_that_computes_on_no_gpu_leaves_them_all_to_engines(training: dict[str, Any]) -> None:
    (only,) = planned([node("a", 2, is_control=True)], place(), run(engines=2, **training))
    assert only.trainer_gpus == ()
    assert only.engines == {"rollout-0": ("0",), "rollout-1": ("1",)}


def test_environments_go_to_the_hosts_of_virtual_machines_alone() -> None:
    where = place(environments={"needs": {"vm_host": 0}})
    plans = planned([node("a", is_control=True), node("b", vm_host=1), node("c", vm_host=1)], where, run())
    assert [len(plan.environments) for plan in plans] == [0, 4, 4]


def pooled(server: str = "http://pool.example:50003", **pool: Any) -> Config:
    pool["server"] = server
    environments = {"kind": "osworld", "count": 4, "osworld": {"provider": "pool", "pool": pool}}
    return Config.model_validate({"environments": environments})


def test_a_token_whose_lost_machines_are_stopped_is_refused_for_environments_on_several_nodes() -> None:
    nodes = [node("a", 2, is_control=True), node("b", vm_host=1)]
    assert refusal(nodes, place(), pooled(own_token=True)) == (
        "environments: 2 nodes have some (a, b), and environments.osworld.pool.own_token is true: each node "
        "would stop the machines of the others when the server lends no more; set own_token = false below "
        "[set.environments.osworld.pool], or name in place.environments.needs a resource that only one node "
        "has"
    )
    assert len(planned(nodes, place(), pooled())) == 2
    one_host = place(environments={"needs": {"vm_host": 0}})
    assert [len(plan.environments) for plan in planned(nodes, one_host, pooled(own_token=True))] == [0, 4]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_a_server_of_machines_on_loopback_is_refused_for_environments_on_several_nodes(host: str) -> None:
    nodes = [node("a", 2, is_control=True), node("b", vm_host=1)]
    server = f"http://{host}:50003"
    assert refusal(nodes, place(), pooled(server)) == (
        f"environments: 2 nodes have some (a, b), and environments.osworld.pool.server is {server}, where "
        "each node would find only itself; name the server by an address that all of them reach, below "
        "[set.environments.osworld.pool]"
    )
    one_host = place(environments={"needs": {"vm_host": 0}})
    assert len(planned(nodes, one_host, pooled(server))) == 2


def test_a_resource_that_each_environment_takes_limits_their_number() -> None:
    where = place(environments={"needs": {"licence": 1}})
    nodes = [node("a", is_control=True, licence=2), node("b", licence=6)]
    assert [len(plan.environments) for plan in planned(nodes, where, run())] == [2, 6]
    said = refusal(nodes, where, run(environments=9))
    assert "9 need 1 licence each, and 8 fit on 2 nodes; a has 2 licence; b has 6 licence" in said


def test_what_fits_by_its_number_is_never_refused_for_the_size_of_shards() -> None:
    nodes = [node("a", is_control=True), node("b")]
    plans = planned(nodes, place(environments={"per_node": 40}), run(environments=80))
    assert [len(plan.environments) for plan in plans] == [40, 40]


def test_too_many_engines_are_refused_with_the_arithmetic() -> None:
    said = refusal([node("a", 8, is_control=True)], place(), run(engines=5, width=2, ranks=8))
    assert said.startswith("engines: 5 need 2 gpu each, 10 gpu in all, and 0 fit on 1 nodes; a has 0 gpu")


def test_a_trainer_that_is_larger_than_the_control_node_is_refused() -> None:
    said = refusal([node("a", 4, is_control=True), node("b", 8)], place(), run(ranks=8))
    assert "8 ranks need 8 GPUs on the control node a, which has 4" in said


def test_a_rank_without_a_gpu_of_its_own_is_refused() -> None:
    said = refusal([node("a", 8, is_control=True)], place(trainer={"gpus": 2}), run(ranks=4))
    assert "training.ranks is 4, and place.trainer.gpus is 2" in said


def test_a_trainer_on_cuda_without_a_gpu_is_refused() -> None:
    on_cuda = run()
    on_cuda = on_cuda.model_copy(update={"training": on_cuda.training.model_copy(update={"device": "cuda"})})
    said = refusal([node("a", 8, is_control=True)], place(trainer={"gpus": 0}), on_cuda)
    assert "training.device is 'cuda', and place.trainer.gpus is 0; set training.device = " in said


def test_an_engine_with_fewer_gpus_than_it_is_split_into_is_refused() -> None:
    said = refusal([node("a", 8, is_control=True)], place(rollout={"gpus": 1}), run(width=2))
    assert "tensor_parallel is 2, and place.rollout.gpus is 1" in said


def test_too_many_environments_are_refused_and_the_limit_is_named() -> None:
    where = place(environments={"per_node": 3})
    said = refusal([node("a", is_control=True), node("b")], where, run(environments=8))
    assert said == "environments: 8, and 6 fit on 2 nodes; place.environments.per_node is 3"


def test_a_resource_that_no_node_has_is_named_with_a_similar_one() -> None:
    where = place(environments={"needs": {"vm_hosts": 0}})
    said = refusal([node("a", is_control=True, vm_host=1)], where, run())
    assert "place.environments.needs names 'vm_hosts', which no node has; did you mean vm_host?" in said


def test_the_order_of_the_nodes_changes_nothing() -> None:
    nodes = [node("c", 2), node("a", 2, is_control=True), node("b", 3)]
    assert planned(nodes, place(), run(engines=3)) == planned(nodes[::-1], place(), run(engines=3))


def test_a_thousand_nodes_take_forty_thousand_environments_evenly() -> None:
    began_s = time.process_time()
    shares = spread(40_000, {f"n{index}": 64 for index in range(1000)})
    assert set(shares.values()) == {40}
    assert time.process_time() - began_s < 30.0  # it takes some 0.05 s; quadratic work would take minutes


def test_nobody_gets_more_than_fits_and_the_rest_is_not_dealt() -> None:
    assert spread(5, {"a": 1, "b": 0, "c": 2}) == {"a": 1, "b": 0, "c": 2}


def test_only_the_leader_hears_of_environments_and_every_node_of_engines() -> None:
    config, where = run(engines=2, environments=40), place()
    engines = tuple(engine_shards(config, {}, where, has_gpus=False))
    environments = tuple(environment_shards(config, {}, where, (20, 20)))

    assert [shard.is_announced_to_all for shard in engines] == [True, True]
    assert [shard.is_announced_to_all for shard in environments] == [False] * 4
