"""What a shard supervises on the node where it is expanded."""

import json
from pathlib import Path

from actors.codec import from_plain
from dart.cluster.pool_shard import expanded
from dart.cluster.shards import engine_shards
from dart.config.cluster import PlaceSettings
from dart.config.config import load_config
from supervision.child_spec import ChildSpec


def made_on_control_node(policy: Path) -> ChildSpec:
    """The shard of the only engine of a run with this policy."""
    config = load_config(None, [f"training.policy={policy}"])
    run = {"config": config.model_dump(mode="json")}
    (shard,) = engine_shards(config, run, PlaceSettings(), has_gpus=False)
    return shard.child


def preloaded(shard: ChildSpec) -> tuple[str, ...]:
    (engine,) = expanded(shard.args)["children"]
    return from_plain(engine, ChildSpec).preload


def test_an_engine_of_a_small_policy_preloads_no_heavy_library_where_the_policy_is_not(
    tmp_path: Path,
) -> None:
    described = tmp_path / "config.json"
    described.write_text(json.dumps({"model_type": "gui_policy"}))
    shard = made_on_control_node(tmp_path)
    described.unlink()
    assert preloaded(shard) == ("dart.inference.actor", "dart.inference.transformers_engine")


def test_an_engine_of_a_vision_language_policy_preloads_what_loads_it_wherever_it_is(tmp_path: Path) -> None:
    described = tmp_path / "config.json"
    described.write_text(json.dumps({"model_type": "qwen2_5_vl"}))
    shard = made_on_control_node(tmp_path)
    described.write_text(json.dumps({"model_type": "gui_policy"}))
    assert "dart.policy.vlm_load" in preloaded(shard)
