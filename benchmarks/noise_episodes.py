"""Synthetic groups of rollouts, for measurements of a trainer."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from dart.config.sections import ContextSettings
from dart.core.types import GenerateRequest, Group, Outcome, PastStep, Step, Trajectory
from dart.policy.prompt_spec import PromptSpec
from dart.policy.vlm_codec import load_vlm_codec
from dart.store.blobs import FolderBlobs

ANSWER_TOKENS = 120
"""Of a thought and an action; UI-TARS's are about as long."""

TASK = "made/noise"


def trajectory_of(rollout_id: int, group: int, reward: float, steps: Sequence[Step]) -> Trajectory:
    """A finished trajectory with these steps."""
    return Trajectory(
        rollout_id=rollout_id,
        group_id=group,
        task_id=TASK,
        seed=group,
        environment="synthetic",
        instruction="",
        outcome=Outcome.FINISHED,
        reward=reward,
        steps=tuple(steps),
        started_unix_s=0.0,
        duration_s=0.0,
    )


class Episodes:
    """Synthetic rollouts: answers of random tokens to screenshots of noise."""

    def __init__(
        self, policy: Path, folder: Path, size: tuple[int, int], context: ContextSettings, seed: int = 0
    ) -> None:
        self.blobs = FolderBlobs(folder)
        self._codec = load_vlm_codec(policy, PromptSpec(context=context))
        self._size = size
        self._draw = np.random.default_rng(seed)

    def group(self, number: int, steps: int) -> Group:
        """One rollout that succeeded, and one that did not."""
        trajectories = tuple(self._trajectory(number, reward, steps) for reward in (1.0, 0.0))
        return Group(group_id=number, task_id=TASK, seed=number, trajectories=trajectories)

    def _trajectory(self, number: int, reward: float, steps: int) -> Trajectory:
        made: list[Step] = []
        past: list[PastStep] = []
        for _ in range(steps):
            made.append(self._step(tuple(past)))
            sha256 = made[-1].screenshot_sha256
            past.append(PastStep(screenshot_sha256=sha256, token_ids=made[-1].token_ids))
        return trajectory_of(2 * number + int(reward), number, reward, made)

    def _step(self, past: tuple[PastStep, ...]) -> Step:
        width, height = self._size
        noise = self._draw.integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
        png = BytesIO()
        Image.fromarray(noise).resize(self._size).save(png, "PNG")
        sha256 = self.blobs.put(png.getvalue())
        request = GenerateRequest(
            screenshot_sha256=sha256,
            instruction="Write the name into the field and save the document.",
            history=("wait()",) * len(past),
            temperature=1.0,
            past=past,
        )
        shown = self._codec.shown(request)
        prompt = self._codec.prompt(request, [self._codec.screen(one, self.blobs.read(one)) for one in shown])
        answer = self._draw.integers(10, 256, ANSWER_TOKENS - 1).tolist()
        return Step(
            screenshot_sha256=sha256,
            prompt_ids=prompt.token_ids,
            token_ids=(*answer, self._codec.end_ids[0]),
            logprobs=(),
            entropies=(),
            answer="",
            policy_version=0,
            observe_ms=0.0,
            generate_ms=0.0,
            act_ms=0.0,
            images=prompt.images,
        )
