"""Prints what lies on each GPU by a bundled configuration, for a policy with published dimensions.

    python -m scripts.show_gpu_plan osworld-uitars-7b 80

It is the part of `dartrl up NAME --dry-run --gpu-gib N` that needs no checkpoint beyond its config.json. A
configuration of a cluster is shown for nodes of eight GPUs each.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from dart.cli.gpu_plan import lines_of_nodes, lines_of_this_machine
from dart.cluster.plan import ClusterNode, plan_cluster
from dart.config.bundled import configuration_file
from dart.config.cluster import is_cluster_file, load_cluster
from dart.config.config import Config, load_config

VISION = {
    "model_type": "qwen2_5_vl",
    "depth": 32,
    "hidden_size": 1280,
    "intermediate_size": 3420,
    "num_heads": 16,
    "in_chans": 3,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
COMMON: dict[str, Any] = {"model_type": "qwen2_5_vl", "architectures": ["Qwen2_5_VLForConditionalGeneration"]}
PUBLISHED: dict[str, dict[str, Any]] = {
    "UI-TARS-1.5-7B": {
        **COMMON,
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "vocab_size": 152064,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "tie_word_embeddings": False,
        "vision_config": {**VISION, "out_hidden_size": 3584},
    },
    "Qwen2.5-VL-3B-Instruct": {
        **COMMON,
        "hidden_size": 2048,
        "intermediate_size": 11008,
        "num_hidden_layers": 36,
        "vocab_size": 151936,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
        "vision_config": {**VISION, "out_hidden_size": 2048},
    },
}
"""Dimensions as the config.json on the hub has them. Those of UI-TARS-1.5-7B are Qwen2.5-VL-7B's."""

GPUS_OF_A_NODE = 8


def with_published(config: Config, folder: Path) -> Config:
    """Return the configuration with a policy that is only a config.json of published dimensions."""
    name = config.training.policy.name
    (folder / name).mkdir()
    (folder / name / "config.json").write_text(json.dumps(PUBLISHED[name]))
    training = config.training.model_copy(update={"policy": folder / name})
    return config.model_copy(update={"training": training})


def lines_of(name: str, gpu_gib: float) -> list[str]:
    """Return the lines of a bundled configuration."""
    file = configuration_file(Path(name))
    with tempfile.TemporaryDirectory() as folder:
        if not is_cluster_file(file):
            return lines_of_this_machine(with_published(load_config(file), Path(folder)), gpu_gib)
        found = load_cluster(file)
        nodes = [
            ClusterNode(name=f"node-{number}", gpus=GPUS_OF_A_NODE, is_control=number == 1)
            for number in (1, 2)
        ]
        plan = plan_cluster(nodes, found.cluster.place, found.run)
        return list(lines_of_nodes(with_published(found.run, Path(folder)), plan.nodes, gpu_gib))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("gpu_gib", type=float)
    options = parser.parse_args()
    print("\n".join(lines_of(options.name, options.gpu_gib)))
