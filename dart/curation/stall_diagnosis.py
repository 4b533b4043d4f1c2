"""Diagnosis of a stall: who waits, for how long, and which part of the run is the cause.

environments ─> engines ─> curator ─> store ─> trainer ─> weight_sync

An actor that waits for another actor reports nothing, and an actor that hangs looks like a busy one. So when
an actor waits too long, the parts that it depends on are judged from outside: by what they do, and since
when. The parts are checked in the order of `CAUSES`, because some parts stop others; the first one with a
problem is the cause. A cause is always named: if no part has a problem, there are too few environments or the
curator gives out no work. The functions here have no side effects.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import overload

from dart.telemetry.liveness import ACTOR_SILENT_S

INTERVAL_MAX_S = 3600.0
"""Longest time between two notices of the same stall."""

UPDATES_PER_DEADLINE = 5
"""The deadline of an update is taken for so many times what a usual update takes."""


class Part(StrEnum):
    """The parts of a run, in the order in which data passes from a screen to a new policy."""

    ENVIRONMENTS = "environments"
    ENGINES = "engines"
    CURATOR = "curator"
    STORE = "store"
    TRAINER = "trainer"
    WEIGHT_SYNC = "weight_sync"


class Starving(StrEnum):
    """Who waits in a stall, the most important first."""

    TRAINER = "trainer"
    """The trainer waits for a batch."""
    EPISODES = "episodes"
    """Episodes wait for an answer of the policy, and no engine gives one."""
    ENVIRONMENTS = "environments"
    """Environments wait for work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One actor as the board shows it."""

    name: str
    state: str = "running"
    ready: bool = True
    reason: str = ""
    """Why the last process of the actor ended; empty if none has ended."""
    doing: str = ""
    """The work or the message that the actor is busy with; empty when it is idle."""
    doing_s: float = 0.0
    silent_s: float = 0.0
    """Time since the actor's last beat."""
    silent_after_s: float = ACTOR_SILENT_S
    """Age of the last beat above which the actor counts as silent; lower for engines, which beat more
    often."""
    unwell_s: float = 0.0
    """For an engine: time for which it has been down, not ready or silent."""
    behind_s: float = 0.0
    """For an engine: time for which it has served an older version than the newest one of the trainer."""
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
    """The episode in words, such as `rollout 41 of group 7 (miniwob/click-tab)`."""
    for_s: float


