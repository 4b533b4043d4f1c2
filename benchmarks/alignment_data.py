"""Data of the benchmark of alignment: what explorers find on a site, what there is, and unseen screens.

The oracle draws every screen of a site's machine, and every screen after one click on it, and knows where
each click leads. Half of the shapes that are drawn so are for measuring only (`UNSEEN_SHARE`).
"""

import hashlib
import json
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from benchmarks.exploration import LocalRunAccess, explore_and_close, state_reader
from dart.config.sections import ExplorationSettings
from dart.core.exploration import Candidate, Effect, ExploreAct, ExploredStep, PageScreen, ScreenNode
from dart.core.origins import AllowedOrigins
from dart.core.screenspot import GroundingSample, read_screenspot, write_screenspot
from dart.environments.faults import EnvironmentFault
from dart.environments.sites.environment import SitesEnvironment
from dart.environments.sites.html import body_html
from dart.environments.sites.machine import Act, Goal, Machine, SiteState
from dart.exploration.candidates import centre
from dart.exploration.dataset import GraphQuery, QueryKind, Split, queries_of, queries_of_screens
from dart.exploration.dataset_files import sample_of, write_dataset
from dart.exploration.graph import Graph
from dart.exploration.page_look import LOOK, screen_of
from dart.store.blobs import FolderBlobs
from dart.store.store import Store

LOOK_SEED = 0
"""Seed of the texts and the style of every site: all arms and seeds see one and the same site."""

UNSEEN_SHARE = 0.5
"""Share of a site's shapes that nothing is trained on."""

DEADLINE_S = 60.0
ATTEMPTS = 3
"""How often a screen is drawn at most when the browser breaks."""

T = TypeVar("T")

