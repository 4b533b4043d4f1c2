"""Graphs that follow the record: the owner's own view, and the read-only snapshot of every explorer."""

from dart.core.exploration import ExploredStep
from dart.exploration.graph import Graph
from dart.store.reader import StoreReader


class GraphFollower:
    """The graph of one task and seed, as the record has it."""

    def __init__(self, reader: StoreReader, task_id: str, seed: int) -> None:
        self._reader, self._task_id, self._seed = reader, task_id, seed
        self._newest_screen = self._newest_step = 0
        self.graph = Graph()

    def follow(self) -> tuple[ExploredStep, ...]:
        """Read what is new; returns the new steps, oldest first.

        Steps are read first: a screen is never younger than the step that found it.
        """
        steps = self._reader.explored_steps(self._task_id, self._seed, self._newest_step)
        for node in self._reader.screens(self._task_id, self._seed, self._newest_screen):
            self.graph.add_node(node)
            self._newest_screen = node.screen_id
        for step in steps:
            self.graph.add_step(step)
            self._newest_step = step.step_id
        return steps
