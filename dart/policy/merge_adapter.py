"""Make a whole policy from a version that is an adapter: `python -m dart.policy.merge_adapter VERSION OUT`.

The new checkpoint loads like any other: in another run as its `training.policy`, in vLLM, and through the
Auto classes of transformers. Its weights have the precision of the base policy.

Imports torch and transformers.
"""

import argparse
import math
from pathlib import Path

import torch
from safetensors import safe_open

from dart.core.module_main import errors_as_messages, new_folder
from dart.policy.adapter_files import CONFIG_FILE, OtherBase, adapter_settings, base_of, fingerprint
from dart.policy.load import CheckpointError, load
from dart.policy.placement import ModelPlacement
from dart.store.checkpoints import load_checkpoint


def merge(version: Path, out: Path, base: Path | None = None) -> None:
    """Write the base policy of a version with the version's adapter merged in, in the base's precision.

    version   folder of the version
    out       folder to write to; must not exist
    base      folder of the base policy; None: the folder that the version names

    Raises CheckpointError for a version that does not exist or holds no adapter and for a base policy that is
    not there, OtherBase for another base policy than that of the adapter, and CorruptCheckpoint for a damaged
    version.
    """
    if not version.is_dir():
        raise CheckpointError(f"there is no folder {version}; `dartrl checkpoints list` shows the versions")
    load_checkpoint(version)
    known = base_of(version)
    if known is None:
        raise CheckpointError(
            f"{version} is no adapter, because it has no base.json; it needs no merging: use it as it is"
        )
    base = base or Path(known.name)
    if not (base / CONFIG_FILE).is_file():
        raise CheckpointError(f"the base policy of {version} is not in {base}; name its folder with --base")
    if (found := fingerprint(base)) != known.sha256:
        raise OtherBase(version, known, base, found)
    settings = adapter_settings(version)
    placement = ModelPlacement(
        device="cpu", is_trained=True, lora_rank=settings.rank, lora_alpha=settings.alpha
    )
    policy = load(base, placement=placement, resume=version)
    out.mkdir(parents=True)
    policy.save(out, dtype=_precision_of(base))


def _precision_of(base: Path) -> torch.dtype:
    """Return the precision of the largest weight in a policy's first file of weights.

    Its config.json need not name it at the top: that of Qwen3-VL names it below `text_config`.
    """
    with safe_open(min(base.glob("*.safetensors")), framework="pt") as opened:
        weights = [opened.get_slice(name) for name in opened.keys()]  # noqa: SIM118  # it is no dictionary
        largest = max(weights, key=lambda weight: math.prod(weight.get_shape()))
        dtype: torch.dtype = largest[:1].dtype
    return dtype


def main() -> None:
    """Run the command `python -m dart.policy.merge_adapter`."""
    parser = argparse.ArgumentParser(
        description="Merge a version that is an adapter with its base policy into a whole policy.",
        epilog="python -m dart.policy.merge_adapter runs/mine/checkpoints/v000042 mine",
    )
    parser.add_argument("version", type=Path, help="folder of the version")
    parser.add_argument("out", type=new_folder, help="folder to write the policy to; it must not exist")
    parser.add_argument("--base", type=Path, help="folder of the base policy, if it has moved")
    options = parser.parse_args()
    with errors_as_messages(parser):
        merge(options.version, options.out, options.base)


if __name__ == "__main__":
    main()
