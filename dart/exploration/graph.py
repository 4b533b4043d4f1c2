"""The exploration graph in memory: screens, the actions tried on each, and where they led. Pure.

The owner of the graph and every explorer build it from the same rows of the record, in the order of the rows.
Only the owner adds to the record.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from dart.core.exploration import Candidate, Effect, ExploredStep, PageScreen, PathHop, ScreenNode
from dart.exploration.candidates import candidates_of
from dart.exploration.coverage import CoveragePoint, coverage_curve
from dart.exploration.matching import D_DOM_MOST, D_IMG_MOST, GREY_LEVELS, d_dom, d_img

TRUSTED_SHARE = 0.5
"""Smallest share of the tries of an action that must lead to one screen for a path to use the action."""

NEAR_FACTOR = 2.0
"""Factor on the threshold of the image distance in a quick first comparison that ignores masks."""


class Graph:
    """The exploration graph of one task and seed."""

    def __init__(self) -> None:
        self.nodes: dict[int, ScreenNode] = {}
        self.steps: list[ExploredStep] = []
        self._candidates: dict[int, dict[str, Candidate]] = {}
        self._tried: defaultdict[int, set[str]] = defaultdict(set)
        self._targets: defaultdict[tuple[int, str], Counter[int | None]] = defaultdict(Counter)
        self._faults: Counter[tuple[int, str]] = Counter()
        self._lost: set[tuple[int, str]] = set()
        self._of_shape: defaultdict[str, list[int]] = defaultdict(list)
        self._grids = np.zeros((0, 0), np.int16)
        self._new_grids: list[npt.NDArray[np.int16]] = []
        """Grids of the newest screens, which are not among `_grids` yet."""
        self._grid_ids: list[int] = []

    # ---- building ----

    def add_node(self, node: ScreenNode) -> None:
        """Add a screen. Add it before the steps that lead to it."""
        self.nodes[node.screen_id] = node
        self._candidates[node.screen_id] = {one.key: one for one in candidates_of(node.screen)}
        self._of_shape[node.screen.shape].append(node.screen_id)
        self._new_grids.append(np.frombuffer(node.screen.grid, np.uint8).astype(np.int16))
        self._grid_ids.append(node.screen_id)

    def add_step(self, step: ExploredStep) -> None:
        """Add an action that was carried out, with its effect."""
        self.steps.append(step)
        if step.source_id is None:
            return
        key = step.source_id, step.action
        if step.effect is Effect.FAULT:
            self._faults[key] += 1
        if step.effect is Effect.LOST:
            self._lost.add(key)
        if step.is_expansion or step.effect is not Effect.FAULT:
            self._tried[step.source_id].add(step.action)
        if step.effect not in (Effect.FAULT, Effect.LOST):
            self._targets[key][step.target_id] += 1

    # ---- reading ----

    @property
    def actions(self) -> int:
        """Number of actions of the exploration so far; a reset counts as one."""
        return self.steps[-1].actions if self.steps else 0

    @property
    def roots(self) -> tuple[int, ...]:
        """Ids of the start screens, the newest first. There are several if the site's start varies."""
        found = [
            step.target_id for step in self.steps if step.source_id is None and step.target_id is not None
        ]
        return tuple(dict.fromkeys(reversed(found)))

    @property
    def shapes(self) -> tuple[str, ...]:
        """The shapes of all screens, in the order in which they were found."""
        return tuple(self._of_shape)

    def candidates(self, screen_id: int) -> tuple[Candidate, ...]:
        """Return the candidates of a screen, as the screen looked when it was found."""
        return tuple(self._candidates[screen_id].values())

    def candidate(self, screen_id: int, key: str) -> Candidate | None:
        """Return the candidate of a screen with this key; None if it has none."""
        return self._candidates[screen_id].get(key)

    def untried(self, screen_id: int) -> tuple[Candidate, ...]:
        """Return the candidates of a screen that no explorer has tried."""
        tried = self._tried[screen_id]
        return tuple(one for key, one in self._candidates[screen_id].items() if key not in tried)

    def tried(self, screen_id: int) -> tuple[tuple[Candidate, Effect], ...]:
        """Return the other candidates of a screen with their newest effect, the newest try first."""
        found: dict[str, Effect] = {}
        for step in reversed(self.steps):
            if step.source_id == screen_id and self.is_tried(screen_id, step.action):
                found.setdefault(step.action, step.effect)
        known = self._candidates[screen_id]
        return tuple((known[key], effect) for key, effect in found.items() if key in known)

    def is_tried(self, screen_id: int, key: str) -> bool:
        """Whether the action with this key was tried on a screen."""
        return key in self._tried[screen_id]

    def faults(self, screen_id: int, key: str) -> int:
        """Return how often an action on a screen ended in a fault of the environment."""
        return self._faults[screen_id, key]

    def is_always_shown(self, screen_id: int, key: str) -> bool:
        """Whether a screen had an action when it was found, and never lacked it when it was to be tried."""
        return key in self._candidates[screen_id] and (screen_id, key) not in self._lost

    def edges(self) -> Iterator[tuple[PathHop, Counter[int | None]]]:
        """Yield each reliable action, and the number of its tries by the screen that they led to.

        An action is reliable if its most frequent target is another screen, with at least `TRUSTED_SHARE` of
        the tries, faults of the environment included. None counts the tries that led to no screen; faults
        have no count.
        """
        for (source, action), targets in self._targets.items():
            target, count = targets.most_common(1)[0]
            tries = targets.total() + self._faults[source, action]
            if target is not None and target != source and count / tries >= TRUSTED_SHARE:
                yield PathHop(source_id=source, action=action, target_id=target), targets

    def curve(self) -> list[CoveragePoint]:
        """Return the numbers of screens and shapes over the number of actions."""
        found = ((node.found_actions, node.screen.shape) for node in self.nodes.values())
        return coverage_curve(found, self.actions)

    # ---- matching ----

    def match(self, screen: PageScreen) -> int | None:
        """Return the id of the node that is the same screen; None if the screen is new.

        Nodes of the same shape are compared first, then all others. Of several nodes that match, the one with
        the smallest distance is returned.
        """
        near = self._near(screen)
        same_shape = [one for one in self._of_shape.get(screen.shape, ()) if one in near]
        for group in (same_shape, sorted(near.difference(same_shape))):
            distances = [(self._distance(one, screen), one) for one in group]
            fitting = [(sum(pair), one) for pair, one in distances if self._fits(pair)]
            if fitting:
                return min(fitting)[1]
        return None

    def _distance(self, screen_id: int, screen: PageScreen) -> tuple[float, float]:
        node = self.nodes[screen_id].screen
        return d_dom(node, screen), d_img(node, screen)

    def _fits(self, distance: tuple[float, float]) -> bool:
        dom, img = distance
        return dom <= D_DOM_MOST and img <= D_IMG_MOST

    def _near(self, screen: PageScreen) -> set[int]:
        """Return the ids of the nodes whose image may match, by a quick comparison that is never too strict.

        The comparison ignores masks and allows for the largest share of cells that masks could hide.
        """
        if not self._grid_ids:
            return set()
        own = np.frombuffer(screen.grid, np.uint8).astype(np.int16)
        share = (np.abs(self._all_grids() - own) > GREY_LEVELS).mean(axis=1)
        masked = np.unpackbits(np.frombuffer(screen.volatile, np.uint8)).mean()
        most = NEAR_FACTOR * D_IMG_MOST + masked + self._masked_share()
        return {one for one, each in zip(self._grid_ids, share, strict=True) if each <= most}

    def _all_grids(self) -> npt.NDArray[np.int16]:
        """Return the grids of all screens, one a row. New rows are added here, many at once after a start."""
        if self._new_grids:
            known = [self._grids] if self._grids.size else []
            self._grids = np.concatenate([*known, np.stack(self._new_grids)])
            self._new_grids = []
        return self._grids

    def _masked_share(self) -> float:
        """Return the largest share of cells that the mask of any node hides."""
        hidden = (
            np.unpackbits(np.frombuffer(node.screen.volatile, np.uint8)).mean()
            for node in self.nodes.values()
        )
        return float(max(hidden, default=0.0))
