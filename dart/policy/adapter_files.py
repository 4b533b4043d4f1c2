"""The files of a version that is a LoRA adapter, and the base policy that it belongs to. Imports no torch.

    v000042/
      base.json                                        the base policy: its name, and a hash over its files
      adapter/adapter_config.json                      rank, scale and layers, as PEFT writes them
      adapter/adapter_model.safetensors                the trained weights, in the trainer's precision

vLLM reads the folder `adapter` itself. The trainer resumes from the same files.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from dart.core.errors import DiskError
from dart.store.checkpoints import STATE_FILE, hashes_of, published_hashes

ADAPTER_FOLDER = "adapter"
ADAPTER_WEIGHTS, ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_config.json"
"""Names of the two files in the adapter's folder, as PEFT chooses them."""

BASE_FILE = "base.json"

CONFIG_FILE = "config.json"


def why_no_policy(folder: Path, base: "BasePolicy") -> str:
    """Return the error message for a folder that holds an adapter where a whole policy is needed."""
    return (
        f"{folder} holds only an adapter of the policy {base.name}, not a whole policy; merge the two with "
        f"`python -m dart.policy.merge_adapter {folder} OUT` and use OUT instead"
    )


class OtherBase(DiskError):
    """The base policy on disk is not the one that the adapter was trained with."""

    def __init__(self, folder: Path, expected: "BasePolicy", base: Path, found: str) -> None:
        super().__init__(
            f"the adapter in {folder} was trained with the policy {expected.name} of hash "
            f"{expected.sha256[:12]}, but {base} has hash {found[:12]}: restore the original files of the "
            "base policy, or start a new run"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BasePolicy:
    """The frozen policy that an adapter was trained with."""

    name: str
    """Folder of the policy on the trainer's machine, for messages and as the default of `merge_adapter`."""
    sha256: str
    """Hash of the policy's configuration and weights, as `fingerprint` computes it."""


def fingerprint(folder: Path) -> str:
    """Return one sha256 over the configuration and all weights of a policy.

    Reads each file whose own sha256 is not recorded in the folder's `state.json`.
    """
    names = [CONFIG_FILE, *sorted(path.name for path in folder.glob("*.safetensors"))]
    known = published_hashes(folder) if (folder / STATE_FILE).exists() else {}
    found = {**hashes_of(folder, [name for name in names if name not in known]), **known}
    lines = "".join(f"{found[name]}  {name}\n" for name in names)
    return hashlib.sha256(lines.encode()).hexdigest()


def write_base(folder: Path, base: BasePolicy) -> None:
    """Write `base.json`, which marks the version in a folder as an adapter of this base policy."""
    (folder / BASE_FILE).write_text(json.dumps(asdict(base), indent=1, sort_keys=True) + "\n")


def base_of(folder: Path) -> BasePolicy | None:
    """Return the base policy of a version that is an adapter; None for a whole policy.

    The caller must have verified the hashes of the files. Raises ValueError for a malformed `base.json`.
    """
    try:
        document = json.loads((folder / BASE_FILE).read_text())
    except FileNotFoundError:
        return None
    try:
        return BasePolicy(**document)
    except TypeError as other:
        raise ValueError(
            f"{folder / BASE_FILE} does not name a base policy: {other}; restore the file, or use another "
            "version"
        ) from other


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSettings:
    """Rank and alpha of a saved adapter; the adapter is scaled by alpha / rank."""

    rank: int
    alpha: float


def adapter_settings(folder: Path) -> AdapterSettings:
    """Read rank and alpha of the adapter in the folder of a version."""
    document = json.loads((folder / ADAPTER_FOLDER / ADAPTER_CONFIG).read_text())
    return AdapterSettings(rank=int(document["r"]), alpha=float(document["lora_alpha"]))