ELEMENT_AT = """%s.map(([x, y]) => {
  const found = document.elementFromPoint(x, y)?.closest('a, button');
  const isUsed = found && found.type !== 'submit' && found.dataset.element !== undefined;
  return isUsed ? Number(found.dataset.element) : null;
})"""
"""JavaScript: which elements of the machine clicks at these points use; forms are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Yield:
    """What one exploration of a site, or its oracle, gave."""

    site: str
    source: str
    seed: int
    actions: int
    screens: int
    shapes: int
    samples: int
    outcomes: int
    usable: int = 0
    """Samples of shapes that are not for measuring."""


def task_of(site: str) -> str:
    """Id of the task that is explored."""
    return f"sites/{site}/explore"


# ---- explorers ----


async def explore(site: str, strategy: str, seed: int, actions: int, scratch: Path, folder: Path) -> Yield:
    """Explore a site once and write its samples to a folder."""
    environment = SitesEnvironment(scratch / "browser", look=LOOK_SEED)
    task_id = task_of(site)
    settings = ExplorationSettings(
        actions=actions,
        strategy="random" if strategy == "random" else "memory_q",
        seed=seed,
        stops_when_flat=False,
        settle_s=0.05,
    )
    with Store(scratch / "store.db") as store:
        access = LocalRunAccess(store, task_id, settings, state_reader(environment))
        access.blobs = FolderBlobs(scratch / "blobs")
        await explore_and_close(environment, access, store, settings)
        return write_yield(site, strategy, seed, access.follower.graph, access.blobs, folder)


def write_yield(site: str, source: str, seed: int, graph: Graph, blobs: FolderBlobs, folder: Path) -> Yield:
    """Write the samples of a graph; `yield.json` comes last, so that a folder with it is whole."""
    queries = queries_of(graph)
    write_dataset(folder, graph, task_of(site), seed, blobs, source)
    found = Yield(
        site=site,
        source=source,
        seed=seed,
        actions=graph.actions if source != "oracle" else 0,
        screens=len(graph.nodes),
        shapes=len(graph.shapes),
        samples=len(queries),
        outcomes=sum(query.kind is QueryKind.OUTCOME for query in queries),
    )
    (folder / "yield.json").write_text(json.dumps(asdict(found)), encoding="utf-8")
    return found


def samples_in(folder: Path) -> list[GroundingSample]:
    """All samples of a data set, whatever its own splits are."""
    there = [folder / part.value for part in Split if (folder / part.value).exists()]
    return [sample for part in there for sample in read_screenspot(part)]


# ---- the oracle ----


class Oracle:
    """Draws the states of a site's machine and builds the graph of what every click leads to."""

    def __init__(self, environment: SitesEnvironment, blobs: FolderBlobs) -> None:
        self._environment, self._blobs = environment, blobs
        self._site = environment.task.site
        self._allowed = AllowedOrigins(f"http://{self._site.name}.localhost/", ())
        self._ids: dict[SiteState, int] = {}
        self._uses: dict[SiteState, list[tuple[Candidate, int]]] = {}
        self.graph = Graph()

    async def draw_all(self) -> None:
        """Draw every screen and every screen after a click that stays on it; follow all their clicks."""
        states = first_states(self._site.machine)
        for state in states.values():
            await self._draw(state)
        changed: dict[SiteState, None] = {}
        for state in states.values():
            for candidate, element in self._uses[state]:
                after = self._site.machine.fire(state, Act(state.screen, element))
                after = after if after.screen == state.screen else states[after.screen]
                await self._draw(after)
                self._follow(state, candidate, after)
                changed |= {after: None} if after not in states.values() else {}
        for state in changed:
            self._follow_known(state, states)

    def _follow_known(self, state: SiteState, states: Mapping[str, SiteState]) -> None:
        """Follow the clicks of a changed screen as far as they lead to what is drawn."""
        for candidate, element in self._uses[state]:
            after = self._site.machine.fire(state, Act(state.screen, element))
            after = after if after.screen == state.screen else states[after.screen]
            if after in self._ids:
                self._follow(state, candidate, after)

    async def _draw(self, state: SiteState) -> None:
        if state in self._ids:
            return
        screen, points = await drawn_again(lambda: self._look(state), self._environment)
        number = self._ids[state] = len(self._ids) + 1
        self.graph.add_node(self._node(number, screen))
        clicks = [one for one in self.graph.candidates(number) if one.act is ExploreAct.CLICK]
        self._uses[state] = [(one, points[at]) for one in clicks if (at := centre(one.box)) in points]

    async def _look(self, state: SiteState) -> tuple[PageScreen, dict[tuple[int, int], int]]:
        """Show a state; returns its screen, and which element of the machine each point uses."""
        environment = self._environment
        await environment.inspect(f"dartShow({json.dumps(body_html(self._site, state))})")
        png = (await environment.observe(deadline_s=DEADLINE_S)).screenshot
        look = await environment.inspect(LOOK)
        self._blobs.put(png)
        screen = screen_of(look, look, (png, png), self._allowed)
        points = list(dict.fromkeys(centre(element.box) for element in screen.elements))
        used = await environment.inspect(ELEMENT_AT % json.dumps(points))
        return screen, {point: at for point, at in zip(points, used, strict=True) if at is not None}

    def _node(self, number: int, screen: PageScreen) -> ScreenNode:
        task_id = task_of(self._site.name)
        return ScreenNode(
            screen_id=number, task_id=task_id, seed=LOOK_SEED, depth=0, found_actions=0, screen=screen
        )

    def _follow(self, state: SiteState, candidate: Candidate, after: SiteState) -> None:
        """Note where a click leads, twice: a machine does the same at every try."""
        source, target = self._ids[state], self._ids[after]
        for _ in range(2):
            number = len(self.graph.steps) + 1
            self.graph.add_step(
                ExploredStep(
                    step_id=number,
                    task_id=task_of(self._site.name),
                    seed=LOOK_SEED,
                    fence=1,
                    number=number,
                    actions=number,
                    source_id=source,
                    act=candidate.act,
                    action=candidate.key,
                    effect=Effect.NO_CHANGE if source == target else Effect.KNOWN_SCREEN,
                    target_id=target,
                    is_expansion=False,
                )
            )


async def drawn_again(draw: Callable[[], Awaitable[T]], environment: SitesEnvironment) -> T:
    """What a drawing returns; it is tried again on a fresh page when the browser broke or took too long."""
    for _ in range(ATTEMPTS - 1):
        try:
            return await draw()
        except EnvironmentFault:
            await environment.reset(environment.task.id, LOOK_SEED, deadline_s=DEADLINE_S)
    return await draw()


