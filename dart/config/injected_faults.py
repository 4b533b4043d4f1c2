"""The faults that can be injected, by the names of their rates in the configuration. Pure.

Real virtual machines have all of them. They never start, or answer before the window manager runs; they hang
or die; they lose an action or apply it twice; their screenshots freeze or are cut off; a snapshot contains
something of the last episode or an unexpected window; and evaluators return something that is not a score.
"""

from enum import StrEnum


class InjectedFault(StrEnum):
    """A kind of fault. New kinds are added at the end, because plans draw in this order."""

    CRASH = "crash"
    """The browser or machine is killed."""
    HANG = "hang"
    """The browser or machine is stopped."""
    LOST_ACTION = "lost_action"
    """An action never arrives."""
    DOUBLED_ACTION = "doubled_action"
    """An action arrives twice."""
    FROZEN_FRAME = "frozen_frame"
    """The screenshot no longer changes."""
    BAD_EVALUATION = "bad_evaluation"
    """The score is not a number."""
    FAILED_RESET = "failed_reset"
    """The reset fails."""
    NEVER_READY = "never_ready"
    """The browser or machine starts and never answers."""
    READY_TOO_EARLY = "ready_too_early"
    """The machine answers before its window manager runs."""
    TRUNCATED_FRAME = "truncated_frame"
    """Only half of a screenshot arrives."""
    DIRTY_RESET = "dirty_reset"
    """Something of another episode is still on the machine."""
    POPUP = "popup"
    """An unexpected window covers part of the start screen."""
    SLOW_START = "slow_start"
    """A reset takes longer by a third of its deadline, which the run has to tolerate without a fault."""
    DEAD_APPLICATION = "dead_application"
    """The task's application is stopped: its picture stays and it does not react."""
    DEAD_WINDOW_MANAGER = "dead_window_manager"
    """The window manager is killed: the picture stays and no window gets the focus."""


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
"""Faults of a reset. A reset is repeated within its attempt, so these spend no attempt by themselves."""

DESKTOP_FAULTS = frozenset(
    {
        InjectedFault.READY_TOO_EARLY,
        InjectedFault.DIRTY_RESET,
        InjectedFault.POPUP,
        InjectedFault.DEAD_APPLICATION,
        InjectedFault.DEAD_WINDOW_MANAGER,
    }
)
"""Faults that need windows and applications."""
