"""A vision-language checkpoint as a policy: sampling, and log-probs of recorded answers.

The sampling distribution is softmax(logits / temperature) over the vocabulary without the tokens that stand
for images: an answer with one of them could not be part of the next prompt. Sampling and scoring feed the
same prompt tokens and the same pixels through the same model, so they differ by rounding only.

Shapes: B rows, T tokens, K answer positions, V vocabulary.
"""

import inspect
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from dart.core.types import Step
from dart.policy.base import Policy
from dart.policy.protocols import ForeignPrompt, Prompt, Screen, screenshots_of
from dart.policy.sampling import (
    AnswerScores,
    SampledAnswer,
    answer_scores,
    draw_tokens,
    drawn_answers,
    pad_left,
    pad_right,
)
from dart.policy.vlm_codec import VisionLanguageCodec
from dart.policy.vlm_images import ImageTokens

NEVER = -1e9
"""The logit of a token that is never sampled; finite, so that entropies stay numbers."""


class VisionLanguagePolicy(Policy):
    """A vision-language model with its codec."""

    codec: VisionLanguageCodec

    def __init__(
        self,
        module: nn.Module,
        codec: VisionLanguageCodec,
        *,
        files: Mapping[str, bytes],
        answer_tokens: int,
        is_autocast: bool = False,
    ) -> None:
        """files         files of the checkpoint besides configuration and weights; `save` writes them again
        answer_tokens    longest answer in tokens
        is_autocast      compute in bfloat16; the weights keep their precision
        """
        self.module = module
        self.codec = codec
        self._takes = _taken_by(module)
        self._files = files
        self._answer_tokens = answer_tokens
        self._is_autocast = is_autocast

    # ---- sampling ----

    @torch.no_grad()
    def sample(
        self,
        prompts: Sequence[Prompt],
        screens: Sequence[Sequence[Screen]],
        temperatures: Sequence[float],
        generator: torch.Generator,
    ) -> list[SampledAnswer]:
        """Sample one answer per prompt; it ends with an end token or after `answer_tokens`."""
        rows = [
            self.codec.expand_images(prompt.token_ids, row)
            for prompt, row in zip(prompts, screens, strict=True)
        ]
        ids, mask, kinds = self._padded(rows)
        draw = _Draw(temperatures, generator, self.codec.never_sampled)
        with self._computing():
            self.module.generate(
                **self._inputs(ids, mask, kinds, [screen for row in screens for screen in row]),
                generation_config=self._generation(),
                logits_processor=LogitsProcessorList([draw]),
            )
        return drawn_answers(draw.drawn, self.codec.end_ids)

    def _generation(self) -> GenerationConfig:
        """Return generation settings that ignore those of the checkpoint, such as a repetition penalty.

        Answers are then sampled from the distribution under which training scores them.
        """
        return GenerationConfig(
            max_new_tokens=self._answer_tokens,
            do_sample=False,
            eos_token_id=list(self.codec.end_ids),
            pad_token_id=self.codec.pad_id,
            use_cache=True,
        )

    # ---- scoring ----

    def score(self, steps: Sequence[Step], screens: Mapping[str, Screen], temperature: float) -> AnswerScores:
        seen = [[screens[image.sha256] for image in step.images] for step in steps]
        rows = [self.codec.expand_images(step.prompt_ids, row) for step, row in zip(steps, seen, strict=True)]
        prompt_ids, prompt_mask, prompt_kinds = self._padded(rows)
        targets, answered = pad_right([step.token_ids for step in steps], self.codec.pad_id)
        ids = torch.cat([prompt_ids, targets[:, :-1]], 1)
        mask = torch.cat([prompt_mask, answered[:, :-1]], 1)
        kinds = F.pad(prompt_kinds, (0, targets.shape[1] - 1))  # an answer is text
        logits = self._logits(self._inputs(ids, mask, kinds, [one for row in seen for one in row]), targets)
        return answer_scores(_allowed(logits, self.codec.never_sampled), targets, answered, temperature)

    def _logits(self, inputs: Mapping[str, Any], targets: Tensor) -> Tensor:
        """Return logits [B, K, V] before each answer token. Other logits are skipped if the model can."""
        answer_tokens = targets.shape[1]
        kept = {"logits_to_keep": answer_tokens} if "logits_to_keep" in self._takes else {}
        with self._computing():
            logits: Tensor = self.module(**inputs, **kept).logits
        return logits[:, -answer_tokens:]

    def sort_key(self, step: Step) -> Any:
        """Return a sort key that begins with the length: steps of similar length need little padding."""
        return self.token_count(step), screenshots_of(step)

    def token_count(self, step: Step) -> int:
        pictures = sum(image.tokens - 1 for image in step.images)
        return len(step.prompt_ids) + pictures + len(step.token_ids)

    def check_prompt(self, step: Step, screens: Mapping[str, Screen]) -> None:
        """Check that a step's placeholders, images and image tokens agree. Raises ForeignPrompt."""
        if step.prompt_ids.count(self.codec.image_encoder.placeholder_id) != len(step.images):
            raise ForeignPrompt(
                step, f"the placeholders of its prompt do not match its {len(step.images)} images"
            )
        for image in step.images:
            tokens = self.codec.image_tokens(screens[image.sha256])
            if tokens != image.tokens:
                raise ForeignPrompt(
                    step,
                    f"screenshot {image.sha256} had {image.tokens} image tokens when it was sampled, "
                    f"but the trainer's processor makes {tokens}",
                )
        if step.images[-1].sha256 != step.screenshot_sha256:
            raise ForeignPrompt(step, "the last image of its prompt is not the step's screenshot")

    # ---- inputs ----

    def _padded(self, rows: Sequence[ImageTokens]) -> tuple[Tensor, Tensor, Tensor]:
        """Return token ids, mask and token kinds [B, T] of prompts, padding first."""
        ids, mask = pad_left([row.token_ids for row in rows], self.codec.pad_id)
        kinds, _ = pad_left([row.kinds for row in rows], 0)
        return ids, mask, kinds

    def _inputs(self, ids: Tensor, mask: Tensor, kinds: Tensor, screens: Sequence[Screen]) -> dict[str, Any]:
        """Return the inputs of the model: tokens [B, T], and the processed images in the order of the
        rows."""
        inputs = self.codec.image_encoder.inputs([screen.pixels for screen in screens])
        inputs |= {"input_ids": ids, "attention_mask": mask.long()}
        if self.codec.image_encoder.kinds_name in self._takes:
            inputs[str(self.codec.image_encoder.kinds_name)] = kinds
        return {name: self._held(value) for name, value in inputs.items()}

    def _held(self, value: Any) -> Any:
        """Move a tensor to the weights' device; convert floating-point values to the weights' precision."""
        if not isinstance(value, Tensor):
            return value
        weight = next(self.module.parameters())
        return value.to(weight.device, weight.dtype if value.is_floating_point() else value.dtype)

    def _computing(self) -> AbstractContextManager[Any]:
        device = next(self.module.parameters()).device
        return torch.autocast(device.type, torch.bfloat16, enabled=self._is_autocast)

    def save(self, folder: Path, weights: Mapping[str, Tensor] | None = None) -> None:
        self.module.save_pretrained(folder, state_dict=weights)
        write_files(self._files, folder)