def first_states(machine: Machine) -> dict[str, SiteState]:
    """For each screen a state that shows it soon after the start.

    From each screen only the state that was found first is followed; a screen that needs more, such as an
    article in the cart, is searched for.
    """
    found = {machine.start.screen: machine.start}
    waiting = deque([machine.start])
    while waiting:
        for _, after in machine.successors(waiting.popleft()):
            if after.screen not in found:
                found[after.screen] = after
                waiting.append(after)
    return {
        screen: found[screen] if screen in found else _state_at(machine, screen)
        for screen in machine.states()
    }


def _state_at(machine: Machine, screen: str) -> SiteState:
    state = machine.start
    path = machine.shortest_path(state, Goal(screen, is_strict=False))
    for act in path or ():
        state = machine.fire(state, act)
    return state


async def draw_oracle(site: str, most: int, scratch: Path, folder: Path, unseen: Path) -> Yield:
    """Write the samples of a whole site to a folder, and those for measuring to the folder `unseen`."""
    environment = SitesEnvironment(scratch / "browser", look=LOOK_SEED)
    blobs = FolderBlobs(scratch / "blobs")
    try:
        await environment.reset(task_of(site), LOOK_SEED, deadline_s=DEADLINE_S)
        oracle = Oracle(environment, blobs)
        await oracle.draw_all()
    finally:
        await environment.close()
    chosen = unseen_queries(oracle.graph, most)
    samples = [
        sample_of(unseen, query, oracle.graph, task_of(site), LOOK_SEED, blobs, "oracle") for query in chosen
    ]
    write_screenspot(unseen, samples)
    return write_yield(site, "oracle", LOOK_SEED, oracle.graph, blobs, folder)


# ---- what is measured ----


def unseen_shapes(shapes: Iterable[str]) -> set[str]:
    """The shapes that are for measuring: half of all, chosen by their hashes."""
    drawn = sorted(set(shapes), key=lambda one: hashlib.sha256(f"unseen/{one}".encode()).hexdigest())
    return set(drawn[: round(len(drawn) * UNSEEN_SHARE)])


def unseen_queries(graph: Graph, most: int) -> list[GraphQuery]:
    """Queries for the screens of unseen shapes: as many outcomes as others, at most so many in all.

    Each instruction counts once for a shape, so that what every page of a shape has does not count for each.
    """
    shapes = unseen_shapes(graph.shapes)
    nodes = [node for node in graph.nodes.values() if node.screen.shape in shapes]
    once: dict[tuple[str, str], GraphQuery] = {}
    for queries in queries_of_screens(graph, nodes):
        for query in queries:
            shape = graph.nodes[query.screen_id].screen.shape
            once.setdefault((shape, query.instruction), query)
    outcomes = [query for query in once.values() if query.kind is QueryKind.OUTCOME]
    others = [query for query in once.values() if query.kind is not QueryKind.OUTCOME]
    count = min(len(outcomes), len(others), most // 2)
    draw = random.Random(LOOK_SEED)
    return draw.sample(outcomes, count) + draw.sample(others, count)


def usable(samples: Iterable[GroundingSample], measured: Iterable[GroundingSample]) -> list[GroundingSample]:
    """The samples whose shape no measured sample has."""
    held_out = {sample.provenance["shape"] for sample in measured}
    return [sample for sample in samples if sample.provenance["shape"] not in held_out]


def is_known(sample: GroundingSample, trained_on: Sequence[GroundingSample]) -> bool:
    """Whether a training sample has the same instruction and an element at the same place."""
    return any(
        other.instruction == sample.instruction and other.box.contains(*sample.box.centre)
        for other in trained_on
    )


def mixture(
    own: Sequence[GroundingSample], generic: Sequence[GroundingSample], draws: int, share: float, seed: int
) -> list[GroundingSample]:
    """The samples of a whole training: `share` of them generic and all different, the others from `own`, each
    as often as every other one."""
    draw = random.Random(seed)
    others = draw.sample(list(generic), min(len(generic), round(draws * share)))
    held: list[GroundingSample] = []
    while len(held) < draws - len(others):
        held += draw.sample(list(own), len(own))
    return held[: draws - len(others)] + others
