"""The data of a supervisor's decisions: its children as it sees them, and the actions to carry out."""

from dataclasses import dataclass, field
from enum import StrEnum

from supervision.child_spec import ChildSpec, Failure
from supervision.circuit_breaker import Circuit, CircuitState


class Status(StrEnum):
    """Whether a child's process is down, starting, running or stopping."""

    DOWN = "down"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"


class Target(StrEnum):
    """Whether a child should run."""

    UP = "up"
    DOWN = "down"
    RESTART = "restart"
    """The child is to go down, then up: it is restarted along with a failed sibling, or replaced."""


class ManagementCall(StrEnum):
    """A management call that waits for a child's start."""

    START = "start_child"
    RESTART = "restart_child"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended."""

    reason: str
    normal: bool = False
    shutdown: bool = False
    """Whether the process was a supervisor that gave up (OTP's reason `shutdown`). Such an end is normal,
    unless the supervisor was never up."""
    by_signal: bool = False
    ignored: bool = False
    """Whether the actor's `on_start` called `ignore` (OTP `ignore`)."""
    overdue: bool = False
    """Whether work of the actor in a thread passed its deadline."""


# ---- actions ----


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start a process for the child."""

    id: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class AskToStop:
    """Tell a process to end by itself."""

    id: str
    incarnation: int
    within_s: float
    """Seconds after which the process is killed."""
    finish: bool = False
    """Whether the process first answers its open requests; true for a process that is replaced."""


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL a process."""

    id: str
    incarnation: int
    why: str


@dataclass(frozen=True, slots=True)
class Report:
    """Write a report with the fields of OTP's supervisor report; the supervisor adds its own name."""

    context: str
    """OTP's start_error, child_terminated, shutdown_error or shutdown; or child_quarantined, retired,
    preempted, outage or outage_over, which OTP does not have."""
    reason: str
    offender: str
    taken_along: tuple[str, ...] = ()
    """The siblings that the strategy restarts along with the child."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer the management call that has waited for this child's start."""

    id: str
    ok: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove the child and its spec. No process of the child runs any more."""

    id: str


@dataclass(frozen=True, slots=True)
class Finish:
    """End the supervisor, whose children are all down.

    normal   whether the supervisor was asked to stop or its work is done
    """

    normal: bool
    reason: str


Action = Spawn | AskToStop | Kill | Report | Answer | Forget | Finish


# ---- children ----


@dataclass(slots=True)
class Child:
    """One child as the supervisor's state machine knows it."""

    spec: ChildSpec
    target: Target = Target.UP
    status: Status = Status.DOWN
    incarnation: int = 0
    issued: int = 0
    """The highest incarnation that any process of the child ever had."""
    restarts: int = 0
    failures_in_row: int = 0
    since_s: float = 0.0
    """The moment when the status began, for a start plus the time that was lost by suspensions."""
    start_at_s: float = 0.0
    """The moment before which the child is not started (backoff, quarantine)."""
    waited_s: float = 0.0
    """Seconds that the child has waited for `start_at_s` in all, up to its last start."""
    stop_by_s: float = 0.0
    retire_at_s: float = float("inf")
    last_reason: str = ""
    uses: int = 0
    """The uses of the process, as last read from the board."""
    was_ready: bool = False
    """Whether the child has been ready at least once in this supervisor's life."""
    is_killed: bool = False
    """Whether a SIGKILL has been sent to the process."""
    is_hung: bool = False
    is_retired: bool = False
    """Whether the child goes down in order to be replaced by a fresh process."""
    call: ManagementCall | None = None
    circuit: Circuit = field(default_factory=Circuit)
    spent: dict[Failure, tuple[float, ...]] = field(default_factory=dict)
    preemptions: tuple[float, ...] = ()
    """The moments of announced preemptions, on the child's own clock."""
    is_forgotten: bool = False
    """Whether the child's spec is removed when the child's process has ended."""

    def own_clock_s(self, now_s: float) -> float:
        """The moment on the child's own clock, which stops while the child waits for `start_at_s`.

        The times of the child's failures are taken from this clock.
        """
        is_waiting = self.status is Status.DOWN and self.target is Target.UP
        wait_s = min(now_s, self.start_at_s) - self.since_s if is_waiting else 0.0
        return now_s - self.waited_s - max(0.0, wait_s)

    @property
    def is_quarantined(self) -> bool:
        """Whether the child's circuit breaker is open."""
        return self.circuit.state is CircuitState.OPEN
