"""A vision-language checkpoint as the policy: sampling, and log-probs of recorded answers.

The sampling distribution is softmax(logits / temperature) over the vocabulary without the tokens that stand
for pictures: an answer with one of them could not be told in the next prompt. Sampling and scoring take the
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
from dart.policy.base import Scorer
from dart.policy.protocols import ForeignPrompt, Prompt, Screen, screenshots_of
from dart.policy.sampling import AnswerScores, SampledAnswer, draw_tokens, drawn_answers, pad_left, pad_right
from dart.policy.vlm_codec import VisionLanguageCodec
from dart.policy.vlm_images import ImageTokens

NEVER = -1e9
"""The logit of a token that is never sampled; finite, so that entropies stay numbers."""


class VisionLanguagePolicy:
    """A vision-language model with its codec (`dart.policy.base.Policy`)."""

    def __init__(
        self,
        module: nn.Module,
        codec: VisionLanguageCodec,
        *,
        files: Mapping[str, bytes],
        answer_tokens: int,
        is_autocast: bool = False,
    ) -> None:
        """files         of the checkpoint besides configuration and weights: written along when it is saved
        answer_tokens    an answer is cut after so many
        is_autocast      compute in bfloat16; the weights stay what they are
        """
        self.module: Any = module
        self.codec = codec
        self._takes = _taken_by(module)
        self._files = files
        self._answer_tokens = answer_tokens
        self._is_autocast = is_autocast

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = next(self.module.parameters()).device
        return device

    def trained(self) -> list[nn.Parameter]:
        """The weights that an optimizer changes."""
        return [weight for weight in self.module.parameters() if weight.requires_grad]

    def base(self) -> Scorer | None:
        """Not known any more once every weight has changed."""
        return None

    # ---- sampling ----

    @torch.no_grad()
    def sample(
        self,
        prompts: Sequence[Prompt],
        screens: Sequence[Sequence[Screen]],
        temperatures: Sequence[float],
        generator: torch.Generator,
    ) -> list[SampledAnswer]:
        """One answer per prompt; it ends with the end token, or is cut after `answer_tokens`."""
        laid = [
            self.codec.laid(prompt.token_ids, prompt.images, row)
            for prompt, row in zip(prompts, screens, strict=True)
        ]
        ids, mask, kinds = self._padded(laid)
        draw = _Draw(temperatures, generator, self.codec.never_sampled)
        with self._computing():
            self.module.generate(
                **self._inputs(ids, mask, kinds, [screen for row in screens for screen in row]),
                generation_config=self._generation(),
                logits_processor=LogitsProcessorList([draw]),
            )
        return drawn_answers(draw.drawn, self.codec.ends)

    def _generation(self) -> GenerationConfig:
        """Without the checkpoint's own sampling settings: what is recorded has to be what was drawn from."""
        return GenerationConfig(
            max_new_tokens=self._answer_tokens,
            do_sample=False,
            eos_token_id=list(self.codec.ends),
            pad_token_id=self.codec.pad_id,
            use_cache=True,
        )

    # ---- scoring ----

    def score(self, steps: Sequence[Step], screens: Mapping[str, Screen], temperature: float) -> AnswerScores:
        """Log-probs and entropies of the recorded answers, on the CPU; the log-probs have gradients."""
        seen = [[screens[image.sha256] for image in step.images] for step in steps]
        laid = [
            self.codec.laid(step.prompt_ids, step.images, row) for step, row in zip(steps, seen, strict=True)
        ]
        prompt_ids, prompt_mask, prompt_kinds = self._padded(laid)
        targets, answered = pad_right([step.token_ids for step in steps], self.codec.pad_id)
        ids = torch.cat([prompt_ids, targets[:, :-1]], 1)
        mask = torch.cat([prompt_mask, answered[:, :-1]], 1)
        kinds = F.pad(prompt_kinds, (0, targets.shape[1] - 1))  # an answer is text
        logits = self._logits(self._inputs(ids, mask, kinds, [one for row in seen for one in row]), targets)
        logp = _log_probs(logits, temperature, self.codec.never_sampled)
        chosen = logp.gather(-1, targets.to(logp.device).unsqueeze(-1)).squeeze(-1).cpu()
        entropy = _entropy(logp.detach()).cpu()
        return AnswerScores(chosen * answered, entropy * answered, answered)

    def _logits(self, inputs: Mapping[str, Any], targets: Tensor) -> Tensor:
        """Before each answer token [B, K, V]; of a model that can leave the others out, those alone."""
        answer_tokens = targets.shape[1]
        kept = {"logits_to_keep": answer_tokens} if "logits_to_keep" in self._takes else {}
        with self._computing():
            logits: Tensor = self.module(**inputs, **kept).logits
        return logits[:, -answer_tokens:]

    def order(self, step: Step) -> Any:
        """Steps of the same length pad each other least."""
        return self.tokens(step), screenshots_of(step)

    def tokens(self, step: Step) -> int:
        """Prompt, its images, and answer."""
        pictures = sum(image.tokens - 1 for image in step.images)
        return len(step.prompt_ids) + pictures + len(step.token_ids)

    def check(self, step: Step, screens: Mapping[str, Screen]) -> None:
        """As many placeholders as images, each image the screenshot it was, with the tokens it had."""
        if step.prompt_ids.count(self.codec.pictures.placeholder_id) != len(step.images):
            raise ForeignPrompt(step, f"its prompt was not made for {len(step.images)} images")
        for image in step.images:
            tokens = self.codec.image_tokens(screens[image.sha256])
            if tokens != image.tokens:
                raise ForeignPrompt(
                    step,
                    f"screenshot {image.sha256} took {image.tokens} image tokens when it was sampled, "
                    f"for the trainer it takes {tokens}",
                )
        if step.images[-1].sha256 != step.screenshot_sha256:
            raise ForeignPrompt(step, "the last image of its prompt is not its own screenshot")

    # ---- both ----

    def _padded(self, rows: Sequence[ImageTokens]) -> tuple[Tensor, Tensor, Tensor]:
        """Ids, mask and kinds [B, T] of prompts, padding first."""
        ids, mask = pad_left([row.token_ids for row in rows], self.codec.pad_id)
        kinds, _ = pad_left([row.kinds for row in rows], 0)
        return ids, mask, kinds

    def _inputs(self, ids: Tensor, mask: Tensor, kinds: Tensor, screens: Sequence[Screen]) -> dict[str, Any]:
        """What the model takes: tokens [B, T], and what its processor makes of all images in the order of the
        rows."""
        inputs = self.codec.pictures.inputs([screen.pixels for screen in screens])
        inputs |= {"input_ids": ids, "attention_mask": mask.long()}
        if self.codec.pictures.kinds_name in self._takes:
            inputs[str(self.codec.pictures.kinds_name)] = kinds
        return {name: self._held(value) for name, value in inputs.items()}

    def _held(self, value: Any) -> Any:
        """Where the weights are and, of pictures, in the precision they have."""
        if not isinstance(value, Tensor):
            return value
        weight = next(self.module.parameters())
        return value.to(weight.device, weight.dtype if value.is_floating_point() else value.dtype)

    def _computing(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self._is_autocast)

    def save(self, folder: Path, weights: Mapping[str, Tensor] | None = None) -> None:
        """Weights, configuration, and the files that came with the checkpoint, as they were."""
        self.module.save_pretrained(folder, state_dict=weights)
        write_files(self._files, folder)


def write_files(files: Mapping[str, bytes], folder: Path) -> None:
    """The files that came with a checkpoint, as they were."""
    for name, content in files.items():
        (folder / name).write_bytes(content)


def _taken_by(module: Any) -> frozenset[str]:
    """The names of what a model takes, below whatever is wrapped around it."""
    model = module.get_base_model() if hasattr(module, "get_base_model") else module
    return frozenset(inspect.signature(model.forward).parameters)


class _Draw(LogitsProcessor):  # type: ignore[misc]  # transformers is not followed
    """Draws each next token itself and leaves `generate` no other choice.

    So every row has its own temperature, the draws come from the engine's own generator, and what is recorded
    is exactly what was drawn from; positions and caches stay the model's business.
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
    """float32, without the tokens that are never sampled."""
    index = torch.tensor(list(forbidden), device=logits.device)
    return logits.float().index_fill(-1, index, NEVER)


def _log_probs(logits: Tensor, temperature: float, forbidden: Sequence[int]) -> Tensor:
    return F.log_softmax(_allowed(logits, forbidden) / temperature, -1)


def _entropy(logp: Tensor) -> Tensor:
    return -(logp.exp() * logp).sum(-1)
