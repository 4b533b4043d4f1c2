"""Sampling of the small policy's answers, and log-probs of given answers under the same distribution.

`sample` and `teacher_forced` take prompts as lists of token ids of any length, and the screenshots as one
uint8 tensor [B, H, W, 3]. Prompts are padded on the left and masked, so the other prompts of a batch have no
effect. The classes and the helper functions also serve vision-language policies (`dart.policy.vlm`).
The sampling distribution is softmax(logits / temperature) over the whole vocabulary.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from dart.policy.codec import GRID
from dart.policy.modeling import GuiPolicyModel, GuiPolicyOutput
from dart.policy.pointer.patches import PatchGrid
from dart.policy.pointer.regions import decode_regions

MAX_ANSWER_TOKENS = 16


@dataclass(frozen=True, slots=True)
class SampledAnswer:
    """One sampled answer; tokens, log-probs and entropies have one entry per token, end token included."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Natural log of the probability in the sampling distribution; 0 for greedy answers."""
    entropies: tuple[float, ...]
    """Entropy of the sampling distribution in nats; 0 for greedy answers."""
    centres: tuple[tuple[float, float], ...] = ()
    """Points of a greedy answer's pointers, in order (`dart.core.types.Generation.centres`); else empty."""


@dataclass(frozen=True, slots=True)
class PatchCentre:
    """The point of a pointer in an answer that is being drawn greedily."""

    position: int
    """Position of the pointer's patch among the tokens of the answer."""
    centre: tuple[float, float]


@dataclass(frozen=True, slots=True)
class PatchScores:
    """The pointer head's logits at the P patch tokens of some answers, by answer, then by position."""

    rows: Tensor
    """int64 [P], index of the answer that contains the patch token."""
    logits: Tensor
    """[P, m] for the m patches of the largest screenshot, with gradients; about -1e9 at padding."""


@dataclass(frozen=True, slots=True)
class AnswerScores:
    """Teacher-forced scores of B answers, padded on the right to the K tokens of the longest answer."""

    logprobs: Tensor
    """Log-probs [B, K] of the answer tokens, 0 at padding."""
    entropies: Tensor
    """Entropies [B, K] of the distribution before each answer token, in nats, 0 at padding. No gradients."""
    mask: Tensor
    """bool [B, K], true at answer tokens."""
    patches: PatchScores | None = None
    """The pointer head's logits at the answers' patch tokens; None if no answer contains a patch."""
    element_logprobs: Tensor | None = None
    """`logprobs` in which a click has the log-prob of a click on its element, at any of the element's points
    (`of_elements`). None if no answer clicks a known element."""


@torch.inference_mode()
def sample(
    model: GuiPolicyModel,
    prompts: Sequence[Sequence[int]],
    pixels: Tensor,
    temperatures: Sequence[float],
    generator: torch.Generator,
    max_new_tokens: int = MAX_ANSWER_TOKENS,
) -> list[SampledAnswer]:
    """Sample one answer per prompt, each at its temperature (0: greedy). An answer ends with the end token,
    or after `max_new_tokens`."""
    ids, mask = pad_left(prompts, model.config.pad_token_id)
    out = model(ids, mask, pixels.permute(0, 3, 1, 2), use_cache=True, logits_to_keep=1)
    return sample_after(model, out, temperatures, generator, max_new_tokens)


@torch.inference_mode()
def sample_after(
    model: GuiPolicyModel,
    out: GuiPolicyOutput,
    temperatures: Sequence[float],
    generator: torch.Generator,
    max_new_tokens: int = MAX_ANSWER_TOKENS,
) -> list[SampledAnswer]:
    """Sample one answer after each prefix, like `sample`.

    out   the model's output after the prefixes, with its cache
    """
    config = model.config
    temperature = torch.tensor(temperatures, dtype=torch.float32)
    drawn: list[tuple[Tensor, Tensor, Tensor]] = []
    centres: list[list[PatchCentre]] = [[] for _ in temperatures]
    running = torch.ones(len(temperatures), dtype=torch.bool)
    while len(drawn) < max_new_tokens:
        if model.has_patches and drawn:
            points = (drawn[-1][0] == config.pointer_token_id) & running & (temperature == 0)
            for row in points.nonzero().flatten().tolist():
                centre = region_centre(out.pointer[row, -1], GRID)
                centres[row].append(PatchCentre(len(drawn), centre))
        token, logprob, entropy = draw_tokens(out.logits[:, -1], temperature, generator)
        drawn.append((token, logprob, entropy))
        running &= token != config.eos_token_id
        if not running.any():
            break
        out = model(token[:, None], past_key_values=out.past_key_values, logits_to_keep=1)
    return drawn_answers(drawn, (config.eos_token_id,), centres)


def teacher_forced(
    model: GuiPolicyModel,
    prompts: Sequence[Sequence[int]],
    answers: Sequence[Sequence[int]],
    pixels: Tensor,
) -> tuple[GuiPolicyOutput, Tensor, Tensor]:
    """Return the model's output before each answer token, the answer tokens [B, K] and their mask [B, K]."""
    pad = model.config.pad_token_id
    prompt_ids, prompt_mask = pad_left(prompts, pad)
    targets, mask = pad_right(answers, pad)
    ids = torch.cat([prompt_ids, targets[:, :-1]], 1)
    valid = torch.cat([prompt_mask, mask[:, :-1]], 1)
    out = model(ids, valid, pixels.permute(0, 3, 1, 2), logits_to_keep=targets.shape[1])
    return out, targets, mask


