"""An engine that plays the scripted solutions of the tasks of local desktops, as fast as a simulated one.

It sees what a policy sees: the instruction and what was answered before. A share of episodes
(1 - `simulation.success`) it gives up at the first step, so that rewards of a group differ.
"""

from dart.core.actions import Finished, format_action
from dart.core.types import GenerateRequest
from dart.environments.desktop.tasks import answer_of
from dart.inference.simulated_engine import SimulatedEngine


class OracleEngine(SimulatedEngine):
    """Answers by the script; on an instruction of no script like any simulated engine."""

    def _text(self, request: GenerateRequest) -> str:
        if not request.history and self._random.random() >= self._simulation.success:
            return format_action(Finished())
        try:
            return answer_of(request.instruction, request.history)
        except LookupError:
            return super()._text(request)
