"""An actor as the web pages show it. Pure."""

from dataclasses import dataclass

from dart.inspect.formatting import activity, age, state_text
from dart.inspect.snapshot import ActorRow

TONES = {
    "starting": "info",
    "running": "good",
    "running, not ready": "warn",
    "running, suspended": "bad",
    "running, gone": "bad",
    "backoff": "warn",
    "stopping": "info",
    "stopped": "idle",
    "failed": "bad",
    "quarantined": "rest",
}
"""CSS class for each state of an actor (`dart.inspect.formatting.state_text`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorView:
    """One actor as a web page shows it."""

    actor: ActorRow
    state: str
    tone: str
    doing: str
    """What the actor does and for how long; if it is down, why it ended and when it is started again."""


def view_of(actor: ActorRow, *, is_running: bool) -> ActorView:
    """Return an actor as a web page shows it.

    is_running   whether the run is running and keeps its board up to date
    """
    if not is_running:
        return ActorView(actor=actor, state="ended", tone="idle", doing="")
    again = "" if actor.retry_in_s is None else f", next try in {age(actor.retry_in_s)}"
    state = state_text(actor)
    tone = "bad" if actor.is_silent else TONES.get(state, "idle")
    return ActorView(actor=actor, state=state, tone=tone, doing=f"{activity(actor)}{again}")