def answer_scores(logits: Tensor, targets: Tensor, mask: Tensor, temperature: float) -> AnswerScores:
    """Score answer tokens [B, K] under softmax(logits / temperature); results are on the CPU.

    logits   [B, K, V], before each answer token
    """
    chosen, entropy = token_scores(logits, targets.to(logits.device), temperature)
    return AnswerScores(chosen.cpu() * mask, entropy.cpu() * mask, mask)


def token_scores(logits: Tensor, tokens: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return log-probs and entropies of tokens, or patches, [...] under softmax(logits / temperature).

    logits   [..., V], before each token

    The entropies have no gradients.
    """
    logp = F.log_softmax(logits / temperature, -1)
    return _of(tokens, logp), _entropy(logp.detach())


Alike = Mapping[int, Sequence[int]]
"""By position in an answer, all tokens or patches that click the same element, the drawn one included."""


def of_elements(
    logprobs: Tensor,
    alike: Sequence[Alike],
    logits_at: Callable[[Tensor, Tensor], Tensor],
    temperature: float,
) -> Tensor | None:
    """Return `logprobs` [B, K] in which each click has the log-prob of its whole element.

    Where the reward depends on the clicked element only, the expected policy gradient is the same as with the
    drawn choices, and its variance is smaller (Rao-Blackwell).

    alike       for each answer
    logits_at   function that returns the logits [N, V] of the tokens or patches at N rows and columns of
                `logprobs`

    The result is None if no answer clicks a known element.
    """
    places = [(row, column, choices) for row, one in enumerate(alike) for column, choices in one.items()]
    if not places:
        return None
    rows, columns = torch.tensor([place[:2] for place in places]).T
    logp = F.log_softmax(logits_at(rows, columns).float() / temperature, -1)
    is_other = torch.ones(logp.shape, dtype=torch.bool)
    for other, (_, _, choices) in zip(is_other, places, strict=True):
        other[list(choices)] = False
    chosen = logp.masked_fill(is_other.to(logp.device), -math.inf).logsumexp(-1).cpu()
    return logprobs.index_put((rows, columns), chosen.to(logprobs.dtype))


def _of(tokens: Tensor, logp: Tensor) -> Tensor:
    return logp.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def _entropy(logp: Tensor) -> Tensor:
    return -(logp.exp() * logp).sum(-1)


def pad_left(rows: Sequence[Sequence[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Return rows of token ids as ids [B, T] and mask bool [B, T] (false: padding), padding first."""
    width = max(map(len, rows))
    ids = torch.tensor([[pad_id] * (width - len(row)) + list(row) for row in rows])
    mask = torch.tensor([[False] * (width - len(row)) + [True] * len(row) for row in rows])
    return ids, mask


def pad_right(rows: Sequence[Sequence[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Return rows of token ids as ids [B, T] and mask bool [B, T] (false: padding), padding last."""
    width = max(map(len, rows))
    ids = torch.tensor([list(row) + [pad_id] * (width - len(row)) for row in rows])
    mask = torch.tensor([[True] * len(row) + [False] * (width - len(row)) for row in rows])
    return ids, mask


def draw_tokens(
    logits: Tensor, temperature: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw tokens, or patches, from logits [B, V]; returns token, log-prob and entropy [B] each.

    Where the temperature is 0, the token is the most likely one, and log-prob and entropy are 0.
    """
    greedy = temperature == 0
    logp = F.log_softmax(logits / torch.where(greedy, 1.0, temperature)[:, None], -1)
    token = torch.multinomial(logp.exp(), 1, generator=generator).squeeze(1)
    token = torch.where(greedy, logp.argmax(-1), token)
    return token, _of(token, logp).masked_fill(greedy, 0.0), _entropy(logp).masked_fill(greedy, 0.0)


def generator_on(device: torch.device, generator: torch.Generator) -> torch.Generator:
    """Return the generator for draws on a device, which `generator` on the CPU seeds.

    Logits of a vocabulary of 150,000 tokens take longer to copy to the CPU and to draw from there than a
    model on a GPU takes to compute them.
    """
    if device.type == "cpu":
        return generator
    seed = torch.randint(2**62, (), generator=generator)
    return torch.Generator(device).manual_seed(int(seed))


def region_centre(scores: Tensor, grid: PatchGrid) -> tuple[float, float]:
    """Return the centre of the region with the highest mean attention, in fractions of the screen.

    scores   logits [m] of the patches of the grid
    """
    attention = scores.detach().float().softmax(-1).cpu().numpy()
    return decode_regions(attention, grid, 1)[0].centre


def drawn_answers(
    drawn: Sequence[tuple[Tensor, Tensor, Tensor]],
    ends: Collection[int],
    centres: Sequence[Sequence[PatchCentre]],
) -> list[SampledAnswer]:
    """Split the draws of a batch into answers; each ends with its first token of `ends`.

    drawn     token, log-prob and entropy [B] for each position
    centres   for each answer, the points of its pointers if the answer is greedy, else nothing; those after
              the end of the answer are left out
    """
    tokens, logprobs, entropies = (torch.stack(column, 1).tolist() for column in zip(*drawn, strict=True))
    lengths = [next((n for n, token in enumerate(row, 1) if token in ends), len(row)) for row in tokens]
    return [
        SampledAnswer(
            tuple(tokens[i][:n]),
            tuple(logprobs[i][:n]),
            tuple(entropies[i][:n]),
            tuple(one.centre for one in centres[i] if one.position < n),
        )
        for i, n in enumerate(lengths)
    ]
