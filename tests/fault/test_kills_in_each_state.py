"""A run whose actors are killed in each state of each protocol keeps its promises.

Store, curator, engines, weight_sync, trainer, environments and kills are real; the screens, the policy and
the update are simulated. The kills of a run come one after another, in the order of a plan. One environment
plays in the first run, so that each kill costs exactly what docs/data.md says.
"""

import asyncio
import contextlib
import hashlib
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from actors.codec import from_plain, to_plain
from actors.system import ActorSystem
from dart.config.config import Config, load_config
from dart.core import messages as m
from dart.core.actions import Click
from dart.core.run_directory import RunPaths
from dart.core.seeds import TRAINING_SEEDS
from dart.core.types import FaultKind
from dart.curation.evaluation import INTERRUPTED
from dart.environments.protocol import NO_ROLLOUT, EpisodeKey
from dart.environments.simulated import SimulatedEnvironment, screenshot_of
from dart.run.tree import children, root_of
from dart.store.browse_queries import RunBrowser
from dart.store.integrity import check
from dart.store.run_blobs import local_blobs
from dart.store.store import Store
from dart.telemetry.board_gauges import Gauge
from dart.telemetry.events import EVALUATION_FAILED
from dart.testing.trajectories import demonstration_of, step_at
from supervision.child_spec import ChildSpec
from tests.fault import protocol_moments as moments
from tests.fault.actors_under_test import eventually
from tests.fault.kill_moments import Moment, Plan
from tests.fault.protocol_moments import ASKED, Setting, committed, taken

TASK, PAGE = "simulated/0", "miniwob/click-checkboxes"
DEADLINE_S = 20.0
EPISODES = 6
"""Episodes of the evaluation before training."""

MORE = 8

KILLED = {
    "dart.store.actor:StoreActor": "KilledStore",
    "dart.curation.actor:CuratorActor": "KilledCurator",
    "dart.inference.weight_sync_actor:WeightSyncActor": "KilledWeightSync",
    "dart.inference.actor:RolloutActor": "KilledEngine",
    "dart.environments.actor:EnvironmentActor": "KilledEnvironment",
}
"""The class of `protocol_moments` that stands for each actor."""

FAST = [
    "environments.kind='simulated'",
    "rollout.engine='simulated'",
    "training.learner='simulated'",
    "training.groups_per_update=1",
    "simulation.steps_median=4.0",
    "simulation.steps_sigma=0.0",
    "simulation.generate_base_s=0.0",
    "simulation.generate_each_s=0.0",
    "simulation.load_s=0.0",
    "simulation.update_base_s=0.0",
    "simulation.update_each_s=0.0",
    "curation.rollouts_per_group=2",
    "curation.step_cap=6",
    "curation.max_attempts=1000",
    "curation.max_resumes=1000",
    "curation.staleness=1000",
    "curation.poll_s=0.02",
    "curation.task_quarantine.enabled=false",
    "alarms.enabled=false",
    "evaluation.greedy_seeds_per_task=0",
    f"evaluation.seeds_per_task={EPISODES}",
    "supervision.root.max_restarts=10000",
    "supervision.environment_pool.shutdown_s=20.0",
    "supervision.environment_pool.breaker.enabled=false",
    "supervision.rollout_pool.max_restarts=10000",
    "supervision.environment_pool.max_restarts=10000",
    *(
        f"supervision.{child}.{limit}"
        for child in ("store", "curator", "rollout_pool", "weight_sync", "environment_pool", "trainer")
        for limit in (
            "backoff.initial_s=0.01",
            "backoff.max_s=0.01",
            "hang_deadline_s=600.0",
            "start_deadline_s=600.0",
        )
    ),
]


@dataclass(frozen=True, slots=True)
class Run:
    """A run directory below a folder with a path that is short enough for sockets."""

    folder: Path
    paths: RunPaths
    config: Config

    def query(self, sql: str, **values: Any) -> list[Any]:
        with closing(sqlite3.connect(f"file:{self.paths.store}?mode=ro", uri=True)) as connection:
            return connection.execute(sql, values).fetchall()

    def browser(self) -> RunBrowser:
        return RunBrowser(self.paths.store, steps=local_blobs(self.paths.root).steps)

    def notes(self, *wanted: str) -> list[tuple[int, int]]:
        """The attempts (rollout, attempt) to which one of these happened, by the environment's own word."""
        lines = [line.split(" ", 2) for line in (self.folder / moments.ATTEMPTS).read_text().splitlines()]
        return [(int(rollout), int(attempt)) for rollout, attempt, what in lines if what in wanted]

    def notes_of_guided(self) -> list[tuple[int, int]]:
        """The guided episodes (demonstration, attempt) that the environment reported."""
        lines = [line.split() for line in (self.folder / moments.GUIDED).read_text().splitlines()]
        return [(int(guide), int(attempt)) for guide, attempt in lines]


