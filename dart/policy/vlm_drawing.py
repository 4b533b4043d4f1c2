"""Drawing the next token of a vision-language model inside the `generate` of transformers. Imports torch."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from transformers import LogitsProcessor

from dart.policy.pointer.head import NEVER
from dart.policy.pointer.patches import PatchGrid
from dart.policy.protocols import PointerTokens
from dart.policy.sampling import PatchCentre, draw_tokens, generator_on, region_centre


class Draw(LogitsProcessor):  # type: ignore[misc]  # transformers is not followed
    """Draws each next token and excludes all other tokens, so that `generate` has to take the drawn one.

    Each row has its own temperature, the draws come from the engine's own generator, and the recorded
    log-probs are those of the distribution that was sampled. `generate` handles positions and caches.
    """

    def __init__(
        self, temperatures: Sequence[float], generator: torch.Generator, forbidden: Sequence[int]
    ) -> None:
        self._temperature = torch.tensor(temperatures, dtype=torch.float32)
        self._generator = generator
        self._on_device: tuple[Tensor, torch.Generator] | None = None
        """Temperatures and generator on the device of the logits; None before the first draw."""
        self._forbidden = list(forbidden)
        self.drawn: list[tuple[Tensor, Tensor, Tensor]] = []
        """Token, log-prob and entropy [B] for each position."""
        self.centres: list[list[PatchCentre]] = [[] for _ in temperatures]
        """For each row, the points of a greedy answer's pointers so far, also of those after its end."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return scores [B, V] in which only the drawn token of each row is possible."""
        if self._on_device is None:
            device = scores.device
            self._on_device = self._temperature.to(device), generator_on(device, self._generator)
        found = draw_tokens(allowed(scores, self._forbidden), *self._on_device)
        self.drawn.append(self._pointed(*(value.cpu() for value in found)))
        only = torch.full_like(scores, -torch.inf)
        return only.scatter(1, self._read(self.drawn[-1][0]).to(scores.device).unsqueeze(1), 0.0)

    def _pointed(self, token: Tensor, logprob: Tensor, entropy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Replace token, log-prob and entropy in rows whose next token is a patch; this class has none."""
        return token, logprob, entropy

    def _read(self, token: Tensor) -> Tensor:
        """Return the drawn tokens as the model reads them."""
        return token


class PointerDraw(Draw):
    """Draws a patch after each `<pointer>`; the model reads `<pointer>` again in place of the patch."""

    def __init__(
        self,
        temperatures: Sequence[float],
        generator: torch.Generator,
        forbidden: Sequence[int],
        *,
        pointer: PointerTokens,
        grids: Sequence[PatchGrid],
        attend: Callable[[], Tensor],
    ) -> None:
        """grids    the patches of each row's newest screenshot
        attend   returns the logits [B, m] of the patches for the newest hidden states
        """
        super().__init__(temperatures, generator, forbidden)
        self._pointer = pointer
        self._grids = grids
        self._attend = attend

    def _pointed(self, token: Tensor, logprob: Tensor, entropy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows = self._after_pointer()
        if not len(rows):
            return token, logprob, entropy
        logits = self._attend().cpu()[rows]
        index, patch_logprob, patch_entropy = draw_tokens(logits, self._temperature[rows], self._generator)
        self._find_centres(rows, logits)
        return (
            token.index_copy(0, rows, index + self._pointer.first_patch_id),
            logprob.index_copy(0, rows, patch_logprob.to(logprob.dtype)),
            entropy.index_copy(0, rows, patch_entropy.to(entropy.dtype)),
        )

    def _after_pointer(self) -> Tensor:
        """Return the rows whose newest token is `<pointer>`."""
        if not self.drawn:
            return torch.tensor([], dtype=torch.long)
        return (self.drawn[-1][0] == self._pointer.token_id).nonzero().flatten()

    def _find_centres(self, rows: Tensor, logits: Tensor) -> None:
        for row, scores in zip(rows.tolist(), logits, strict=True):
            if self._temperature[row] == 0:
                grid = self._grids[row]
                centre = region_centre(scores[: grid.patches], grid)
                self.centres[row].append(PatchCentre(len(self.drawn), centre))

    def _read(self, token: Tensor) -> Tensor:
        return token.where(token < self._pointer.first_patch_id, self._pointer.token_id)


def allowed(logits: Tensor, forbidden: Sequence[int]) -> Tensor:
    """Return float32 logits in which the forbidden tokens have no probability."""
    index = torch.tensor(list(forbidden), device=logits.device)
    return logits.float().index_fill(-1, index, NEVER)
