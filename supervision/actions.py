"""What a supervisor's decisions are made of: its children as it sees them, and what it wants done."""

from dataclasses import dataclass, field
from enum import StrEnum

from supervision.child_spec import ChildSpec, Failure
from supervision.circuit_breaker import Circuit, CircuitState


class Status(StrEnum):
    """Where a child's process is."""

    DOWN = "down"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"


class Target(StrEnum):
    """Where a child should be."""

    UP = "up"
    DOWN = "down"
    RESTART = "restart"
    """Down first, then up: a sibling's failure takes it along, or it is replaced."""


class Call(StrEnum):
    """A management call that waits for a child's start."""

    START = "start_child"
    RESTART = "restart_child"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended."""

    reason: str
    normal: bool = False
    shutdown: bool = False
    """A supervisor gave up (OTP's reason `shutdown`): normal, unless it never was up."""
    by_signal: bool = False
    ignored: bool = False
    """It said at its start that there is nothing to do (OTP `ignore`)."""


# ---- what is to be done ----


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start a process for the child."""

    id: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class SpawnSpare:
    """Start the process that will replace the child's, beside it."""

    id: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Promote:
    """The spare bears the child's name from now on; the old process, if there is one, loses it."""

    id: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class AskToStop:
    """Tell a process to end by itself."""

    id: str
    incarnation: int
    finish: bool = False
    """After answering what it was asked: it is replaced, not taken down."""


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
    """start_error, child_terminated, shutdown_error, shutdown (OTP); beyond it quarantined, retired, outage
    and outage_over."""
    reason: str
    offender: str
    taken_along: tuple[str, ...] = ()
    """Siblings that end and start again with it, by the strategy."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A management call that waited for this child's start can be answered."""

    id: str
    ok: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Forget:
    """The child's spec is gone; nothing of it runs."""

    id: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The supervisor itself ends; all children are down. normal: it was told to, or its work is done."""

    normal: bool
    reason: str


Action = Spawn | SpawnSpare | Promote | AskToStop | Kill | Report | Answer | Forget | Finish


# ---- children ----


@dataclass(slots=True)
class Side:
    """A process of a child beside its own: a spare that starts, or a predecessor that retires."""

    incarnation: int
    deadline_s: float
    is_killed: bool = False
    is_dropped: bool = False
    """Killed because it is not needed, which is no failure of its own."""


@dataclass(slots=True)
class Child:
    """One child as the machine knows it."""

    spec: ChildSpec
    target: Target = Target.UP
    status: Status = Status.DOWN
    incarnation: int = 0
    """Of the process that bears the name."""
    issued: int = 0
    """Highest incarnation ever given out."""
    restarts: int = 0
    failures_in_row: int = 0
    since_s: float = 0.0
    """When the status began."""
    start_at_s: float = 0.0
    """Not to be started before (backoff, quarantine)."""
    waited_s: float = 0.0
    """Time spent waiting for `start_at_s`, up to the last start."""
    stop_by_s: float = 0.0
    retire_at_s: float = float("inf")
    last_reason: str = ""
    uses: int = 0
    """Of the process that bears the name, as far as they were looked at."""
    was_ready: bool = False
    """It has been up at least once in this supervisor's life."""
    is_killed: bool = False
    """A SIGKILL is on its way to the process."""
    is_hung: bool = False
    is_retired: bool = False
    """It goes down to be replaced by a fresh one."""
    call: Call | None = None
    circuit: Circuit = field(default_factory=Circuit)
    spent: dict[Failure, tuple[float, ...]] = field(default_factory=dict)
    spare: Side | None = None
    retiring: Side | None = None
    spare_after_s: float = 0.0
    """No replacement is tried before; a failed one waits like a failed child."""
    is_forgotten: bool = False
    """Its spec goes when its last process has."""

    def own_clock_s(self, now_s: float) -> float:
        """A clock that stands still while the child waits for `start_at_s`: failures are dated by it."""
        is_waiting = self.status is Status.DOWN and self.target is Target.UP
        wait_s = min(now_s, self.start_at_s) - self.since_s if is_waiting else 0.0
        return now_s - self.waited_s - max(0.0, wait_s)

    @property
    def is_quarantined(self) -> bool:
        return self.circuit.state is CircuitState.OPEN

    @property
    def is_gone(self) -> bool:
        """No process of it is left."""
        return self.status is Status.DOWN and self.spare is None and self.retiring is None
