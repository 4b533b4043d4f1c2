"""How much of a site is found after how many actions: random, least tried, memory-Q, memory-Q with a prior.

    python -m benchmarks.exploration                                # all sites, three seeds, 800 actions
    python -m benchmarks.exploration --quick                        # one site, one seed, 25 actions
    python -m benchmarks.exploration --tasks sites/shop/explore --actions 200 --seeds 3
    python -m benchmarks.exploration --join FILE FILE               # one table of what was measured apart

Explorers, planning, matching and the record are those of `dartrl explore`, in one process with one browser.
Coverage is counted by what is true, not by the graph: on generated sites the state machine says which of its
screens is shown, on MiniWoB++'s pages an exact copy of the document does. The area under the curve is the
mean coverage over the actions. Intervals are 95 % by Student's t over seeds. A measurement that was cut short
goes on with the same command: walks that are in its file are not run again.

`--pairs` instead measures when two screens are the same: distances of labelled pairs, the rates of the
thresholds in use, and those that separate best.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import combinations, product
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.intervals import half_width
from benchmarks.matching_calibration import (
    LabelledPair,
    OperatingPoint,
    Thresholds,
    calibrate,
    operating_point,
)
from dart.config.sections import EnvironmentsSettings, ExplorationSettings
from dart.core import messages as m
from dart.core.exploration import Effect, HeldLease, LeaseEnd, PageScreen
from dart.core.types import GenerateRequest
from dart.environments.faults import EnvironmentFault
from dart.environments.miniwob.environment import MiniWobEnvironment
from dart.environments.protocol import Environment
from dart.environments.sites.catalogue import SITES
from dart.environments.sites.environment import SitesEnvironment
from dart.exploration.explorer import Explorer
from dart.exploration.follower import GraphFollower
from dart.exploration.matching import D_DOM_MOST, D_IMG_MOST, d_dom, d_img
from dart.exploration.memory_q import Prior, constant_prior
from dart.exploration.model_prior import INSTRUCTION, ModelPrior
from dart.exploration.planning import UNREACHED_MOST, AllExplored, Assignment, Waiting, next_assignment
from dart.exploration.prior_context import PriorContext
from dart.exploration.reports import record_of_report, reply_to_report
from dart.store.blobs import FolderBlobs
from dart.store.store import Store

T = TypeVar("T")

BUDGETS = (100, 200, 400, 800)
MINIWOB = ("email-inbox", "navigate-tree", "click-menu-2", "book-flight-nodelay")
TASKS = (*(f"sites/{site}/explore" for site in SITES), *(f"miniwob/{page}" for page in MINIWOB))
ARMS = ("random", "least_tried", "memory_q", "memory_q+model")
CONTEXT_ARM = "memory_q+model+context"
"""The policy is also told the candidates and what was tried. Run only if `--arms` names it."""
ASKING_ARMS = ("memory_q+model", CONTEXT_ARM)
CONTEXT_BYTES = 400
"""So much the small policy takes in any case."""
POLICY = Path(__file__).parents[1] / "configs" / "base-policy"
OUT = Path(__file__).parent / "out" / "exploration.json"

LEASE_S = 3600.0


@dataclass(slots=True)
class Walk:
    """What one exploration came to."""

    task_id: str
    arm: str
    seed: int
    truth: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    """Number of actions, and of true states that were shown by then."""
    states: int = 0
    """True states that there are; 0 if that is not known."""
    screens: int = 0
    shapes: int = 0
    edges: int = 0
    no_op: float = 0.0
    """Share of the steps that changed nothing."""
    repeat: float = 0.0
    """Share of the steps that had been done on the same screen before."""
    ms_per_action: float = 0.0

    def found(self, actions: int) -> int:
        """Number of true states that were shown within so many actions."""
        return max(count for at, count in self.truth if at <= actions)


class LocalRunAccess:
    """The owner of the graph in this process, with a record in a file (`dart.exploration.explorer`)."""

    def __init__(
        self, store: Store, task_id: str, settings: ExplorationSettings, state_of: Callable[[PageScreen], Any]
    ) -> None:
        self._store, self._task_id, self._settings = store, task_id, settings
        self.follower = GraphFollower(store, task_id, settings.seed)
        self._state_of = state_of
        self._states: set[Any] = set()
        self.truth: list[tuple[int, int]] = [(0, 0)]
        self._lease: HeldLease | None = None
        self.prior = ModelPrior()
        self.answers_of: Callable[[PageScreen, int, str], list[str]] = lambda *_: []
        self.blobs: FolderBlobs

    async def lease(
        self, task_id: str, seed: int, at: int | None
    ) -> m.ExplorationLease | m.NoWorkYet | m.ExplorationOver:
        graph = self.follower.graph
        given_up = self._store.unreached_screens(UNREACHED_MOST)
        found = next_assignment(graph, at, (), given_up, self._settings)
        if isinstance(found, AllExplored | Waiting):
            return m.ExplorationOver(reason=str(found))
        return self._leased(found)

    def _leased(self, found: Assignment) -> m.ExplorationLease:
        lease = self._store.write(
            m.LeaseScreen(
                task_id=self._task_id,
                seed=self._settings.seed,
                screen_id=found.screen_id,
                explorer="benchmark",
                incarnation=1,
                deadline_unix_s=time.time() + LEASE_S,
            )
        )
        return m.ExplorationLease(
            fence=lease.fence,
            task_id=self._task_id,
            seed=self._settings.seed,
            screen_id=found.screen_id,
            begins_with_reset=found.way.begins_with_reset,
            hops=found.way.hops,
            repeats=found.repeats,
        )

    async def report(self, report: m.ExploredReport) -> m.ExploredReply:
        (lease,) = self._store.held_leases()
        call = record_of_report(report, self.follower.graph, lease, time.time() + LEASE_S)
        verdict = self._store.write(call)
        self.follower.follow()
        assert verdict.step is not None
        if report.screen is not None:
            self._states.add(self._state_of(report.screen))
            self.truth.append((verdict.step.actions, len(self._states)))
        return reply_to_report(verdict)

    def give_back(self, fence: int, why: LeaseEnd) -> None:
        self._store.write(m.EndExplorationLease(fence=fence, why=why))

    async def keep_screenshot(self, png: bytes) -> None:
        self.blobs.put(png)

    async def know_prior(self, screen_id: int, screen: PageScreen, context: PriorContext) -> None:
        if self.prior.is_due(screen_id, context.tried):
            answers = self.answers_of(screen, self._settings.prior_samples, context.text)
            self.prior.learn(screen_id, answers, screen, context.tried)

    async def in_environment(self, call: str, work: Awaitable[T]) -> T:
        return await work

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def still_working(self) -> None:
        """Do nothing: no supervisor looks for hangs here."""


async def walk(task_id: str, arm: str, seed: int, actions: int, folder: Path) -> Walk:
    """Explore a task once, by one arm."""
    done = Walk(task_id, arm, seed)
    environment = environment_of(task_id, folder)
    settings = ExplorationSettings(
        actions=actions,
        strategy="random" if arm == "random" else "least_tried" if arm == "least_tried" else "memory_q",
        prior="model" if arm in ASKING_ARMS else "constant",
        prior_context_bytes=CONTEXT_BYTES if arm == CONTEXT_ARM else 0,
        seed=seed,
        confirm_share=0.0,
        stops_when_flat=False,
        settle_s=0.05,
    )
    with ExitStack() as around:
        store = around.enter_context(Store(folder / "store.db"))
        access = LocalRunAccess(store, task_id, settings, state_reader(environment))
        access.blobs = FolderBlobs(folder / "blobs")
        if arm in ASKING_ARMS:
            access.answers_of = policy_answers(access.blobs, seed)
        prior = access.prior if arm in ASKING_ARMS else constant_prior
        began_s = time.monotonic()
        await explore_and_close(environment, access, store, settings, prior)
        conclude(done, access, environment, time.monotonic() - began_s)
    return done


async def explore_and_close(
    environment: Environment,
    access: LocalRunAccess,
    store: Store,
    settings: ExplorationSettings,
    prior: Prior = constant_prior,
) -> None:
    """Use up the actions of an exploration and close its environment."""
    rng = random.Random(settings.seed)
    explorer = Explorer(environment, access, store, settings, EnvironmentsSettings(), rng, prior)
    try:
        await explore_to_the_end(explorer, access, settings.actions)
    finally:
        await environment.close()


async def explore_to_the_end(explorer: Explorer, access: LocalRunAccess, actions: int) -> None:
    """Work under one lease after another."""
    while access.follower.graph.actions < actions:
        try:
            reply = await explorer.explore(lambda: access.follower.graph.actions >= actions)
        except EnvironmentFault:
            explorer.forget_screen()
            continue
        if reply is not None:
            break


def conclude(done: Walk, access: LocalRunAccess, environment: Environment, lasted_s: float) -> None:
    """Count what the walk came to."""
    graph = access.follower.graph
    done.truth = access.truth
    done.screens, done.shapes = len(graph.nodes), len(graph.shapes)
    done.edges = sum(1 for _ in graph.edges())
    tried = [step for step in graph.steps if step.source_id is not None and step.effect is not Effect.LOST]
    if tried:
        done.no_op = sum(step.effect is Effect.NO_CHANGE for step in tried) / len(tried)
        done.repeat = sum(not step.is_expansion for step in tried) / len(tried)
    done.ms_per_action = 1000 * lasted_s / max(1, graph.actions)
    if isinstance(environment, SitesEnvironment):
        done.states = len(environment.task.site.screens)


def environment_of(task_id: str, folder: Path) -> Environment:
    """A browser for a task."""
    if task_id.startswith("sites/"):
        return SitesEnvironment(folder / "browser")
    return MiniWobEnvironment(folder / "browser")


def state_reader(environment: Environment) -> Callable[[PageScreen], Any]:
    """What the true state is: the machine's screen, or the exact document."""
    if isinstance(environment, SitesEnvironment):
        return lambda _: environment.true_state.screen
    return lambda screen: screen.structure


