"""A policy on disk: one folder with safetensors, configuration, tokenizer and processor."""

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
    """A folder that should hold a policy does not, or what it holds is damaged."""


def load_policy(folder: str | Path) -> tuple[GuiPolicyForImageTextToText, PromptCodec]:
    """The model in evaluation mode and its codec. Raises `CheckpointError` with the folder and the remedy."""
    model, processor = load_parts(folder)
    return model, codec_of(processor)


def load_parts(folder: str | Path) -> tuple[GuiPolicyForImageTextToText, GuiPolicyProcessor]:
    """The model in evaluation mode and its processor. Raises `CheckpointError`."""
    path = Path(folder)
    with named_errors(path):
        model = AutoModelForImageTextToText.from_pretrained(
            path, local_files_only=True, trust_remote_code=False, use_safetensors=True
        )
    return model.eval(), _load_processor(path)


def load_codec(folder: str | Path) -> PromptCodec:
    """The codec of a checkpoint, without its model. Raises `CheckpointError` with folder and remedy."""
    return codec_of(_load_processor(Path(folder)))


def _load_processor(path: Path) -> GuiPolicyProcessor:
    with named_errors(path):
        processor: GuiPolicyProcessor = AutoProcessor.from_pretrained(
            path, local_files_only=True, trust_remote_code=False
        )
    return processor


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """What loading a checkpoint can meet, as `CheckpointError` with the folder and the remedy."""
    if not (path / "config.json").is_file():
        raise CheckpointError(
            f"expected a policy checkpoint in {path}, found no config.json: build one with `dartrl pretrain`"
        )
    try:
        yield
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        if "trust_remote_code" in str(error):
            raise CheckpointError(
                f"the checkpoint in {path} needs code that lies in its folder (auto_map), and such code is "
                "never run; use one that transformers loads with its own classes"
            ) from error
        raise CheckpointError(
            f"the checkpoint in {path} is damaged: {error}; use another or rebuild it"
        ) from error


def save_policy(
    model: GuiPolicyForImageTextToText, tokenizer: PreTrainedTokenizerFast, folder: str | Path
) -> None:
    """Writes everything `load_policy` and the Auto classes need. Not atomic: write to a fresh folder."""
    model.save_pretrained(folder)
    build_processor(tokenizer, model.config.image_tokens).save_pretrained(folder)


def build_processor(tokenizer: PreTrainedTokenizerFast, image_tokens: int) -> GuiPolicyProcessor:
    return GuiPolicyProcessor(GuiPolicyImageProcessor(), tokenizer, image_tokens=image_tokens)


def codec_of(processor: GuiPolicyProcessor) -> PromptCodec:
    """The codec that writes prompts as this processor does."""
    return PromptCodec(processor.tokenizer.backend_tokenizer, processor.image_tokens)
