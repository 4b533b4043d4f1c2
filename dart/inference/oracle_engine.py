"""An engine without a model that answers with the oracles of local desktop tasks.

It takes as long to answer as a simulated engine. It chooses answers from the instruction and the earlier
answers only. In a share 1 - `simulation.success` of the episodes, it gives up at the first step, so that the
rewards of a group differ.
"""

from dart.core.actions import Finished, format_action
from dart.core.types import GenerateRequest
from dart.environments.desktop.tasks import answer_of
from dart.inference.simulated_engine import SimulatedEngine


class OracleEngine(SimulatedEngine):
    """Answers like the oracle for the instruction; if there is none, like a simulated engine."""

    def _text(self, request: GenerateRequest) -> str:
        if not request.history and self._random.random() >= self._simulation.success:
            return format_action(Finished())
        try:
            return answer_of(request.instruction, request.history)
        except LookupError:
            return super()._text(request)
