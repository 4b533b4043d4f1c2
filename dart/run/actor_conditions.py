"""Which actors can be restarted or stopped, and which are in quarantine, decided from the board alone."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from actors.board import LAUNCHER, ActorState, Vitals, rows_of
from dart.core.errors import NotRunningError
from dart.core.run_directory import RunPaths, holder
from dart.core.suggestions import did_you_mean, near
from dart.telemetry.liveness import ACTOR_SILENT_S
from supervision.host_messages import BRIDGE, HOST, HOSTS, PLACED


def known(rows: Iterable[Vitals]) -> dict[str, Vitals]:
    """Return the board's rows of actors by name.

    Rows of clients (processes that only send asks) and of deleted children are left out.
    """
    return {row.name: row for row in rows if row.parent and row.state is not ActorState.FREE}


def why_not_restart(name: str, actors: Mapping[str, Vitals]) -> str:
    """Say why the actor with this name cannot be restarted alone; empty if it can."""
    if name not in actors:
        return f"there is no actor {name!r}{did_you_mean(near(name, actors))}"
    if actors[name].parent == LAUNCHER:
        return f"{name} is the root of the tree: it ends with the run; use `dartrl down`, then `dartrl up`"
    return _why_not_alone(name, actors)


def _why_not_alone(name: str, actors: Mapping[str, Vitals]) -> str:
    """Say why an actor by which nodes of a cluster carry the run cannot be managed alone; empty for others.

    `hosts` decides which node carries what. It would not start again what another actor has ended.
    """
    parent = actors[name].parent
    if parent == HOSTS or "@" in name:
        return (
            f"{name} stands for another node of the cluster: the node gets work again by itself when its "
            "wait or quarantine is over; to take its work away, end Ray there with `ray stop`"
        )
    if name in (HOSTS, PLACED, HOST, BRIDGE):
        return (
            f"{name} joins the nodes and cannot be managed alone; `dartrl actors restart {parent}` restarts "
            "it with all that the nodes carry"
        )
    if parent == PLACED or (parent in actors and actors[parent].parent == HOSTS):
        below = min((one for one, row in actors.items() if row.parent == name), default="its children")
        return (
            f"{name} is the part of a pool that a node carries and cannot be managed alone; restart, stop or "
            f"release the actors below it, such as {below}"
        )
    return ""


def why_not_stop(name: str, actors: Mapping[str, Vitals]) -> str:
    """Say why the actor with this name cannot be stopped and left down; empty if it can."""
    if reason := why_not_restart(name, actors):
        return reason
    if actors[actors[name].parent].parent == LAUNCHER:
        return (
            f"the run cannot go on without {name}; "
            "`dartrl pause` holds back new work, `dartrl actors restart` replaces one actor, "
            "`dartrl down` ends the run"
        )
    return ""


NAMED_MOST = 3
"""Largest number of actors that an answer names; a pool may have a thousand."""


def condition(name: str, actors: Mapping[str, Vitals]) -> str:
    """Describe an actor in words: its state, the handler it is in and for how long, and whether it beats.

    For a supervisor, also say which of the actors below it start or stop.
    """
    row = actors.get(name)
    if row is None:
        return f"{name} does not exist"
    doing = f", in {row.handler} for {row.busy_s:.1f} s" if row.busy_s else ""
    is_up = row.state in (ActorState.RUNNING, ActorState.STOPPING)
    is_silent = is_up and (row.beat_age_s or 0.0) > ACTOR_SILENT_S
    silent = f", without a sign of life for {row.beat_age_s:.1f} s" if is_silent else ""
    return "; ".join([f"{name} is {row.state}{doing}{silent}", *_changing_below(name, actors)])


def _changing_below(supervisor: str, actors: Mapping[str, Vitals]) -> list[str]:
    """Say of each actor below a supervisor that it starts or stops; only count those over NAMED_MOST."""
    changing = [
        f"{name} is {row.state}"
        for name, row in sorted(actors.items())
        if row.state in (ActorState.STARTING, ActorState.STOPPING) and _is_below(supervisor, row, actors)
    ]
    others = len(changing) - NAMED_MOST
    return [*changing[:NAMED_MOST], *([f"{others} others start or stop"] if others > 0 else [])]


def _is_below(supervisor: str, row: Vitals, actors: Mapping[str, Vitals]) -> bool:
    while row.parent != supervisor and row.parent in actors:
        row = actors[row.parent]
    return row.parent == supervisor


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """An actor that is in quarantine because it failed too often."""

    name: str
    retry_unix_s: float | None
    """When its supervisor tries to start it again; None while an outage of its pool holds it back."""
    restarts: int
    last_reason: str


def quarantined(run_dir: Path) -> tuple[Quarantined, ...]:
    """Return the actors in quarantine, ordered by name. Raises NotRunningError if the run does not run."""
    paths = RunPaths(run_dir)
    if holder(run_dir) is None or not paths.board.exists():
        raise NotRunningError(f"the run in {run_dir} is not running, so no actor is in quarantine")
    rows = known(rows_of(paths.board))
    return tuple(
        Quarantined(
            name=name,
            retry_unix_s=row.retry_unix_s or None,
            restarts=row.restarts,
            last_reason=row.last_reason,
        )
        for name, row in sorted(rows.items())
        if row.state is ActorState.QUARANTINED
    )
