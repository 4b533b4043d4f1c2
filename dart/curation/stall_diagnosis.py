"""Who waits, for how long, and which link of the chain is to blame. Pure: facts in, words out.

environments ─> engines ─> curator ─> store ─> trainer ─> weight_sync

An actor that waits says nothing, and one that hangs looks like one that is busy. So when an actor waits too
long, the actors that it depends on are judged from outside: what they do, and since when. The first that
fails, in the order in which one stops the others, is the cause. A cause is always named: where every actor
works, it is that there are too few of them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from dart.telemetry.liveness import ACTOR_SILENT_S

INTERVAL_MAX_S = 3600.0
"""The longest time between two notices of one starvation."""


class Link(StrEnum):
    """The parts of the chain from a screen to a new policy."""

    ENVIRONMENTS = "environments"
    ENGINES = "engines"
    CURATOR = "curator"
    STORE = "store"
    TRAINER = "trainer"
    WEIGHT_SYNC = "weight_sync"


class Starving(StrEnum):
    """Who waits; the most important first."""

    TRAINER = "trainer"
    """For a batch."""
    EPISODES = "episodes"
    """For an answer of the policy: no engine gives any."""
    ENVIRONMENTS = "environments"
    """For work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One actor as the board shows it."""

    name: str
    state: str = "running"
    ready: bool = True
    reason: str = ""
    """Why it ended the last time."""
    doing: str = ""
    """The work or the message it is at; empty when it is at none."""
    doing_s: float = 0.0
    silent_s: float = 0.0
    """Since its last sign of life."""
    silent_after_s: float = ACTOR_SILENT_S
    """For how long it may give none; engines give more."""
    unwell_s: float = 0.0
    """For how long it has not been up, ready and alive."""
    behind_s: float = 0.0
    """For an engine: for how long it has served an older version than the trainer made."""
    version: int = 0

    @property
    def is_up(self) -> bool:
        return self.state == "running" and not self.is_silent

    @property
    def is_silent(self) -> bool:
        return self.silent_s > self.silent_after_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Playing:
    """One episode that is being played."""

    environment: str
    what: str
    """`rollout 41 of group 7 (miniwob/click-tab)`."""
    for_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What is known at one moment."""

    starved_after_s: float
    trainer_waits_s: float = 0.0
    """For how long the trainer has waited for a batch; 0 when it is not waiting."""
    trainer_waits_because: str = ""
    """The curator's reason."""
    waiting: Mapping[str, float] = field(default_factory=dict)
    """For how long each idle environment has waited for work."""
    environments_wait_because: str = ""
    """The curator's reason, for one of them."""
    playing: tuple[Playing, ...] = ()
    quarantined_tasks: Mapping[str, str] = field(default_factory=dict)
    """Tasks in quarantine, with the reason."""
    tasks: int = 0
    paused: str = ""
    """Why the store takes no writes; empty while it does."""
    groups_per_update: int = 1
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Groups dropped since the trainer's last batch, by reason."""
    store: Component
    trainer: Component
    weight_sync: Component
    engines: tuple[Component, ...]
    environments: tuple[Component, ...]

    @property
    def long_s(self) -> float:
        """Beyond this a single piece of work is what the others wait for."""
        return self.starved_after_s / 2


