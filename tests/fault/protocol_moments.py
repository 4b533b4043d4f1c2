"""The states of the protocols between actors, as moments of kills (`tests.fault.kill_moments`).

ENVIRONMENT_PLACES    a rollout: from the request for work until the curator is told, with faults and parking
EVALUATION_PLACES     an evaluation episode, whose result the curator records
GUIDED_PLACES         a guided episode
PLAY_PLACES           the curator's side of all three, as far as `tests.fault.curated` has not got it
STORE_PLACES          every call of the record: taken and not committed, committed and not answered
WEIGHT_SYNC_PLACES    a version: announced, ordered, loaded, required; and a probe
LOAD_PLACES           a version on the side of an engine

The trainer's protocol is in `tests.fault.kill_moments`, the curator's in `tests.fault.curated`.
"""

import signal
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from actors.future import Future
from dart.core import messages as m
from dart.core.types import GenerateRequest, Generation, RolloutLease
from dart.curation.actor import CuratorActor
from dart.environments.actor import EnvironmentActor, Work
from dart.environments.episode import ReplayFailed
from dart.inference.actor import RolloutActor
from dart.inference.weight_sync_actor import WeightSyncActor
from dart.store.actor import StoreActor
from dart.store.store import METHODS
from tests.fault.kill_moments import Place, Plan, arm

ACTOR, PLAYER = "dart.environments.actor:EnvironmentActor", "dart.environments.episode:Player"
ASK, TELL = "actors.actor:Actor.ask", "actors.actor:Actor.tell"
WRITE = "dart.store.client:RecordClient.write"
SYNC = "dart.inference.weight_sync_actor:WeightSyncActor"
SYNC_PLAN = "dart.inference.weight_sync_plan:SyncPlan"
ENGINE = "dart.inference.actor:RolloutActor"

Only = Callable[..., bool]
T = TypeVar("T")

ATTEMPTS = "attempts"
GUIDED = "guided"
RECEIVED, REPORTED, FORGOTTEN = "received", "reported", "forgotten"


class Setting(StrEnum):
    """What an environment is made to do while the plan waits for a moment with this setting."""

    NOTHING = ""
    BREAKS = "breaks"
    """Its screen dies in every step but the first."""
    STOPS = "stops"
    """It has to stop while its second step waits for an answer, so that it parks the episode."""
    REPLAYS = "replays"
    """It stops so once; the next incarnation replays the episode."""
    DIFFERS = "differs"
    """The same, and the replay shows another screen."""


def always(*_: Any, **__: Any) -> bool:
    return True


def sends(content: type) -> Only:
    """A call of `ask` or `tell` counts if it sends such a message."""
    return lambda _, __, sent, *___, **____: isinstance(sent, content)


def writes(call: type) -> Only:
    """A call counts if its first argument is such a call of the record."""
    return lambda _, made, *__, **___: isinstance(made, call)


def plays(work: type, and_: Only = always) -> Only:
    """A call counts while the environment plays such work; the function belongs to the actor or its parts."""

    def only(owner: Any, *args: Any, **kwargs: Any) -> bool:
        actor = getattr(owner, "_actor", owner)
        return isinstance(getattr(actor, "work", None), work) and and_(owner, *args, **kwargs)

    return only


def _stops(actor: Any, *_: Any, **__: Any) -> bool:
    return bool(actor._stopping.is_set)


def _goes_on(actor: Any, *_: Any, **__: Any) -> bool:
    return not actor._stopping.is_set


def _has_parked(_: Any, work: Any, *__: Any) -> bool:
    return bool(work.parked_steps)


def _has_replayed(_: Any, task: Any, *__: Any) -> bool:
    return bool(task.parked)


def _has_result(*args: Any) -> bool:
    return args[-1] is not None and not isinstance(args[-1], m.NoWorkYet)


