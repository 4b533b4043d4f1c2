"""Made-up screens and graphs for tests of exploration."""

from collections.abc import Iterable, Sequence

from dart.core.exploration import (
    Candidate,
    Effect,
    ExploreAct,
    ExploredStep,
    PageElement,
    PageScreen,
    ScreenNode,
)
from dart.exploration.graph import Graph
from dart.exploration.matching import GRID_COLUMNS, GRID_ROWS, no_volatile_cells, structure_of

TASK, SEED = "sites/made-up/explore", 0


def screen(
    name: str,
    buttons: Sequence[str] = ("ok",),
    *,
    shape: str = "",
    grey: int | None = None,
    elements: Sequence[PageElement] | None = None,
) -> PageScreen:
    """A screen that matches no screen of another name."""
    level = grey if grey is not None else sum(map(ord, name)) % 200 + 20
    return PageScreen(
        screenshot_sha256=f"{abs(hash(name)):064x}"[:64],
        url="http://made-up.localhost/",
        title=name,
        width=100,
        height=100,
        grid=bytes([level]) * (GRID_COLUMNS * GRID_ROWS),
        volatile=no_volatile_cells(),
        structure=structure_of(f"{name}-{node}" for node in range(20)),
        shape=shape or name,
        elements=tuple(elements if elements is not None else map(button, buttons, range(len(buttons)))),
    )


def button(text: str, row: int = 0) -> PageElement:
    """A button in its row of the screen."""
    box = 10, 10 + 12 * row, 50, 20 + 12 * row
    return PageElement(role="button", text=text, box=box, acts=(ExploreAct.CLICK,))


def click(text: str, row: int = 0) -> Candidate:
    """The click on such a button."""
    return Candidate(act=ExploreAct.CLICK, role="button", text=text, box=button(text, row).box)


def node(screen_id: int, shown: PageScreen, depth: int = 0, found_actions: int = 1) -> ScreenNode:
    return ScreenNode(
        screen_id=screen_id,
        task_id=TASK,
        seed=SEED,
        depth=depth,
        found_actions=found_actions,
        screen=shown,
    )


def step(
    step_id: int,
    source_id: int | None,
    action: str,
    effect: Effect,
    target_id: int | None,
    *,
    is_expansion: bool = True,
) -> ExploredStep:
    return ExploredStep(
        step_id=step_id,
        task_id=TASK,
        seed=SEED,
        fence=1,
        number=step_id,
        actions=step_id,
        source_id=source_id,
        act=ExploreAct.RESET if source_id is None else ExploreAct.CLICK,
        action=action,
        effect=effect,
        target_id=target_id,
        is_expansion=is_expansion and source_id is not None,
    )


def chain(length: int, untried: Iterable[int] = ()) -> Graph:
    """A start screen 1 from which `next` leads to 2, 3 and so on; `other` is untried on some screens."""
    graph = Graph()
    for number in range(1, length + 1):
        graph.add_node(node(number, screen(f"page {number}", ("next", "other")), depth=number - 1))
    graph.add_step(step(1, None, "", Effect.NEW_SHAPE, 1))
    at = 2
    for number in range(1, length + 1):
        if number < length:
            graph.add_step(step(at, number, click("next").key, Effect.NEW_SHAPE, number + 1))
        else:
            graph.add_step(step(at, number, click("next").key, Effect.NO_CHANGE, number))
        at += 1
        if number not in set(untried):
            graph.add_step(step(at, number, click("other", 1).key, Effect.NO_CHANGE, number))
            at += 1
    return graph
