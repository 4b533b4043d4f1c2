"""A simulated run: environments, engines and a trainer around the real decisions, on a clock that jumps.

The curator and its service (`dart.curation`, on a record in memory), admission and the order of weight
updates (`dart.inference.weight_sync_plan`) are the code that runs in production. Waits, service times and
lengths of episodes are those of the simulated parts (`simulated*.py`), drawn in the same way. Messages take
no time, and an environment that has to wait is asked again as soon as something changed.
"""

import heapq
import math
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from benchmarks.simulated_record import SimulatedRecord
from benchmarks.utilisation import quantile
from dart.config.config import Config
from dart.core.messages import NoWorkYet
from dart.core.records import Batch
from dart.core.types import RolloutLease
from dart.curation.service import open_service
from dart.curation.settings import settings_of
from dart.environments.latency import LatencySampler, clipped_lognormal
from dart.environments.simulated import MOST_STEPS
from dart.inference.simulated_engine import TOKENS_SIGMA
from dart.inference.weight_sync_plan import LoadDecision, SyncPlan
from dart.testing.local_record import at_once

# ---- time ----


class EventClock:
    """Time that jumps from one event to the next."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._order = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []

    def after(self, delay_s: float, what: Callable[[], None]) -> None:
        """Do it then; events of the same moment in the order they were asked for."""
        heapq.heappush(self._events, (self.now_s + delay_s, next(self._order), what))

    def run(self, is_over: Callable[[], bool]) -> None:
        """Until it is over, or nothing is left that could happen."""
        while self._events and not is_over():
            self.now_s, _, what = heapq.heappop(self._events)
            what()


class Share:
    """How much of the time something went on, and how much of its capacity it took."""

    def __init__(self, clock: EventClock) -> None:
        self._clock = clock
        self._since_s, self._level, self._sum = 0.0, 0.0, 0.0

    def set(self, level: float) -> None:
        self._sum += self._level * (self._clock.now_s - self._since_s)
        self._since_s, self._level = self._clock.now_s, level

    def total(self) -> float:
        """Seconds so far, each weighted by its level."""
        self.set(self._level)
        return self._sum


# ---- engines ----

Answer = Callable[[int], None]
"""Called with the version that answered."""


class SimulatedEngine:
    """Answers all that waits in one batch, at the simulated service time; loads a version in between."""

    def __init__(
        self, name: str, config: Config, clock: EventClock, done: "Callable[[SimulatedEngine], None]"
    ):
        self.name = name
        self.version = 0
        self.is_held = False
        self._simulation, self._max_batch = config.simulation, config.rollout.max_batch
        self._clock, self._done = clock, done
        self._queue: deque[Answer] = deque()
        self._is_busy = False
        self._batch = 0
        self._swap: Callable[[], None] | None = None
        self.busy, self.weighted = Share(clock), Share(clock)

    @property
    def in_flight(self) -> int:
        return len(self._queue) + self._batch

    def ask(self, answer: Answer) -> None:
        self._queue.append(answer)
        self._go_on()
        self._note()

    def load(
        self, version: int, loaded: Callable[[], None], stands_still: Callable[[], None] = lambda: None
    ) -> None:
        """Read and proven beside the answers, swapped between batches; waiting requests get the new one."""

        def finish() -> None:
            self._is_busy, self.version = False, version
            loaded()
            self._go_on()
            self._note()

        def begin() -> None:
            self._is_busy = True
            stands_still()
            self._clock.after(self._simulation.swap_s, finish)

        def prepared() -> None:
            self._swap = begin
            self._go_on()

        proof_s = self._simulation.generate_base_s + self._simulation.generate_each_s
        self._clock.after(self._simulation.load_s + proof_s, prepared)

    def serve(self) -> None:
        self.is_held = False
        self._go_on()
        self._note()

    def _go_on(self) -> None:
        if self._is_busy:
            return
        if self._swap is not None:
            begin, self._swap = self._swap, None
            begin()
        elif self._queue and not self.is_held:
            batch = [self._queue.popleft() for _ in range(min(len(self._queue), self._max_batch))]
            self._is_busy, self._batch = True, len(batch)
            service_s = self._simulation.generate_base_s + len(batch) * self._simulation.generate_each_s
            self._clock.after(service_s, lambda: self._answer(batch))

    def _answer(self, batch: list[Answer]) -> None:
        self._is_busy, self._batch = False, 0
        self._done(self)
        for answer in batch:
            answer(self.version)
        self._go_on()
        self._note()

    def _note(self) -> None:
        """As a rollout actor counts: busy is answering; requests that wait for a load are not."""
        self.busy.set(float(self._batch > 0))
        self.weighted.set(self._batch / self._max_batch)


class Routing:
    """The engine with the fewest requests, in the time of one look however many there are."""

    def __init__(self, names: Sequence[str]) -> None:
        self._engines: dict[str, SimulatedEngine] = {}
        self._by_load: list[dict[str, None]] = [dict.fromkeys(names)]
        self._load = dict.fromkeys(names, 0)
        self._out: set[str] = set()

    def put(self, engine: SimulatedEngine) -> None:
        """An engine takes requests, or has fewer or more than before."""
        self._take(engine.name)
        self._engines[engine.name] = engine
        self._out.discard(engine.name)
        load = engine.in_flight
        while len(self._by_load) <= load:
            self._by_load.append({})
        self._by_load[load][engine.name] = None
        self._load[engine.name] = load

    def remove(self, engine: SimulatedEngine) -> None:
        """It takes no new requests for a while."""
        self._take(engine.name)
        self._out.add(engine.name)

    def least_busy(self) -> SimulatedEngine:
        """Somebody always takes requests: one that is out when all are."""
        name = next((next(iter(names)) for names in self._by_load if names), None)
        return self._engines[name if name is not None else min(self._out)]

    def is_out(self, engine: SimulatedEngine) -> bool:
        return engine.name in self._out

    def _take(self, name: str) -> None:
        self._by_load[self._load[name]].pop(name, None)


# ---- an episode ----


class Chance:
    """Lengths and successes of episodes, as `dart.environments.simulated` draws them."""

    def __init__(self, config: Config) -> None:
        self._simulation, self._seed = config.simulation, config.run.seed

    def episode(self, task_id: str, seed: int, rollout_id: int, step_cap: int) -> tuple[int, bool]:
        """Steps it takes, and whether it succeeds within its cap."""
        rng = random.Random(f"{self._seed}/{task_id}/{seed}/{rollout_id}")
        drawn = clipped_lognormal(
            rng, self._simulation.steps_median, self._simulation.steps_sigma, MOST_STEPS
        )
        steps, succeeds = max(1, round(drawn)), rng.random() < self._simulation.success
        return min(steps, step_cap), succeeds and steps <= step_cap


@dataclass(slots=True, kw_only=True)
class Played:
    """An episode while it is played, and after."""

    environment: str
    num_steps: int
    reward: float = 0.0
    lease: RolloutLease | None = None
    versions: list[int] = field(default_factory=list)


class Playing:
    """Environments that play episodes with the help of engines; who plays what is somebody else's."""

    def __init__(self, config: Config, clock: EventClock, ended: Callable[[Played], None]) -> None:
        self._clock, self._ended = clock, ended
        count_ = config.environments.count
        self.names = [f"env-{index:05d}" for index in range(count_)]
        self._waits = {
            name: LatencySampler(config.environments.latency, f"{config.run.seed}/{name}")
            for name in self.names
        }
        self.engines = {
            name: SimulatedEngine(name, config, clock, self.note_load)
            for name in (f"rollout-{index}" for index in range(config.rollout.count))
        }
        self.routing = Routing(list(self.engines))
        for engine in self.engines.values():
            self.routing.put(engine)
        self.answers = 0
        self.in_episode = Share(clock)
        self._playing = 0

    def begin(self, episode: Played) -> None:
        self._note_playing(1)
        self._clock.after(self._waits[episode.environment].reset_s(), lambda: self._ask(episode))

    def note_load(self, engine: SimulatedEngine) -> None:
        """An engine has fewer or more requests."""
        if not self.routing.is_out(engine):
            self.routing.put(engine)

    def _ask(self, episode: Played) -> None:
        engine = self.routing.least_busy()
        engine.ask(lambda version: self._act(episode, version))
        self.note_load(engine)

    def _act(self, episode: Played, version: int) -> None:
        episode.versions.append(version)
        self.answers += 1
        then = self._end if len(episode.versions) == episode.num_steps else self._ask
        self._clock.after(self._waits[episode.environment].step_s(), lambda: then(episode))

    def _end(self, episode: Played) -> None:
        self._note_playing(-1)
        self._ended(episode)

    def _note_playing(self, change: int) -> None:
        self._playing += change
        self.in_episode.set(self._playing)

    def busy_s(self) -> float:
        return sum(engine.busy.total() for engine in self.engines.values())

    def weighted_s(self) -> float:
        return sum(engine.weighted.total() for engine in self.engines.values())


