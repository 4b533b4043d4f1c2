"""The circuit breaker of one child: closed, open, half-open. Pure.

While it is open the child is in quarantine: its supervisor does not start it.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from supervision.budget import add_restart
from supervision.child_spec import Breaker


class CircuitState(StrEnum):
    """The three states of a circuit breaker, by Nygard's names (Release It!, chapter 5)."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(frozen=True, slots=True)
class Circuit:
    """The state of a child's circuit, and its recent failures."""

    state: CircuitState = CircuitState.CLOSED
    failures: tuple[float, ...] = ()
    """Moments of the recent failures while the circuit is closed, in seconds on the child's own clock."""
    open_until_s: float = 0.0


def failed(circuit: Circuit, policy: Breaker, now_s: float, *, own_clock_s: float) -> Circuit:
    """The circuit after one more failure. If it is half-open, one failure opens it again.

    own_clock_s   the moment on the child's own clock, which its backoffs do not move
    """
    if circuit.state is CircuitState.HALF_OPEN:
        return opened(policy, now_s)
    failures, holds = add_restart(
        circuit.failures, own_clock_s, max_restarts=policy.max_failures, max_seconds=policy.within_s
    )
    return replace(circuit, failures=failures) if holds else opened(policy, now_s)


def opened(policy: Breaker, now_s: float) -> Circuit:
    """An open circuit: the child is in quarantine from now on."""
    return Circuit(CircuitState.OPEN, open_until_s=now_s + policy.open_s)


def on_probation(circuit: Circuit) -> Circuit:
    """The circuit at a start of the child: an open one becomes half-open, any other stays as it is."""
    return Circuit(CircuitState.HALF_OPEN) if circuit.state is CircuitState.OPEN else circuit


def after_running(circuit: Circuit, policy: Breaker, ran_s: float) -> Circuit:
    """The circuit after the child ran for `ran_s`: a half-open one is closed if that was long enough."""
    return Circuit() if circuit.state is CircuitState.HALF_OPEN and ran_s >= policy.healthy_s else circuit