def policy_answers(blobs: FolderBlobs, seed: int) -> Callable[[PageScreen, int, str], list[str]]:
    """Asks the base policy what it would do on a screen."""
    from dart.inference.transformers_engine import TransformersEngine

    engine = TransformersEngine(POLICY, 0, screenshots=blobs, seed=seed)

    def answers(screen: PageScreen, samples: int, context: str) -> list[str]:
        request = GenerateRequest(
            screenshot_sha256=screen.screenshot_sha256,
            instruction=INSTRUCTION + context,
            history=(),
            temperature=1.0,
        )
        return [one.answer for one in engine.generate([request] * samples)]

    return answers


# ---- labelled pairs ----


async def labelled_pairs(task_id: str, seed: int, actions: int, folder: Path) -> list[LabelledPair]:
    """Pairs of screens of a random walk on a generated site, labelled by the state of its machine."""
    environment = environment_of(task_id, folder)
    reader = state_reader(environment)
    seen: list[tuple[Any, PageScreen]] = []

    def note(screen: PageScreen) -> Any:
        state = environment.true_state if isinstance(environment, SitesEnvironment) else reader(screen)
        seen.append((state, screen))
        return str(state)

    settings = ExplorationSettings(
        actions=actions, strategy="random", seed=seed, confirm_share=0.0, stops_when_flat=False, settle_s=0.05
    )
    with Store(folder / "store.db") as store:
        access = LocalRunAccess(store, task_id, settings, note)
        access.blobs = FolderBlobs(folder / "blobs")
        await explore_and_close(environment, access, store, settings)
    return [
        LabelledPair(d_dom(one, other), d_img(one, other), is_same=state == other_state)
        for (state, one), (other_state, other) in combinations(seen, 2)
    ]