# ---- the run ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Totals at one moment."""

    at_s: float
    in_episode_s: float
    busy_s: float
    weighted_s: float
    update_s: float
    answers: int
    stored: int
    stored_steps: int


class SimulatedRun:
    """Environments, engines and a trainer around one service, all of it driven by a clock that jumps."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.clock = EventClock()
        self.version = 0
        self.calls = 0
        """Of the service."""
        self.trained: list[list[Played]] = []
        """By update."""
        self.stored = self.stored_steps = 0
        self._chance = Chance(config)
        self._record = SimulatedRecord(lambda: self.clock.now_s)
        self._service = at_once(open_service(settings_of(config), self._record, lambda: self.clock.now_s))
        self.playing = Playing(config, self.clock, self._ended)
        self._idle = deque(self.playing.names)
        self._members: dict[int, list[Played]] = {}
        """By group."""
        self._sync = SyncPlan(
            all_at_once=config.rollout.sync == "all_at_once", share=config.rollout.sync_share, version=0
        )
        for name in self.playing.engines:
            self._sync.up(name, 0)
        self._updating = Share(self.clock)
        self._is_training = False
        self.marks = [self._mark()]
        self._roll()
        self._go_on()

    def run(self, updates: int) -> None:
        """Until so many updates are committed."""
        self.clock.run(lambda: self.version >= updates)

    # environments

    def _go_on(self) -> None:
        """Something changed: whoever is idle asks again; so does the trainer."""
        self._service.serving(self._sync.oldest_served)
        refused: list[str] = []
        while self._idle:
            environment = self._idle.popleft()
            self.calls += 1
            answer = at_once(self._service.work(environment))
            if isinstance(answer, RolloutLease):
                self._begin(environment, answer)
                continue
            refused.append(environment)
            if self.config.curation.scheduling != "task":
                break  # what is refused to one is refused to all
        self._idle.extendleft(reversed(refused))
        self._ask_for_batch()

    def _begin(self, environment: str, lease: RolloutLease) -> None:
        steps, succeeds = self._chance.episode(lease.task_id, lease.seed, lease.rollout_id, lease.step_cap)
        self.playing.begin(
            Played(lease=lease, environment=environment, num_steps=steps, reward=float(succeeds))
        )

    def _ended(self, episode: Played) -> None:
        lease = episode.lease
        assert lease is not None
        self._record.finish(lease, episode.reward, episode.num_steps, min(episode.versions))
        self._members.setdefault(lease.group_id, []).append(episode)
        self.stored, self.stored_steps = self.stored + 1, self.stored_steps + episode.num_steps
        self._idle.append(episode.environment)
        self.calls += 1
        at_once(self._service.look(lease.rollout_id))
        self._go_on()

    # engines

    def _roll(self) -> None:
        """Carry out what the sync wants now."""
        while actions := self._sync.next_actions(self.clock.now_s):
            for action in actions:
                engine = self.playing.engines[action.engine]
                if isinstance(action, LoadDecision):
                    self._load(engine, action)
                else:
                    engine.serve()

    def _load(self, engine: SimulatedEngine, action: LoadDecision) -> None:
        if action.hold:
            engine.is_held = True

        def loaded() -> None:
            self.playing.routing.put(engine)
            self._sync.loaded(engine.name, action.version)
            self._roll()
            self._go_on()

        engine.load(action.version, loaded, lambda: self.playing.routing.remove(engine))

    # trainer

    def _ask_for_batch(self) -> None:
        if self._is_training:
            return
        batch = at_once(self._service.batch())
        if isinstance(batch, NoWorkYet):
            return
        self._is_training = True
        self._updating.set(1.0)
        episodes = [episode for group_id in batch.group_ids for episode in self._members.pop(group_id)]
        self.clock.after(self._update_s(episodes), lambda: self._commit(batch, episodes))

    def _update_s(self, episodes: Sequence[Played]) -> float:
        simulated = self.config.simulation
        return simulated.update_base_s + simulated.update_each_s * sum(one.num_steps for one in episodes)

    def _commit(self, batch: Batch, episodes: list[Played]) -> None:
        self._is_training = False
        self._updating.set(0.0)
        self.version += 1
        self._record.commit_update(batch, self.version)
        at_once(self._service.committed(self.version))
        self.trained.append(episodes)
        self.marks.append(self._mark())
        self._sync.published(self.version)
        self._roll()
        self._go_on()

    def _mark(self) -> Mark:
        return Mark(
            at_s=self.clock.now_s,
            in_episode_s=self.playing.in_episode.total(),
            busy_s=self.playing.busy_s(),
            weighted_s=self.playing.weighted_s(),
            update_s=self._updating.total(),
            answers=self.playing.answers,
            stored=self.stored,
            stored_steps=self.stored_steps,
        )


# ---- what comes out ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Figures of a simulated run between the commits of two updates; words as in benchmarks.utilisation."""

    seconds: float
    """Simulated."""
    wall_s: float
    """That simulating the whole run took."""
    service_calls: int
    updates: int
    env_util: float
    rollout_util: float
    rollout_weighted: float
    trainer_util: float
    actions_per_min: float
    raw_actions_per_min: float
    tokens_per_s: float
    goodput: float
    staleness_p50: float | None
    staleness_p95: float | None
    staleness_max: float | None
    trained_length: float
    sampled_length: float


