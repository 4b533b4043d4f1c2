"""The faults that can be injected into environments. Pure.

The value of each fault is the name of its rate in `FaultsSettings` (`dart.config.sections`), whose text
describes the fault. Real virtual machines have all of these faults. They never start, or answer before the
window manager runs; they hang or die; they lose an action or apply it twice; their screenshots freeze or are
cut off; a snapshot contains something of the last episode or an unexpected window; and evaluators return
something that is not a score.
"""

from enum import StrEnum


class InjectedFault(StrEnum):
    """A kind of injected fault.

    Faults are planned by random draws in this order. Add new kinds at the end, so that a seed
    (`environments.faults.seed`) still gives the same faults.
    """

    CRASH = "crash"
    HANG = "hang"
    LOST_ACTION = "lost_action"
    DOUBLED_ACTION = "doubled_action"
    FROZEN_FRAME = "frozen_frame"
    BAD_EVALUATION = "bad_evaluation"
    FAILED_RESET = "failed_reset"
    NEVER_READY = "never_ready"
    READY_TOO_EARLY = "ready_too_early"
    TRUNCATED_FRAME = "truncated_frame"
    DIRTY_RESET = "dirty_reset"
    POPUP = "popup"
    SLOW_START = "slow_start"
    DEAD_APPLICATION = "dead_application"
    DEAD_WINDOW_MANAGER = "dead_window_manager"


DESKTOP_FAULTS = frozenset(
    {
        InjectedFault.READY_TOO_EARLY,
        InjectedFault.DIRTY_RESET,
        InjectedFault.POPUP,
        InjectedFault.DEAD_APPLICATION,
        InjectedFault.DEAD_WINDOW_MANAGER,
    }
)
"""Faults that only environments with windows and applications can have."""