D_DOMS = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2)
D_IMGS = (0.0, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 1.0)


def report_pairs(pairs: Sequence[LabelledPair]) -> dict[str, Any]:
    """The rates of the thresholds in use and of the best ones, printed and as data."""
    used = operating_point(pairs, Thresholds(D_DOM_MOST, D_IMG_MOST))
    best = calibrate(pairs, D_DOMS, D_IMGS)
    same = sum(pair.is_same for pair in pairs)
    print(f"{len(pairs)} pairs, {same} of one state")
    for name, point in (("in use", used), ("best", best)):
        print(
            f"{name:7} d_dom <= {point.thresholds.d_dom:g}, d_img <= {point.thresholds.d_img:g}: "
            f"true positives {point.true_positive_rate:.3f}, false positives {point.false_positive_rate:.4f}"
        )
    return {"pairs": len(pairs), "same": same, "in_use": _plain(used), "best": _plain(best)}


def _plain(point: OperatingPoint) -> dict[str, Any]:
    return asdict(point) | {"youden": point.youden}


# ---- walks that were measured before ----


def walk_of(entry: Mapping[str, Any]) -> Walk | None:
    """The walk of an entry in a file of results; None for an arm that could not be run, in older files."""
    if entry.get("not_run"):
        return None
    known = {name: value for name, value in entry.items() if name != "not_run"}
    return Walk(**{**known, "truth": [(actions, states) for actions, states in entry["truth"]]})


