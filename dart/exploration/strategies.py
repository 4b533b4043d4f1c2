"""The strategies by which an explorer chooses its next action: `random`, `least_tried` and `memory_q`. Pure.

With `least_tried` and `memory_q`, the explorer leaves a screen for the nearest one with an untried action
when every action on the screen was tried. `random` ignores what was tried: it walks from screen to screen,
and begins again at the start screen with each lease, or after a number of actions.
"""

import random
from collections.abc import Callable, Sequence
from typing import Protocol

from dart.core.exploration import Candidate, ExploredStep
from dart.exploration.graph import Graph
from dart.exploration.memory_q import SWEEP_EVERY, MemoryQ, Prior, constant_prior

WALK_FACTOR = 4
"""A random walk has at most this factor times `exploration.max_depth` actions, and ends with its
lease, which has `exploration.lease_actions` actions."""


class ExplorationStrategy(Protocol):
    """Chooses the next action among the candidates of a screen."""

    seeks_untried: bool
    """Whether the strategy chooses only untried candidates, so the explorer has to find screens with some."""

    def began(self) -> None:
        """Note that a lease began: the next choice is the first one on the screen of the lease."""

    def saw(self, steps: Sequence[ExploredStep]) -> None:
        """Learn from steps that were added to the graph, the oldest first."""

    def choose(self, screen_id: int, present: Sequence[Candidate]) -> Candidate | None:
        """Return one of the candidates that are on the screen now; None to leave the screen."""

    def ranked(self, screen_id: int, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return candidates of a screen in another order: the most promising first."""


class RandomWalk:
    """Chooses any candidate of the screen with equal probability."""

    seeks_untried = False

    def __init__(self, rng: random.Random, max_depth: int) -> None:
        self._rng, self._most = rng, WALK_FACTOR * max_depth
        self._walked = 0

    def began(self) -> None:
        """Begin a walk, because a lease for a random walk begins at the start screen."""
        self._walked = 0

    def saw(self, steps: Sequence[ExploredStep]) -> None:
        """Learn nothing."""

    def choose(self, screen_id: int, present: Sequence[Candidate]) -> Candidate | None:
        if not present or self._walked == self._most:
            return None
        self._walked += 1
        return self._rng.choice(present)

    def ranked(self, screen_id: int, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        return candidates


class LeastTried:
    """Chooses the first untried candidate in document order."""

    seeks_untried = True

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def began(self) -> None:
        """Keep nothing of a lease."""

    def saw(self, steps: Sequence[ExploredStep]) -> None:
        """Learn nothing, because the graph has what was tried."""

    def choose(self, screen_id: int, present: Sequence[Candidate]) -> Candidate | None:
        return next((one for one in present if not self._graph.is_tried(screen_id, one.key)), None)

    def ranked(self, screen_id: int, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        return candidates


class MemoryQStrategy:
    """Chooses the untried candidate with the largest U (`dart.exploration.memory_q`)."""

    seeks_untried = True

    def __init__(
        self,
        graph: Graph,
        rng: random.Random,
        prior: Prior = constant_prior,
        still_working: Callable[[], None] = lambda: None,
    ) -> None:
        """
        still_working   function that is called at each piece of progress while the strategy learns
        """
        self._graph, self._rng = graph, rng
        self.memory = MemoryQ(graph.candidates, prior, still_working)

    def began(self) -> None:
        """Keep nothing of a lease."""

    def saw(self, steps: Sequence[ExploredStep]) -> None:
        """Learn from steps. After many at once, such as those of an earlier process, sweep once."""
        are_many = len(steps) > SWEEP_EVERY
        for step in steps:
            self._learn(step, sweeps=not are_many)
        if are_many:
            self.memory.sweep()

    def _learn(self, step: ExploredStep, *, sweeps: bool) -> None:
        if step.source_id is None:
            return
        candidate = self._graph.candidate(step.source_id, step.action)
        if candidate is not None:
            self.memory.learn(step.source_id, candidate, step.effect, step.target_id, sweeps=sweeps)

    def choose(self, screen_id: int, present: Sequence[Candidate]) -> Candidate | None:
        open_ones = [one for one in present if not self._graph.is_tried(screen_id, one.key)]
        if not open_ones:
            return None
        best = max(self.memory.u(screen_id, one) for one in open_ones)
        return self._rng.choice([one for one in open_ones if self.memory.u(screen_id, one) >= best - 1e-9])

    def ranked(self, screen_id: int, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        return sorted(candidates, key=lambda one: -self.memory.u(screen_id, one))


def strategy_named(
    name: str,
    graph: Graph,
    rng: random.Random,
    max_depth: int,
    prior: Prior,
    still_working: Callable[[], None],
) -> ExplorationStrategy:
    """Return the strategy with this name: `random`, `least_tried` or `memory_q`.

    max_depth       value of `exploration.max_depth`
    prior           function that returns the prior of an action, for `memory_q`
    still_working   function that `memory_q` calls at each piece of progress while it learns
    """
    if name == "random":
        return RandomWalk(rng, max_depth)
    if name == "least_tried":
        return LeastTried(graph)
    return MemoryQStrategy(graph, rng, prior, still_working)
