"""The supervision tree as rows to be shown. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dart.inspect.live import age, doing, state_text
from dart.inspect.snapshot import ActorRow
from dart.telemetry.liveness import ACTOR_SILENT_S

TONES = {
    "starting": "info",
    "running": "good",
    "backoff": "warn",
    "stopping": "info",
    "stopped": "idle",
    "failed": "bad",
    "quarantined": "rest",
}
"""Classes of the style sheet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeRow:
    """One actor, in the order and at the depth at which it is drawn."""

    actor: ActorRow
    depth: int
    state: str
    tone: str
    doing: str
    """What it is at and for how long; why it is down, where it is."""

    @property
    def name(self) -> str:
        return self.actor.name


def tree_rows(actors: Sequence[ActorRow], *, is_running: bool = True) -> list[TreeRow]:
    """Every actor below its supervisor, in start order; nobody is left out, whatever its parent says.

    is_running   whether anybody still keeps the board; of a run that was killed it shows the last moment
    """
    names = {actor.name for actor in actors}
    roots = [actor for actor in actors if actor.parent not in names or actor.parent == actor.name]
    ordered = [pair for root in roots for pair in _branch(root, actors, 0)]
    return [row_of(actor, depth, is_running=is_running) for actor, depth in ordered]


def row_of(actor: ActorRow, depth: int = 0, *, is_running: bool = True) -> TreeRow:
    """How one actor is shown."""
    if not is_running:
        return TreeRow(actor=actor, depth=depth, state="ended", tone="idle", doing="")
    again = "" if actor.retry_in_s is None else f", next try in {age(actor.retry_in_s)}"
    return TreeRow(
        actor=actor,
        depth=depth,
        state=state_text(actor).plain,
        tone=_tone(actor),
        doing=f"{doing(actor)}{again}",
    )


def _branch(actor: ActorRow, actors: Sequence[ActorRow], depth: int) -> Iterator[tuple[ActorRow, int]]:
    yield actor, depth
    for child in actors:
        if child.parent == actor.name and child is not actor:
            yield from _branch(child, actors, depth + 1)


def _tone(actor: ActorRow) -> str:
    if actor.state == "running" and (actor.process != "alive" or actor.beat_age_s > ACTOR_SILENT_S):
        return "bad"
    if actor.state == "running" and not actor.ready:
        return "warn"
    return TONES.get(actor.state, "idle")
