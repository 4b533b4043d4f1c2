"""An engine that answers with the oracles of local desktop tasks, as fast as a simulated engine.

It sees what a policy sees: the instruction and what was answered before. It gives up a share
1 - `simulation.success` of episodes at the first step, so that the rewards of a group differ.
"""

from dart.core.actions import Finished, format_action
from dart.core.types import GenerateRequest
from dart.environments.desktop.tasks import answer_of
from dart.inference.simulated_engine import SimulatedEngine


class OracleEngine(SimulatedEngine):
    """Answers as the oracle of the instruction does; without an oracle, as a simulated engine does."""

    def _text(self, request: GenerateRequest) -> str:
        if not request.history and self._random.random() >= self._simulation.success:
            return format_action(Finished())
        try:
            return answer_of(request.instruction, request.history)
        except LookupError:
            return super()._text(request)
