"""The faults that can be injected, by the names of their rates in the configuration. Pure.

The kinds and where they were met in the field: virtual machines that never come up, answer before there is a
window manager, hang, die, lose an action or apply it twice, show a picture that stands still or is cut off,
come back from a snapshot with something of the last episode or with a window nobody asked for, and evaluators
that answer with something that is no score.
"""

from enum import StrEnum


class InjectedFault(StrEnum):
    """What is done to an environment. New kinds come last: a plan draws in this order."""

    CRASH = "crash"
    """What shows the screen is killed."""
    HANG = "hang"
    """What shows the screen is stopped."""
    LOST_ACTION = "lost_action"
    """An action never arrives."""
    DOUBLED_ACTION = "doubled_action"
    """An action arrives twice."""
    FROZEN_FRAME = "frozen_frame"
    """The screenshot no longer changes."""
    BAD_EVALUATION = "bad_evaluation"
    """The score is not a number."""
    FAILED_RESET = "failed_reset"
    """The reset is refused."""
    NEVER_READY = "never_ready"
    """It starts and never answers."""
    READY_TOO_EARLY = "ready_too_early"
    """It answers, and there is no window manager yet."""
    TRUNCATED_FRAME = "truncated_frame"
    """Only half of a screenshot arrives."""
    DIRTY_RESET = "dirty_reset"
    """Something of another episode is still there."""
    POPUP = "popup"
    """A window nobody asked for lies over the start screen."""
    SLOW_START = "slow_start"
    """A reset takes longer by a third of its deadline. No fault by itself: everything has to hold it."""
    DEAD_APPLICATION = "dead_application"
    """The task's application is stopped: the picture stays, nothing happens any more."""
    DEAD_WINDOW_MANAGER = "dead_window_manager"
    """The window manager is killed: the picture stays, nothing gets the focus any more."""


RESET_FAULTS = frozenset(
    {
        InjectedFault.FAILED_RESET,
        InjectedFault.NEVER_READY,
        InjectedFault.READY_TOO_EARLY,
        InjectedFault.DIRTY_RESET,
        InjectedFault.POPUP,
        InjectedFault.SLOW_START,
    }
)
"""They strike a reset, which is tried again from nothing within its attempt; no episode has begun."""

DESKTOP_FAULTS = frozenset(
    {
        InjectedFault.READY_TOO_EARLY,
        InjectedFault.DIRTY_RESET,
        InjectedFault.POPUP,
        InjectedFault.DEAD_APPLICATION,
        InjectedFault.DEAD_WINDOW_MANAGER,
    }
)
"""They need windows and applications."""
