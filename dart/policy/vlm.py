"""A vision-language checkpoint as a policy: sampling, and log-probs of recorded answers.

The sampling distribution is softmax(logits / temperature) over the vocabulary without the tokens that stand
for images: an answer with one of them could not be part of the next prompt. After `<pointer>` it is the
distribution of the pointer head over the patches of the newest screenshot (`dart.policy.vlm_pointer`).
Sampling and scoring feed the same prompt tokens and the same pixels through the same model, so they differ by
rounding only.

Shapes: B rows, T tokens, K answer positions, V vocabulary, d width, n pointers of a row, m patches.
"""

import inspect
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import GenerationConfig, LogitsProcessorList

from dart.core.boxes import Box
from dart.core.types import Step
from dart.policy.base import Policy
from dart.policy.pointer.patches import PatchGrid, patches_that_click
from dart.policy.protocols import (
    ForeignPrompt,
    PointerTokens,
    Prompt,
    Screen,
    check_patches,
    screenshots_of,
)
from dart.policy.sampling import (
    Alike,
    AnswerScores,
    PatchScores,
    SampledAnswer,
    answer_scores,
    drawn_answers,
    of_elements,
    pad_left,
    pad_right,
    token_scores,
)
from dart.policy.vlm_codec import VisionLanguageCodec
from dart.policy.vlm_drawing import Draw, PointerDraw, allowed
from dart.policy.vlm_images import ImageTokens
from dart.policy.vlm_pointer import (
    Seen,
    head_of,
    newest_patches,
    padded_queries,
    positions_of_newest,
    watching,
)
from dart.policy.written_weights import write_model


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
        self.draws_points = codec.pointer is not None

    def parts(self) -> dict[str, Any]:
        """Return the arguments of the constructor except `module`, for another policy that shares them."""
        return {
            "codec": self.codec,
            "files": self._files,
            "answer_tokens": self._answer_tokens,
            "is_autocast": self._is_autocast,
        }

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
        with self._computing(), self._seeing() as seen:
            draw = self._drawing(
                temperatures, generator, self.newest_positions(rows, screens, ids.shape[1]), screens, seen
            )
            self.module.generate(
                **self._inputs(ids, mask, kinds, [screen for row in screens for screen in row]),
                generation_config=self._generation(),
                logits_processor=LogitsProcessorList([draw]),
            )
        return drawn_answers(draw.drawn, self.codec.end_ids, draw.centres)

    def _drawing(
        self,
        temperatures: Sequence[float],
        generator: torch.Generator,
        newest: Sequence[Sequence[int]],
        screens: Sequence[Sequence[Screen]],
        seen: Seen | None,
    ) -> Draw:
        """Return the logits processor that draws the next tokens.

        newest   for each row, the positions of its newest screenshot's tokens
        seen     what the language model reads and computes; None without a pointer head
        """
        forbidden = self.codec.never_sampled
        if seen is None or self.codec.pointer is None:
            return Draw(temperatures, generator, forbidden)

        def attend() -> Tensor:
            assert seen.hidden is not None  # a token was drawn from it
            return self._attention(seen, newest, seen.hidden[:, -1:])[:, 0]

        grids = [self.codec.grid(row[-1].frame) for row in screens]
        return PointerDraw(
            temperatures, generator, forbidden, pointer=self.codec.pointer, grids=grids, attend=attend
        )

    def _seeing(self) -> AbstractContextManager[Seen | None]:
        """Record what the language model reads and computes; yield None if there is no pointer head."""
        return nullcontext() if self.codec.pointer is None else watching(self.module)

    def newest_positions(
        self, rows: Sequence[ImageTokens], screens: Sequence[Sequence[Screen]], width: int
    ) -> list[list[int]]:
        """Return the positions of each row's newest screenshot, in rows padded on the left to `width`."""
        placeholder = self.codec.image_encoder.placeholder_id
        return [
            positions_of_newest(
                row.token_ids, placeholder, self.codec.image_tokens(shown[-1]), width - len(row.token_ids)
            )
            for row, shown in zip(rows, screens, strict=True)
        ]

    def _attention(self, seen: Seen, newest: Sequence[Sequence[int]], queries: Tensor) -> Tensor:
        """Return the head's logits [B, n, m] of the newest screenshot's patches for queries [B, n, d]."""
        assert seen.inputs is not None  # the prompt was read
        patches, mask = newest_patches(seen.inputs, newest)
        logits: Tensor = head_of(self.module)(patches, queries, mask)
        return logits

    def _generation(self) -> GenerationConfig:
        """Return the settings of `generate`; the loaded model has no others (`dart.policy.vlm_load`)."""
        return GenerationConfig(
            max_new_tokens=self._answer_tokens,
            do_sample=False,
            eos_token_id=list(self.codec.end_ids),
            pad_token_id=self.codec.pad_id,
            use_cache=True,
        )

    # ---- scoring ----

    def score(self, steps: Sequence[Step], screens: Mapping[str, Screen], temperature: float) -> AnswerScores:
        shown = [[screens[image.sha256] for image in step.images] for step in steps]
        rows = [
            self.codec.expand_images(step.prompt_ids, row) for step, row in zip(steps, shown, strict=True)
        ]
        prompt_ids, prompt_mask, prompt_kinds = self._padded(rows)
        targets, answered = pad_right([step.token_ids for step in steps], self.codec.pad_id)
        read = self._read(targets)
        ids = torch.cat([prompt_ids, read[:, :-1]], 1)
        mask = torch.cat([prompt_mask, answered[:, :-1]], 1)
        kinds = F.pad(prompt_kinds, (0, targets.shape[1] - 1))  # an answer is text
        with self._computing(), self._seeing() as seen:
            logits = self._logits(
                self._inputs(ids, mask, kinds, [one for row in shown for one in row]), targets
            )
            text = answer_scores(allowed(logits, self.codec.never_sampled), read, answered, temperature)
            if seen is None or self.codec.pointer is None:
                return text
            newest = self.newest_positions(rows, shown, prompt_ids.shape[1])
            alike = [
                self._same_element(step, row[-1], self.codec.pointer)
                for step, row in zip(steps, shown, strict=True)
            ]
            return self._with_patches(text, targets, seen, newest, self.codec.pointer, temperature, alike)

    def _read(self, targets: Tensor) -> Tensor:
        """Return the answer tokens as the model reads them: `<pointer>` in place of each patch."""
        pointer = self.codec.pointer
        return (
            targets if pointer is None else targets.where(targets < pointer.first_patch_id, pointer.token_id)
        )

    def _with_patches(
        self,
        text: AnswerScores,
        targets: Tensor,
        seen: Seen,
        newest: Sequence[Sequence[int]],
        pointer: PointerTokens,
        temperature: float,
        alike: Sequence[Alike],
    ) -> AnswerScores:
        """Return `text` with the scores of patches replaced by those of the pointer head.

        text      scores of all answer tokens [B, K] under the language model's vocabulary
        targets   answer tokens [B, K]
        newest    for each row, the positions of its newest screenshot's tokens
        alike     for each answer, the patches that would have clicked the same element
        """
        assert seen.hidden is not None
        hidden = seen.hidden[:, -targets.shape[1] :]
        points = (targets >= pointer.first_patch_id) & text.mask
        queries, row, place = padded_queries(hidden, points.to(hidden.device))
        logits = self._attention(seen, newest, queries)
        if not len(row):  # every rank has to run the head, forward and backward
            return replace(text, logprobs=text.logprobs + 0.0 * logits.sum().cpu())
        index = targets[points] - pointer.first_patch_id
        chosen, entropies = token_scores(logits[row, place], index.to(logits.device), temperature)
        where = points.nonzero(as_tuple=True)
        logprobs = text.logprobs.index_put(where, chosen.cpu().to(text.logprobs.dtype))
        return replace(
            text,
            logprobs=logprobs,
            element_logprobs=of_elements(
                logprobs, alike, lambda rows, _: logits[rows.to(logits.device), 0], temperature
            ),
            entropies=text.entropies.index_put(where, entropies.cpu().to(text.entropies.dtype)),
            patches=PatchScores(where[0], logits[row, place].cpu()),
        )

    def _same_element(self, step: Step, screen: Screen, pointer: PointerTokens) -> Alike:
        """Return the patches that would have clicked the same element; none for several points."""
        drawn = {
            place: token for place, token in enumerate(step.token_ids) if token >= pointer.first_patch_id
        }
        if step.box is None or len(drawn) != 1:
            return {}
        frame = screen.frame
        patches = patches_that_click(
            Box(*step.box), self.patch_grid(screen), lambda x, y: frame.to_screen(*frame.shown_at(x, y))
        )
        [(place, token)] = drawn.items()
        return {place: patches} if token - pointer.first_patch_id in patches else {}

    def _logits(self, inputs: Mapping[str, Any], targets: Tensor) -> Tensor:
        """Return logits [B, K, V] before each answer token; no others are computed if the model allows it."""
        answer_tokens = targets.shape[1]
        kept = {"logits_to_keep": answer_tokens} if "logits_to_keep" in self._takes else {}
        logits: Tensor = self.module(**inputs, **kept).logits
        return logits[:, -answer_tokens:]

    def sort_key(self, step: Step) -> Any:
        """Return a sort key that begins with the length: steps of similar length need little padding."""
        return self.token_count(step), screenshots_of(step)

    def token_count(self, step: Step) -> int:
        pictures = sum(image.tokens - 1 for image in step.images)
        return len(step.prompt_ids) + pictures + len(step.token_ids)

    def patch_count(self, step: Step) -> int:
        return step.images[-1].tokens

    def patch_grid(self, screen: Screen) -> PatchGrid:
        return self.codec.grid(screen.frame)

    def check_prompt(self, step: Step, screens: Mapping[str, Screen]) -> None:
        """Check that a step's placeholders, images, image tokens, answer and points fit.

        Raises ForeignPrompt.
        """
        if not step.images:
            raise ForeignPrompt(
                step, "its prompt has no image, so another policy or an engine without a model made it"
            )
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
        if forbidden := set(step.token_ids) & set(self.codec.never_sampled):
            raise ForeignPrompt(
                step,
                f"its answer has the token {min(forbidden)}, which stands for images and is never sampled",
            )
        check_patches(step, self.codec.pointer, step.images[-1].tokens)

    # ---- inputs ----

    def keeping_images(self, steps: Iterable[Step], limit_bytes: int) -> AbstractContextManager[None]:
        uses = Counter(sha256 for step in steps for sha256 in screenshots_of(step))
        return self.codec.image_encoder.keeping(uses, limit_bytes)

    def _padded(self, rows: Sequence[ImageTokens]) -> tuple[Tensor, Tensor, Tensor]:
        """Return token ids, mask and token kinds (`ImageTokens.kinds`) [B, T] of prompts, padding first."""
        ids, mask = pad_left([row.token_ids for row in rows], self.codec.pad_id)
        kinds, _ = pad_left([row.kinds for row in rows], 0)
        return ids, mask, kinds

    def _inputs(self, ids: Tensor, mask: Tensor, kinds: Tensor, screens: Sequence[Screen]) -> dict[str, Any]:
        """Return the inputs of the model: tokens [B, T], and the processed images in the order of the
        rows."""
        inputs = self.codec.image_encoder.inputs(screens)
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

    def forward(self, rows: Sequence[ImageTokens], screens: Sequence[Screen], **options: Any) -> Any:
        """Return the model's output for whole prompts, padded on the left, with gradients.

        rows      prompts with their images as tokens
        screens   their screenshots, in the order of the rows
        options   further arguments of the model
        """
        ids, mask, kinds = self._padded(rows)
        with self._computing():
            return self.module(**self._inputs(ids, mask, kinds, screens), **options)

    def save(
        self, folder: Path, weights: Mapping[str, Tensor] | None = None, dtype: torch.dtype | None = None
    ) -> None:
        write_model(self.module, folder, weights, dtype)
        write_files(self._files, folder)


def write_files(files: Mapping[str, bytes], folder: Path) -> None:
    """Write these files, by name, into the folder of a checkpoint."""
    for name, content in files.items():
        (folder / name).write_bytes(content)


def _taken_by(module: Any) -> frozenset[str]:
    """Return the names of the arguments of a model's `forward`, also if an adapter wraps the model."""
    return frozenset(inspect.signature(_model_of(module).forward).parameters)


def _model_of(module: Any) -> Any:
    """Return a model of transformers, also if an adapter wraps it."""
    return module.get_base_model() if hasattr(module, "get_base_model") else module
