"""The names of the alarms for learning. Pure; `dart.curation.learning_alarms` has their rules."""

from enum import StrEnum


class LearningAlarm(StrEnum):
    """Something that goes wrong with learning while every process is well."""

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
