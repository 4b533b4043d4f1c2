"""Memory-Q: the value of an action from the actions that were tried before. Pure.

Memory-Q exploration, after GUI-Bee (arXiv 2501.13896): a Q-value that is looked up in a memory instead of
learned by a network. The formulas are this project's own; they are not claimed to be those of the paper.

    k((s,a), (s_i,a_i)) = [kind equal] * (1 if text equal else 0.5) * (1 if same screen else 0.5)
    Q(s,a) = (KAPPA * Q0(s,a) + sum_i k * y_i) / (KAPPA + sum_i k)
    y      = r + GAMMA * max_a' Q(s',a'); y = r where the action led to no screen
    U(s,a) = Q(s,a) + BETA * sqrt(ln(2 + N(s)) / (1 + N(s,a))) - LAMBDA * N(s,a)

k has only four values, so the sums over the memory are kept as sums over everything with the same kind, the
same kind and text, the same kind and screen, or all three: each part has a quarter of the weight.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dart.core.exploration import Candidate, Effect

KAPPA = 1.0
"""Weight of the prior, in tries."""
GAMMA = 0.7
BETA = 0.8
LAMBDA = 1.0
PRIOR = 0.6
"""Q0 without a model."""
SWEEP_EVERY = 20
"""Number of remembered tries after which all targets y are computed again, newest first."""
PART = 0.25

REWARDS: Mapping[Effect, float] = {
    Effect.NEW_SHAPE: 1.0,
    Effect.NEW_SCREEN: 0.5,
    Effect.KNOWN_SCREEN: 0.0,
    Effect.NO_CHANGE: -0.2,
    Effect.LEFT: -1.0,
    Effect.ENDED: 0.0,
}
"""r by effect. A fault or an action that was not there says nothing and is not remembered."""

Prior = Callable[[int, Candidate], float]
"""Q0 in [0, 1] of a screen, by its id, and a candidate."""


def constant_prior(screen_id: int, candidate: Candidate) -> float:
    """Q0 without a model."""
    return PRIOR


@dataclass(slots=True)
class _Remembered:
    screen_id: int
    candidate: Candidate
    reward: float
    target_id: int | None
    target: float
    """y as it was last computed."""


class MemoryQ:
    """The memory of one exploration, and the values that it gives."""

    def __init__(
        self, candidates_of: Callable[[int], Sequence[Candidate]], prior: Prior = constant_prior
    ) -> None:
        """
        candidates_of   the candidates of a screen by its id
        """
        self._candidates_of, self._prior = candidates_of, prior
        self._memory: list[_Remembered] = []
        self._weights: defaultdict[tuple[str | int, ...], float] = defaultdict(float)
        self._sums: defaultdict[tuple[str | int, ...], float] = defaultdict(float)
        self._tries: defaultdict[tuple[int, str], int] = defaultdict(int)
        self._visits: defaultdict[int, int] = defaultdict(int)

    def learn(self, screen_id: int, candidate: Candidate, effect: Effect, target_id: int | None) -> None:
        """Remember a try and its effect."""
        self._tries[screen_id, candidate.key] += 1
        self._visits[screen_id] += 1
        if effect not in REWARDS:
            return
        one = _Remembered(screen_id, candidate, REWARDS[effect], target_id, 0.0)
        one.target = self._target(one)
        self._memory.append(one)
        self._count(one, 1)
        if len(self._memory) % SWEEP_EVERY == 0:
            self.sweep()

    def sweep(self) -> None:
        """Compute the targets of all tries again, the newest first."""
        for one in reversed(self._memory):
            self._count(one, -1)
            one.target = self._target(one)
            self._count(one, 1)

    def tries(self, screen_id: int, candidate: Candidate) -> int:
        """N(s,a): how often the action was tried on the screen."""
        return self._tries[screen_id, candidate.key]

    def q(self, screen_id: int, candidate: Candidate) -> float:
        """Q(s,a), the expected value of an action."""
        weight, total = KAPPA, KAPPA * self._prior(screen_id, candidate)
        for place in _places(screen_id, candidate):
            weight += PART * self._weights[place]
            total += PART * self._sums[place]
        return total / weight

    def u(self, screen_id: int, candidate: Candidate) -> float:
        """U(s,a): the value with a bonus for what was tried seldom, less a fine for each try."""
        tries = self.tries(screen_id, candidate)
        bonus = math.sqrt(math.log(2 + self._visits[screen_id]) / (1 + tries))
        return self.q(screen_id, candidate) + BETA * bonus - LAMBDA * tries

    def _target(self, one: _Remembered) -> float:
        if one.target_id is None or one.target_id == one.screen_id:
            return one.reward
        next_values = [self.q(one.target_id, each) for each in self._candidates_of(one.target_id)]
        return one.reward + GAMMA * max(next_values, default=0.0)

    def _count(self, one: _Remembered, sign: int) -> None:
        for place in _places(one.screen_id, one.candidate):
            self._weights[place] += sign
            self._sums[place] += sign * one.target


def _places(screen_id: int, candidate: Candidate) -> tuple[tuple[str | int, ...], ...]:
    """The sums that a try belongs to: of its kind, and with the same text, the same screen, or both."""
    kind, text = candidate.kind, candidate.text
    return (kind,), (kind, "text", text), (kind, "screen", screen_id), (kind, text, screen_id)