def read_walks(path: Path) -> tuple[int, list[Walk]]:
    """The number of actions of a file of results, and its walks. Raises SystemExit if it has none."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        return int(held["actions"]), [one for one in map(walk_of, held["walks"]) if one is not None]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(
            f"{path} holds no walks ({type(error).__name__}: {error}); name a file that a measurement "
            "without --pairs wrote"
        ) from error


def each_once(walks: Iterable[Walk]) -> list[Walk]:
    """The first walk of each task, arm and seed."""
    kept: dict[tuple[str, str, int], Walk] = {}
    for one in walks:
        kept.setdefault((one.task_id, one.arm, one.seed), one)
    return list(kept.values())


def measured_before(path: Path, actions: int) -> list[Walk]:
    """The walks of a file that a measurement goes on with.

    Raises SystemExit if the file holds walks of another length, which would be lost.
    """
    if not path.exists():
        return []
    length, walks = read_walks(path)
    if length != actions:
        raise SystemExit(
            f"{path} holds walks of {length} actions and these are of {actions}; name another file with --out"
        )
    return walks


def joined(files: Sequence[Path]) -> tuple[int, list[Walk]]:
    """The number of actions and the walks of several files. Raises SystemExit if the numbers differ."""
    read = {file: read_walks(file) for file in files}
    lengths = {file: length for file, (length, _) in read.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{length} in {file}" for file, length in lengths.items())
        raise SystemExit(f"expected walks of one number of actions, got {told}; join those of one length")
    return max(lengths.values()), each_once(one for _, walks in read.values() for one in walks)


# ---- the report ----


def area_under(counts: Sequence[tuple[int, int]], actions: int) -> float:
    """Return the mean of a count over the first `actions` actions: the area under its curve, divided by them.

    counts   pairs of a number of actions and the count from then on, ascending, beginning at 0 actions
    raises   ValueError if `actions` is not positive
    """
    if actions <= 0:
        raise ValueError(f"expected at least one action, got {actions}")
    ends = [at_ for at_, _ in counts[1:]] + [actions]
    area = sum(
        found * (min(end, actions) - begin)
        for (begin, found), end in zip(counts, ends, strict=True)
        if begin < actions
    )
    return area / actions


def mean_and_half(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and half of its 95 % interval; infinite for one value."""
    half = half_width(values)
    return statistics.fmean(values), float("inf") if half is None else half


def rows_of(walks: Sequence[Walk], budgets: Sequence[int]) -> Iterator[dict[str, Any]]:
    """One row for each task and arm, with the figures of all seeds together."""
    for task_id in dict.fromkeys(one.task_id for one in walks):
        for arm in dict.fromkeys(one.arm for one in walks if one.task_id == task_id):
            own = [one for one in walks if (one.task_id, one.arm) == (task_id, arm)]
            row: dict[str, Any] = {"task": task_id, "arm": arm, "seeds": len(own)}
            row["states"] = max(one.states for one in own)
            for budget in budgets:
                row[f"found_{budget}"] = mean_and_half([float(one.found(budget)) for one in own])
                row[f"auc_{budget}"] = mean_and_half([area_under(one.truth, budget) for one in own])
            for name in ("no_op", "repeat", "screens", "shapes", "edges", "ms_per_action"):
                row[name] = mean_and_half([float(getattr(one, name)) for one in own])
            yield row


def table(rows: Sequence[dict[str, Any]], budgets: Sequence[int]) -> str:
    """The rows as a table in Markdown."""
    heads = ["task", "arm", *(f"AUC {one}" for one in budgets), f"true states at {budgets[-1]}"]
    heads += ["no-op", "repeat", "nodes", "ms/action"]
    lines = [" | ".join(heads), " | ".join("---" for _ in heads)]
    for row in rows:
        cells = [row["task"], row["arm"], *(_cell(row[f"auc_{one}"]) for one in budgets)]
        of_all = f" of {row['states']}" if row["states"] else ""
        cells.append(_cell(row[f"found_{budgets[-1]}"]) + of_all)
        cells += [_cell(row[name], 2) for name in ("no_op", "repeat")]
        cells += [_cell(row["screens"]), _cell(row["ms_per_action"], 0)]
        lines.append(" | ".join(cells))
    return "\n".join(f"| {line} |" for line in lines)