def played(what: str, work: type, put: bool = True) -> dict[str, Place]:
    """The states of an episode that every kind of work has, until its end is reported.

    put   whether its steps are stored
    """
    stored = {f"{what}: its steps are stored": Place(f"{ACTOR}._put", "after", plays(work, _goes_on))}
    return {
        f"{what}: it is received": Place(f"{ACTOR}._take", "before", plays(work)),
        f"{what}: the environment is reset": Place(f"{PLAYER}._reset", "after", plays(work)),
        f"{what}: an answer is asked for": Place(ASK, "after", plays(work, sends(m.Generate))),
        f"{what}: an answer is received": Place(f"{PLAYER}._ask", "after", plays(work)),
        f"{what}: an action is done": Place(f"{PLAYER}._act", "after", plays(work)),
        f"{what}: the next screen is observed": Place(f"{PLAYER}._observe", "after", plays(work)),
        f"{what}: the episode has ended": Place(f"{PLAYER}._reward", "before", plays(work)),
        f"{what}: it is judged": Place(f"{PLAYER}.play", "after", plays(work)),
    } | (stored if put else {})


ASKED = "an environment has asked for work"
ENVIRONMENT_PLACES = {
    ASKED: Place(ASK, "after", sends(m.WorkRequest)),
    **played("a rollout", RolloutLease),
    "a rollout: its end is sent": Place(ASK, "after", sends(m.FinishRollout)),
    "a rollout: it is finished": Place(f"{ACTOR}._write", "after", writes(m.FinishRollout)),
    "a rollout: the curator is told": Place(TELL, "after", sends(m.RolloutStored)),
    "a fault: nothing is reset": Place(f"{PLAYER}._resume", "before", plays(RolloutLease)),
    "a fault: the turn is resumed": Place(f"{PLAYER}._resume", "after", plays(RolloutLease)),
    "a fault: it is not reported": Place(f"{ACTOR}._report", "before", plays(RolloutLease, _goes_on)),
    "a fault: it is reported": Place(TELL, "after", sends(m.RolloutFailed)),
    "parking: the episode is interrupted": Place(f"{ACTOR}._park", "before", plays(RolloutLease)),
    "parking: its steps are stored": Place(f"{ACTOR}._put", "after", plays(RolloutLease, _stops)),
    "parking: it is sent": Place(ASK, "after", sends(m.ParkRollout)),
    "parking: it is in the record": Place(f"{ACTOR}._write", "after", writes(m.ParkRollout)),
    "parking: the curator is told": Place(TELL, "after", sends(m.RolloutParked)),
    "a replay: its steps are not read": Place(
        f"{ACTOR}._parked_steps", "before", plays(RolloutLease, _has_parked)
    ),
    "a replay: a step is replayed": Place(f"{PLAYER}._replay", "after", plays(RolloutLease)),
    "a replay: every step is replayed": Place(
        f"{PLAYER}._begin", "after", plays(RolloutLease, _has_replayed)
    ),
    "a replay: it differs": Place(f"{ACTOR}._forget_parked", "before"),
    "a replay: its steps are forgotten": Place(f"{ACTOR}._forget_parked", "after"),
}
"""The states of a rollout on the side of its environment."""

EVALUATION_PLACES = {
    **played("an evaluation", m.EvaluationTask, put=False),
    "an evaluation: it is interrupted": Place(f"{ACTOR}._report", "before", plays(m.EvaluationTask, _stops)),
    "an evaluation: its interruption is reported": Place(TELL, "after", sends(m.EvaluationFailed)),
    "an evaluation: its result is sent": Place(ASK, "after", sends(m.EvaluationEnded)),
    "an evaluation: its result is recorded": Place(f"{ACTOR}._write", "after", writes(m.EvaluationEnded)),
}

GUIDED_PLACES = {
    **played("a guided episode", m.GuidedTask),
    "a guided episode: its end is sent": Place(ASK, "after", sends(m.RecordGuided)),
    "a guided episode: it is recorded": Place(f"{ACTOR}._write", "after", writes(m.RecordGuided)),
    "a guided episode: the curator is told": Place(TELL, "after", sends(m.GuidedStored)),
}

