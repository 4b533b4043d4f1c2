"""The data classes of exploration: screens, their elements, the actions that were tried, and leases.

The exploration graph of a task and a seed has a node for each screen that was found, and an edge for each
action that led from one screen to another. No pixels, no I/O, no clock.
"""

from dataclasses import dataclass
from enum import StrEnum

from dart.core.records import StoredResult

Box = tuple[int, int, int, int]
"""Left, top, right and bottom in pixels of the screenshot; right and bottom are outside of the box."""

PLACE_PX = 4
"""Grid of the places in keys and structures: a box that moves by less is at the same place."""


class ExploreAct(StrEnum):
    """What a candidate action does."""

    CLICK = "click"
    TYPE = "type"
    """Click into a field and type a text."""
    SUBMIT = "submit"
    """Click into a field, type a text and press Enter."""
    SCROLL_DOWN = "scroll_down"
    SCROLL_UP = "scroll_up"
    RESET = "reset"
    """Show the start screen. It is no candidate, but it counts as an action."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageElement:
    """A visible element of a page that can be clicked or typed into, or that shows something."""

    role: str
    """Role or tag, such as `button`, `link`, `textbox` or `h1`."""
    text: str
    """What it shows or is called, shortened."""
    box: Box
    acts: tuple[ExploreAct, ...] = ()
    """What exploration may do with it; empty for an element that is only read, disabled or not allowed."""
    is_clear: bool = True
    """Whether a click at its centre reaches it: it is on the screen and nothing covers it."""
    has_text: bool = True
    """Whether `text` is drawn on the screen; False for an icon, whose text is a label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageScreen:
    """A screen as exploration sees it, without its pixels."""

    screenshot_sha256: str
    url: str
    title: str
    width: int
    """In pixels of the screenshot, as all sizes here."""
    height: int
    grid: bytes
    """Mean grey level of each cell, row by row (`dart.exploration.matching.grid_of`)."""
    volatile: bytes
    """One bit for each cell of the grid: 1 where the screen changed without an action."""
    structure: tuple[int, ...]
    """Sorted hashes of the nodes of the page, each with its depth, tag, class, place and text."""
    shape: str
    """Hash of the page without places and texts: lists of different lengths have the same shape."""
    elements: tuple[PageElement, ...]
    scrolls: tuple[ExploreAct, ...] = ()
    """The directions in which the page can scroll."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An action that exploration may try on a screen."""

    act: ExploreAct
    role: str = ""
    text: str = ""
    box: Box = (0, 0, 0, 0)

    @property
    def key(self) -> str:
        """What names the action on every screen that matches: act, role, text and place."""
        left, top, right, bottom = self.box
        place = ",".join(str(one // PLACE_PX) for one in (left, top, right - left, bottom - top))
        return f"{self.act}|{self.role}|{place}|{self.text}"

    @property
    def kind(self) -> str:
        """Act and role, without which two actions have nothing in common."""
        return f"{self.act}|{self.role}"


class Effect(StrEnum):
    """What an action of exploration led to."""

    NEW_SHAPE = "new_shape"
    """A screen of a shape that was not known."""
    NEW_SCREEN = "new_screen"
    """A new screen of a known shape."""
    KNOWN_SCREEN = "known_screen"
    NO_CHANGE = "no_change"
    LEFT = "left"
    """The page left the allowed origins."""
    ENDED = "ended"
    """The environment ended the episode."""
    FAULT = "fault"
    """The environment broke. That says nothing about the action until it happens again."""
    LOST = "lost"
    """The action was not on the screen, although it was expected there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenNode:
    """A screen of the exploration graph."""

    screen_id: int
    """Key in the record."""
    task_id: str
    seed: int
    depth: int
    """Number of actions from the start screen on the way on which it was found; 0 for a start screen."""
    found_actions: int
    """Actions of this exploration before and with the one that found it."""
    screen: PageScreen


@dataclass(frozen=True, slots=True, kw_only=True)
class ExploredStep:
    """One action of exploration, as the record keeps it."""

    step_id: int
    task_id: str
    seed: int
    fence: int
    number: int
    """Number of the report within its lease, from 1."""
    actions: int
    """Actions of this exploration so far, with this one. A reset counts as one."""
    source_id: int | None
    """The screen on which it was done; None for a reset."""
    act: ExploreAct
    action: str
    """Key of the candidate; empty for a reset."""
    effect: Effect
    target_id: int | None
    """The screen that it led to; None if there is none."""
    is_expansion: bool
    """Whether it was the first try of this action on this screen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathHop:
    """One known action on the way to a screen."""

    source_id: int
    action: str
    target_id: int


class LeaseEnd(StrEnum):
    """Why the lease of an explorer ended."""

    GIVEN_BACK = "given_back"
    """The explorer has no more use for it, or stops."""
    UNREACHED = "unreached"
    """The known way to its screen led elsewhere."""
    FAULT = "fault"
    REPLACED = "replaced"
    """The explorer was started again."""
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLease:
    """A lease that an explorer holds, as the record keeps it."""

    fence: int
    """Grows with every lease; a report with the fence of a lease that has ended changes nothing."""
    task_id: str
    seed: int
    screen_id: int | None
    """The screen that only its holder expands; None before the first screen is known."""
    explorer: str
    incarnation: int
    deadline_unix_s: float


class LeaseMove(StrEnum):
    """Which screen a lease is for after a reported step."""

    KEEP = "keep"
    """The one before: the explorer is on its way there."""
    FOLLOW = "follow"
    """The one that the step led to, if no other explorer holds it; else none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepVerdict:
    """What the record made of a reported step."""

    result: StoredResult
    step: ExploredStep | None
    """The step as it is recorded; None if the lease had ended."""
    holds: int | None
    """The screen that the lease is for now."""
