"""The verifier: a policy that is asked whether a marked point is what an instruction means. Imports torch.

The score is P(True) / (P(True) + P(False)) of the next token after a crop with a mark and a question. Each of
the two words must be one token, because first pieces of longer words would not be comparable.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dart.config.sections import GroundingSettings
from dart.core.screenspot import GroundingDataError, GroundingSample
from dart.grounding.data import pixels_of
from dart.grounding.marks import marked_crop
from dart.grounding.verification import MarkedPoint, training_points
from dart.policy.codec import fitted
from dart.policy.load import load
from dart.policy.placement import ModelPlacement
from dart.policy.pointer.model import INSTRUCTION, Point
from dart.policy.pointer.vlm_grounding import ImagePrompts
from dart.policy.protocols import Pixels, UnsupportedCheckpoint
from dart.policy.sampling import pad_left
from dart.policy.small_policy import SmallPolicy, read_tokenizer
from dart.policy.vlm import VisionLanguagePolicy
from dart.policy.vocabulary import FRAME_HEIGHT_PX, FRAME_WIDTH_PX, PATCH_PX
from dart.training.updates import Report, run_updates

QUESTION = f"Is the red circle on the place that is meant by: {INSTRUCTION}? True or False"

ANSWERS = ("True", "False")

UNKNOWN_PATCH_PX = 28
"""Side of a patch that is assumed for families that cut images into tiles: the side in Qwen2.5-VL."""


class Verifier(ABC):
    """A policy that is asked whether a marked point is right. Only one thread may call it."""

    module: Any
    """The model, an nn.Module."""

    @abstractmethod
    def logits(self, crops: Sequence[Pixels], instructions: Sequence[str]) -> Tensor:
        """Return the logits [B, 2] of True and False after marked crops, with gradients."""

    @abstractmethod
    def patch(self, image: Pixels) -> Point:
        """Return width and height of a patch of this family on a screenshot, in fractions of the screen.

        The distance of near misses from a box is a multiple of this size (`near_misses`).
        """

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write a checkpoint into a fresh folder. Not atomic."""

    @torch.no_grad()
    def score(self, image: Pixels, instruction: str, point: Point) -> float:
        """Return the probability that a point of a screenshot is what the instruction means.

        point   in fractions of the screen
        """
        both = self.logits([marked_crop(image, point)], [instruction])[0].float()
        return float(both.softmax(-1)[0])


class SmallVerifier(Verifier):
    """A small policy as the verifier. It sees each crop resized to the policy's frame."""

    def __init__(self, policy: SmallPolicy, folder: Path) -> None:
        """Raises UnsupportedCheckpoint when True or False is not one token."""
        self.module = policy.module
        self._policy = policy
        tokenizer = read_tokenizer(folder)
        self._answers = answer_ids(lambda text: tokenizer.encode(text, add_special_tokens=False).ids, folder)

    def logits(self, crops: Sequence[Pixels], instructions: Sequence[str]) -> Tensor:
        prompts = [
            self._policy.codec.encode_prompt(QUESTION.replace(INSTRUCTION, instruction), ())
            for instruction in instructions
        ]
        ids, valid = pad_left(prompts, self.module.config.pad_token_id)
        pixels = torch.stack([torch.from_numpy(fitted(crop)) for crop in crops]).permute(0, 3, 1, 2)
        out = self.module(ids, valid, pixels, logits_to_keep=1)
        return torch.stack([out.logits[:, -1, token] for token in self._answers], -1)

    def patch(self, image: Pixels) -> Point:
        return PATCH_PX / FRAME_WIDTH_PX, PATCH_PX / FRAME_HEIGHT_PX

    def save(self, folder: Path) -> None:
        self._policy.save(folder)


