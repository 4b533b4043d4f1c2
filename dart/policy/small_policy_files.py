"""The small policy on disk: one folder with safetensors, configuration, tokenizer and processor."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError
from transformers import AutoModelForImageTextToText, AutoProcessor, PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

import dart.policy.register  # noqa: F401  (the Auto classes learn the policy's classes)
from dart.core.errors import UnavailableError
from dart.policy.codec import PromptCodec
from dart.policy.modeling import GuiPolicyForImageTextToText
from dart.policy.processing import GuiPolicyImageProcessor, GuiPolicyProcessor

transformers_logging.disable_progress_bar()  # a bar per checkpoint would break the live view and the logs


class CheckpointError(UnavailableError):
    """A folder holds no policy checkpoint, or a damaged one."""


def load_policy(folder: str | Path) -> tuple[GuiPolicyForImageTextToText, PromptCodec]:
    """Load the model in evaluation mode and its codec. Raises `CheckpointError`."""
    model, processor = load_parts(folder)
    return model, codec_of(processor)


def load_parts(folder: str | Path) -> tuple[GuiPolicyForImageTextToText, GuiPolicyProcessor]:
    """Load the model in evaluation mode and its processor. Raises `CheckpointError`."""
    path = Path(folder)
    with named_errors(path):
        model = AutoModelForImageTextToText.from_pretrained(
            path, local_files_only=True, trust_remote_code=False, use_safetensors=True
        )
    return model.eval(), _load_processor(path)


def load_codec(folder: str | Path) -> PromptCodec:
    """Load the codec of a checkpoint, without its model. Raises `CheckpointError`."""
    return codec_of(_load_processor(Path(folder)))


def _load_processor(path: Path) -> GuiPolicyProcessor:
    with named_errors(path):
        processor: GuiPolicyProcessor = AutoProcessor.from_pretrained(
            path, local_files_only=True, trust_remote_code=False
        )
    return processor


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Turn the errors of loading a checkpoint into `CheckpointError`, which names the folder and the
    remedy."""
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


def save_policy(
    model: GuiPolicyForImageTextToText, tokenizer: PreTrainedTokenizerFast, folder: str | Path
) -> None:
    """Write everything that `load_policy` and the Auto classes need into a fresh folder. Not atomic."""
    model.save_pretrained(folder)
    build_processor(tokenizer, model.config.image_tokens).save_pretrained(folder)


def build_processor(tokenizer: PreTrainedTokenizerFast, image_tokens: int) -> GuiPolicyProcessor:
    return GuiPolicyProcessor(GuiPolicyImageProcessor(), tokenizer, image_tokens=image_tokens)


def codec_of(processor: GuiPolicyProcessor) -> PromptCodec:
    """Return the codec that writes the same prompts as this processor."""
    return PromptCodec(processor.tokenizer.backend_tokenizer, processor.image_tokens)