@dataclass(frozen=True, slots=True)
class Cause:
    """What the others wait for."""

    link: Link
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Who starves, since when and why."""

    starving: Starving
    waited_s: float
    link: Link
    text: str
    """The whole message."""


def diagnose(facts: RunFacts) -> Diagnosis | None:
    """The most important one who has waited for longer than `starved_after_s`; None when none has."""
    found = next(((who, waited_s) for who, waited_s in _waits(facts) if _is_long(facts, waited_s)), None)
    if found is None:
        return None
    who, waited_s = found
    cause = next(_causes(facts, who))
    parts = [_head(facts, who, waited_s), *_curators_reason(facts, who), _environments_do(facts), cause.text]
    text = "; ".join(dict.fromkeys(part for part in parts if part))
    return Diagnosis(
        starving=who, waited_s=waited_s, link=cause.link, text=f"{text} (link: {cause.link.value})"
    )


# ---- who waits ----


def _waits(facts: RunFacts) -> Iterator[tuple[Starving, float]]:
    yield Starving.TRAINER, facts.trainer_waits_s
    yield Starving.EPISODES, _unanswered_s(facts)
    yield Starving.ENVIRONMENTS, max(facts.waiting.values(), default=0.0)


def _is_long(facts: RunFacts, waited_s: float) -> bool:
    return waited_s >= facts.starved_after_s


def _unanswered_s(facts: RunFacts) -> float:
    """For how long every engine has been unable to answer the episodes that are being played."""
    if not facts.playing or not facts.engines:
        return 0.0
    return min(max(engine.unwell_s, engine.doing_s) for engine in facts.engines)


def _head(facts: RunFacts, who: Starving, waited_s: float) -> str:
    match who:
        case Starving.TRAINER:
            return f"the trainer has waited {waited_s:.0f} s for a batch"
        case Starving.EPISODES:
            return f"no engine has answered for {waited_s:.0f} s"
        case Starving.ENVIRONMENTS:
            name = max(facts.waiting, key=lambda name: facts.waiting[name])
            return f"{name} has waited {waited_s:.0f} s for work"


def _curators_reason(facts: RunFacts, who: Starving) -> tuple[str, ...]:
    match who:
        case Starving.TRAINER:
            return (facts.trainer_waits_because,)
        case Starving.ENVIRONMENTS:
            return (facts.environments_wait_because,)
        case Starving.EPISODES:
            return ()


def _environments_do(facts: RunFacts) -> str:
    """`6 of 8 environments play, 1 waits for work, 1 is down`."""
    answered = any(_answers(facts, engine) for engine in facts.engines)
    every, playing = len(facts.environments), len(facts.playing)
    down = len([part for part in facts.environments if not part.is_up])
    said = [
        f"{playing} of {every} environments {_verb(playing, 'play' if answered else 'wait for an answer')}"
    ]
    if facts.waiting:
        said.append(f"{len(facts.waiting)} {_verb(len(facts.waiting), 'wait for work')}")
    if down:
        said.append(f"{down} {'is' if down == 1 else 'are'} down")
    return ", ".join(said)


def _verb(count: int, words: str) -> str:
    verb, *rest = words.split()
    return " ".join([verb + "s" if count == 1 else verb, *rest])


# ---- why ----


def _causes(facts: RunFacts, who: Starving) -> Iterator[Cause]:
    """Every cause that holds, the one that stops the others first; never none."""
    yield from _store(facts)
    yield from _engines(facts)
    yield from _all_rest(facts)
    if who is Starving.ENVIRONMENTS:
        yield from _trainer(facts)
    yield from _weight_sync(facts)
    yield from _environments(facts)
    yield from _dropped(facts)
    yield from _slow_episode(facts)
    yield _too_few(facts)


def _store(facts: RunFacts) -> Iterator[Cause]:
    if facts.paused:
        yield Cause(Link.STORE, f"the store takes no writes: {facts.paused}")
    elif not facts.store.is_up or facts.store.doing_s >= facts.long_s:
        yield Cause(Link.STORE, state_of(facts.store))


def _engines(facts: RunFacts) -> Iterator[Cause]:
    """None answers, or one has been at a single piece of work for so long that its requests are lost."""
    stuck = [engine for engine in facts.engines if engine.doing_s >= facts.long_s]
    if not any(_answers(facts, engine) for engine in facts.engines) or stuck:
        away = stuck or [engine for engine in facts.engines if not _answers(facts, engine)]
        yield Cause(Link.ENGINES, _listed([state_of(engine, facts.trainer.version) for engine in away]))


def _answers(facts: RunFacts, engine: Component) -> bool:
    return engine.is_up and engine.ready and engine.doing_s < facts.long_s


def _all_rest(facts: RunFacts) -> Iterator[Cause]:
    if facts.tasks and len(facts.quarantined_tasks) >= facts.tasks:
        reasons = [f"{task}: {reason}" for task, reason in sorted(facts.quarantined_tasks.items())]
        yield Cause(Link.CURATOR, f"all {facts.tasks} tasks are in quarantine: {_listed(reasons)}")


def _trainer(facts: RunFacts) -> Iterator[Cause]:
    """Environments wait for the next update when everything that may be in flight is."""
    if not facts.trainer.is_up or facts.trainer.doing_s >= facts.long_s:
        yield Cause(Link.TRAINER, state_of(facts.trainer))


def _weight_sync(facts: RunFacts) -> Iterator[Cause]:
    """New groups may only be opened at the version the slowest engine serves."""
    behind = [engine for engine in facts.engines if engine.is_up and engine.behind_s >= facts.long_s]
    if not behind:
        return
    slowest = max(behind, key=lambda engine: engine.behind_s)
    what = (
        f"{slowest.name} has served version {slowest.version} for {slowest.behind_s:.0f} s "
        f"since the trainer made version {facts.trainer.version}"
    )
    who = "" if facts.weight_sync.is_up else f", {state_of(facts.weight_sync)}"
    yield Cause(Link.WEIGHT_SYNC, what + who)


def _environments(facts: RunFacts) -> Iterator[Cause]:
    """Half of them or more are down."""
    down = [part for part in facts.environments if not part.is_up]
    if down and 2 * len(down) >= len(facts.environments):
        states = _listed([state_of(part) for part in down])
        yield Cause(
            Link.ENVIRONMENTS, f"{len(down)} of {len(facts.environments)} environments are down: {states}"
        )


def _dropped(facts: RunFacts) -> Iterator[Cause]:
    """Groups are finished, enough for a batch, and teach nothing."""
    count = sum(facts.dropped.values())
    if count >= facts.groups_per_update:
        reasons = ", ".join(f"{number} {reason}" for reason, number in sorted(facts.dropped.items()))
        yield Cause(Link.CURATOR, f"since the last batch {count} finished groups were dropped: {reasons}")


def _slow_episode(facts: RunFacts) -> Iterator[Cause]:
    slowest = max(facts.playing, key=lambda playing: playing.for_s, default=None)
    if slowest is not None and slowest.for_s >= facts.long_s:
        yield Cause(
            Link.ENVIRONMENTS,
            f"{slowest.environment} has been at {slowest.what} for {slowest.for_s:.0f} s",
        )


def _too_few(facts: RunFacts) -> Cause:
    """Every part works. Something is played and the trainer is faster, or nothing may be."""
    if facts.playing:
        return Cause(
            Link.ENVIRONMENTS, f"nothing is stuck: {len(facts.playing)} episodes at a time are too few"
        )
    return Cause(Link.CURATOR, "no part is stuck and the curator gives out no work")


WORK_IN_WORDS: Mapping[str, str] = {
    "load": "loading version {version}",
    "generate": "generating an answer",
    "probe": "proving that it answers",
    "update": "at an update",
    "checkpoint": "writing a checkpoint",
}


STATE_IN_WORDS: Mapping[str, str] = {
    "starting": "is starting",
    "backoff": "waits to be started again",
    "quarantined": "is in quarantine",
    "stopping": "is stopping",
    "stopped": "has stopped",
    "failed": "has failed",
    "free": "is not there",
}


def state_of(part: Component, version: int = 0) -> str:
    """What one actor does, in words: `rollout-0 has been loading version 12 for 58 s`.

    version   what an engine is to serve
    """
    if part.is_silent and part.state == "running":
        return f"{part.name} has given no sign of life for {part.silent_s:.0f} s"
    if not part.is_up:
        state = STATE_IN_WORDS.get(part.state, part.state)
        return f"{part.name} {state}" + (f" ({part.reason})" if part.reason else "")
    if part.doing:
        doing = WORK_IN_WORDS.get(part.doing, f"at {part.doing!r}").format(version=version)
        return f"{part.name} has been {doing} for {part.doing_s:.0f} s"
    return f"{part.name} is {'idle' if part.ready else 'not ready'}"


NAMED_MAX = 3


def _listed(texts: list[str]) -> str:
    """A few of them, and how many more there are."""
    more = len(texts) - NAMED_MAX
    return ", ".join(texts[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


# ---- how long, and how often it is reported ----


class Since:
    """For how long conditions have held, as seen by checks at intervals."""

    def __init__(self) -> None:
        self._began_s: dict[str, float] = {}

    def seconds(self, holding: Iterable[str], now_s: float) -> dict[str, float]:
        """For how long each of these has held without a break."""
        names = set(holding)
        self._began_s = {name: self._began_s.get(name, now_s) for name in names}
        return {name: now_s - began_s for name, began_s in self._began_s.items()}


class Stage(StrEnum):
    """How far a starvation has come."""

    BEGAN = "began"
    LASTS = "lasts"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What is reported of a starvation at one moment."""

    stage: Stage
    diagnosis: Diagnosis
    """For one that ended: the last one."""
    lasted_s: float
    """Since the first notice."""