def write_files(files: Mapping[str, bytes], folder: Path) -> None:
    """Write these files, by name, into the folder of a checkpoint."""
    for name, content in files.items():
        (folder / name).write_bytes(content)


def _taken_by(module: Any) -> frozenset[str]:
    """Return the names of the arguments of a model's `forward`, also if an adapter wraps the model."""
    model = module.get_base_model() if hasattr(module, "get_base_model") else module
    return frozenset(inspect.signature(model.forward).parameters)


class _Draw(LogitsProcessor):  # type: ignore[misc]  # transformers is not followed
    """Draws each next token and excludes all other tokens, so that `generate` has to take the drawn one.

    Each row has its own temperature, the draws come from the engine's own generator, and the recorded
    log-probs are those of the distribution that was sampled. `generate` handles positions and caches.
    """

    def __init__(
        self, temperatures: Sequence[float], generator: torch.Generator, forbidden: Sequence[int]
    ) -> None:
        self._temperature = torch.tensor(temperatures, dtype=torch.float32)
        self._generator = generator
        self._forbidden = list(forbidden)
        self.drawn: list[tuple[Tensor, Tensor, Tensor]] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        allowed = _allowed(scores, self._forbidden).cpu()
        token, logprob, entropy = draw_tokens(allowed, self._temperature, self._generator)
        self.drawn.append((token, logprob, entropy))
        only = torch.full_like(scores, -torch.inf)
        return only.scatter(1, token.to(scores.device).unsqueeze(1), 0.0)


def _allowed(logits: Tensor, forbidden: Sequence[int]) -> Tensor:
    """Return float32 logits in which the forbidden tokens have no probability."""
    index = torch.tensor(list(forbidden), device=logits.device)
    return logits.float().index_fill(-1, index, NEVER)
