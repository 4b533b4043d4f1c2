"""Whether an actor can be restarted or stopped, decided from the board alone. Pure."""

from collections.abc import Iterable, Mapping

from actors.board import LAUNCHER, ActorState, Vitals
from dart.core.suggestions import did_you_mean, near
from dart.telemetry.liveness import ACTOR_SILENT_S


def known(rows: Iterable[Vitals]) -> dict[str, Vitals]:
    """Actors by name, without forgotten children, clients, and the second row of a child being replaced."""
    return {
        row.name: row
        for row in rows
        if row.parent and row.state is not ActorState.FREE and not row.name.endswith("~")
    }


def why_not_restart(name: str, actors: Mapping[str, Vitals]) -> str:
    """Why an actor cannot be restarted alone; empty when it can."""
    if name not in actors:
        return f"there is no actor {name!r}{did_you_mean(near(name, actors))}"
    if actors[name].parent == LAUNCHER:
        return f"{name} is the root of the tree: it ends with the run; use `dartrl down`, then `dartrl up`"
    return ""


def why_not_stop(name: str, actors: Mapping[str, Vitals]) -> str:
    """Why an actor cannot be stopped and left down; empty when it can."""
    if reason := why_not_restart(name, actors):
        return reason
    if actors[actors[name].parent].parent == LAUNCHER:
        return (
            f"the run cannot go on without {name}; "
            "`dartrl pause` lets the run rest, `dartrl actors restart` replaces one actor, "
            "`dartrl down` ends all"
        )
    return ""


def condition(name: str, actors: Mapping[str, Vitals]) -> str:
    """An actor in words: its state, what it does and for how long."""
    row = actors.get(name)
    if row is None:
        return f"{name} is not there"
    doing = f", in {row.handler} for {row.busy_s:.1f} s" if row.busy_s else ""
    is_up = row.state in (ActorState.RUNNING, ActorState.STOPPING)
    is_silent = is_up and (row.beat_age_s or 0.0) > ACTOR_SILENT_S
    silent = f", without a sign of life for {row.beat_age_s:.1f} s" if is_silent else ""
    return f"{name} is {row.state}{doing}{silent}"