class Episodes(Sequence[Playing]):
    """The episodes that are being played. Their number is known at once; their descriptions are computed only
    when an item is read.

    describe   function that returns the descriptions of all episodes
    """

    def __init__(self, count: int, describe: Callable[[], Sequence[Playing]]) -> None:
        self._count = count
        self._describe = describe

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Playing: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Playing]: ...

    def __getitem__(self, index: int | slice) -> Playing | Sequence[Playing]:
        return self._describe()[index]

    def __iter__(self) -> Iterator[Playing]:
        return iter(self._describe())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What is known about a run at one moment.

    The fields up to `paused` come from the curator; the others come from the configuration, the board and the
    record.
    """

    trainer_waits_because: str = ""
    """Why the trainer was given no batch; empty when it was given a batch or needs none."""
    environments_wait_because: Mapping[str, str] = field(default_factory=dict)
    """Why each idle environment was given no work, by the name of the environment."""
    playing: Sequence[Playing] = ()
    quarantined_tasks: Mapping[str, str] = field(default_factory=dict)
    """The tasks in quarantine, each with the reason."""
    paused: str = ""
    """Why the store takes no writes; empty while it takes writes."""
    starved_after_s: float = math.inf
    update_deadline_s: float = 0.0
    trainer_waits_s: float = 0.0
    """Time for which the trainer has waited for a batch; 0 if it is not waiting."""
    waiting: Mapping[str, float] = field(default_factory=dict)
    """Time for which each idle environment has waited for work, by name."""
    tasks: int = 0
    groups_per_update: int = 1
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Number of groups that were dropped since the trainer began to wait, by reason."""
    store: Component = Component(name="store")
    trainer: Component = Component(name="trainer")
    weight_sync: Component = Component(name="weight_sync")
    engines: tuple[Component, ...] = ()
    environments: tuple[Component, ...] = ()

    @property
    def long_s(self) -> float:
        """Time at one piece of work after which an actor counts as the cause of a stall."""
        return self.starved_after_s / 2

    @property
    def idle_after_s(self) -> float:
        """Time without work after which the wait of an environment is a stall.

        While an update is computed, the staleness bound may allow no new group. So the wait may take as long
        as a usual update, unless another part is at fault or the trainer is down.
        """
        at_fault = any(why(self) for why in (_store, _engines, _all_in_quarantine, _weight_sync))
        if at_fault or not self.trainer.is_up:
            return self.starved_after_s
        return max(self.starved_after_s, self.update_deadline_s / UPDATES_PER_DEADLINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The description of one stall: who waits and why."""

    starving: Starving
    cause: Part
    text: str
    """The message about the stall for people: who waits, for how long, why, and the cause."""


def diagnose(facts: RunFacts) -> Diagnosis | None:
    """Return who has waited too long, and the cause; None if there is no stall.

    Too long is `starved_after_s`, or `idle_after_s` for environments without work. If several wait, only the
    first one in the order of `Starving` is reported.
    """
    for who, waited_s, what, reason in _waits(facts):
        if waited_s >= _too_long_s(facts, who):
            cause, why = _cause(facts)
            said = dict.fromkeys((what, reason, _environments_do(facts), why))
            text = "; ".join(one for one in said if one)
            return Diagnosis(starving=who, cause=cause, text=f"{text} (cause: {cause.value})")
    return None


# ---- who waits ----


def is_stalled(facts: RunFacts) -> bool:
    """Whether an actor has waited too long, so that `diagnose` finds a stall."""
    return any(waited_s >= _too_long_s(facts, who) for who, waited_s, _, _ in _waits(facts))


def _too_long_s(facts: RunFacts, who: Starving) -> float:
    return facts.idle_after_s if who is Starving.ENVIRONMENTS else facts.starved_after_s


def _waits(facts: RunFacts) -> Iterator[tuple[Starving, float, str, str]]:
    """Yield, for each possible waiter: who it is, the waiting time in seconds (0: it does not wait), a
    sentence about the wait, and the reason that the curator gave for it (may be empty)."""
    batch_s, answer_s = facts.trainer_waits_s, _unanswered_s(facts)
    what = f"the trainer has waited {batch_s:.0f} s for a batch"
    yield Starving.TRAINER, batch_s, what, facts.trainer_waits_because
    yield Starving.EPISODES, answer_s, f"no engine has answered for {answer_s:.0f} s", ""
    if facts.waiting:
        name, work_s = max(facts.waiting.items(), key=lambda one: one[1])
        reason = facts.environments_wait_because.get(name, "")
        yield Starving.ENVIRONMENTS, work_s, f"{name} has waited {work_s:.0f} s for work", reason


def _unanswered_s(facts: RunFacts) -> float:
    """Return the time in seconds for which no engine could answer; 0 if an engine can, or if no episode is
    played."""
    if not facts.playing or not facts.engines:
        return 0.0
    return min(max(engine.unwell_s, engine.doing_s) for engine in facts.engines)


def _environments_do(facts: RunFacts) -> str:
    """Say what the environments do: `6 of 8 environments play, 1 waits for work, 1 is down`."""
    verb = "play" if any(_answers(facts, engine) for engine in facts.engines) else "wait for an answer"
    playing, waiting, down = len(facts.playing), len(facts.waiting), len(_down(facts.environments))
    said = [f"{playing} of {len(facts.environments)} environments {_verb(playing, verb)}"]
    if waiting:
        said.append(f"{waiting} {_verb(waiting, 'wait for work')}")
    if down:
        said.append(f"{down} {'is' if down == 1 else 'are'} down")
    return ", ".join(said)


def _verb(count: int, words: str) -> str:
    verb, *rest = words.split()
    return " ".join([verb + "s" if count == 1 else verb, *rest])


def _down(parts: Iterable[Component]) -> list[Component]:
    return [part for part in parts if not part.is_up]


def _answers(facts: RunFacts, engine: Component) -> bool:
    return engine.is_up and engine.ready and engine.doing_s < facts.long_s


# ---- why ----


def _cause(facts: RunFacts) -> tuple[Part, str]:
    """Return the part that is the cause of the stall, and what is wrong with it in words."""
    for part, why in CAUSES:
        if text := why(facts):
            return part, text
    if facts.playing:
        few = f"nothing is stuck: {len(facts.playing)} episodes at a time are too few"
        return Part.ENVIRONMENTS, few
    return Part.CURATOR, "no part is stuck and the curator gives out no work"


def _store(facts: RunFacts) -> str:
    if facts.paused:
        return f"the store takes no writes: {facts.paused}"
    return _stuck(facts, facts.store)


def _stuck(facts: RunFacts, part: Component) -> str:
    """Say what an actor does, if it is down or has been at one piece of work for `long_s`; else return an
    empty text."""
    return state_of(part) if not part.is_up or part.doing_s >= facts.long_s else ""


def _engines(facts: RunFacts) -> str:
    """Say what is wrong with the engines: none of them answers, or some have been at one piece of work so
    long that requests to them are lost. Empty if nothing is wrong."""
    stuck = [engine for engine in facts.engines if engine.doing_s >= facts.long_s]
    away = [engine for engine in facts.engines if not _answers(facts, engine)]
    if not stuck and len(away) < len(facts.engines):
        return ""
    return _listed([state_of(engine, facts.trainer.version) for engine in stuck or away])


def _all_in_quarantine(facts: RunFacts) -> str:
    if not facts.tasks or len(facts.quarantined_tasks) < facts.tasks:
        return ""
    reasons = [f"{task}: {reason}" for task, reason in sorted(facts.quarantined_tasks.items())]
    return f"all {facts.tasks} tasks are in quarantine: {_listed(reasons)}"


def _trainer(facts: RunFacts) -> str:
    """Say what is wrong with the trainer; empty if nothing is. While it is late, the staleness bound may
    allow no new group."""
    return _stuck(facts, facts.trainer)


def _weight_sync(facts: RunFacts) -> str:
    """Say which engine has served an old version for long; empty if none has. New groups begin with this
    version, so the staleness bound soon allows no more groups."""
    behind = [engine for engine in facts.engines if engine.is_up and engine.behind_s >= facts.long_s]
    if not behind:
        return ""
    slowest = max(behind, key=lambda engine: engine.behind_s)
    sync = "" if facts.weight_sync.is_up else f", {state_of(facts.weight_sync)}"
    return (
        f"{slowest.name} has served version {slowest.version} for {slowest.behind_s:.0f} s "
        f"since the trainer made version {facts.trainer.version}{sync}"
    )


def _environments(facts: RunFacts) -> str:
    """Say which environments are down, if these are half of them or more; else return an empty text."""
    down, every = _down(facts.environments), len(facts.environments)
    if not down or 2 * len(down) < every:
        return ""
    return f"{len(down)} of {every} environments are down: {_listed([state_of(part) for part in down])}"


def _dropped(facts: RunFacts) -> str:
    """Say why groups were dropped, if these would have been enough for a batch; else return an empty text."""
    count = sum(facts.dropped.values())
    if count < facts.groups_per_update:
        return ""
    reasons = ", ".join(f"{number} {reason}" for reason, number in sorted(facts.dropped.items()))
    return f"since the last batch {count} finished groups were dropped: {reasons}"


def _slow_episode(facts: RunFacts) -> str:
    slowest = max(facts.playing, key=lambda playing: playing.for_s, default=None)
    if slowest is None or slowest.for_s < facts.long_s:
        return ""
    return f"{slowest.environment} has been at {slowest.what} for {slowest.for_s:.0f} s"


CAUSES: tuple[tuple[Part, Callable[[RunFacts], str]], ...] = (
    (Part.STORE, _store),
    (Part.ENGINES, _engines),
    (Part.CURATOR, _all_in_quarantine),
    (Part.TRAINER, _trainer),
    (Part.WEIGHT_SYNC, _weight_sync),
    (Part.ENVIRONMENTS, _environments),
    (Part.CURATOR, _dropped),
    (Part.ENVIRONMENTS, _slow_episode),
)
"""The possible causes of a stall, in the order in which they are checked: a part, and a function that says
what is wrong with it or returns an empty text. The first text that is not empty is the cause."""


WORK_TEXTS: Mapping[str, str] = {
    "load": "loading version {version}",
    "generate": "generating an answer",
    "probe": "proving that it answers",
    "update": "at an update",
    "checkpoint": "writing a checkpoint",
}


STATE_TEXTS: Mapping[str, str] = {
    "starting": "is starting",
    "backoff": "waits to be started again",
    "quarantined": "is in quarantine",
    "stopping": "is stopping",
    "stopped": "has stopped",
    "failed": "has failed",
    "free": "is not there",
}


def state_of(part: Component, version: int = 0) -> str:
    """Say what one actor does: `rollout-0 has been loading version 12 for 58 s`.

    version   for an engine: the version that it has to serve
    """
    if part.is_silent and part.state == "running":
        return f"{part.name} has given no sign of life for {part.silent_s:.0f} s"
    if not part.is_up:
        state = STATE_TEXTS.get(part.state, part.state)
        return f"{part.name} {state}" + (f" ({part.reason})" if part.reason else "")
    if part.doing:
        doing = WORK_TEXTS.get(part.doing, f"at {part.doing!r}").format(version=version)
        return f"{part.name} has been {doing} for {part.doing_s:.0f} s"
    return f"{part.name} is {'idle' if part.ready else 'not ready'}"


NAMED_MAX = 3


def _listed(texts: list[str]) -> str:
    """Return the first `NAMED_MAX` texts as a list in words, and how many more there are."""
    more = len(texts) - NAMED_MAX
    return ", ".join(texts[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


# ---- how long, and how often it is reported ----


class Since:
    """Measures for how long conditions have held, if they are checked at intervals."""

    def __init__(self) -> None:
        self._began_s: dict[str, float] = {}

    def seconds(self, holding: Iterable[str], now_s: float) -> dict[str, float]:
        """Return the time for which each condition has held without a break.

        holding   names of the conditions that hold now; every other condition is forgotten
        """
        names = set(holding)
        self._began_s = {name: self._began_s.get(name, now_s) for name in names}
        return {name: now_s - began_s for name, began_s in self._began_s.items()}


class Stage(StrEnum):
    """Whether a notice reports that a stall began, still lasts or has ended."""

    BEGAN = "began"
    LASTS = "lasts"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One notice of the stall monitor: a stall began, still lasts or has ended, and what its cause is."""

    stage: Stage
    diagnosis: Diagnosis
    """The present diagnosis of the stall, or the last one if the stall has ended."""
    lasted_s: float
    """Time in seconds since the first notice of the stall."""


class Notices:
    """Decides when a notice of a stall is due: when the stall begins, when it ends, and between at intervals
    that double up to an hour.

    A new cause is reported before the interval is over, but not within `first_s` of the last notice.
    """

    def __init__(self, first_s: float, before: Diagnosis | None = None, now_s: float = 0.0) -> None:
        """first_s   the first interval, in seconds
        before    the last diagnosis that an earlier curator reported, if the stall was not reported to end
        now_s     the present time of the clock that `next` is called with
        """
        self._first_s = first_s
        self._last = before
        self._began_s = self._noticed_s = now_s
        self._interval_s = first_s

    def next(self, diagnosis: Diagnosis | None, now_s: float) -> Notice | None:
        """Return the notice that is due now; None if none is due.

        diagnosis   the result of `diagnose`; None: there is no stall
        """
        last = self._last
        if diagnosis is None:
            self._last = None
            ended_s = now_s - self._began_s
            return Notice(stage=Stage.ENDED, diagnosis=last, lasted_s=ended_s) if last else None
        if last is None:
            stage, self._began_s, self._interval_s = Stage.BEGAN, now_s, self._first_s
        else:
            is_news = (last.starving, last.cause) != (diagnosis.starving, diagnosis.cause)
            if now_s - self._noticed_s < (self._first_s if is_news else self._interval_s):
                return None
            stage, self._interval_s = Stage.LASTS, min(2 * self._interval_s, INTERVAL_MAX_S)
        self._last, self._noticed_s = diagnosis, now_s
        return Notice(stage=stage, diagnosis=diagnosis, lasted_s=now_s - self._began_s)
