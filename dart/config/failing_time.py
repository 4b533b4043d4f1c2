"""How long an environment takes to fail. The check of a configuration needs this, too."""

RESET_ATTEMPTS = 2
"""How often an environment tries to reset for one episode."""

MAX_FAULTS_IN_ROW = 3
"""Number of infrastructure faults in a row after which the actor of an environment ends. Other faults do not
count.

After fewer faults, the next reset repairs the environment."""


RESET_FACTOR = 1.1
"""How much longer than its deadline a reset may take: afterwards, a machine is given back."""


def failing_s(reset_deadline_s: float) -> float:
    """Return how many seconds an environment runs before it fails, if none of its resets ends in time."""
    return RESET_FACTOR * MAX_FAULTS_IN_ROW * RESET_ATTEMPTS * reset_deadline_s