CURATOR, SERVICE = "dart.curation.actor:CuratorActor", "dart.curation.service:CurationService"
EVALUATIONS = "dart.curation.evaluation:EvaluationSchedule"
EVALUATION_PLAY_PLACES = {
    "curator: an evaluation is leased and not sent": Place(
        f"{CURATOR}._evaluation_for", "after", _has_result
    ),
    "curator: a result has come and is not recorded": Place(f"{EVALUATIONS}.recording", "before"),
    "curator: a result is recorded and not noted": Place(f"{EVALUATIONS}.recorded", "before"),
}
GUIDED_PLAY_PLACES = {
    "curator: a guided episode is leased and not sent": Place(f"{CURATOR}._guided_for", "after", _has_result),
    "curator: a guided episode is reported": Place(f"{SERVICE}.pool_changed", "before"),
}
ROLLOUT_PLAY_PLACES = {
    "curator: a fault is reported": Place(f"{SERVICE}.failed", "before"),
    "curator: a lease is revoked and not noted": Place(WRITE, "after", writes(m.ReleaseRollout)),
    "curator: a rollout is leased again and not noted": Place(WRITE, "after", writes(m.ReassignRollout)),
}
PLAY_PLACES = EVALUATION_PLAY_PLACES | GUIDED_PLAY_PLACES | ROLLOUT_PLAY_PLACES


def taken(call: type) -> str:
    return f"store: {call.__name__} is taken"


def committed(call: type) -> str:
    return f"store: {call.__name__} is committed"


STORE_WRITE = "dart.store.store:Store.write"
STORE_PLACES = {taken(call): Place(STORE_WRITE, "before", writes(call)) for call in METHODS} | {
    committed(call): Place(STORE_WRITE, "after", writes(call)) for call in METHODS
}


def _is_newer(sync: Any, version: int) -> bool:
    return bool(0 <= sync._newest < version)


def _is_last(sync: Any, load: Any) -> bool:
    """Another engine has the version already."""
    return any(one.version == load.version for one in sync._sync._engines.values())


def _is_required(sync: Any, *_: Any) -> bool:
    return bool(sync._sync.required == sync._newest > 0)


WEIGHT_SYNC_PLACES = {
    "sync: a version is announced": Place(f"{SYNC}._set_target", "before", _is_newer),
    "sync: nothing is read": Place(f"{SYNC}.on_start", "before"),
    "sync: the record is read and no engine seen": Place(f"{SYNC}._check_board", "before"),
    "sync: a load is decided": Place(f"{SYNC}._load", "before"),
    "sync: a load is ordered": Place(ASK, "after", sends(m.LoadVersion)),
    "sync: a version is loaded and not noted": Place(f"{SYNC_PLAN}.loaded", "before"),
    "sync: a version is noted": Place(f"{SYNC_PLAN}.loaded", "after"),
    "sync: a version is required of all": Place(f"{SYNC}._check_board", "after", _is_required),
    "sync: an engine is doubted": Place(f"{SYNC}._probe", "before"),
    "sync: a probe is asked for": Place(ASK, "after", sends(m.Probe)),
    "sync: a probe is answered": Place(f"{SYNC}._probe", "after"),
}
"""The states of a version, and those of a doubt, on the side of weight_sync."""

ONE_AT_A_TIME_PLACES = {
    "sync: the last load is decided, the others have the version": Place(f"{SYNC}._load", "before", _is_last),
}
ALL_AT_ONCE_PLACES = {
    "sync: every engine has loaded and none is to serve": Place(TELL, "before", sends(m.Serve)),
    "sync: one engine is to serve, the others hold": Place(TELL, "after", sends(m.Serve)),
}


def _has_loaded(_: Any, __: Any, failure: str) -> bool:
    return not failure


LOAD_PLACES = {
    "engine: a load is ordered": Place(f"{ENGINE}._load", "before"),
    "engine: the version is read": Place(f"{ENGINE}._take_over", "before"),
    "engine: the version is taken over": Place(f"{ENGINE}._swap", "after"),
    "engine: the load is not answered": Place(f"{ENGINE}._load", "after", _has_loaded),
}
HOLD_PLACES = {
    "engine: it holds": Place(f"{ENGINE}._begin_hold", "after"),
    "engine: it is to serve": Place(f"{ENGINE}._end_hold", "before"),
}


class KilledStore(StoreActor):
    """The store; args `plan` is the folder of a `Plan`, as it is for every actor here."""

    def on_start(self) -> None:
        arm(Plan(Path(self.args["plan"])), STORE_PLACES)
        super().on_start()


class KilledCurator(CuratorActor):
    """The curator."""

    async def on_start(self) -> None:
        arm(Plan(Path(self.args["plan"])), PLAY_PLACES)
        await super().on_start()


