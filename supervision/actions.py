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
    """The process was a supervisor that gave up (OTP's reason `shutdown`). This is a normal end, unless it
    never was up."""
    by_signal: bool = False
    ignored: bool = False
    """Its `on_start` called `ignore` (OTP `ignore`)."""


# ---- actions ----


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start a process for the child."""

    id: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class SpawnSpare:
    """Start a spare, which will replace the child's process, while that process still runs."""

    id: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Promote:
    """The spare gets the child's name; the old process, if there is one, loses it."""

    id: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class AskToStop:
    """Tell a process to end by itself."""

    id: str
    incarnation: int
    finish: bool = False
    """Whether the process first answers its open requests, which it does when it is replaced."""


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL a process."""

    id: str
    incarnation: int
    why: str


@dataclass(frozen=True, slots=True)
class Report:
    """OTP's supervisor report: context, reason, offender (the supervisor adds itself)."""

    context: str
    """start_error, child_terminated, shutdown_error, shutdown (OTP); beyond it child_quarantined, retired,
    outage and outage_over."""
    reason: str
    offender: str
    taken_along: tuple[str, ...] = ()
    """The siblings that end and start again with the child, by the strategy."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer the management call that has waited for this child's start."""

    id: str
    ok: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Forget:
    """The child and its spec are removed; no process of it runs."""

    id: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The supervisor ends; all children are down. normal: it was asked to stop, or its work is done."""

    normal: bool
    reason: str


Action = Spawn | SpawnSpare | Promote | AskToStop | Kill | Report | Answer | Forget | Finish


# ---- children ----


@dataclass(slots=True)
class SideProcess:
    """A process of a child beside its own: a spare that starts, or a predecessor that retires."""

    incarnation: int
    deadline_s: float
    is_killed: bool = False
    is_dropped: bool = False
    """Whether it was killed because it is not needed, which is no failure of the process."""


@dataclass(slots=True)
class Child:
    """One child as the supervisor's state machine knows it."""

    spec: ChildSpec
    target: Target = Target.UP
    status: Status = Status.DOWN
    incarnation: int = 0
    """The incarnation of the process that has the name."""
    issued: int = 0
    """The highest incarnation that was ever given out."""
    restarts: int = 0
    failures_in_row: int = 0
    since_s: float = 0.0
    """The moment when the status began."""
    start_at_s: float = 0.0
    """The moment before which the child is not started (backoff, quarantine)."""
    waited_s: float = 0.0
    """Time spent waiting for `start_at_s`, up to the last start."""
    stop_by_s: float = 0.0
    retire_at_s: float = float("inf")
    last_reason: str = ""
    uses: int = 0
    """The uses of the process that has the name, as last read from the board."""
    was_ready: bool = False
    """Whether it has been up at least once in this supervisor's life."""
    is_killed: bool = False
    """Whether a SIGKILL has been sent to the process."""
    is_hung: bool = False
    is_retired: bool = False
    """Whether it goes down to be replaced by a fresh process."""
    call: ManagementCall | None = None
    circuit: Circuit = field(default_factory=Circuit)
    spent: dict[Failure, tuple[float, ...]] = field(default_factory=dict)
    spare: SideProcess | None = None
    retiring: SideProcess | None = None
    spare_after_s: float = 0.0
    """The moment before which no replacement is tried; a failed replacement waits like a failed child."""
    is_forgotten: bool = False
    """Whether its spec is removed when its last process has ended."""

    def own_clock_s(self, now_s: float) -> float:
        """The moment on the child's own clock, which stops while the child waits for `start_at_s`.

        The moments of its failures are taken on this clock.
        """
        is_waiting = self.status is Status.DOWN and self.target is Target.UP
        wait_s = min(now_s, self.start_at_s) - self.since_s if is_waiting else 0.0
        return now_s - self.waited_s - max(0.0, wait_s)

    @property
    def is_quarantined(self) -> bool:
        """Whether its circuit breaker is open."""
        return self.circuit.state is CircuitState.OPEN

    @property
    def is_gone(self) -> bool:
        """Whether the child has no process left."""
        return self.status is Status.DOWN and self.spare is None and self.retiring is None
