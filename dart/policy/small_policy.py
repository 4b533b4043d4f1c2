"""The small policy of the laptop job, as a `dart.policy.base.Policy`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dart.core.types import Step
from dart.policy.codec import PromptCodec
from dart.policy.modeling import GuiPolicyForImageTextToText
from dart.policy.protocols import Prompt, Screen
from dart.policy.sampling import MAX_ANSWER_TOKENS, AnswerScores, SampledAnswer, sample
from dart.policy.scoring import prefix_of, score_steps
from dart.policy.small_policy_files import codec_of, load_parts


class SmallPolicy:
    """The model of `dart.policy.modeling` with its codec and its processor."""

    def __init__(self, folder: Path, answer_tokens: int = MAX_ANSWER_TOKENS) -> None:
        """Load the policy. Raises CheckpointError."""
        self.module: GuiPolicyForImageTextToText
        self.module, self._processor = load_parts(folder)
        self._codec = codec_of(self._processor)
        self._answer_tokens = answer_tokens

    @property
    def codec(self) -> PromptCodec:
        """The translation between texts and tokens."""
        return self._codec

    def trainable(self) -> list[nn.Parameter]:
        """Return every weight."""
        return list(self.module.parameters())

    def base_scorer(self) -> None:
        """Return None: training changes every weight, so the base policy cannot be had from this one.

        The trainer loads a frozen copy of it."""

    def sample(
        self,
        prompts: Sequence[Prompt],
        screens: Sequence[Sequence[Screen]],
        temperatures: Sequence[float],
        generator: torch.Generator,
    ) -> list[SampledAnswer]:
        """Sample one answer per prompt, each at its temperature (0: greedy)."""
        pixels = torch.stack([torch.from_numpy(row[-1].pixels) for row in screens])
        token_ids = [prompt.token_ids for prompt in prompts]
        return sample(self.module, token_ids, pixels, temperatures, generator, self._answer_tokens)

    def score(self, steps: Sequence[Step], screens: Mapping[str, Screen], temperature: float) -> AnswerScores:
        """Score recorded answers; each distinct prefix is computed once."""
        pixels = {sha256: torch.from_numpy(screen.pixels) for sha256, screen in screens.items()}
        return score_steps(self.module, steps, pixels, temperature)

    def sort_key(self, step: Step) -> Any:
        """Return the prefix, so that equal prefixes become neighbours and are computed once."""
        return prefix_of(step)

    def token_count(self, step: Step) -> int:
        """Return the number of tokens of prompt and answer."""
        return len(step.prompt_ids) + len(step.token_ids)

    def check_prompt(self, step: Step, screens: Mapping[str, Screen]) -> None:
        """Do nothing: the model itself checks the number of placeholders."""

    def save(self, folder: Path, weights: Mapping[str, Tensor] | None = None) -> None:
        """Write model, configuration, tokenizer and processor."""
        self.module.save_pretrained(folder, state_dict=weights)
        self._processor.save_pretrained(folder)