class KilledWeightSync(WeightSyncActor):
    """weight_sync."""

    def on_start(self) -> None:
        places = WEIGHT_SYNC_PLACES | ONE_AT_A_TIME_PLACES | ALL_AT_ONCE_PLACES
        arm(Plan(Path(self.args["plan"])), places)
        super().on_start()


class KilledEngine(RolloutActor):
    """A rollout actor."""

    async def on_start(self) -> None:
        arm(Plan(Path(self.args["plan"])), LOAD_PLACES | HOLD_PLACES)
        await super().on_start()


class _NotingPlan(Plan):
    """A plan whose kills call `note` first, with the name of the moment."""

    def __init__(self, folder: Path, note: Callable[[str], None]) -> None:
        super().__init__(folder)
        self._note = note

    def _end(self, name: str) -> None:
        self._note(name)
        super()._end(name)


class KilledEnvironment(EnvironmentActor):
    """An environment, which also does what the setting of the next moment says.

    It writes down what happens to each attempt of a rollout, in the file `attempts` of the plan's folder:
    `RECEIVED`, `REPORTED` (its fault), `FORGOTTEN` (its steps), or the moment of the kill. The file `guided`
    has the guided episodes that it reported.
    """

    work: Work | None = None
    """What it plays now."""

    is_unanswered = False
    """Whether its episode cannot end by itself, so that it is parked at once."""

    def on_start(self) -> None:
        self._kills = _NotingPlan(Path(self.args["plan"]), self._note)
        arm(self._kills, ENVIRONMENT_PLACES | EVALUATION_PLACES | GUIDED_PLACES)
        super().on_start()
        policy = self._player._policy
        self._answered, self._replayed = policy.answer, self._player._replay
        policy.answer = self._answer  # type: ignore[method-assign]
        self._player._replay = self._replay  # type: ignore[assignment, method-assign]

    async def on_stop(self) -> None:
        if self.is_unanswered:
            self._player.stop_event.set()
        await super().on_stop()

    async def _take(self, work: Work) -> None:
        self.work = work
        self._note(RECEIVED)
        await super()._take(work)
        self.work = None

    def _answer(self, request: GenerateRequest) -> Future[Generation]:
        setting = self._setting()
        if request.history and setting is Setting.BREAKS:
            self.environment.send_signal(signal.SIGKILL)  # type: ignore[attr-defined]
        if request.history and self._is_to_stop(setting):
            self.stop()
            self.is_unanswered = True
            return Future()  # an engine that says nothing
        return self._answered(request)

    def _is_to_stop(self, setting: Setting) -> bool:
        is_parked = isinstance(self.work, RolloutLease) and self.work.parked_steps > 0
        replays = setting in (Setting.REPLAYS, Setting.DIFFERS)
        return setting is Setting.STOPS or (replays and not is_parked)

    async def _replay(self, *args: Any) -> None:
        if self._setting() is Setting.DIFFERS:
            raise ReplayFailed("the test shows another screen")
        await self._replayed(*args)

    def _setting(self) -> Setting:
        """What to do in the episode that is played now."""
        moment = self._kills.next()
        if moment is None:
            return Setting.NOTHING
        wanted = m.EvaluationTask if moment.name in EVALUATION_PLACES else RolloutLease
        return Setting(moment.setting) if isinstance(self.work, wanted) else Setting.NOTHING

    def _report(self, work: Work, *args: Any, **kwargs: Any) -> None:
        self._note(REPORTED)
        super()._report(work, *args, **kwargs)

    async def _forget_parked(self, lease: RolloutLease, detail: str) -> bool:
        self._note(FORGOTTEN)
        is_held = await super()._forget_parked(lease, detail)
        self.work = replace(lease, attempt=lease.attempt + 1)
        return is_held

    async def _write(self, call: m.Call[T], to: str = "store") -> T:
        if isinstance(call, m.RecordGuided):
            self._append(GUIDED, f"{call.guide_id} {call.attempt}")
        return await super()._write(call, to)

    def _note(self, what: str) -> None:
        if isinstance(self.work, RolloutLease):
            self._append(ATTEMPTS, f"{self.work.rollout_id} {self.work.attempt} {what}")

    def _append(self, name: str, line: str) -> None:
        with (self._kills.folder / name).open("a") as file:
            file.write(f"{line}\n")
