"""The data classes of exploration: screens, their elements, the actions that were tried, and leases.

The exploration graph of a task and a seed has a node for each screen that was found, and an edge for each
action that led from one screen to another. The classes contain no pixels, and the module does no I/O.
"""

from dataclasses import dataclass
from enum import StrEnum

from dart.core.records import StoredResult

Box = tuple[int, int, int, int]
"""Left, top, right and bottom in pixels of the screenshot; the pixels at right and bottom are outside."""

PLACE_PX = 4
"""Places in keys and structures are rounded down to multiples of this, so that small moves keep the place."""


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
    """Show the start screen. A reset is no candidate, but it counts as an action."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageElement:
    """A visible element of a page that can be clicked or typed into, or that shows something."""

    role: str
    """Role or tag, such as `button`, `link`, `textbox` or `h1`."""
    text: str
    """The text that the element shows, or else its label; shortened."""
    box: Box
    acts: tuple[ExploreAct, ...] = ()
    """What exploration may do with the element; empty if it is only to be read, disabled or not allowed."""
    is_clear: bool = True
    """Whether a click at its centre reaches the element: it is on the screen and nothing covers it."""
    has_text: bool = True
    """Whether `text` is drawn on the screen; False for an icon, whose text is a label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageScreen:
    """A screen as exploration sees it, without its pixels."""

    screenshot_sha256: str
    url: str
    """Address of the page; only the beginning of a long one."""
    title: str
    width: int
    """In pixels of the screenshot, as are all sizes of this class."""
    height: int
    grid: bytes
    """Mean grey level of each cell of a grid over the screenshot (`dart.exploration.matching.grid_of`)."""
    volatile: bytes
    """One bit for each cell of the grid: 1 where the screen changed without an action."""
    structure: tuple[int, ...]
    """Sorted hashes of the page's nodes; each is of a node's depth, tag, class, place and text."""
    shape: str
    """Hash of the page without places and texts. Pages that differ only in the length of a list share it."""
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
        """Act, role, place and text as one string, which names the action on all screens of one node."""
        left, top, right, bottom = self.box
        place = ",".join(str(one // PLACE_PX) for one in (left, top, right - left, bottom - top))
        return f"{self.act}|{self.role}|{place}|{self.text}"

    @property
    def kind(self) -> str:
        """Act and role. Exploration applies what it learned of an action only to actions of the same kind."""
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
    """The environment broke. Only a second fault says something about the action."""
    LOST = "lost"
    """The action was not on the screen, although it was expected there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenNode:
    """A screen of the exploration graph."""

    screen_id: int
    """Key of the screen in the record."""
    task_id: str
    seed: int
    depth: int
    """Number of actions from the start screen, on the path that found this screen; 0 for a start screen."""
    found_actions: int
    """Number of actions of this exploration until the screen was found, the last one included."""
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
    """Number of actions of this exploration so far, this one included. A reset counts as one."""
    source_id: int | None
    """The screen on which the action was done; None for a reset."""
    act: ExploreAct
    action: str
    """Key of the candidate; empty for a reset."""
    effect: Effect
    target_id: int | None
    """The screen that the action led to; None if there is none, for instance after a fault."""
    is_expansion: bool
    """Whether this was the first try of the action on the screen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathHop:
    """One known action on the way to a screen."""

    source_id: int
    action: str
    target_id: int


class LeaseEnd(StrEnum):
    """Why the lease of an explorer ended."""

    GIVEN_BACK = "given_back"
    """The explorer gave the lease back because it does not need it any more, or stops."""
    UNREACHED = "unreached"
    """The known way to the screen of the lease led to another screen."""
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
    """The screen that only the holder may expand; None before the start screen is shown if it is not known or
    varies, and if the last step led to no screen that is free."""
    explorer: str
    incarnation: int
    deadline_unix_s: float


class LeaseMove(StrEnum):
    """Which screen a lease is for after a reported step."""

    KEEP = "keep"
    """The same screen as before: the explorer is on its way there."""
    FOLLOW = "follow"
    """The screen that the step led to; none if another explorer holds that screen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepVerdict:
    """The store's reply to a reported step."""

    result: StoredResult
    step: ExploredStep | None
    """The step as it is recorded; None if the lease had ended."""
    holds: int | None
    """The screen that the lease is for now; None if it is for none, or if the report is fenced."""