class VlmVerifier(Verifier):
    """A vision-language checkpoint as the verifier."""

    def __init__(self, policy: VisionLanguagePolicy, folder: Path) -> None:
        """Raises UnsupportedCheckpoint when True or False is not one token."""
        self.module = policy.module
        self._policy = policy
        self._prompts = ImagePrompts(policy.codec, folder, question=QUESTION)
        tokenizer = policy.codec.tokenizer
        self._answers = answer_ids(lambda text: tokenizer.encode(text, add_special_tokens=False), folder)

    def logits(self, crops: Sequence[Pixels], instructions: Sequence[str]) -> Tensor:
        screens = [self._prompts.screen(crop) for crop in crops]
        logits: Tensor = self._policy.forward(self._prompts.rows(screens, instructions), screens).logits
        return torch.stack([logits[:, -1, token] for token in self._answers], -1)

    def patch(self, image: Pixels) -> Point:
        height_px, width_px, _ = self._prompts.screen(image).pixels.shape
        rule = self._policy.codec.rule
        side_px = UNKNOWN_PATCH_PX if rule is None else rule.factor_px
        return side_px / width_px, side_px / height_px

    def save(self, folder: Path) -> None:
        self._policy.save(folder)


def answer_ids(encode: Callable[[str], Sequence[int]], folder: Path) -> tuple[int, int]:
    """Return the ids of the tokens True and False.

    encode   returns the ids of a text's tokens, without special tokens

    Raises UnsupportedCheckpoint when one of the two words is not exactly one token.
    """
    found = [encode(answer) for answer in ANSWERS]
    for answer, ids in zip(ANSWERS, found, strict=True):
        if len(ids) != 1:
            raise UnsupportedCheckpoint(
                f"expected {answer!r} to be one token of the checkpoint {folder}, got {len(ids)}; a verifier "
                "compares the probabilities of two single tokens: use another checkpoint"
            )
    return int(found[0][0]), int(found[1][0])


def load_verifier(folder: Path, placement: ModelPlacement | None = None) -> Verifier:
    """Load the policy in a folder as a verifier. Raises CheckpointError, or UnsupportedCheckpoint."""
    policy = load(folder, placement=placement)
    if isinstance(policy, SmallPolicy):
        return SmallVerifier(policy, folder)
    assert isinstance(policy, VisionLanguagePolicy)
    return VlmVerifier(policy, folder)


def train_verifier(
    verifier: Verifier,
    samples: Sequence[GroundingSample],
    settings: GroundingSettings,
    report: Report = print,
) -> None:
    """Train a verifier on marked crops around right and wrong points, about as many of each.

    settings   those of the warm-up are ignored, because a verifier has no new weights

    Raises GroundingDataError when no sample makes a point, FloatingPointError when a gradient is not finite.
    """
    torch.manual_seed(settings.seed)
    points = _endless(samples, _patches_of(verifier), settings.seed)
    verifier.module.train()
    weights = [weight for weight in verifier.module.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=settings.lr, betas=(0.9, 0.95), weight_decay=0.0)

    def add_gradient() -> str:
        batch = [next(points) for _ in range(settings.batch)]
        loss = verifier_loss(verifier, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        return f"loss {float(loss.detach()):.3f} nats"

    run_updates(
        optimizer, weights, [settings.lr] * settings.updates, settings.max_grad_norm, add_gradient, report
    )
    verifier.module.eval()


def verifier_loss(verifier: Verifier, points: Sequence[MarkedPoint]) -> Tensor:
    """Return the mean cross-entropy of True and False for these points, in nats."""
    crops = [marked_crop(pixels_of(one.sample.image), one.point) for one in points]
    wanted = torch.tensor([0 if one.is_right else 1 for one in points])
    logits = verifier.logits(crops, [one.sample.instruction for one in points])
    return F.cross_entropy(logits, wanted.to(logits.device))


def _patches_of(verifier: Verifier) -> Callable[[GroundingSample], Point]:
    """Return a function that gives the size of a patch on a sample's screen, which depends on its size."""
    known: dict[tuple[int, int], Point] = {}

    def patch(sample: GroundingSample) -> Point:
        size = sample.width_px, sample.height_px
        if size not in known:
            known[size] = verifier.patch(pixels_of(sample.image))
        return known[size]

    return patch


def _endless(
    samples: Sequence[GroundingSample], patch: Callable[[GroundingSample], Point], seed: int
) -> Iterator[MarkedPoint]:
    draw = random.Random(seed)
    while True:
        points = list(training_points(draw.sample(list(samples), len(samples)), patch, draw))
        if not points:
            raise GroundingDataError(
                f"none of the {len(samples)} samples can train a verifier, because all their elements fill "
                "the screen; use other data"
            )
        draw.shuffle(points)
        yield from points
