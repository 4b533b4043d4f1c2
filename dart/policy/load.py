"""Loading the policy of a checkpoint, chosen by the model type in its configuration. Imports torch.

transformers and what needs it are imported only for a vision-language policy, because they take longer to
import than everything that the small policy needs.
"""

import errno
import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from dart.core.errors import DartError, DiskError, TemporaryError, UnavailableError
from dart.policy.adapter_files import base_of, why_no_policy
from dart.policy.base import Policy
from dart.policy.codec import PromptCodec
from dart.policy.configuration import SMALL_POLICY
from dart.policy.modeling import check_length
from dart.policy.placement import ModelPlacement
from dart.policy.prompt_spec import PromptSpec
from dart.policy.protocols import Codec, UnsupportedCheckpoint
from dart.policy.small_policy import SmallPolicy
from dart.policy.small_policy import load_codec as load_small_codec


class CheckpointError(UnavailableError):
    """A folder holds no policy checkpoint, or a damaged one."""


class NoRoomToLoad(TemporaryError):
    """There is too little memory, or there are too few file handles, to load a checkpoint."""


class UnreadableCheckpoint(DiskError):
    """The operating system refuses to read a checkpoint."""


HINDRANCES: Sequence[tuple[re.Pattern[str], type[DartError], str]] = (
    (
        re.compile("MemoryError|out of memory|allocate memory"),
        NoRoomToLoad,
        "free memory of the GPU or of the machine, lower rollout.vllm.memory, or start fewer engines "
        "(rollout.count)",
    ),
    (
        re.compile(os.strerror(errno.EMFILE)),  # the text of ENFILE begins with it
        NoRoomToLoad,
        "raise the limit of open files (ulimit -n), or start fewer engines (rollout.count)",
    ),
    (
        re.compile("|".join(map(os.strerror, (errno.EIO, errno.EACCES, errno.ESTALE)))),
        UnreadableCheckpoint,
        "the operating system refuses to read its files: check their permissions and the disk or mount",
    ),
)
"""Texts of errors that say nothing about the checkpoint, with the error to raise and the remedy."""


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

    Raises what `named_errors` raises, or UnsupportedCheckpoint for a model that cannot be a policy.
    """
    if model_type(folder) == SMALL_POLICY:
        with named_errors(resume or folder):
            return SmallPolicy(resume or folder)
    from dart.policy.vlm_load import load_vlm

    return load_vlm(folder, prompt_spec or PromptSpec(), placement or ModelPlacement(), resume)


def load_codec(folder: Path, prompt_spec: PromptSpec | None = None) -> Codec:
    """Load the codec of the policy in `folder`, without its model.

    Raises what `named_errors` raises, or UnsupportedCheckpoint for a model that cannot be a policy.
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
    """Turn the errors of loading a checkpoint into errors that name the folder and the remedy.

    Raises CheckpointError for a damaged checkpoint, NoRoomToLoad or UnreadableCheckpoint for one that may be
    whole.
    """
    try:
        _expect_policy(path)
        yield
    except (OSError, ValueError, RuntimeError, MemoryError, SafetensorError, UnsupportedCheckpoint) as error:
        if (hindrance := _hindrance(path, error)) is not None:
            raise hindrance from error
        if isinstance(error, UnsupportedCheckpoint):
            raise
        if "trust_remote_code" in str(error):
            raise CheckpointError(
                f"the checkpoint in {path} needs code from its own folder (auto_map), which is never run; "
                "use a checkpoint that transformers loads with its own classes"
            ) from error
        raise CheckpointError(
            f"the checkpoint in {path} is damaged: {error}; use another one or rebuild it"
        ) from error


def _expect_policy(path: Path) -> None:
    """Raise CheckpointError if a folder holds no policy."""
    if (path / "config.json").is_file():
        return
    if (base := base_of(path)) is not None:
        raise CheckpointError(why_no_policy(path, base))
    raise CheckpointError(
        f"expected a policy checkpoint in {path}, found no config.json: name the folder of a "
        f"transformers checkpoint, or make the small policy with `dartrl pretrain --out "
        f"{shlex.quote(str(path))}`"
    )


def _hindrance(path: Path, error: BaseException) -> DartError | None:
    """Return the error to raise if something else than the checkpoint hindered loading; None otherwise.

    It is found by the text of the error or of one of its causes: torch, safetensors and transformers pass on
    no error number.
    """
    cause: BaseException | None = error
    while cause is not None:
        said = f"{type(cause).__name__}: {cause}"
        for pattern, kind, remedy in HINDRANCES:
            if pattern.search(said):
                return kind(
                    f"the checkpoint in {path} cannot be loaded now and may be whole: {said}; {remedy}"
                )
        cause = cause.__cause__
    return None


def model_type(folder: Path) -> str:
    """Return the model type of a checkpoint's configuration. Raises what `named_errors` raises."""
    with named_errors(folder):
        described = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if not isinstance(described, dict):
            raise ValueError(f"expected a JSON object in config.json, got {str(described)[:40]!r}")
    found = described.get("model_type")
    if not isinstance(found, str):
        raise CheckpointError(f"{folder}/config.json names no model_type; expected a transformers checkpoint")
    return found
