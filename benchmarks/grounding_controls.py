"""Controls of grounding: what a method must beat before its accuracy says anything about instructions."""

import random
from collections.abc import Sequence

import numpy as np

from dart.core.screenspot import GroundingSample
from dart.grounding.data import fraction_box, pixels_of
from dart.policy.pointer.model import GroundingModel
from dart.policy.protocols import Pixels

GREY = 128


def random_element(samples: Sequence[GroundingSample]) -> list[float]:
    """Return for each sample the probability that a random element of its screen is the right one.

    This is the exact expectation of choosing an element at random; a screen with one element gives 1. Samples
    without a list of their screen's elements are left out.
    """
    return [_share(sample) for sample in samples if sample.elements]


def _share(sample: GroundingSample) -> float:
    hits = sum(sample.box.contains(*element.centre) for element in sample.elements)
    return hits / len(sample.elements)


def centre(samples: Sequence[GroundingSample]) -> list[bool]:
    """Return for each sample whether the centre of the screen is in its box."""
    return [fraction_box(sample).contains(0.5, 0.5) for sample in samples]


def text_only(model: GroundingModel, samples: Sequence[GroundingSample]) -> list[bool]:
    """Return for each sample whether the model hits its box with a grey image in place of the screenshot."""
    return [_hits(model, np.full_like(pixels_of(sample.image), GREY), sample) for sample in samples]


def shuffled_image(model: GroundingModel, samples: Sequence[GroundingSample], seed: int = 0) -> list[bool]:
    """Return for each sample whether the model hits its box when it sees the screenshot of another sample.

    Each sample gets the screenshot of the next sample in a random circle of all samples. It is the same image
    if both samples have one screenshot.
    """
    order = list(range(len(samples)))
    random.Random(seed).shuffle(order)
    shown = {here: samples[there].image for here, there in zip(order, order[1:] + order[:1], strict=True)}
    return [_hits(model, pixels_of(shown[number]), sample) for number, sample in enumerate(samples)]


def _hits(model: GroundingModel, image: Pixels, sample: GroundingSample) -> bool:
    (region,) = model.ground(image, sample.instruction, 1)
    return fraction_box(sample).contains(*region.centre)
