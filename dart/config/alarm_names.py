"""The names of the learning alarms. `dart.curation.learning_alarms` says when each is raised and cleared."""

from enum import StrEnum


class LearningAlarm(StrEnum):
    """A way in which learning goes wrong although every process is healthy. The value is the alarm's name."""

    ENTROPY_COLLAPSE = "entropy_collapse"
    KL_RUNAWAY = "kl_runaway"
    SUCCESS_FALLS = "success_falls"
    LOGPROB_MISMATCH = "logprob_mismatch"
    EQUAL_REWARDS = "equal_rewards"
    ONE_ACTION = "one_action"
    LENGTH_EXPLODES = "length_explodes"
    GRADIENTS_CLIPPED = "gradients_clipped"
    TASK_UNLEARNED = "task_unlearned"
    EVALUATOR_STUCK = "evaluator_stuck"
