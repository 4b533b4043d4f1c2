"""From requests to prompts, and from sampled tokens to recorded answers, for all engines with a model."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from dart.core.types import GenerateRequest, Generation, VersionSpan
from dart.inference.protocol import Unanswerable
from dart.policy.protocols import Centres, Codec, Prompt, Screen, recorded_prompt
from dart.store.blobs import BlobStore
from dart.store.errors import BlobDamage


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request with its prompt as token ids and screenshots as pixels."""

    request: GenerateRequest
    prompt: Prompt
    screens: tuple[Screen, ...]

    @property
    def tokens(self) -> int:
        """Number of tokens of the prompt as the trainer counts them, with all tokens of each screenshot."""
        return len(self.prompt.token_ids) + sum(image.tokens - 1 for image in self.prompt.images)


class Prompts:
    """Builds prompts by a codec. Many threads may call it.

    It caches the `capacity` screenshots that were used last: the rollouts of a group start from the same
    screen, and a click that changes nothing shows the same screen again.
    """

    def __init__(self, codec: Codec, screenshots: BlobStore, capacity: int = 256) -> None:
        self.codec = codec
        self._screenshots = screenshots
        self._screen = lru_cache(maxsize=capacity)(self._read_screen)
        self._lock = threading.Lock()

    def pending(self, request: GenerateRequest) -> PendingRequest:
        """Make the prompt of a request, and check every screenshot against its hash.

        Raises Unanswerable when a screenshot is missing or has another hash, PixelFrameError when the policy
        cannot read a screenshot of this size, and StoreUnavailable when no screenshot can be read.
        """
        with self._lock:
            screens = tuple(self._screen(shown) for shown in self.codec.shown(request))
        return PendingRequest(request, self.codec.prompt(request, screens), screens)

    def generation(
        self,
        asked: PendingRequest,
        token_ids: Sequence[int],
        logprobs: Sequence[float],
        entropies: Sequence[float],
        version: int,
        spans: tuple[VersionSpan, ...] = (),
        centres: Centres = (),
    ) -> Generation:
        """Return the answer to a request from the sampled tokens, with the prompt under which training will
        score it.

        A greedy answer gets log-probs and entropies of 0. `centres` are those of its pointers.
        """
        request, frame, zeros = asked.request, asked.screens[-1].frame, (0.0,) * len(token_ids)
        is_greedy = request.temperature == 0
        recorded = recorded_prompt(self.codec, request, asked.screens, asked.prompt)
        return Generation(
            prompt_ids=recorded.token_ids,
            images=recorded.images,
            token_ids=tuple(token_ids),
            logprobs=zeros if is_greedy else tuple(logprobs),
            entropies=zeros if is_greedy else tuple(entropies),
            answer=self.codec.decode_action(token_ids, request.instruction, frame, centres),
            policy_version=version,
            spans=spans,
            centres=tuple(centres),
        )

    def _read_screen(self, sha256: str) -> Screen:
        try:
            data = self._screenshots.read(sha256)
        except BlobDamage as damage:
            raise Unanswerable(
                f"{damage}: an environment must store it before its request; take the screenshot again, and "
                "check the disk that holds the run's blobs"
            ) from damage
        return self.codec.screen(sha256, data)
