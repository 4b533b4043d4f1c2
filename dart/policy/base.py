"""A policy in memory: what engines sample from and the learner trains (a leaf: torch)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from dart.core.types import Step
from dart.policy.protocols import Codec, Prompt, Screen
from dart.policy.sampling import AnswerScores, SampledAnswer


class Scorer(Protocol):
    """Log-probs of recorded answers."""

    def score(self, steps: Sequence[Step], screens: Mapping[str, Screen], temperature: float) -> AnswerScores:
        """Of the recorded tokens in softmax(logits / temperature), on the CPU, with gradient.

        `screens` holds every screenshot of `dart.policy.protocols.screenshots_of` by its sha256.
        """
        ...


class Policy(Scorer, Protocol):
    """A checkpoint with its codec. One thread calls it."""

    @property
    def module(self) -> nn.Module:
        """The model."""
        ...

    @property
    def codec(self) -> Codec:
        """Between texts, pictures and tokens."""
        ...

    def trained(self) -> list[nn.Parameter]:
        """The weights that an optimizer changes."""
        ...

    def sample(
        self,
        prompts: Sequence[Prompt],
        screens: Sequence[Sequence[Screen]],
        temperatures: Sequence[float],
        generator: torch.Generator,
    ) -> list[SampledAnswer]:
        """One answer per prompt, each with its screens and at its temperature (0: greedy)."""
        ...

    def base(self) -> Scorer | None:
        """The policy before it was trained, where these weights still know it; else None."""
        ...

    def order(self, step: Step) -> Any:
        """Steps near each other in this order are scored together cheaply."""
        ...

    def tokens(self, step: Step) -> int:
        """How many tokens a step is for the model, answer included."""
        ...

    def check(self, step: Step, screens: Mapping[str, Screen]) -> None:
        """Raises ForeignPrompt where the recorded prompt is not one of this policy."""
        ...

    def save(self, folder: Path, weights: Mapping[str, Tensor] | None = None) -> None:
        """Everything that is needed to load it again, for engines too. Not atomic: into a fresh folder.

        weights   all of them, where several processes hold a part each
        """
        ...
