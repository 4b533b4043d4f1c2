"""Tiny vision-language checkpoints that act, because they imitated a few actions.

One has a pointer head and answers with patches; the other clicks at points that are written as numbers.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from dart.config.sections import ContextSettings
from dart.core.types import GenerateRequest, Step
from dart.imitation.vlm import ImitationConfig, imitate
from dart.policy.load import load
from dart.policy.placement import ModelPlacement
from dart.policy.pointer_checkpoint import add_pointer
from dart.policy.prompt_spec import PromptSpec
from dart.policy.protocols import Screen
from tests.pictures import png_of

READING = PromptSpec(context=ContextSettings(screenshots=2, turns=4, answer_tokens=40))

SIZES = ((160, 210), (210, 160), (300, 90))
"""Width and height in pixels of screens; their grids of patches differ."""

ACTIONS = ("click(start_box='(40,60)')", "drag(start_box='(20,20)', end_box='(140,80)')")


def png(seed: int) -> bytes:
    """A screen of noise."""
    noise = np.random.default_rng(seed).integers(0, 256, (8, 6, 3), dtype=np.uint8)
    return png_of(Image.fromarray(noise).resize(SIZES[seed % len(SIZES)], Image.Resampling.NEAREST))


def asking(sha256: str, temperature: float = 1.0) -> GenerateRequest:
    return GenerateRequest(
        screenshot_sha256=sha256, instruction="Click it.", history=(), temperature=temperature
    )


def make_pointing(base: Path, folder: Path, updates: int = 16) -> None:
    """Write a checkpoint that points into the new folder `folder`."""
    torch.manual_seed(0)
    untrained = folder.parent / f"{folder.name}-untrained"
    add_pointer(base, untrained)
    _teach(untrained, folder, enumerate(ACTIONS * 3), updates)


def make_clicking(base: Path, folder: Path, points: Sequence[tuple[int, int]], updates: int = 16) -> None:
    """Write a checkpoint that clicks on screens of 160x210 pixels, at a random one of these points."""
    actions = [f"click(start_box='({x},{y})')" for x, y in points]
    seeds = (0, len(SIZES))  # both of that size
    _teach(base, folder, [(seed, action) for seed in seeds for action in actions], updates)


def _teach(base: Path, folder: Path, lessons: Iterable[tuple[int, str]], updates: int) -> None:
    """Train a checkpoint on pairs of a screen's seed and an action, and write it into a new folder."""
    policy = load(base, READING, ModelPlacement(is_trained=True, device="cpu"))
    screens: dict[str, Screen] = {}
    steps: list[Step] = []
    for seed, action in lessons:
        screen = policy.codec.screen(f"{seed}", png(seed))
        screens[screen.sha256] = screen
        prompt = policy.codec.prompt(asking(screen.sha256), [screen])
        steps.append(
            Step(
                screenshot_sha256=screen.sha256,
                prompt_ids=prompt.token_ids,
                images=prompt.images,
                token_ids=tuple(policy.codec.encode_action(action, "", screen.frame)),
                logprobs=(),
                entropies=(),
                answer=action,
                policy_version=0,
                observe_ms=0.0,
                generate_ms=0.0,
                act_ms=0.0,
            )
        )
    config = ImitationConfig(updates=updates, batch=6, lr=3e-3, warmup_updates=5)
    imitate(policy, steps, screens.__getitem__, config, report=lambda _: None)
    folder.mkdir()
    policy.save(folder)
