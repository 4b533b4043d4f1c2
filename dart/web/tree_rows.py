"""The supervision tree as rows to be shown. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from dart.inspect.actor_table import in_tree_order
from dart.inspect.formatting import activity, age, state_text
from dart.inspect.snapshot import ActorRow
from dart.telemetry.liveness import ACTOR_SILENT_S

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
"""Classes of the style sheet by what an actor's state says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeRow:
    """One actor, in the order and at the depth at which it is drawn."""

    actor: ActorRow
    depth: int
    state: str
    tone: str
    doing: str
    """What it does and for how long; of one that is down, why."""

    @property
    def name(self) -> str:
        return self.actor.name


def tree_rows(actors: Sequence[ActorRow], *, is_running: bool = True) -> list[TreeRow]:
    """Every actor below its supervisor, in start order.

    is_running   whether the run keeps its board up to date; after a kill it shows the last moment
    """
    return [row_of(actor, depth, is_running=is_running) for actor, depth in in_tree_order(actors)]


def row_of(actor: ActorRow, depth: int = 0, *, is_running: bool = True) -> TreeRow:
    """One actor as a row."""
    if not is_running:
        return TreeRow(actor=actor, depth=depth, state="ended", tone="idle", doing="")
    again = "" if actor.retry_in_s is None else f", next try in {age(actor.retry_in_s)}"
    state = state_text(actor)
    is_silent = actor.state == "running" and actor.beat_age_s > ACTOR_SILENT_S
    tone = "bad" if is_silent else TONES.get(state, "idle")
    return TreeRow(actor=actor, depth=depth, state=state, tone=tone, doing=f"{activity(actor)}{again}")