@contextlib.contextmanager
def prepared(plan: Sequence[Moment], more: Iterable[str]) -> Iterator[Run]:
    """A new run with these settings, and the plan of its kills."""
    folder = Path(tempfile.mkdtemp(prefix="states-", dir="/tmp"))
    try:
        (folder / "mail").mkdir()
        paths = RunPaths(folder / "run")
        for one in paths.folders:
            one.mkdir(parents=True, exist_ok=True)
        config = load_config(None, [f"run.dir='{paths.root}'", f"tasks.train=['{TASK}']", *FAST, *more])
        paths.config.write_text(config.to_toml())
        with Store(paths.store, steps=local_blobs(paths.root).steps) as record:
            record.add_version()
        Plan.make(folder, plan)
        yield Run(folder, paths, config)
    finally:
        shutil.rmtree(folder)


def killed(spec: ChildSpec) -> ChildSpec:
    """The same child, or the same pool, of actors that are killed."""
    if (below := spec.args.get("children")) is not None:
        same = [to_plain(killed(from_plain(one, ChildSpec))) for one in below]
        return replace(spec, args={**spec.args, "children": same})
    if (name := KILLED.get(spec.actor)) is None:
        return spec
    preload = (*spec.preload, moments.__name__)
    return replace(spec, actor=f"{moments.__name__}:{name}", preload=preload)


@contextlib.contextmanager
def running(run: Run, leaves_out: Iterable[str] = ()) -> Iterator[ActorSystem]:
    """The tree of the run, without some of its children."""
    args = {
        "config": run.config.model_dump(mode="json"),
        "store": str(run.paths.store),
        "plan": str(run.folder),
        "training_ends_boot_s": 1e12,
    }
    below = tuple(killed(spec) for spec in children(run.config, args) if spec.id not in leaves_out)
    root = root_of(run.config, below)
    system = ActorSystem(run.paths.root, run.folder / "mail", root, prints_reports=False)
    with system:
        yield system
    system.board.close()


def await_kills(run: Run, plan: Sequence[Moment], nudge: Callable[[], None] = lambda: None) -> None:
    """Wait for every moment of the plan; `nudge` is called again and again until then."""

    def has_come(number: int) -> bool:
        nudge()
        return len(Plan.struck(run.folder)) > number

    for number, moment in enumerate(plan):
        missing = f"kill {number} comes: {moment.name}"
        eventually(partial(has_come, number), missing, within_s=DEADLINE_S)
    assert Plan.struck(run.folder) == [moment.name for moment in plan]


def end(system: ActorSystem) -> None:
    system.stop()
    eventually(lambda: system.wait(0.1), "every actor ended by itself")


def assert_sound(run: Run) -> None:
    """The record agrees with itself and with the files, and every issued rollout has one fate."""
    with run.browser() as record:
        assert record.integrity(run.config.curation.staleness) == ()
        conservation = record.conservation()
        assert conservation.holds, str(conservation)
    assert check(run.paths, run.config, full=True) == []


# ---- screens and reward of an episode without kills ----


async def _undisturbed(config: Config, task_id: str, seed: int, rollout_id: int) -> tuple[list[str], float]:
    """The hashes of its screens and its reward."""
    environment = SimulatedEnvironment(config.simulation, config.run.seed)
    key = EpisodeKey(rollout_id=rollout_id) if rollout_id else NO_ROLLOUT
    screens = [(await environment.reset(task_id, seed, deadline_s=1.0, episode=key)).screenshot]
    while not (await environment.step(Click(1, 1), deadline_s=1.0)).terminated:
        screens.append((await environment.observe(deadline_s=1.0)).screenshot)
    reward = await environment.evaluate(deadline_s=1.0)
    return [hashlib.sha256(screen).hexdigest() for screen in screens], reward


def assert_every_episode_is_as_undisturbed(run: Run) -> int:
    """Compare screens and rewards of all trajectories; returns how many there are."""
    rows = run.query("SELECT rollout_id FROM trajectories")
    with run.browser() as record:
        for (rollout_id,) in rows:
            found = record.trajectory(rollout_id)
            assert found is not None
            wanted = asyncio.run(_undisturbed(run.config, found.task_id, found.seed, rollout_id))
            assert ([step.screenshot_sha256 for step in found.steps], found.reward) == wanted, rollout_id
    return len(rows)


