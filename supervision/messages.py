"""Management calls to a running supervisor, by mail to its name (OTP and Elixir `DynamicSupervisor`).

Every answer is a value. A refusal is `Managed(ok=False, reason=...)`. Its reason begins with OTP's word
(not_found, running, restarting, already_present, already_started, max_children), followed by a colon and the
remedy if there is one; a reason for which OTP has no word is a sentence.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from actors.codec import message, to_plain
from actors.timers import LONGEST_S
from supervision.child_spec import ChildSpec

ANSWER_ROOM_S = 5.0
"""How many seconds after a child's start deadline the answer may come."""

MANAGEMENT_DEADLINE_S = 60.0
"""The deadline of a call that waits for a child whose own deadlines the caller does not know."""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class StartChild:
    """Add a child and start it; answered once it is ready, or failed to start. See `start_child`."""

    spec: Mapping[str, Any]
    """A ChildSpec as plain data; `start_child` makes it."""

    @property
    def answer_within_s(self) -> float:
        """The deadline of the ask, in seconds: the child's start deadline and a margin for the answer."""
        start_s = self.spec.get("start_deadline_s")
        if not isinstance(start_s, int | float) or not 0 <= start_s <= LONGEST_S:
            return MANAGEMENT_DEADLINE_S
        return min(LONGEST_S, start_s + ANSWER_ROOM_S)


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class TerminateChild:
    """Bring a child down; answered once it is. Its spec stays, unless it is temporary or dynamic."""

    id: str

    answer_within_s: ClassVar[float] = MANAGEMENT_DEADLINE_S


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class RestartChild:
    """Start a child that was terminated, or that ended and is not restarted."""

    id: str

    answer_within_s: ClassVar[float] = MANAGEMENT_DEADLINE_S


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteChild:
    """Forget the spec of a child that is down."""

    id: str

    answer_within_s: ClassVar[float] = MANAGEMENT_DEADLINE_S


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseChild:
    """End a child's quarantine or backoff now."""

    id: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateChild:
    """Change fields of a child's spec while it runs: `{"breaker": {"max_failures": 3}}`."""

    id: str
    changes: Mapping[str, Any]


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateFlags:
    """Change the supervisor's own limits while it runs: `{"max_restarts": 10}`."""

    changes: Mapping[str, Any]


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Managed:
    """The answer to a management call: whether it was carried out, and why not."""

    ok: bool
    reason: str = ""
    incarnation: int = 0
    """The incarnation of the child, when it runs."""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class WhichChildren:
    """Ask for the children of a supervisor. Answered by Children.

    An answer holds at most 150; ask again with a higher offset for the others.
    """

    offset: int = 0


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class ChildInfo:
    """One child, as its supervisor sees it."""

    id: str
    state: str
    """running, starting, stopping, restarting, waiting, quarantined, or undefined (down, spec kept)."""
    type: str
    restart: str
    pid: int
    incarnation: int
    restarts: int
    last_reason: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Children:
    """The children of a supervisor, newest first (OTP which_children)."""

    children: tuple[ChildInfo, ...]
    total: int = 0


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class CountChildren:
    """Ask for the number of a supervisor's children. Answered by ChildCounts."""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class ChildCounts:
    """OTP's count_children, and the numbers of restarting and quarantined children."""

    specs: int
    active: int
    supervisors: int
    workers: int
    restarting: int = field(default=0)
    quarantined: int = field(default=0)


def start_child(spec: ChildSpec) -> StartChild:
    """The message that starts a child under a running supervisor."""
    return StartChild(spec=to_plain(spec))
