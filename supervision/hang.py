"""When a child counts as hung, from the vitals that it shows on the board. Pure.

OTP has no such check: a process of the Erlang VM cannot block the others. See docs/decisions/0009.
"""

from dataclasses import dataclass

MAX_BEAT_S = 15.0
BEATS_LATE = 1.3

LATE_BEAT_S = 5.0
"""How many seconds late a beat may be on a busy machine; half the hang deadline if that is over 10 s."""

REMEDY = "await self.in_thread(...) for what blocks, or call self.still_working() at each piece of progress"


def beat_s(hang_deadline_s: float) -> float:
    """The time between two beats of a child: its hang deadline less LATE_BEAT_S.

    It is at least a quarter and at most half of the deadline, and never above MAX_BEAT_S.
    """
    seldom_s = max(hang_deadline_s / 4, min(hang_deadline_s / 2, hang_deadline_s - LATE_BEAT_S))
    return min(MAX_BEAT_S, seldom_s)


@dataclass(frozen=True, slots=True)
class HangCheck:
    """Why a child counts as hung (empty if it does not), and when to check it next at the latest."""

    why: str
    again_in_s: float


def check_hang(
    *, busy_s: float, handler: str, silent_s: float, beat_every_s: float, deadline_s: float
) -> HangCheck:
    """Check whether a child stays in one handler, or gives no beat, for longer than its hang deadline.

    `beat_every_s` is the time between two beats of the process. It is fixed when the process starts: if the
    deadline is lowered later, the process does not beat more often.
    """
    silence_s = max(deadline_s, BEATS_LATE * beat_every_s)
    limit = f"(hang_deadline_s={deadline_s:g})"
    if busy_s > deadline_s:
        return HangCheck(f"hung: in {handler} for {busy_s:.1f} s {limit}; {REMEDY}", deadline_s)
    if silent_s > silence_s:
        return HangCheck(f"hung: no beat for {silent_s:.1f} s {limit}", deadline_s)
    return HangCheck("", min(deadline_s - busy_s, silence_s - silent_s))
