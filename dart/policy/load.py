"""Loading the policy of a checkpoint, chosen by the model type in its configuration. Imports torch.

transformers and what needs it are imported only for a vision-language policy: the small policy starts in half
of the time and memory without them.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from dart.core.errors import UnavailableError
from dart.policy.adapter_files import base_of, why_no_policy
from dart.policy.base import Policy
from dart.policy.codec import PromptCodec
from dart.policy.configuration import SMALL_POLICY
from dart.policy.modeling import check_length
from dart.policy.placement import ModelPlacement
from dart.policy.prompt_spec import PromptSpec
from dart.policy.protocols import Codec
from dart.policy.small_policy import SmallPolicy
from dart.policy.small_policy import load_codec as load_small_codec


class CheckpointError(UnavailableError):
    """A folder holds no policy checkpoint, or a damaged one."""


def load(
    folder: Path,
    prompt_spec: PromptSpec | None = None,
    placement: ModelPlacement | None = None,
    *,
    resume: Path | None = None,
) -> Policy:
    """Load the policy in `folder`, or a later version of this policy from the checkpoint `resume`.

    folder        checkpoint of the base policy
    prompt_spec   prompt settings of a vision-language policy; None: the defaults
    placement     None: the defaults of ModelPlacement
    resume        checkpoint of a version that was trained from `folder`; None: load the base policy

    Raises CheckpointError, or UnsupportedCheckpoint for a model that cannot be a policy.
    """
    if model_type(folder) == SMALL_POLICY:
        with named_errors(resume or folder):
            return SmallPolicy(resume or folder)
    from dart.policy.vlm_load import load_vlm

    return load_vlm(folder, prompt_spec or PromptSpec(), placement or ModelPlacement(), resume)


def load_codec(folder: Path, prompt_spec: PromptSpec | None = None) -> Codec:
    """Load the codec of the policy in `folder`, without its model.

    Raises CheckpointError, or UnsupportedCheckpoint for a model that cannot be a policy.
    """
    if model_type(folder) == SMALL_POLICY:
        with named_errors(folder):
            return load_small_codec(folder)
    from dart.policy.vlm_codec import load_vlm_codec

    with named_errors(folder):
        return load_vlm_codec(folder, prompt_spec or PromptSpec())


def check_recorded_length(codec: Codec, prompt_ids: Sequence[int], answer_ids: Sequence[int]) -> None:
    """Check that the policy of a codec can be trained on a prompt and an answer of this length.

    Only the small policy has a limit. Raises PromptTooLong.
    """
    if isinstance(codec, PromptCodec):
        check_length(prompt_ids, answer_ids)


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Turn the errors of loading a checkpoint into `CheckpointError`, which names the folder and the
    remedy."""
    if (base := base_of(path)) is not None and not (path / "config.json").is_file():
        raise CheckpointError(why_no_policy(path, base))
    if not (path / "config.json").is_file():
        raise CheckpointError(
            f"expected a policy checkpoint in {path}, found no config.json: name the folder of a "
            f"transformers checkpoint, or make the small policy with `dartrl pretrain --out {path}`"
        )
    try:
        yield
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        if "trust_remote_code" in str(error):
            raise CheckpointError(
                f"the checkpoint in {path} needs code from its own folder (auto_map), which is never run; "
                "use a checkpoint that transformers loads with its own classes"
            ) from error
        raise CheckpointError(
            f"the checkpoint in {path} is damaged: {error}; use another one or rebuild it"
        ) from error


def model_type(folder: Path) -> str:
    """Return the model type of a checkpoint's configuration. Raises CheckpointError."""
    with named_errors(folder):
        found = json.loads((folder / "config.json").read_text()).get("model_type")
    if not isinstance(found, str):
        raise CheckpointError(f"{folder}/config.json names no model_type; expected a transformers checkpoint")
    return found
