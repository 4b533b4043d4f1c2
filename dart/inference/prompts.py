"""Makes prompts from requests, and answers from sampled tokens, for all engines that run a model."""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dart.core.types import GenerateRequest, Generation, VersionSpan
from dart.inference.protocol import Unanswerable
from dart.policy.protocols import Centres, Codec, PixelFrameError, Prompt, Screen, recorded_prompt
from dart.store.blobs import BlobStore, read_each
from dart.store.errors import BlobDamage


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request, with its prompt as token ids and its screenshots as pixels."""

    request: GenerateRequest
    prompt: Prompt
    screens: tuple[Screen, ...]

    @property
    def tokens(self) -> int:
        """Number of tokens of the prompt as the trainer counts them, including those of screenshots."""
        return len(self.prompt.token_ids) + sum(image.tokens - 1 for image in self.prompt.images)


class Prompts:
    """Makes prompts and answers with a codec. Several threads may use it at the same time.

    The `capacity` screenshots that were used last are cached, because screenshots repeat: the rollouts of a
    group start from the same screen, and a click may change nothing.
    """

    def __init__(self, codec: Codec, screenshots: BlobStore, capacity: int = 256) -> None:
        self.codec = codec
        self._screenshots = screenshots
        self._capacity = capacity
        self._screens: OrderedDict[str, Screen] = OrderedDict()
        """The cached screenshots by sha256; the one that was used last is at the end."""
        self._lock = threading.Lock()

    def pending(self, request: GenerateRequest) -> PendingRequest:
        """Make the prompt of a request, and check every screenshot against its hash.

        Raises Unanswerable if a screenshot is missing, has another hash or cannot be read by the policy, and
        StoreUnavailable if no screenshot can be read now.
        """
        shown = self.codec.shown(request)
        # Read without the lock, because other requests would wait for screenshots of another machine.
        contents = read_each(self._screenshots, self._read, self._uncached(shown))
        with self._lock:
            screens = tuple(self._screen(sha256, contents) for sha256 in shown)
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
        """Return the answer to a request, made from the sampled tokens.

        It includes the prompt with which training will compute the log-probs again. A greedy answer
        (temperature 0) gets log-probs and entropies of 0.

        version   oldest version that sampled a token
        spans     which version sampled which tokens; empty: `version` sampled all
        centres   the points of the answer's pointer tokens, in their order
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

    def _uncached(self, shown: Sequence[str]) -> list[str]:
        with self._lock:
            return [sha256 for sha256 in dict.fromkeys(shown) if sha256 not in self._screens]

    def _screen(self, sha256: str, contents: Mapping[str, bytes]) -> Screen:
        """Return a screenshot as pixels, from the cache or from `contents`.

        It is read again if it has left the cache since `contents` was read.
        """
        screen = self._screens.pop(sha256, None)
        if screen is None:
            screen = self._decoded(sha256, contents.get(sha256) or self._read(sha256))
        self._screens[sha256] = screen
        while len(self._screens) > self._capacity:
            self._screens.popitem(last=False)
        return screen

    def _decoded(self, sha256: str, png: bytes) -> Screen:
        try:
            return self.codec.screen(sha256, png)
        except PixelFrameError as error:
            raise Unanswerable(
                f"screenshot {sha256}: {error}; make the environment take pictures that the policy can read"
            ) from error

    def _read(self, sha256: str) -> bytes:
        try:
            return self._screenshots.read(sha256)
        except BlobDamage as damage:
            raise Unanswerable(
                f"{damage}: an environment must store a screenshot before its request; take the screenshot "
                "again, and check the disk that holds the run's blobs"
            ) from damage
