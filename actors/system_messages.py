"""Messages that the runtime itself sends and takes, beside the application's (OTP's system messages)."""

import math
from dataclasses import dataclass

from actors.codec import message


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """End normally: `on_stop` runs, then the process exits with code 0."""

    finish: bool = False
    """Whether to handle the mail that is there, and let every open handler answer, before the end."""
    within_s: float = math.inf
    """Seconds after which the sender kills the process; infinity: it does not."""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalReason:
    """Why an ask was refused."""

    text: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class ChildReady:
    """Sent once by a child to its supervisor: the child takes work from now on."""

    incarnation: int


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Preempted:
    """Sent by a child to its supervisor: a SIGTERM announced that the child's process will be taken away."""

    incarnation: int