def differences(rows: Sequence[dict[str, Any]], budgets: Sequence[int]) -> str:
    """How much more than random exploration the other arms find, over tasks, as a table in Markdown.

    A task counts once, with the mean of its seeds; tasks that lack one of the two arms are left out. Empty
    if no task has both.
    """
    aucs = {(row["task"], row["arm"]): [row[f"auc_{one}"][0] for one in budgets] for row in rows}
    heads = ["AUC more than random", "tasks", *map(str, budgets)]
    lines = [" | ".join(heads), " | ".join("---" for _ in heads)]
    for arm in dict.fromkeys(arm for _, arm in aucs if arm != "random"):
        tasks = [task for task, other in aucs if other == arm and (task, "random") in aucs]
        more = [
            [mine - random_ for mine, random_ in zip(aucs[task, arm], aucs[task, "random"], strict=True)]
            for task in tasks
        ]
        if more:
            cells = [_cell(mean_and_half(values)) for values in zip(*more, strict=True)]
            lines.append(" | ".join([arm, str(len(tasks)), *cells]))
    return "\n".join(f"| {line} |" for line in lines) if len(lines) > 2 else ""


def written(out: Path, actions: int, walks: Sequence[Walk]) -> dict[str, Any]:
    """Write the walks and the rows of their table as one file, and return what it holds."""
    rows = list(rows_of(walks, budgets_within(actions)))
    result = {"actions": actions, "rows": rows, "walks": [asdict(one) for one in walks]}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


def budgets_within(actions: int) -> list[int]:
    """The numbers of actions after which walks of this length are compared."""
    return [one for one in BUDGETS if one <= actions] or [actions]


def _cell(value: tuple[float, float], digits: int = 1) -> str:
    mean, half = value
    return f"{mean:.{digits}f}" + (f" ± {half:.{digits}f}" if half != float("inf") else "")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--arms", nargs="+", choices=(*ARMS, CONTEXT_ARM), default=list(ARMS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--actions", type=int, default=BUDGETS[-1])
    parser.add_argument("--pairs", action="store_true", help="calibrate the matching of screens instead")
    parser.add_argument("--quick", action="store_true", help="one site, one seed, 25 actions")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--join", type=Path, nargs="+", metavar="FILE", help="measure nothing: join results")
    chosen = parser.parse_args(arguments)
    if chosen.quick:
        chosen.tasks, chosen.seeds, chosen.actions = ["miniwob/navigate-tree"], 1, 25
    if chosen.pairs:
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(json.dumps(measure_pairs(chosen), indent=1))
        return 0
    if chosen.join:
        actions, walks = joined(chosen.join)
    else:
        actions, walks = chosen.actions, measure_walks(chosen)
    rows = written(chosen.out, actions, walks)["rows"]
    print(table(rows, budgets_within(actions)))
    if compared := differences(rows, budgets_within(actions)):
        print(f"\n{compared}")
    return 0


def measure_pairs(chosen: argparse.Namespace) -> dict[str, Any]:
    """Calibrate the matching over all tasks and seeds."""
    pairs: list[LabelledPair] = []
    for task_id in chosen.tasks:
        for seed in range(chosen.seeds):
            with tempfile.TemporaryDirectory(prefix="pairs-") as folder:
                pairs += asyncio.run(labelled_pairs(task_id, seed, chosen.actions, Path(folder)))
    return report_pairs(pairs)


def measure_walks(chosen: argparse.Namespace) -> list[Walk]:
    """Explore every task by every arm and seed that the file lacks; the file is whole after each walk."""
    walks = measured_before(chosen.out, chosen.actions)
    done = {(one.task_id, one.arm, one.seed) for one in walks}
    for task_id, seed, arm in product(chosen.tasks, range(chosen.seeds), chosen.arms):
        if (task_id, arm, seed) in done:
            continue
        with tempfile.TemporaryDirectory(prefix="exploration-") as folder:
            walks.append(asyncio.run(walk(task_id, arm, seed, chosen.actions, Path(folder))))
        written(chosen.out, chosen.actions, walks)
        print(f"{task_id} {arm} seed {seed}: {walks[-1].truth[-1]}", file=sys.stderr, flush=True)
    return walks


if __name__ == "__main__":
    sys.exit(main())
