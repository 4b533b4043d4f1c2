"""The small policy of the laptop job, as a `dart.policy.base.Policy`, and its files.

On disk it is one folder with safetensors, configuration, tokenizer and processor. Importing this module
registers its classes with the Auto classes of transformers.
"""

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoImageProcessor,
    AutoModelForImageTextToText,
    AutoProcessor,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging as transformers_logging

from dart.core.types import Step
from dart.policy.base import Policy
from dart.policy.codec import GRID, PromptCodec
from dart.policy.configuration import GuiPolicyConfig
from dart.policy.modeling import GuiPolicyForImageTextToText
from dart.policy.pointer.patches import PatchGrid
from dart.policy.processing import GuiPolicyImageProcessor, GuiPolicyProcessor
from dart.policy.protocols import Prompt, Screen, check_patches
from dart.policy.sampling import AnswerScores, SampledAnswer, sample
from dart.policy.scoring import prefix_of, score_steps
from dart.policy.written_weights import write_model

AutoConfig.register(GuiPolicyConfig.model_type, GuiPolicyConfig, exist_ok=True)
AutoModelForImageTextToText.register(GuiPolicyConfig, GuiPolicyForImageTextToText, exist_ok=True)
AutoImageProcessor.register(
    GuiPolicyConfig,
    image_processor_classes={"pil": GuiPolicyImageProcessor, "torchvision": GuiPolicyImageProcessor},
    exist_ok=True,
)
AutoProcessor.register(GuiPolicyConfig, GuiPolicyProcessor, exist_ok=True)

transformers_logging.disable_progress_bar()  # a bar per checkpoint would break the live view and the logs


class SmallPolicy(Policy):
    """The model of `dart.policy.modeling` with its codec and its processor.

    Every weight is trained. The model itself checks the number of image placeholders in a prompt.
    """

    module: GuiPolicyForImageTextToText
    codec: PromptCodec

    def __init__(self, folder: Path) -> None:
        """Load the model in evaluation mode. Raises OSError, ValueError or RuntimeError for damaged files."""
        self.module = AutoModelForImageTextToText.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, use_safetensors=True
        ).eval()
        self._processor = _load_processor(folder)
        self.codec = _codec_of(self._processor)

    def sample(
        self,
        prompts: Sequence[Prompt],
        screens: Sequence[Sequence[Screen]],
        temperatures: Sequence[float],
        generator: torch.Generator,
    ) -> list[SampledAnswer]:
        pixels = torch.stack([torch.from_numpy(row[-1].pixels) for row in screens])
        return sample(self.module, [prompt.token_ids for prompt in prompts], pixels, temperatures, generator)

    def score(self, steps: Sequence[Step], screens: Mapping[str, Screen], temperature: float) -> AnswerScores:
        pixels = {sha256: torch.from_numpy(screen.pixels) for sha256, screen in screens.items()}
        return score_steps(self.module, steps, pixels, temperature)

    def sort_key(self, step: Step) -> Any:
        """Return the prompt and the screenshot of a step, so that steps that share both are neighbours."""
        return prefix_of(step)

    def prefix_key(self, step: Step) -> Hashable:
        return prefix_of(step)

    def token_count(self, step: Step) -> int:
        return len(step.prompt_ids) + len(step.token_ids)

    def patch_count(self, step: Step) -> int:
        return int(self.module.config.patches)

    def patch_grid(self, screen: Screen) -> PatchGrid:
        return GRID

    def check_prompt(self, step: Step, screens: Mapping[str, Screen]) -> None:
        """Raise ForeignPrompt when the points of a recorded answer cannot have been drawn by this policy."""
        check_patches(step, self.codec.pointer, self.module.config.patches)

    def save(
        self, folder: Path, weights: Mapping[str, Tensor] | None = None, dtype: torch.dtype | None = None
    ) -> None:
        write_model(self.module, folder, weights, dtype)
        self._processor.save_pretrained(folder)


def load_codec(folder: Path) -> PromptCodec:
    """Load the codec of a checkpoint, without its model. Raises OSError or ValueError for damaged files."""
    return _codec_of(_load_processor(folder))


def save_policy(model: GuiPolicyForImageTextToText, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write into a fresh folder everything that `SmallPolicy` and the Auto classes need. Not atomic."""
    model.save_pretrained(folder)
    processor = GuiPolicyProcessor(GuiPolicyImageProcessor(), tokenizer, model.config.image_tokens)
    processor.save_pretrained(folder)


def _load_processor(folder: Path) -> GuiPolicyProcessor:
    processor: GuiPolicyProcessor = AutoProcessor.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    )
    return processor


def _codec_of(processor: GuiPolicyProcessor) -> PromptCodec:
    """Return the codec that writes the same prompts as this processor."""
    return PromptCodec(processor.tokenizer.backend_tokenizer, processor.image_tokens)
