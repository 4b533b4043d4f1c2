"""Child specifications and supervisor flags, in OTP's words (OTP `supervisor`).

`ChildSpec` and `SupervisorFlags` are OTP's. `Backoff`, `Budget`, `Breaker` and `Retirement` go beyond it, for
children that fail for reasons of their own: virtual machines, browsers, engines.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from types import UnionType
from typing import Any

from actors.board import LAUNCHER
from actors.codec import to_plain
from supervision.errors import InvalidChildSpec

LONGEST_S = 1e9
"""The longest finite time in a spec, in seconds: thirty years, so that a timer can count it and a margin."""

COUNT_MOST = 10**9
"""The largest number of restarts, uses or children, so that each fits into a message."""


class Restart(StrEnum):
    """When an ended child is started again."""

    PERMANENT = "permanent"
    TRANSIENT = "transient"
    """Only when it ended abnormally."""
    TEMPORARY = "temporary"
    """Never; its spec is forgotten when it ends."""


class Strategy(StrEnum):
    """Which siblings are restarted along with a failed child."""

    ONE_FOR_ONE = "one_for_one"
    ONE_FOR_ALL = "one_for_all"
    REST_FOR_ONE = "rest_for_one"
    """The failed child and those started after it."""


class ChildType(StrEnum):
    """Whether `count_children` counts a child as a worker or as a supervisor."""

    WORKER = "worker"
    SUPERVISOR = "supervisor"


class AutoShutdown(StrEnum):
    """Whether the supervisor ends when significant children have ended by themselves."""

    NEVER = "never"
    ANY_SIGNIFICANT = "any_significant"
    ALL_SIGNIFICANT = "all_significant"


class Failure(StrEnum):
    """Kinds of failure; each may have a budget of its own."""

    START = "start"
    """It ended, or was killed, before it was ready."""
    CRASH = "crash"
    """It ended by itself: an uncaught exception, an exit code."""
    SIGNAL = "signal"
    """Something outside ended it: a SIGKILL, the kernel when memory is short, a segmentation fault."""
    HANG = "hang"
    """It stopped beating, or stayed in one handler too long, and was killed for it."""
    OVERDUE = "overdue"
    """It ended because its work in a thread passed its deadline (`actors.errors.WorkOverdue`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Waits before restarts of one child: `initial_s * factor ** n` after n earlier failures in a row.

    A wait is at most `max_s`, before the jitter.
    """

    initial_s: float = 0.0
    factor: float = 2.0
    max_s: float = 30.0
    jitter: float = 0.2
    """Share of the wait that is drawn at random, so that children do not restart all at once."""
    reset_after_s: float = 60.0
    """If a child fails after it ran for at least this long, its wait is `initial_s` again."""

    def __post_init__(self) -> None:
        _check_types("backoff.", self)
        _check("backoff.initial_s", self.initial_s, self.initial_s >= 0, "at least 0")
        _check("backoff.factor", self.factor, 1 <= self.factor <= 1e6, "from 1 to 1,000,000")
        _check("backoff.max_s", self.max_s, self.max_s >= self.initial_s, "at least initial_s")
        _check("backoff.max_s", self.max_s, self.max_s <= LONGEST_S, f"at most {LONGEST_S:g}")
        _check("backoff.jitter", self.jitter, 0 <= self.jitter < 1, "in [0, 1)")
        _check("backoff.reset_after_s", self.reset_after_s, self.reset_after_s > 0, "positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How many failures of one kind a child may have within a time; they count against no other budget."""

    max_restarts: int
    max_seconds: float

    def __post_init__(self) -> None:
        _check_types("budget.", self)
        _check_count("budget.max_restarts", self.max_restarts)
        _check("budget.max_seconds", self.max_seconds, self.max_seconds > 0, "positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """A circuit breaker: a child that fails too often is quarantined, instead of ending its supervisor.

    closed       failures are counted; more than `max_failures` within `within_s` open it
    open         the child is not started for `open_s`
    half-open    one start on probation: a failure opens it again, `healthy_s` of running closes it
    """

    max_failures: int = 5
    within_s: float = 600.0
    open_s: float = 600.0
    healthy_s: float = 60.0

    def __post_init__(self) -> None:
        _check_types("breaker.", self)
        _check_count("breaker.max_failures", self.max_failures)
        _check("breaker.within_s", self.within_s, self.within_s > 0, "positive")
        _check_time("breaker.open_s", self.open_s, self.open_s > 0, "positive")
        _check_time("breaker.healthy_s", self.healthy_s, self.healthy_s > 0, "positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retirement:
    """When a child that works is replaced, before age or use make it fail. It does not count as a failure."""

    max_age_s: float = math.inf
    max_uses: int = 0
    """The number of uses, counted by the actor with `used()`, at which it is replaced; 0 for no limit."""
    jitter: float = 0.1
    """Share of max_age_s that is drawn at random, so that a pool does not retire all at once."""

    def __post_init__(self) -> None:
        _check_types("retirement.", self)
        _check_time("retirement.max_age_s", self.max_age_s, self.max_age_s > 0, "positive")
        _check_count("retirement.max_uses", self.max_uses)
        _check("retirement.jitter", self.jitter, 0 <= self.jitter < 1, "in [0, 1)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """One child of a supervisor."""

    id: str
    """Also the actor's name: unique in the whole tree."""
    actor: str
    """`module:Class` of the actor; imported in the child process, not here, unless it is in `preload`."""
    args: Mapping[str, Any] = field(default_factory=dict)
    """Plain data that the actor gets as `self.args`; every key must be text."""
    type: ChildType = ChildType.WORKER
    restart: Restart = Restart.PERMANENT
    significant: bool = False
    """Whether the end of the child counts for the supervisor's auto_shutdown."""
    independent: bool = False
    """Whether the child goes on when the strategy restarts its siblings because one of them failed.

    Meant for a child that can wait until the failed sibling is back. At the start and the stop of the
    supervisor it keeps its place in the order.
    """
    shutdown_s: float = 5.0
    """Seconds from `Stop` to SIGKILL; 0 kills at once (OTP's brutal_kill), inf waits for ever (infinity)."""
    start_deadline_s: float = 30.0
    """The most seconds from fork to ready; a child that takes longer is killed and counts as failed."""
    hang_deadline_s: float = 10.0
    """A child without a beat, or in one handler, for this many seconds hangs and is killed; inf: never."""
    probe_every_s: float = 0.0
    """Seconds between two calls of `on_probe`; 0: it is never called, and a started child counts as ready."""
    preload: tuple[str, ...] = ()
    """Modules that the supervisor imports before it forks, so that its children start faster and share
    memory.

    The import must start no Python thread and touch no GPU.
    """
    backoff: Backoff = field(default_factory=Backoff)
    budgets: Mapping[Failure, Budget] = field(default_factory=dict)
    """Kinds of failure with a budget of their own; the others spend the supervisor's."""
    preemptions: Budget = field(default_factory=lambda: Budget(max_restarts=10, max_seconds=600.0))
    """How often a SIGTERM may announce that the child's process will be taken away.

    The child is stopped in order and started again, which is no failure and spends no other budget. Beyond
    this one, the child is quarantined or, without a breaker, the supervisor gives up.
    """
    breaker: Breaker | None = None
    retirement: Retirement = field(default_factory=Retirement)

    def __post_init__(self) -> None:
        _check_types(f"child {self.id!r}: ", self)
        _check("id", self.id, _NAME.fullmatch(self.id) is not None, _NAME_IN_WORDS)
        who = f"child {self.id!r}: "
        if self.id == LAUNCHER:
            raise InvalidChildSpec(
                f"id must not be {LAUNCHER!r}, the name of the process that starts the tree; "
                "give the child another id"
            )
        _check_preload(who, self.preload)
        _check_args(who, self.args)
        _check(f"{who}actor", self.actor, self.actor.count(":") == 1, "'module:Class'")
        _check_time(f"{who}shutdown_s", self.shutdown_s, self.shutdown_s >= 0, "at least 0")
        _check_time(f"{who}start_deadline_s", self.start_deadline_s, self.start_deadline_s > 0, "positive")
        _check_time(f"{who}hang_deadline_s", self.hang_deadline_s, self.hang_deadline_s > 0, "positive")
        most = f"at least 0 and at most {LONGEST_S:g}"
        _check(f"{who}probe_every_s", self.probe_every_s, 0 <= self.probe_every_s <= LONGEST_S, most)
        self._refuse_contradictions()

    def _refuse_contradictions(self) -> None:
        if self.restart is Restart.TEMPORARY and self.retirement != Retirement():
            raise InvalidChildSpec(
                f"child {self.id!r}: a temporary child is never started again, so it cannot be replaced; "
                "make it permanent or transient, or leave retirement out"
            )
        if self.significant and self.restart is Restart.PERMANENT:
            raise InvalidChildSpec(
                f"child {self.id!r}: significant must be false for a permanent child, "
                "which never ends for good; make it transient or temporary"
            )


_NAME = re.compile(r"[A-Za-z0-9_@+-][A-Za-z0-9_@+.:-]{0,59}")
_NAME_IN_WORDS = "a name of at most 60 letters, digits and _ @ + - . : (it also names files)"


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorFlags:
    """How a supervisor treats its children (OTP sup_flags, Elixir's defaults)."""

    strategy: Strategy = Strategy.ONE_FOR_ONE
    max_restarts: int = 3
    max_seconds: float = 5.0
    """After more than max_restarts failures within max_seconds the supervisor gives up and exits `shutdown`.

    The time that a child spends in its backoff does not count: a wait never hides a failure."""
    auto_shutdown: AutoShutdown = AutoShutdown.NEVER
    ordered: bool = True
    """Whether children start one after another and stop in the reverse order; false for a pool."""
    dynamic: bool = False
    """Whether children start on demand and are forgotten once ended for good (Elixir's DynamicSupervisor)."""
    max_children: int = 0
    """The most children at a time, including those that restart or are quarantined; 0 for no limit."""
    max_quarantined: float = 1.0
    """The share of the children that may be in quarantine; if more are, the supervisor gives up."""
    max_failing: float = 1.0
    """If more than this share of the children fail within a minute, that counts as one outage
    (`supervision.outage`); 1 for never."""

    def __post_init__(self) -> None:
        _check_types("supervisor flag ", self)
        _check_count("supervisor flag max_restarts", self.max_restarts)
        _check("supervisor flag max_seconds", self.max_seconds, self.max_seconds > 0, "positive")
        _check_count("supervisor flag max_children", self.max_children)
        _check(
            "supervisor flag max_quarantined",
            self.max_quarantined,
            0 <= self.max_quarantined <= 1,
            "in [0, 1]",
        )
        _check("supervisor flag max_failing", self.max_failing, 0 <= self.max_failing <= 1, "in [0, 1]")
        if not self.ordered and self.strategy is Strategy.REST_FOR_ONE:
            raise InvalidChildSpec(
                "strategy rest_for_one needs ordered=true, because it restarts the children started after "
                "the failed one; set ordered=true or choose another strategy"
            )
        if self.dynamic and (self.ordered or self.strategy is not Strategy.ONE_FOR_ONE):
            raise InvalidChildSpec(
                f"dynamic needs strategy one_for_one and ordered=false, got {self.strategy.value} "
                f"and ordered={str(self.ordered).lower()}: children that come and go have no order"
            )


def check_unique_ids(specs: tuple[ChildSpec, ...]) -> None:
    """Raise InvalidChildSpec if two children have the same id."""
    seen: set[str] = set()
    for spec in specs:
        if spec.id in seen:
            raise InvalidChildSpec(
                f"child id {spec.id!r} is used twice; give each child of a supervisor an id of its own"
            )
        seen.add(spec.id)


def check_fits(spec: ChildSpec, flags: SupervisorFlags) -> None:
    """Raise InvalidChildSpec when a child's spec contradicts the flags of its supervisor."""
    if spec.significant and flags.auto_shutdown is AutoShutdown.NEVER:
        raise InvalidChildSpec(
            f"child {spec.id!r}: significant is true, but the supervisor's auto_shutdown is never; "
            "set it to any_significant or all_significant"
        )
    if spec.breaker is not None and flags.strategy is not Strategy.ONE_FOR_ONE:
        raise InvalidChildSpec(
            f"child {spec.id!r}: a breaker needs strategy one_for_one, got {flags.strategy.value}: "
            "with it, siblings could not run during a quarantine; leave breaker out or change the strategy"
        )


def _check(name: str, value: object, holds: bool, expected: str) -> None:
    if not holds:
        raise InvalidChildSpec(f"{name} must be {expected}, got {value!r}")


def _check_types(prefix: str, one: Any) -> None:
    """Raise InvalidChildSpec for a field with a value of another type, such as the text of a number or of an
    enumeration. Fields of mappings and tuples have checks of their own."""
    for each in fields(one):
        value, kind = getattr(one, each.name), each.type
        if not isinstance(kind, type | UnionType):
            continue
        is_kind = isinstance(value, int | float if kind is float else kind)
        if not is_kind or (isinstance(value, bool) and kind is not bool):
            expected = _KINDS_IN_WORDS.get(kind) or f"of type {getattr(kind, '__name__', kind)}"
            raise InvalidChildSpec(f"{prefix}{each.name} must be {expected}, got {value!r}")


_KINDS_IN_WORDS: Mapping[Any, str] = {
    float: "a number",
    int: "a whole number",
    str: "text",
    bool: "true or false",
}


def _check_preload(who: str, preload: object) -> None:
    is_names = isinstance(preload, tuple | list) and all(isinstance(name, str) for name in preload)
    _check(f"{who}preload", preload, is_names, "a tuple of module names, as in ('numpy',)")


def _check_args(who: str, args: Mapping[str, Any]) -> None:
    """Refuse what is no plain data, and keys that are not text: on the way a number would become text."""
    waiting: list[tuple[str, Any]] = [
        ("args", args)
    ]  # no recursion: args may be nested deeper than the stack
    while waiting:
        where, value = waiting.pop()
        if isinstance(value, dict):
            for key in value:
                if not isinstance(key, str):
                    raise InvalidChildSpec(
                        f"{who}{where} must have text for keys, got {key!r}; write the keys "
                        "as text and convert them in on_start"
                    )
            waiting += [(f"{where}[{key!r}]", each) for key, each in value.items()]
        elif isinstance(value, list | tuple):
            waiting += [(f"{where}[{index}]", each) for index, each in enumerate(value)]
        else:
            _check_plain(f"{who}{where}", value)


def _check_plain(name: str, value: object) -> None:
    """Refuse what cannot be sent: msgpack has whole numbers of 64 bits."""
    if isinstance(value, int):
        _check(name, value, -(2**63) <= value < 2**64, "a whole number of 64 bits; write larger ones as text")
    try:
        to_plain(value)
    except TypeError:
        raise InvalidChildSpec(
            f"{name} must be plain data, got {value!r} of type {type(value).__name__}; give text or numbers, "
            "and make the object from them in on_start"
        ) from None


def _check_time(name: str, seconds: float, holds: bool, expected: str) -> None:
    """Raise InvalidChildSpec unless a time meets its rule, and is infinite or at most LONGEST_S."""
    _check(name, seconds, holds, expected)
    is_countable = seconds <= LONGEST_S or math.isinf(seconds)
    _check(name, seconds, is_countable, f"at most {LONGEST_S:g}, or inf for ever")


def _check_count(name: str, count: int) -> None:
    _check(name, count, count >= 0, "at least 0")
    _check(name, count, count <= COUNT_MOST, f"at most {COUNT_MOST:,}")
