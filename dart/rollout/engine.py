"""The engine that runs a checkpoint in this process on the CPU (`dart.rollout.protocol.Engine`).

Screenshots and instructions in, sampled answers with their log-probs out. What it returns is the record
training uses: token ids are never made again from text.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from dart.policy.checkpoint import load_policy
from dart.policy.codec import load_pixels
from dart.policy.sampling import MAX_ANSWER_TOKENS, sample
from dart.rollout.verify import verify_policy
from dart.types import GenerateRequest, Generation


class EngineError(RuntimeError):
    """The engine cannot answer a request; the message names the request's screenshot and the remedy."""


class TransformersEngine:
    """A checkpoint loaded by transformers, sampling on the CPU. One thread calls it.

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
        max_answer_tokens: int = MAX_ANSWER_TOKENS,
        cached_screenshots: int = 256,
    ) -> None:
        torch.set_num_threads(threads)
        self._generator = torch.Generator().manual_seed(seed)
        self._max_answer_tokens = max_answer_tokens
        self._screens = ScreenCache(cached_screenshots)
        self.load(folder, version)

    @property
    def version(self) -> int:
        """The policy version it answers with."""
        return self._version

    def load(self, folder: Path, version: int) -> None:
        """Answer with this checkpoint from now on, once every file of it is proven by its hash.

        Raises CorruptCheckpoint or CheckpointError; then the old policy stays.
        """
        verify_policy(folder, version)
        self._model, self._codec = load_policy(folder)
        self._version = version

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Generation]:
        """One sampled answer per request, each at its own temperature (0: greedy, log-probs 0).

        Raises EngineError when a screenshot is missing or not what its hash says, PixelFrameError when
        it is not of the policy's size.
        """
        if not requests:
            return []
        prompts = [self._codec.encode_prompt(request.instruction, request.history) for request in requests]
        pixels = torch.stack([self._screens.pixels(request) for request in requests])
        temperatures = [request.temperature for request in requests]
        answers = sample(self._model, prompts, pixels, temperatures, self._generator, self._max_answer_tokens)
        return [
            Generation(
                prompt_ids=tuple(prompt),
                token_ids=answer.token_ids,
                logprobs=answer.logprobs,
                entropies=answer.entropies,
                answer=self._codec.decode_answer(answer.token_ids, request.instruction),
                policy_version=self._version,
            )
            for request, prompt, answer in zip(requests, prompts, answers, strict=True)
        ]


class ScreenCache:
    """Decoded screenshots by hash, the least recently used forgotten first.

    The rollouts of a group start from one screen, and a click that changes nothing shows it again.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._screens: OrderedDict[str, Tensor] = OrderedDict()

    def pixels(self, request: GenerateRequest) -> Tensor:
        """uint8 [H, W, 3] of the request's screenshot, proven by its hash."""
        name = request.screenshot_sha256
        if name not in self._screens:
            self._screens[name] = torch.from_numpy(load_pixels(_read_screenshot(request)))
        self._screens.move_to_end(name)
        found = self._screens[name]
        if len(self._screens) > self._capacity:
            self._screens.popitem(last=False)
        return found


def _read_screenshot(request: GenerateRequest) -> bytes:
    try:
        data = Path(request.screenshot_path).read_bytes()
    except FileNotFoundError as missing:
        raise EngineError(
            f"screenshot {request.screenshot_path} is missing: its environment must write it before it asks"
        ) from missing
    found = hashlib.sha256(data).hexdigest()
    if found != request.screenshot_sha256:
        raise EngineError(
            f"screenshot {request.screenshot_path} hashes to {found}, expected {request.screenshot_sha256}:"
            " take the screenshot again, and check the disk that holds the run's blobs"
        )
    return data
