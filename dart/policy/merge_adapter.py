"""Make a whole policy of a version that is an adapter: `python -m dart.policy.merge_adapter VERSION OUT`.

The new checkpoint is loaded like any other: by another run as its `training.policy`, by vLLM, by the Auto
classes. Imports torch.
"""

import argparse
from pathlib import Path

from dart.policy.adapter_files import OtherBase, adapter_settings, base_of, fingerprint
from dart.policy.load import CheckpointError, ModelPlacement, load
from dart.store.checkpoints import load_checkpoint


def merge(version: Path, out: Path, base: Path | None = None) -> None:
    """Write the policy of a version with its adapter merged into the weights of its base policy.

    base   where the base policy is; None: where it was when the version was trained

    Raises CheckpointError for a folder that is no adapter, OtherBase for a base that is not its own, and
    CorruptCheckpoint for a damaged version.
    """
    load_checkpoint(version)
    known = base_of(version)
    if known is None:
        raise CheckpointError(f"{version} is no adapter: it has no base.json, and can be used as it is")
    base = base or Path(known.name)
    if (found := fingerprint(base)) != known.sha256:
        raise OtherBase(version, known, base, found)
    settings = adapter_settings(version)
    placement = ModelPlacement(
        device="cpu", is_trained=True, lora_rank=settings.rank, lora_alpha=settings.alpha
    )
    out.mkdir(parents=True)
    load(base, placement=placement, resume=version).save(out)


def main() -> None:
    """Run the command `python -m dart.policy.merge_adapter`."""
    parser = argparse.ArgumentParser(
        description="Make a whole policy of a version that is an adapter.",
        epilog="python -m dart.policy.merge_adapter runs/mine/checkpoints/v000042 mine",
    )
    parser.add_argument("version", type=Path, help="folder of the version")
    parser.add_argument("out", type=Path, help="folder to write the policy to; it must not exist")
    parser.add_argument("--base", type=Path, help="the base policy, if it is not where it was")
    options = parser.parse_args()
    merge(options.version, options.out, options.base)


if __name__ == "__main__":
    main()