# ---- one environment: evaluation, guided episodes, rollouts, faults, parking ----

LOST_LEASES = {
    ASKED: "the environment that asked is gone",
    committed(m.LeaseRollout): "store and curator are gone, and the answer with them",
    committed(m.ReassignRollout): "the same",
    "curator: a rollout is leased again and not noted": "the curator is gone, and its answer with it",
}
"""Moments at which a lease is in the record that no environment has received, and why."""

COSTLY = {
    *moments.played("a rollout", m.WorkRequest),
    "a fault: nothing is reset",
    "a fault: the turn is resumed",
    "a fault: it is not reported",
    "a fault: it is reported",
    "parking: the episode is interrupted",
    "parking: its steps are stored",
    "a replay: its steps are not read",
    "a replay: a step is replayed",
    "a replay: every step is replayed",
    "a replay: it differs",
}
"""Moments at which a kill costs the attempt that is played. A kill at any other moment costs none."""

FORGOTTEN = "a replay: its steps are forgotten"
"""The attempt is spent already; the kill costs the next one."""

EVALUATION_COSTLY = {
    *moments.played("an evaluation", m.EvaluationTask, put=False),
    "an evaluation: it is interrupted",
}
"""Moments at which a kill counts as a failed attempt of an evaluation episode."""

SETTINGS = {
    "a fault:": Setting.BREAKS,
    "parking:": Setting.STOPS,
    "a replay: it": Setting.DIFFERS,
    "a replay:": Setting.REPLAYS,
    "an evaluation: it is interrupted": Setting.STOPS,
    "an evaluation: its interruption": Setting.STOPS,
    "curator: a fault": Setting.BREAKS,
    "curator: a lease is revoked": Setting.BREAKS,
    "curator: a rollout is leased again": Setting.BREAKS,
    "store: ReleaseRollout": Setting.BREAKS,
    "store: ReassignRollout": Setting.BREAKS,
    "store: ParkRollout": Setting.STOPS,
    "store: ForgetParked": Setting.DIFFERS,
}
"""What an environment has to do until a moment comes, by the beginning of its name; the first one counts."""


def with_setting(name: str) -> Moment:
    fits = (setting for beginning, setting in SETTINGS.items() if name.startswith(beginning))
    is_forgotten = name == FORGOTTEN
    return Moment(name=name, setting=Setting.DIFFERS if is_forgotten else next(fits, Setting.NOTHING))


def of_store(*calls: type) -> list[str]:
    return [name for call in calls for name in (taken(call), committed(call))]


EVALUATED = (
    ASKED,
    *moments.EVALUATION_PLACES,
    *moments.EVALUATION_PLAY_PLACES,
    *of_store(m.RecordEvaluation),
)
PLAYED = (
    *moments.GUIDED_PLACES,
    *moments.GUIDED_PLAY_PLACES,
    *of_store(m.RecordGuided, m.UseDemonstration, m.DropGroup, m.OpenGroup, m.LeaseRollout),
    *moments.ENVIRONMENT_PLACES,
    *moments.ROLLOUT_PLAY_PLACES,
    *of_store(m.ReleaseRollout, m.ReassignRollout, m.FinishRollout, m.ParkRollout, m.ForgetParked),
)
PLAY = [with_setting(name) for name in (*EVALUATED, *PLAYED)]

ROLLOUTS = 60
"""So many rollouts are stored in the end."""

GUIDES = 4
PLAY_SETTINGS = [
    "environments.count=1",
    "environments.turn_resumes=1",
    "environments.park_after_s=0.05",
    "rollout.count=1",
    "simulation.success=0.2",
    "curation.experience_pool.enabled=true",
    "curation.experience_pool.self_rolled=true",
    "evaluation.after=false",
]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_kill_in_each_state_of_an_episode_costs_what_the_docs_say_and_nothing_is_lost() -> None:
    with prepared(PLAY, PLAY_SETTINGS) as run:
        add_guides(run)
        with running(run, leaves_out=("weight_sync", "trainer")) as system, run.browser() as record:
            await_kills(run, PLAY)
            eventually(lambda: record.episodes_finished() >= ROLLOUTS, f"{ROLLOUTS} rollouts are stored")
            end(system)
        assert_sound(run)
        assert assert_every_episode_is_as_undisturbed(run) >= ROLLOUTS
        assert_attempts_are_counted_exactly(run, PLAYED)
        assert_evaluated_once(run)
        assert_guided_once(run)


