"""The circuit breaker of one child: closed, open, half-open. Pure.

While it is open the child is in quarantine: its supervisor does not start it.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from supervision.budget import add_restart
from supervision.child_spec import Breaker


class CircuitState(StrEnum):
    """Nygard's three states (Release It!, chapter 5)."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(frozen=True, slots=True)
class Circuit:
    """The state of a child's circuit, and its recent failures."""

    state: CircuitState = CircuitState.CLOSED
    failures: tuple[float, ...] = ()
    """Moments in seconds on the child's own clock, while closed."""
    open_until_s: float = 0.0


def failed(circuit: Circuit, policy: Breaker, now_s: float, *, own_clock_s: float) -> Circuit:
    """The circuit after one more failure. On probation a single one opens it again.

    own_clock_s   the moment on the child's own clock, which its backoffs do not move
    """
    if circuit.state is CircuitState.HALF_OPEN:
        return opened(policy, now_s)
    failures, holds = add_restart(
        circuit.failures, own_clock_s, max_restarts=policy.max_failures, max_seconds=policy.within_s
    )
    return replace(circuit, failures=failures) if holds else opened(policy, now_s)


def opened(policy: Breaker, now_s: float) -> Circuit:
    """Quarantine the child from now on."""
    return Circuit(CircuitState.OPEN, open_until_s=now_s + policy.open_s)


def on_probation(circuit: Circuit) -> Circuit:
    """The one start after quarantine."""
    return Circuit(CircuitState.HALF_OPEN) if circuit.state is CircuitState.OPEN else circuit


def after_running(circuit: Circuit, policy: Breaker, ran_s: float) -> Circuit:
    """Closed again once the probation has lasted."""
    return Circuit() if circuit.state is CircuitState.HALF_OPEN and ran_s >= policy.healthy_s else circuit