def predict(config: Config, updates: int, warm_up: int = 4) -> Prediction:
    """Simulate a run of so many updates; the first ones are cut off."""
    began_s = time.perf_counter()
    simulated = SimulatedRun(config)
    simulated.run(updates)
    first, last = simulated.marks[warm_up], simulated.marks[-1]
    seconds = last.at_s - first.at_s
    trained = [episode for episodes in simulated.trained[warm_up:] for episode in episodes]
    staleness = sorted(
        number - version
        for number, episodes in enumerate(simulated.trained[warm_up:], start=warm_up)
        for episode in episodes
        for version in episode.versions
    )
    actions, answers = sum(one.num_steps for one in trained), last.answers - first.answers
    per_min = 60.0 * actions / seconds
    env_s, engine_s = config.environments.count * seconds, config.rollout.count * seconds
    return Prediction(
        seconds=seconds,
        wall_s=time.perf_counter() - began_s,
        service_calls=simulated.calls,
        updates=len(simulated.trained) - warm_up,
        env_util=(last.in_episode_s - first.in_episode_s) / env_s,
        rollout_util=(last.busy_s - first.busy_s) / engine_s,
        rollout_weighted=(last.weighted_s - first.weighted_s) / engine_s,
        trainer_util=(last.update_s - first.update_s) / seconds,
        actions_per_min=per_min,
        raw_actions_per_min=60.0 * answers / seconds,
        tokens_per_s=per_min / 60.0 * mean_tokens(config),
        goodput=actions / answers,
        staleness_p50=quantile(staleness, 0.5),
        staleness_p95=quantile(staleness, 0.95),
        staleness_max=quantile(staleness, 1.0),
        trained_length=actions / len(trained),
        sampled_length=(last.stored_steps - first.stored_steps) / (last.stored - first.stored),
    )


