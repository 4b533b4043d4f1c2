"""What the page can change of a run: the requests that the command line makes. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from dart.core.errors import UsageError
from dart.run.control_protocol import (
    ControlOutcome,
    Drain,
    Pause,
    ReleaseActor,
    Request,
    RestartActor,
    Resume,
)

NAME_MOST = 64
"""Characters of an actor's name, as in the protocol."""

STATUS = {
    ControlOutcome.DONE: 200,
    ControlOutcome.UNDER_WAY: 202,
    ControlOutcome.REFUSED: 409,
    ControlOutcome.SILENT: 503,
}
"""The HTTP status of an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One thing that can be done."""

    label: str
    """Of its button."""
    about: str
    """What it will do, to be confirmed."""
    call: Callable[[str], Request]
    """From the name of an actor; empty where it is about the run."""


ACTIONS: Mapping[str, Action] = {
    "pause": Action(
        label="Pause",
        about="Begin no episode and no update any more; what runs goes on to its end, and everybody stays "
        "up. It lasts until Resume, also when the run is ended and started again.",
        call=lambda _: Pause(),
    ),
    "resume": Action(
        label="Resume",
        about="Begin episodes and updates again.",
        call=lambda _: Resume(),
    ),
    "drain": Action(
        label="Drain",
        about="Pause, until nothing is played or trained any more: before work on machines. Everybody "
        "stays up.",
        call=lambda _: Drain(),
    ),
    "restart": Action(
        label="Restart",
        about="End this actor, children first, and start it again; one that hangs is killed. It costs no "
        "restart budget, and those that depend on it may start again with it.",
        call=lambda name: RestartActor(name=name),
    ),
    "release": Action(
        label="Release",
        about="End its quarantine, or its wait before a restart, now; its earlier failures are forgotten.",
        call=lambda name: ReleaseActor(name=name),
    ),
}
OF_THE_RUN = ("pause", "resume", "drain")
OF_AN_ACTOR = ("restart", "release")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedAction:
    """One thing that somebody wants done."""

    do: str
    name: str
    """Of the actor; empty where it is about the run."""

    @property
    def action(self) -> Action:
        return ACTIONS[self.do]

    @property
    def request(self) -> Request:
        return self.action.call(self.name)

    @property
    def title(self) -> str:
        return f"{self.action.label} {self.name or 'the run'}"

    @property
    def address(self) -> str:
        """Of the page that asks whether it is really wanted."""
        return f"/confirm?{urlencode({'do': self.do, 'name': self.name} if self.name else {'do': self.do})}"

    @property
    def place(self) -> str:
        """Address of the page it belongs to."""
        return f"/actor?{urlencode({'name': self.name})}" if self.name else "/"


def wanted(values: Mapping[str, str]) -> RequestedAction:
    """From the fields of a form or an address. Raises UsageError for what nobody can want."""
    do, name = values.get("do", ""), values.get("name", "")
    if do not in ACTIONS:
        raise UsageError(f"there is no {do!r} to be done; there are {', '.join(ACTIONS)}")
    if do in OF_THE_RUN and name:
        raise UsageError(f"{do} is about the whole run and names no actor")
    if do in OF_AN_ACTOR and not 0 < len(name) <= NAME_MOST:
        raise UsageError(f"{do} needs the name of an actor")
    return RequestedAction(do=do, name=name)


def offers(place: str, actor: str = "") -> tuple[RequestedAction, ...]:
    """What a page offers: the overview what is about the run, the page of an actor what is about that."""
    if actor:
        return tuple(RequestedAction(do=do, name=actor) for do in OF_AN_ACTOR)
    return tuple(RequestedAction(do=do, name="") for do in OF_THE_RUN) if place == "overview" else ()
