"""A policy in memory: engines sample from it and the learner trains it. Imports torch."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from dart.core.types import Step
from dart.policy.pointer.patches import PatchGrid
from dart.policy.protocols import Codec, Prompt, Screen
from dart.policy.sampling import AnswerScores, SampledAnswer

Scorer = Callable[[Sequence[Step], Mapping[str, Screen], float], AnswerScores]
"""Function with the arguments and the result of `Policy.score`."""


class Policy(ABC):
    """A loaded checkpoint with its codec. Only one thread may call it."""

    module: Any
    """The model, an nn.Module."""
    codec: Codec
    """The translation between texts, images and tokens."""

    has_adapter = False
    """Whether an adapter is trained instead of all weights."""

    draws_points = True
    """Whether the policy writes a point as patches or bins, and not as digits."""

    saves_only_trained = False
    """Whether `save` needs only the trained weights."""

    def trainable(self) -> list[nn.Parameter]:
        """Return the weights that require a gradient, for the optimizer."""
        return [weight for weight in self.module.parameters() if weight.requires_grad]

    def copy_sharing_weights(self) -> Self:
        """Return this policy with a model object of its own, which shares the weights.

        Another thread may use the copy. Do not call this method while the policy computes: a computation adds
        hooks to the model until it ends, and the copy would keep them.
        """
        shared: dict[int, Any] = {id(one): one for one in (*self.module.parameters(), *self.module.buffers())}
        made = copy.copy(self)
        made.module = copy.deepcopy(self.module, shared)
        return made

    @abstractmethod
    def sample(
        self,
        prompts: Sequence[Prompt],
        screens: Sequence[Sequence[Screen]],
        temperatures: Sequence[float],
        generator: torch.Generator,
    ) -> list[SampledAnswer]:
        """Sample one answer per prompt. Each prompt has its own screens and temperature (0: greedy)."""

    @abstractmethod
    def score(self, steps: Sequence[Step], screens: Mapping[str, Screen], temperature: float) -> AnswerScores:
        """Score the recorded answers under softmax(logits / temperature). Results are on the CPU, and the
        log-probs have gradients.

        screens   every screenshot that `dart.policy.protocols.screenshots_of` names for the steps, by sha256
        """

    @abstractmethod
    def patch_count(self, step: Step) -> int:
        """Return the number of patches of a step's screenshot. Meaningful only with a pointer head."""

    @abstractmethod
    def patch_grid(self, screen: Screen) -> PatchGrid:
        """Return the patch grid of a screenshot. Call it only for a policy with a pointer head."""

    def base_scorer(self) -> Scorer | None:
        """Return a scorer of the base policy if the weights still contain it, as with LoRA; else None."""
        return None

    def keeping_images(self, steps: Iterable[Step], limit_bytes: int) -> AbstractContextManager[None]:
        """Return a context manager in which the calls of `score` share processed screenshots.

        steps         every step that will be scored, repeated as often as it will be scored
        limit_bytes   largest memory for processed screenshots; one that does not fit is processed each time

        A policy without an image processor keeps nothing.
        """
        return nullcontext()

    @abstractmethod
    def sort_key(self, step: Step) -> Any:
        """Return a sort key: steps that are neighbours in this order are cheap to score together."""

    def prefix_key(self, step: Step) -> Hashable | None:
        """Return a key that is equal for steps that are cheaper to score together.

        None: no other step is cheaper to score together with this one.
        """
        return None

    @abstractmethod
    def token_count(self, step: Step) -> int:
        """Return the number of tokens that the model reads for a step: prompt, images and answer."""

    def check_prompt(self, step: Step, screens: Mapping[str, Screen]) -> None:  # noqa: B027
        """Raise ForeignPrompt when this policy cannot have been given the recorded prompt."""

    @abstractmethod
    def save(
        self, folder: Path, weights: Mapping[str, Tensor] | None = None, dtype: torch.dtype | None = None
    ) -> None:
        """Write into a fresh folder everything that is needed to load the policy again. Not atomic.

        weights   the weights to write, by name; None: the current weights of `module`
        dtype     precision in which engines read the weights; None: the precision that they have
        """
