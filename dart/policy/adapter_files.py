"""A version that is an adapter: which files it has, and to which base policy it belongs. Imports no torch.

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
"""PEFT's names of the files."""

BASE_FILE = "base.json"

CONFIG_FILE = "config.json"


def why_no_policy(folder: Path, base: "BasePolicy") -> str:
    """Say that a folder holds an adapter where a policy is needed, and how to make one of it."""
    return (
        f"{folder} holds an adapter of the policy {base.name}, which is no policy by itself; make one with "
        f"`python -m dart.policy.merge_adapter {folder} OUT` and name OUT"
    )


class OtherBase(DiskError):
    """An adapter belongs to another base policy than the one that is there."""

    def __init__(self, folder: Path, expected: "BasePolicy", base: Path, found: str) -> None:
        super().__init__(
            f"the adapter in {folder} was trained beside {expected.name} with hash {expected.sha256[:12]}, "
            f"but {base} has hash {found[:12]}: put the files of that policy there, or start a new run"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BasePolicy:
    """The policy that an adapter was trained beside."""

    name: str
    """Folder of the policy as the trainer had it; only for messages."""
    sha256: str
    """See `fingerprint`."""


def fingerprint(folder: Path) -> str:
    """Return one sha256 over the configuration and all weights of a policy; reads every file once."""
    names = [CONFIG_FILE, *sorted(path.name for path in folder.glob("*.safetensors"))]
    known = published_hashes(folder) if (folder / STATE_FILE).exists() else {}
    found = {**hashes_of(folder, [name for name in names if name not in known]), **known}
    lines = "".join(f"{found[name]}  {name}\n" for name in names)
    return hashlib.sha256(lines.encode()).hexdigest()


def write_base(folder: Path, base: BasePolicy) -> None:
    """Say in the folder of a version that it is an adapter of this policy."""
    (folder / BASE_FILE).write_text(json.dumps(asdict(base), indent=1, sort_keys=True) + "\n")


def base_of(folder: Path) -> BasePolicy | None:
    """Return the base policy of a version that is an adapter; None for a whole policy.

    The files of a version are checked by their hashes before. Raises ValueError for a file that is not ours.
    """
    try:
        document = json.loads((folder / BASE_FILE).read_text())
    except FileNotFoundError:
        return None
    try:
        return BasePolicy(**document)
    except TypeError as other:
        raise ValueError(f"{folder / BASE_FILE} does not name a base policy: {other}") from other


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSettings:
    """Rank and scale of a written adapter."""

    rank: int
    alpha: float


def adapter_settings(folder: Path) -> AdapterSettings:
    """Read rank and scale of the adapter in the folder of a version."""
    document = json.loads((folder / ADAPTER_FOLDER / ADAPTER_CONFIG).read_text())
    return AdapterSettings(rank=int(document["r"]), alpha=float(document["lora_alpha"]))