def add_guides(run: Run) -> None:
    """Add demonstrations of the first seeds, which groups with demonstrations are opened for."""
    blobs = local_blobs(run.paths.root)
    step = replace(step_at(0), screenshot_sha256=blobs.screenshots.put(screenshot_of(TASK, 0, 0)))
    with Store(run.paths.store, steps=blobs.steps) as store:
        store.add_demonstrations([demonstration_of(TASK, seed, [step]) for seed in TRAINING_SEEDS[:GUIDES]])


def assert_attempts_are_counted_exactly(run: Run, plan: Iterable[str]) -> None:
    """The record has the attempts that the kills of the plan cost, and no others."""
    rows = run.query("SELECT rollout_id, attempt, fault_kind FROM attempts")
    spent = {(rollout, attempt): kind for rollout, attempt, kind in rows}
    by_kills = {*run.notes(*COSTLY), *((rollout, attempt + 1) for rollout, attempt in run.notes(FORGOTTEN))}
    lost = {*run.notes(moments.REPORTED, moments.FORGOTTEN)} | by_kills
    assert lost <= spent.keys()
    assert {spent[one] for one in by_kills} == {FaultKind.INFRASTRUCTURE}
    unseen = spent.keys() - lost
    assert unseen & {*run.notes(moments.RECEIVED)} == set()
    assert len(unseen) == sum(name in LOST_LEASES for name in plan)
    assert run.query(MISCOUNTED) == []


MISCOUNTED = """
    SELECT r.rollout_id, r.attempt, r.environment, count(a.attempt), max(a.attempt) FROM rollouts r
    JOIN attempts a ON a.rollout_id = r.rollout_id GROUP BY r.rollout_id
    HAVING count(a.attempt) != max(a.attempt)
        OR r.attempt != max(a.attempt) + (r.environment IS NOT NULL OR r.state != 'leased')
"""
"""Rollouts whose attempts have gaps, or that are not in the attempt after the last one that was spent."""


def assert_evaluated_once(run: Run) -> None:
    """Each episode has one result, and each kill that failed an attempt has its event."""
    rows = run.query("SELECT seed, reward FROM evaluations")
    assert len({seed for seed, _ in rows}) == len(rows) == EPISODES
    for seed, reward in rows:
        assert reward == asyncio.run(_undisturbed(run.config, TASK, seed, 0))[1]
    failed = [
        json.loads(data)["kind"]
        for (data,) in run.query("SELECT data FROM events WHERE kind = :kind", kind=EVALUATION_FAILED)
    ]
    assert failed.count(INTERRUPTED) == 1
    by_kills = failed.count(FaultKind.INFRASTRUCTURE)
    assert by_kills + 1 == len(failed)
    # A lease for an environment that has asked and is gone ends with an attempt, or without if it ends first.
    assert by_kills - len(EVALUATION_COSTLY) in (0, 1)


def assert_guided_once(run: Run) -> None:
    """Each recorded attempt with a guide is counted once, and at most one of them is a demonstration."""
    recorded = set(run.notes_of_guided())
    guides = run.query("SELECT pool_id, rolls FROM pool WHERE guide_id IS NULL")
    assert {(guide, attempt) for guide, rolls in guides for attempt in range(1, rolls + 1)} == recorded
    rolled = run.query("SELECT guide_id, seed, reward FROM pool WHERE guide_id IS NOT NULL")
    assert len({guide for guide, _, _ in rolled}) == len(rolled)
    for _, seed, reward in rolled:
        assert reward == asyncio.run(_undisturbed(run.config, TASK, seed, 0))[1] == 1.0


BROWSER_PLAY = (
    "a rollout: the environment is reset",
    "a rollout: an answer is asked for",
    "a rollout: an action is done",
    "a rollout: it is judged",
    "parking: it is in the record",
    "a replay: a step is replayed",
)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.timeout(900)
def test_a_kill_of_an_environment_with_a_browser_costs_the_same() -> None:
    plan = [with_setting(name) for name in BROWSER_PLAY]
    kind = ["environments.kind='miniwob'", f"tasks.train=['{PAGE}']", "evaluation.before=false"]
    with prepared(plan, [*PLAY_SETTINGS, *kind]) as run:
        with running(run, leaves_out=("weight_sync", "trainer")) as system, run.browser() as record:
            await_kills(run, plan)
            eventually(lambda: record.episodes_finished() >= MORE, f"{MORE} rollouts are stored")
            end(system)
        assert_sound(run)
        assert_attempts_are_counted_exactly(run, BROWSER_PLAY)


