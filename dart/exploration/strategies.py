"""How an explorer chooses its next action: at random, the least tried one, or by memory-Q. Pure.

`least_tried` and `memory_q` go on to the nearest screen with something untried when everything here was
tried. `random` does not know what was tried; it walks, and begins anew after a while.
"""

import random
from collections.abc import Sequence
from typing import Protocol

from dart.core.exploration import Candidate, ExploredStep
from dart.exploration.graph import Graph
from dart.exploration.memory_q import MemoryQ, Prior, constant_prior

WALK_FACTOR = 4
"""A random walk begins anew after this many times the depth limit."""


class ExplorationStrategy(Protocol):
    """Chooses among the candidates of a screen."""

    seeks_untried: bool
    """Whether the explorer then goes to the nearest screen with untried candidates."""

    def saw(self, step: ExploredStep) -> None:
        """Learn from a step that the graph has now."""

    def choose(self, screen_id: int, present: Sequence[Candidate]) -> Candidate | None:
        """The next action among those that are on the screen; None to go elsewhere."""


class RandomWalk:
    """Any candidate with equal chances."""

    seeks_untried = False

    def __init__(self, rng: random.Random, max_depth: int) -> None:
        self._rng, self._most = rng, WALK_FACTOR * max_depth
        self._walked = 0

    def saw(self, step: ExploredStep) -> None:
        """Learn nothing."""

    def choose(self, screen_id: int, present: Sequence[Candidate]) -> Candidate | None:
        self._walked += 1
        if not present or self._walked > self._most:
            self._walked = 0
            return None
        return self._rng.choice(present)


class LeastTried:
    """An untried candidate in the order of the document."""

    seeks_untried = True

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def saw(self, step: ExploredStep) -> None:
        """Learn nothing: the graph knows what was tried."""

    def choose(self, screen_id: int, present: Sequence[Candidate]) -> Candidate | None:
        return next((one for one in present if not self._graph.is_tried(screen_id, one.key)), None)


class MemoryQStrategy:
    """The untried candidate with the largest U."""

    seeks_untried = True

    def __init__(self, graph: Graph, rng: random.Random, prior: Prior = constant_prior) -> None:
        self._graph, self._rng = graph, rng
        self.memory = MemoryQ(graph.candidates, prior)

    def saw(self, step: ExploredStep) -> None:
        if step.source_id is None:
            return
        candidate = self._graph.candidate(step.source_id, step.action)
        if candidate is not None:
            self.memory.learn(step.source_id, candidate, step.effect, step.target_id)

    def choose(self, screen_id: int, present: Sequence[Candidate]) -> Candidate | None:
        open_ones = [one for one in present if not self._graph.is_tried(screen_id, one.key)]
        if not open_ones:
            return None
        best = max(self.memory.u(screen_id, one) for one in open_ones)
        return self._rng.choice([one for one in open_ones if self.memory.u(screen_id, one) >= best - 1e-9])


def strategy_named(
    name: str, graph: Graph, rng: random.Random, max_depth: int, prior: Prior = constant_prior
) -> ExplorationStrategy:
    """The strategy of a configuration: `random`, `least_tried` or `memory_q`."""
    if name == "random":
        return RandomWalk(rng, max_depth)
    if name == "least_tried":
        return LeastTried(graph)
    return MemoryQStrategy(graph, rng, prior)
