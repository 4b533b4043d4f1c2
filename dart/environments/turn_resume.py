"""Whether an episode goes on in its step after the environment failed, instead of being played anew.

To go on, the environment is reset with the same seed and the answers so far are replayed, each screenshot
compared by hash with the recorded one (`dart.environments.episode`). This only decides whether that is tried.
"""

from dart.environments.faults import EnvironmentFault, FrozenFrame, InfrastructureFault

DOUBTFUL = (FrozenFrame,)
"""Faults after which the recorded screenshots may be wrong, so that nothing can be compared with them."""


def may_resume(fault: EnvironmentFault, *, steps: int, resumed: int, limit: int) -> bool:
    """Return whether to replay the `steps` of an episode after a fault.

    resumed   how often this attempt was resumed already
    limit     how often an attempt may be resumed (`environments.turn_resumes`)

    A first step has nothing to replay. A fault of the task or of its evaluator would come again.
    """
    is_repairable = isinstance(fault, InfrastructureFault) and not isinstance(fault, DOUBTFUL)
    return is_repairable and steps > 0 and resumed < limit