class Notices:
    """One notice when a starvation begins, more after intervals that double up to an hour, one when it ends.

    A new cause gets its notice before the interval is over, but not sooner than the first interval.
    """

    def __init__(self, first_s: float, before: Diagnosis | None = None, now_s: float = 0.0) -> None:
        """before   the last notice of an earlier curator that did not report the end"""
        self._first_s = first_s
        self._last = before
        self._began_s = self._noticed_s = now_s
        self._interval_s = first_s

    def next(self, diagnosis: Diagnosis | None, now_s: float) -> Notice | None:
        """The notice that is due after a check, or None."""
        last = self._last
        if diagnosis is None:
            self._last = None
            return None if last is None else self._notice(Stage.ENDED, last, now_s)
        if last is None:
            self._began_s, self._interval_s = now_s, self._first_s
            return self._report(Stage.BEGAN, diagnosis, now_s)
        is_news = (last.starving, last.link) != (diagnosis.starving, diagnosis.link)
        wait_s = self._first_s if is_news else self._interval_s
        if now_s - self._noticed_s < wait_s:
            return None
        self._interval_s = min(2 * self._interval_s, INTERVAL_MAX_S)
        return self._report(Stage.LASTS, diagnosis, now_s)

    def _report(self, stage: Stage, diagnosis: Diagnosis, now_s: float) -> Notice:
        self._last, self._noticed_s = diagnosis, now_s
        return self._notice(stage, diagnosis, now_s)

    def _notice(self, stage: Stage, diagnosis: Diagnosis, now_s: float) -> Notice:
        return Notice(stage=stage, diagnosis=diagnosis, lasted_s=now_s - self._began_s)
