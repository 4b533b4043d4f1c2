"""The processor of a vision-language checkpoint: its tokenizer, its image processor, and the class that
replaces placeholders by image tokens. Imports transformers.

`AutoProcessor` also loads processors for videos and sounds, which need further packages. Policies use neither
videos nor sounds, so this module builds the same processor class without these parts.
"""

import json
from pathlib import Path
from typing import Any

import transformers
from transformers import AutoConfig, AutoImageProcessor, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING

from dart.policy.protocols import UnsupportedCheckpoint

IMAGES = "preprocessor_config.json"
"""File of a checkpoint with the settings of its image processor."""

NAMED_IN = ("processor_config.json", IMAGES, "tokenizer_config.json")
"""Files of a checkpoint that may name the class of its processor."""

RENAMED = {"Qwen2_5_VLImageProcessor": "Qwen2VLImageProcessor"}
"""Names of image processors that transformers had early in 2025 and checkpoints still have, mapped to those
that it has now."""

CANNOT = (ImportError, OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError)
"""Exceptions by which a processor shows that a file or a package that it requires is missing."""


def load_config(folder: Path) -> Any:
    """Load the configuration of a checkpoint.

    Raises OSError or ValueError for an unreadable file, and UnsupportedCheckpoint if the checkpoint cannot be
    a policy.
    """
    named = json_of(folder / "config.json").get("model_type")
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except ValueError as error:
        raise _not_loaded(folder, named) from error
    if type(config) not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
        raise _not_loaded(folder, named)
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedCheckpoint(
            f"{folder} holds a model of type {named!r}, an encoder-decoder; a policy must be a decoder that "
            "continues its prompt"
        )
    return config


def _not_loaded(folder: Path, named: object) -> UnsupportedCheckpoint:
    return UnsupportedCheckpoint(
        f"{folder} holds a model of type {named!r}, which AutoModelForImageTextToText of transformers "
        f"{transformers.__version__} does not load; a policy is a vision-language checkpoint that it loads, "
        "or the small policy of the laptop job"
    )


def load_processor(folder: Path, config: Any) -> Any:
    """Load the processor for texts and images. Raises UnsupportedCheckpoint, which says what is missing."""
    kind = _processor_class(folder, config)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise UnsupportedCheckpoint(
            f"{folder} has no tokenizer.json, which the tokenizers library needs; use another checkpoint"
        )
    if tokenizer.eos_token is None:
        raise UnsupportedCheckpoint(
            f"the tokenizer of {folder} has no eos_token, the token that ends a text; use another checkpoint"
        )
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    parts = {"tokenizer": tokenizer, "image_processor": _image_processor(folder)}
    try:
        settings, _ = kind.get_processor_dict(folder, local_files_only=True)
        processor = _without_videos(kind).from_args_and_dict(
            [parts.get(name) for name in kind.get_attributes()], settings
        )
    except CANNOT as error:
        raise UnsupportedCheckpoint(
            f"the processor of {folder}, a {kind.__name__}, cannot be used for images and texts: {error}; "
            "install or restore what is missing, or use another checkpoint"
        ) from error
    if processor.tokenizer is not tokenizer or getattr(processor, "image_processor", None) is None:
        raise UnsupportedCheckpoint(
            f"the processor of {folder}, a {kind.__name__}, takes no images; use a vision-language checkpoint"
        )
    return processor


def template_of(processor: Any) -> str | None:
    """Return the chat template of the processor or of its tokenizer; None without one."""
    for found in (processor.chat_template, processor.tokenizer.chat_template):
        if isinstance(found, dict):
            found = found.get("default")
        if found:
            return str(found)
    return None


def end_ids(folder: Path, config: Any, tokenizer: Any) -> tuple[int, ...]:
    """Return the tokens that end an answer: the tokenizer's own first, then those of the generation
    settings."""
    settings = json_of(folder / "generation_config.json")
    text = config.get_text_config()
    named = settings.get("eos_token_id", getattr(text, "eos_token_id", None))
    found = [*named] if isinstance(named, list) else [named]
    return tuple(dict.fromkeys(int(token) for token in (tokenizer.eos_token_id, *found) if token is not None))


def json_of(path: Path) -> dict[str, Any]:
    """Read a JSON file of settings; an empty dictionary when the file does not exist.

    Raises ValueError when the file holds anything but a JSON object.
    """
    if not path.is_file():
        return {}
    settings = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(settings, dict):
        raise ValueError(f"{path}: expected a JSON object; correct or restore the file")
    return settings


def _processor_class(folder: Path, config: Any) -> Any:
    for name in NAMED_IN:
        found = getattr(transformers, str(json_of(folder / name).get("processor_class")), None)
        if found is not None:
            return found
    if type(config) in PROCESSOR_MAPPING:
        return PROCESSOR_MAPPING[type(config)]
    raise UnsupportedCheckpoint(
        f"{folder} names no processor class of transformers {transformers.__version__}, which has no default "
        f"for a model of type {config.model_type!r}; name its processor_class in processor_config.json"
    )


def _image_processor(folder: Path) -> Any:
    """Load the image processor with its Pillow backend, so that every machine prepares images alike."""
    try:
        return AutoImageProcessor.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, backend="pil"
        )
    except CANNOT as error:
        named = json_of(folder / IMAGES).get("image_processor_type")
        if (now := RENAMED.get(str(named))) is not None:
            raise UnsupportedCheckpoint(
                f"{folder / IMAGES} names the image processor {named}, which transformers "
                f'{transformers.__version__} calls {now}: write "{now}" there'
            ) from error
        raise UnsupportedCheckpoint(
            f"{folder} has no image processor that can be used: {error}; install or restore what is missing, "
            "or use another checkpoint"
        ) from error


def _without_videos(kind: Any) -> Any:
    """Return a subclass of a processor class that works without processors of videos and sounds."""

    class PicturesAndTexts(kind):  # type: ignore[misc]  # chosen by the checkpoint
        def check_argument_for_proper_class(self, name: str, argument: Any) -> Any:
            return None if argument is None else super().check_argument_for_proper_class(name, argument)

    PicturesAndTexts.__name__ = kind.__name__
    return PicturesAndTexts
