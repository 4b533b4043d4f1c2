"""What a supervisor must know of a child, in OTP's words (OTP `supervisor`, child specification)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from supervision.errors import InvalidChildSpec


class Restart(StrEnum):
    """When an ended child is started again."""

    PERMANENT = "permanent"
    TRANSIENT = "transient"
    """Only when it ended abnormally."""
    TEMPORARY = "temporary"


class Strategy(StrEnum):
    """Who is restarted along with a failed child."""

    ONE_FOR_ONE = "one_for_one"
    ONE_FOR_ALL = "one_for_all"
    REST_FOR_ONE = "rest_for_one"
    """The failed child and those started after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Waits between restarts of one child: `initial_s * factor ** n`, at most `max_s`, with jitter."""

    initial_s: float = 0.0
    factor: float = 2.0
    max_s: float = 30.0
    jitter: float = 0.2
    """Share of the wait that is drawn at random, so that children do not come back in step."""
    reset_after_s: float = 60.0
    """A child that ran this long starts again at `initial_s` (its own parameter: akka #19246)."""

    def __post_init__(self) -> None:
        _check("backoff.initial_s", self.initial_s, self.initial_s >= 0, "at least 0")
        _check("backoff.factor", self.factor, self.factor >= 1, "at least 1")
        _check("backoff.max_s", self.max_s, self.max_s >= self.initial_s, "at least initial_s")
        _check("backoff.jitter", self.jitter, 0 <= self.jitter < 1, "in [0, 1)")
        _check("backoff.reset_after_s", self.reset_after_s, self.reset_after_s > 0, "positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """One child of a supervisor."""

    id: str
    actor: str
    """`module:Class` of the actor; imported in the child process, not here."""
    args: Mapping[str, Any] = field(default_factory=dict)
    """Plain data handed to the actor."""
    restart: Restart = Restart.PERMANENT
    significant: bool = False
    """When it ends by itself for good, the supervisor ends too (auto_shutdown any_significant)."""
    shutdown_s: float = 5.0
    """Time to end by itself when told to; then SIGKILL. 0 kills at once (brutal_kill)."""
    start_deadline_s: float = 30.0
    """Time from the fork to readiness; then it is killed and counts as failed."""
    hang_deadline_s: float = 10.0
    """Without a beat, or busy in one handler for this long, it counts as hung and is killed."""
    backoff: Backoff = field(default_factory=Backoff)

    def __post_init__(self) -> None:
        _check("id", self.id, bool(self.id), "a name")
        _check("actor", self.actor, self.actor.count(":") == 1, "'module:Class'")
        _check("shutdown_s", self.shutdown_s, self.shutdown_s >= 0, "at least 0")
        _check("start_deadline_s", self.start_deadline_s, self.start_deadline_s > 0, "positive")
        _check("hang_deadline_s", self.hang_deadline_s, self.hang_deadline_s > 0, "positive")
        if self.significant and self.restart is Restart.PERMANENT:
            raise InvalidChildSpec(
                f"child {self.id!r}: significant must be false for a permanent child, "
                "which never ends for good; make it transient or temporary"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorFlags:
    """How a supervisor treats its children (OTP sup_flags, Elixir's defaults)."""

    strategy: Strategy = Strategy.ONE_FOR_ONE
    max_restarts: int = 3
    max_seconds: float = 5.0
    """More than max_restarts failures within max_seconds: the supervisor gives up and exits `shutdown`."""
    ordered: bool = True
    """Start left to right, each once the one before is ready, stop in reverse. A pool is not ordered."""

    def __post_init__(self) -> None:
        _check("max_restarts", self.max_restarts, self.max_restarts >= 0, "at least 0")
        _check("max_seconds", self.max_seconds, self.max_seconds > 0, "positive")
        if not self.ordered and self.strategy is Strategy.REST_FOR_ONE:
            raise InvalidChildSpec(
                "strategy rest_for_one needs ordered=true: 'the rest' has no meaning otherwise"
            )


def check_unique_ids(specs: "tuple[ChildSpec, ...]") -> None:
    """Raise InvalidChildSpec when two children bear one id."""
    seen: set[str] = set()
    for spec in specs:
        if spec.id in seen:
            raise InvalidChildSpec(f"child id {spec.id!r} is used twice; ids are unique within a supervisor")
        seen.add(spec.id)


def _check(name: str, value: object, holds: bool, expected: str) -> None:
    if not holds:
        raise InvalidChildSpec(f"{name} must be {expected}, got {value!r}")