# ---- a whole tree: versions ----

DOUBTS = ("sync: an engine is doubted", "sync: a probe is asked for", "sync: a probe is answered")
VERSIONS = {
    "one_at_a_time": (
        *moments.WEIGHT_SYNC_PLACES,
        *moments.ONE_AT_A_TIME_PLACES,
        *moments.LOAD_PLACES,
        *of_store(m.LeaseBatch, m.ReassignBatch, m.CommitUpdate, m.RecordDecisions, m.RecordEvents),
    ),
    "all_at_once": (
        *(name for name in moments.WEIGHT_SYNC_PLACES if name not in DOUBTS),
        *moments.ALL_AT_ONCE_PLACES,
        *moments.LOAD_PLACES,
        *moments.HOLD_PLACES,
    ),
}
"""The moments of a version, for each way in which versions reach engines."""

ENGINES = ("rollout-0", "rollout-1", "rollout-2")
VERSION_SETTINGS = [
    "environments.count=2",
    f"rollout.count={len(ENGINES)}",
    "rollout.load_deadline_s=1.0",
    "simulation.success=0.5",
    "simulation.update_base_s=0.05",
    "curation.rollouts_per_group=4",
    "curation.rollout_number.enabled=true",
    "curation.trajectory_length.enabled=true",
    "evaluation.before=false",
    "evaluation.after=false",
]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", VERSIONS)
def test_a_kill_in_each_state_of_a_version_leaves_every_engine_with_the_newest_one(way: str) -> None:
    plan = [Moment(name=name) for name in VERSIONS[way]]
    with prepared(plan, [*VERSION_SETTINGS, f"rollout.sync='{way}'"]) as run:
        with running(run) as system, run.browser() as record:
            await_kills(run, plan, lambda: doubt(run, system))
            wanted = record.episodes_finished() + MORE
            eventually(lambda: record.episodes_finished() >= wanted, f"{MORE} more rollouts are stored")
            eventually(lambda: is_at_rest(system), "nothing is played or trained")
            newest = record.latest_version()
            assert newest is not None
            assert newest.version > 0
            served = f"every engine serves version {newest.version}, and nothing older is allowed"
            eventually(lambda: versions_of(system) == {newest.version}, served)
            end(system)
        assert_sound(run)
        assert_every_episode_is_as_undisturbed(run)
        assert_only_leases_were_lost(run, plan)


def doubt(run: Run, system: ActorSystem) -> None:
    """Have weight_sync doubt an engine while the plan waits for that."""
    if (moment := Plan(run.folder).next()) is not None and moment.name in DOUBTS:
        system.tell("weight_sync", m.EngineSuspect(engine=ENGINES[0], detail="the test says so"))


def is_at_rest(system: ActorSystem) -> bool:
    """Hold new work back; whether the work that was under way has ended."""
    answer = system.ask("curator", m.PauseWork(is_held=True), deadline_s=DEADLINE_S)
    return isinstance(answer, m.WorkPaused) and not answer.playing and not answer.is_training


def versions_of(system: ActorSystem) -> set[int]:
    """The versions that engines serve and the oldest that they may serve."""
    served = {system.vitals(name).gauges[Gauge.SERVED_VERSION] for name in ENGINES}
    return served | {system.vitals("weight_sync").gauges[Gauge.REQUIRED_VERSION]}


def assert_only_leases_were_lost(run: Run, plan: Sequence[Moment]) -> None:
    """No environment was killed: only a lease that a killed store or curator did not send has cost one."""
    kinds = [kind for (kind,) in run.query("SELECT fault_kind FROM attempts")]
    assert set(kinds) <= {FaultKind.SYSTEM}
    kills = sum(moment.name.startswith("store:") for moment in plan)
    assert len(kinds) <= kills * run.config.environments.count


# ---- the plan of the kills ----


def test_of_processes_that_come_to_a_moment_together_one_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Plan.make(tmp_path, [Moment(name=moments.REPORTED), Moment(name=moments.FORGOTTEN)])
    killed: list[str] = []
    monkeypatch.setattr(Plan, "_end", lambda _, name: killed.append(name))
    monkeypatch.setattr(Plan, "_done", lambda _: 0)  # both look before one of them is killed
    for _ in range(2):
        Plan(tmp_path).strike_if_next(moments.REPORTED)
    assert killed == Plan.struck(tmp_path) == [moments.REPORTED]
