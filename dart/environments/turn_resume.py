"""Decides whether to resume an episode after a fault of its environment, instead of failing the attempt.

To resume, `dart.environments.episode` resets the environment with the same seed and replays the answers so
far. It compares each screenshot with the recorded one by hash. This module only decides whether to try.
"""

from dart.environments.faults import EnvironmentFault, InfrastructureFault


def may_resume(fault: EnvironmentFault, *, steps: int, resumed: int, limit: int) -> bool:
    """Return whether to reset the environment and replay the episode after ``fault``.

    steps     how many steps of the episode are complete
    resumed   how often this attempt was resumed already
    limit     how often an attempt may be resumed (`environments.turn_resumes`)

    False in the first step, which has nothing to replay, and for a fault that is not the environment's, which
    would come again.
    """
    return isinstance(fault, InfrastructureFault) and steps > 0 and resumed < limit
