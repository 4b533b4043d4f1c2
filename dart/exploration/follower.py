"""Keeps a graph up to date with the record, for the owner of the graph and for every explorer."""

from dart.core.exploration import ExploredStep
from dart.exploration.graph import Graph
from dart.store.reader import StoreReader


class GraphFollower:
    """Reads the graph of one task and seed from the record, and adds what is new at each call of `follow`."""

    def __init__(self, reader: StoreReader, task_id: str, seed: int) -> None:
        self._reader, self._task_id, self._seed = reader, task_id, seed
        self._newest_screen = self._newest_step = 0
        self.graph = Graph()

    def follow(self) -> tuple[ExploredStep, ...]:
        """Add new screens and steps from the record to the graph, and return the new steps, oldest first.

        Steps are read before screens, so the screens of all steps that are read are read, too.
        """
        steps = self._reader.explored_steps(self._task_id, self._seed, self._newest_step)
        for node in self._reader.screens(self._task_id, self._seed, self._newest_screen):
            self.graph.add_node(node)
            self._newest_screen = node.screen_id
        for step in steps:
            self.graph.add_step(step)
            self._newest_step = step.step_id
        return steps
