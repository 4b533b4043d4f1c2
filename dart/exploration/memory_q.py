"""Memory-Q: the value of an action, computed from the tries of similar actions. Pure.

In Memory-Q exploration, after GUI-Bee (arXiv 2501.13896), a Q-value is looked up in a memory of tries instead
of learned by a network. The formulas are this project's own, and not those of the paper.

    k((s,a), (s_i,a_i)) = [kind equal] * (1 if text equal else 0.5) * (1 if same screen else 0.5)
    Q(s,a) = (KAPPA * Q0(s,a) + sum_i k * y_i) / (KAPPA + sum_i k)
    y      = r + GAMMA * max_a' Q(s',a'); y = r if the action led to no other screen
    U(s,a) = Q(s,a) + BETA * sqrt(ln(2 + N(s)) / (1 + N(s,a))) - LAMBDA * N(s,a)

Here s is a screen, a an action, s' the next screen, and i runs over the tries in the memory. Q0 is the prior,
r the reward by effect, N(s) the number of tries on a screen, and N(s,a) that of one action on it.

The sums over the memory are kept for the tries with the same kind, the same kind and text, the same kind and
screen, and the same of all three. Each of these four sums has a quarter of the weight, which gives the values
of k above.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dart.core.exploration import Candidate, Effect

KAPPA = 1.0
"""Weight of the prior: that of so many tries of the same action."""
GAMMA = 0.7
BETA = 0.8
LAMBDA = 1.0
PRIOR = 0.6
"""Prior Q0 of every action if no model gives one."""
SWEEP_EVERY = 20
"""After each such number of remembered tries, the targets y are computed again, the newest first."""
SWEEP_MOST = 2000
"""Largest number of targets that a sweep computes again, so that a try costs no more in a longer record."""
PART = 0.25

REWARDS: Mapping[Effect, float] = {
    Effect.NEW_SHAPE: 1.0,
    Effect.NEW_SCREEN: 0.5,
    Effect.KNOWN_SCREEN: 0.0,
    Effect.NO_CHANGE: -0.2,
    Effect.LEFT: -1.0,
    Effect.ENDED: 0.0,
}
"""Reward r by effect. Tries with other effects, a fault or a missing action, are not remembered."""

Prior = Callable[[int, Candidate], float]
"""Function (screen_id, candidate) that returns the prior Q0 in [0, 1]."""


def constant_prior(screen_id: int, candidate: Candidate) -> float:
    """Return the same prior for every action."""
    return PRIOR


@dataclass(slots=True)
class _Remembered:
    screen_id: int
    candidate: Candidate
    reward: float
    target_id: int | None
    target: float
    """The target y as it was last computed."""


class MemoryQ:
    """The memory of the tries of one exploration, and the values of actions that follow from it."""

    def __init__(
        self,
        candidates_of: Callable[[int], Sequence[Candidate]],
        prior: Prior = constant_prior,
        still_working: Callable[[], None] = lambda: None,
    ) -> None:
        """
        candidates_of   function that returns the candidates of a screen, given by its id
        prior           function that returns Q0
        still_working   function that is called before each target y is computed
        """
        self._candidates_of, self._prior, self._still_working = candidates_of, prior, still_working
        self._memory: list[_Remembered] = []
        self._weights: defaultdict[tuple[str | int, ...], float] = defaultdict(float)
        self._sums: defaultdict[tuple[str | int, ...], float] = defaultdict(float)
        self._tries: defaultdict[tuple[int, str], int] = defaultdict(int)
        self._visits: defaultdict[int, int] = defaultdict(int)

    def learn(
        self,
        screen_id: int,
        candidate: Candidate,
        effect: Effect,
        target_id: int | None,
        *,
        sweeps: bool = True,
    ) -> None:
        """Remember a try and its effect.

        target_id   the next screen; None if there is none
        sweeps      whether to sweep if this is due; False: the caller sweeps later
        """
        self._tries[screen_id, candidate.key] += 1
        self._visits[screen_id] += 1
        if effect not in REWARDS:
            return
        one = _Remembered(screen_id, candidate, REWARDS[effect], target_id, 0.0)
        one.target = self._target(one)
        self._memory.append(one)
        self._count(one, 1)
        if sweeps and len(self._memory) % SWEEP_EVERY == 0:
            self.sweep()

    def sweep(self) -> None:
        """Compute the targets of the newest `SWEEP_MOST` tries again, the newest first."""
        for one in self._memory[: -SWEEP_MOST - 1 : -1]:
            self._count(one, -1)
            one.target = self._target(one)
            self._count(one, 1)

    def tries(self, screen_id: int, candidate: Candidate) -> int:
        """Return N(s,a): how often the action was tried on the screen."""
        return self._tries[screen_id, candidate.key]

    def q(self, screen_id: int, candidate: Candidate) -> float:
        """Return Q(s,a), the expected value of an action on a screen."""
        weight, total = KAPPA, KAPPA * self._prior(screen_id, candidate)
        for place in _places(screen_id, candidate):
            weight += PART * self._weights[place]
            total += PART * self._sums[place]
        return total / weight

    def u(self, screen_id: int, candidate: Candidate) -> float:
        """Return U(s,a): the value plus a bonus for seldom tried actions, minus LAMBDA for each try."""
        tries = self.tries(screen_id, candidate)
        bonus = math.sqrt(math.log(2 + self._visits[screen_id]) / (1 + tries))
        return self.q(screen_id, candidate) + BETA * bonus - LAMBDA * tries

    def _target(self, one: _Remembered) -> float:
        self._still_working()
        if one.target_id is None or one.target_id == one.screen_id:
            return one.reward
        next_values = [self.q(one.target_id, each) for each in self._candidates_of(one.target_id)]
        return one.reward + GAMMA * max(next_values, default=0.0)

    def _count(self, one: _Remembered, sign: int) -> None:
        for place in _places(one.screen_id, one.candidate):
            self._weights[place] += sign
            self._sums[place] += sign * one.target


def _places(screen_id: int, candidate: Candidate) -> tuple[tuple[str | int, ...], ...]:
    """Return the keys of the four sums to which a try belongs."""
    kind, text = candidate.kind, candidate.text
    return (kind,), (kind, "text", text), (kind, "screen", screen_id), (kind, text, screen_id)