def mean_tokens(config: Config) -> float:
    """Of a simulated answer."""
    return config.simulation.tokens_median * math.exp(TOKENS_SIGMA**2 / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What no scheduling can exceed."""

    actions_per_min: float
    env_util: float
    rollout_util: float
    rollout_weighted: float
    tokens_per_s: float
    environments_and_engines_per_min: float
    trainer_per_min: float
    words: str


def ideal(config: Config, episodes_each: int = 200) -> Bound:
    """Every environment always in an episode, every engine always answering, the trainer always with a batch.

    No scheduling, no weight updates, no messages: the slower of (environments with engines) and trainer.
    """
    clock, chance = EventClock(), Chance(config)
    begun = 0

    def again(environment: str) -> None:
        nonlocal begun
        begun += 1
        steps, _ = chance.episode(config.tasks.train[0], 0, begun, config.curation.step_cap)
        playing.begin(Played(environment=environment, num_steps=steps))

    playing = Playing(config, clock, lambda episode: again(episode.environment))
    for name in playing.names:
        again(name)
    episodes = episodes_each * len(playing.names)
    clock.run(lambda: begun >= episodes)
    steps = playing.answers / episodes
    samples = config.training.groups_per_update * config.curation.rollouts_per_group * steps
    simulated = config.simulation
    by_trainer = 60.0 * samples / (simulated.update_base_s + samples * simulated.update_each_s)
    by_engines = 60.0 * playing.answers / clock.now_s
    share = min(1.0, by_trainer / by_engines)
    slower = "the trainer" if share < 1 else "environments and engines"
    return Bound(
        actions_per_min=min(by_engines, by_trainer),
        env_util=1.0,
        rollout_util=playing.busy_s() / clock.now_s / config.rollout.count,
        rollout_weighted=playing.weighted_s() / clock.now_s / config.rollout.count,
        tokens_per_s=min(by_engines, by_trainer) / 60.0 * mean_tokens(config),
        environments_and_engines_per_min=by_engines,
        trainer_per_min=by_trainer,
        words=(
            f"every environment always in an episode, no scheduling, no weight updates, no messages: "
            f"{by_engines:,.0f} actions/min; the trainer never waiting: {by_trainer:,.0f}; {slower} set it"
        ),
    )
