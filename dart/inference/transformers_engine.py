"""The engine that runs a checkpoint in this process by transformers (`dart.inference.protocol.Engine`).

Screenshots and instructions in, sampled answers with their log-probs out. What it returns is the record
training uses: token ids are never made again from text.
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import torch

from dart.core.types import GenerateRequest, Generation
from dart.inference.checkpoint_verify import verify_policy
from dart.inference.protocol import Engine, Unanswerable
from dart.policy.context import Screenshot
from dart.policy.load import ModelPlacement, load
from dart.policy.prompt_spec import PromptSpec
from dart.policy.protocols import Codec, Screen, recorded_prompt


class TransformersEngine(Engine):
    """A checkpoint of any kind loaded by transformers. One thread calls it.

    Who shares a batch changes no answer's probabilities (to rounding); the draws come from one
    generator seeded with `seed`.
    """

    def __init__(
        self,
        folder: Path,
        version: int,
        *,
        threads: int = 1,
        seed: int = 0,
        prompt_spec: PromptSpec | None = None,
        placement: ModelPlacement | None = None,
    ) -> None:
        """prompt_spec, placement   how a vision-language policy is shown an episode and held in memory"""
        torch.set_num_threads(threads)
        self._generator = torch.Generator().manual_seed(seed)
        self._prompt_spec = prompt_spec
        self._placement = placement
        self.load(folder, version)
        self._screen = screen_cache(self._policy.codec)

    def load(self, folder: Path, version: int) -> None:
        """Answer with this checkpoint from now on, once every file of it is proven by its hash.

        Raises CorruptCheckpoint or CheckpointError; then the old policy stays.
        """
        verify_policy(folder, version)
        self._policy = load(folder, self._prompt_spec, self._placement)
        self.version = version

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Generation]:
        """One sampled answer per request, each at its own temperature (0: greedy, log-probs 0).

        Raises Unanswerable when a screenshot is missing or not what its hash says, PixelFrameError when
        it is of a size the policy cannot look at.
        """
        if not requests:
            return []
        codec = self._policy.codec
        screens = [[self._screen(shown) for shown in codec.shown(request)] for request in requests]
        prompts = [codec.prompt(request, row) for request, row in zip(requests, screens, strict=True)]
        recorded = [
            recorded_prompt(codec, request, row, prompt)
            for request, row, prompt in zip(requests, screens, prompts, strict=True)
        ]
        temperatures = [request.temperature for request in requests]
        answers = self._policy.sample(prompts, screens, temperatures, self._generator)
        return [
            Generation(
                prompt_ids=prompt.token_ids,
                images=prompt.images,
                token_ids=answer.token_ids,
                logprobs=answer.logprobs,
                entropies=answer.entropies,
                answer=codec.decode_action(answer.token_ids, request.instruction, row[-1].frame),
                policy_version=self.version,
            )
            for request, prompt, row, answer in zip(requests, recorded, screens, answers, strict=True)
        ]


def screen_cache(codec: Codec, capacity: int = 256) -> Callable[[Screenshot], Screen]:
    """A function that returns a screenshot as the policy sees it, and keeps those that were used last.

    The rollouts of a group start from one screen, and a click that changes nothing shows it again. The
    function checks the screenshot's hash; it raises Unanswerable and PixelFrameError.
    """

    @lru_cache(maxsize=capacity)
    def screen(shown: Screenshot) -> Screen:
        return codec.screen(shown.sha256, _read_screenshot(shown))

    return screen


def _read_screenshot(shown: Screenshot) -> bytes:
    try:
        data = Path(shown.path).read_bytes()
    except FileNotFoundError as missing:
        raise Unanswerable(
            f"screenshot {shown.path} is missing: its environment must write it before it asks"
        ) from missing
    found = hashlib.sha256(data).hexdigest()
    if found != shown.sha256:
        raise Unanswerable(
            f"screenshot {shown.path} hashes to {found}, expected {shown.sha256}:"
            " take the screenshot again, and check the disk that holds the run's blobs"
        )
    return data
