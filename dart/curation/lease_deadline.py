"""When the lease of an environment is overdue."""

SPARED_S = 600.0
"""Longest time after its deadline for which a lease stays with an environment that cannot store its steps.
The trainer may wait for this one rollout, and another environment may be able to store it."""


def is_overdue(deadline_unix_s: float, waited_unix_s: float, lease_s: float, now_unix_s: float) -> bool:
    """Whether a lease ends, so that another environment plays the rollout or the episode.

    waited_unix_s   when the holder last could not store what it played; it has `lease_s` after that to
                    report, but not more than `SPARED_S` after the deadline
    """
    spared_unix_s = min(waited_unix_s + lease_s, deadline_unix_s + SPARED_S)
    return max(deadline_unix_s, spared_unix_s) <= now_unix_s
