"""An engine without a model that waits as long as a real engine would take, and answers at random.

A batch of r requests takes `generate_base_s + r * generate_each_s`. An answer has a lognormal number of
tokens with the median `tokens_median`. The entropies and the negative log-probs of tokens are drawn from an
exponential distribution. The text of an answer is a valid action: a click at a random point. The settings are
in the section [simulation].
"""

import math
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from dart.config.sections import SimulationSettings
from dart.core.actions import Click, format_action
from dart.core.types import GenerateRequest, Generation
from dart.inference.protocol import Engine, Swap
from dart.inference.version_check import verify_policy

WIDTH_PX, HEIGHT_PX = 160, 210
"""Size in pixels of the area in which clicks are drawn."""

VOCABULARY = 128
"""Token ids are below this number, so that each takes one byte in messages and in the record."""

PROMPT_TOKENS = 8

TOKENS_SIGMA = 0.4
"""Standard deviation of the logarithm of an answer's number of tokens."""

LONGEST_ANSWER = 4
"""No answer has more than this many times `tokens_median` tokens: a trajectory must fit into a message."""

MEAN_ENTROPY_NATS = 0.5


class SimulatedEngine(Engine):
    """Answers at random, after waiting. Random numbers come from a generator with `seed`."""

    proves_ahead = True

    def __init__(
        self,
        folder: Path,
        version: int,
        *,
        simulated: SimulationSettings,
        seed: int = 0,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._simulation = simulated
        self._random = random.Random(seed)
        self._wait = wait
        self.load(folder, version)

    def prepare(self, folder: Path, version: int, probe: GenerateRequest | None = None) -> Swap:
        """Wait `load_s`, and as long as an answer to the probe takes. The returned swap waits `swap_s`."""
        self._wait(self._simulation.load_s)
        verify_policy(folder, version)
        if probe is not None:
            self._wait(self._service_s(1))

        def swap() -> None:
            self._wait(self._simulation.swap_s)
            self.version = version

        return swap

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Generation]:
        """Return one answer for each request, after waiting as long as the whole batch takes."""
        if not requests:
            return []
        self._wait(self._service_s(len(requests)))
        return [self._answer(request) for request in requests]

    def _service_s(self, requests: int) -> float:
        """Return the time in seconds that a batch of this many requests takes."""
        return self._simulation.generate_base_s + requests * self._simulation.generate_each_s

    def _answer(self, request: GenerateRequest) -> Generation:
        draw = self._random
        count = self._tokens()
        is_greedy = request.temperature == 0
        return Generation(
            prompt_ids=tuple(draw.randrange(VOCABULARY) for _ in range(PROMPT_TOKENS)),
            token_ids=tuple(draw.randrange(VOCABULARY) for _ in range(count)),
            logprobs=tuple(0.0 if is_greedy else -self._nats() for _ in range(count)),
            entropies=tuple(self._nats() for _ in range(count)),
            answer=self._text(request),
            policy_version=self.version,
        )

    def _text(self, request: GenerateRequest) -> str:
        return format_action(Click(self._random.randrange(WIDTH_PX), self._random.randrange(HEIGHT_PX)))

    def _tokens(self) -> int:
        median = self._simulation.tokens_median
        drawn = median * math.exp(TOKENS_SIGMA * self._random.gauss(0.0, 1.0))
        return min(max(1, round(drawn)), LONGEST_ANSWER * median)

    def _nats(self) -> float:
        return self._random.expovariate(1.0 / MEAN_ENTROPY_NATS)
