"""Named moments at which an actor kills itself by SIGKILL, once each, in the order of a plan.

The product knows nothing of them: the actors of this module wrap, in their own process and before they start,
the functions between which a moment lies. Nothing is wrapped where these actors do not run. A moment whose
function is gone fails with an AttributeError, and one that never comes leaves no file in `struck`.
"""

import functools
import importlib
import inspect
import json
import math
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dart.core import messages as m
from dart.inference.actor import RolloutActor
from dart.training.actor import TrainerActor

AHEAD_DEADLINE_S = 300.0
"""How long a checkpoint is held back so that the next update is computed before it is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One kill of a plan."""

    name: str
    after: int = 0
    """Not before so many updates are committed."""
    setting: str = ""
    """What an environment has to do until then (`tests.fault.protocol_moments.Setting`); empty: nothing."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a moment lies: before or after a function, which is named `module:Class.method`."""

    function: str
    side: str
    only: Callable[..., bool] = lambda *_, **__: True
    """Whether a call counts, by its arguments; after the function, its result is the last of them."""


def _is_ahead(_: Any, batch: Any) -> bool:
    return isinstance(batch, m.BatchAhead)


def _has_requests(serving: Any) -> bool:
    return bool(serving.waiting)


def _is_commit(call: Any, _: Any) -> bool:
    return isinstance(call, m.CommitUpdate)


def _is_told_of_commit(_: Any, __: str, content: Any) -> bool:
    return isinstance(content, m.UpdateCommitted)


TRAINER_PLACES = {
    "no checkpoint is read yet": Place("dart.training.learner_factory:learner_at", "before"),
    "the checkpoint is read": Place("dart.training.learner_factory:learner_at", "after"),
    "no batch is asked for yet": Place("dart.training.actor:TrainerActor._next_batch", "before"),
    "a batch is leased": Place("dart.training.actor:TrainerActor._next_batch", "after"),
    "the steps of the batch are read": Place("dart.training.actor:TrainerActor._groups_of", "after"),
    "the screenshots are decoded": Place("dart.training.learner:Learner._screens", "after"),
    "the old log-probs are computed": Place("dart.training.learner:Learner._old_logprobs", "after"),
    "in the middle of a forward pass": Place("forward", "inside"),
    "in the middle of a backward pass": Place("backward", "inside"),
    "gradients of one pass are added": Place("dart.training.learner:Learner._backward", "after"),
    "before an optimizer step": Place("dart.training.learner:Learner._set_learning_rate", "after"),
    "between two optimizer steps": Place("dart.training.learner:Learner._step", "after"),
    "after the last optimizer step": Place("dart.training.learner:Learner._optimize", "after"),
    "the update is made and not copied": Place("dart.training.learner:Learner.update", "after"),
    "the version is copied and not written": Place("dart.training.learner:Learner.copy", "after"),
    "the optimizer is written, the weights are not": Place(
        "dart.policy.small_policy:SmallPolicy.save", "before"
    ),
    "the weights are written, their hashes are not": Place("dart.store.checkpoints:_write_state", "before"),
    "the checkpoint is written and not on the disk": Place("dart.store.checkpoints:_sync_tree", "before"),
    "the checkpoint is on the disk and has no name": Place("dart.store.checkpoints:_sync_tree", "after"),
    "the checkpoint has its name": Place("dart.store.checkpoints:_publish", "after"),
    "before the commit": Place("dart.training.actor:TrainerActor._commit", "before"),
    "committed and not acknowledged": Place("dart.store.client:result_of", "before", _is_commit),
    "acknowledged and not announced": Place("dart.training.actor:TrainerActor._commit", "after"),
    "in the middle of publishing": Place("actors.actor:Actor.tell", "before", _is_told_of_commit),
    "published, nothing pruned": Place("dart.training.actor:TrainerActor._prune", "before"),
    "in the middle of pruning": Place("dart.store.checkpoints:kept_versions", "after"),
    "trained ahead, the version before half written": Place(
        "dart.training.actor:TrainerActor._leased", "before", _is_ahead
    ),
}
"""The moments of a trainer, in the order of one update. Asynchronous functions end when they are awaited."""

ENGINE_PLACES = {
    "a request has come": Place("dart.inference.serving:Serving.serve", "before", _has_requests),
    "the prompt is made": Place("dart.inference.prompts:Prompts.pending", "after"),
    "a token is drawn": Place("dart.policy.sampling:draw_tokens", "after"),
    "the answer is sampled": Place("dart.policy.small_policy:SmallPolicy.sample", "after"),
    "the answer is made and not sent": Place("dart.inference.serving:Serving._finish", "before"),
    "no policy is loaded": Place("dart.inference.actor:make_engine", "before"),
    "the policy is loaded and not proved": Place("dart.inference.actor:make_engine", "after"),
    "the policy is proved": Place("dart.inference.serving:Serving.start", "after"),
}
"""The moments of an engine, with those of its start last. A proof of the policy passes some of the others."""

AT_START = ("no checkpoint is read yet", "the checkpoint is read", "no batch is asked for yet")
"""Moments that a trainer passes only when it starts, or also then."""

AHEAD = "trained ahead, the version before half written"


class Plan:
    """The kills of a run that are left. Every process that is killed leaves a file in `struck`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._moments = [Moment(**one) for one in json.loads((folder / "plan.json").read_text())]

    @staticmethod
    def make(folder: Path, moments: Sequence[Moment]) -> None:
        (folder / "struck").mkdir(parents=True)
        (folder / "plan.json").write_text(json.dumps([asdict(moment) for moment in moments]))

    @staticmethod
    def struck(folder: Path) -> list[str]:
        """The names of the moments at which a process was killed, in order."""
        return [path.read_text() for path in sorted((folder / "struck").iterdir())]

    def next(self) -> Moment | None:
        done = self._done()
        return self._moments[done] if done < len(self._moments) else None

    def strike_if_next(self, name: str) -> None:
        """Kill this process if this moment is the one that the plan waits for."""
        done = self._done()
        if done < len(self._moments) and self._moments[done].name == name:
            self._strike(done, name)

    def strike(self, name: str) -> None:
        self._strike(self._done(), name)

    def _done(self) -> int:
        return len(list((self.folder / "struck").iterdir()))

    def _strike(self, number: int, name: str) -> None:
        """Kill this process, unless another one that came to the same moment is killed for it."""
        written = self.folder / f"striking-{os.getpid()}"
        written.write_text(name)
        try:
            os.link(written, self.folder / "struck" / f"{number:03d}")  # a reader never finds the file empty
        except FileExistsError:
            return
        self._end(name)

    def _end(self, name: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)
        threading.Event().wait()  # the signal ends every thread of the process


def arm(plan: Plan, places: Mapping[str, Place]) -> None:
    """Have this process strike at each of these places, when the plan waits for it."""
    for name, place in places.items():
        wrap(place, functools.partial(plan.strike_if_next, name))


def wrap(place: Place, strike: Callable[[], None]) -> None:
    """Have a function strike before it begins or after it has ended."""
    module, _, path = place.function.partition(":")
    owner: Any = importlib.import_module(module)
    *owners, name = path.split(".")
    for one in owners:
        owner = getattr(owner, one)
    function = getattr(owner, name)

    def before(*args: Any, **kwargs: Any) -> None:
        if place.side == "before" and place.only(*args, **kwargs):
            strike()

    def after(*args: Any, **kwargs: Any) -> None:
        if place.side == "after" and place.only(*args, **kwargs):
            strike()

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        before(*args, **kwargs)
        result = function(*args, **kwargs)
        after(*args, result, **kwargs)
        return result

    @functools.wraps(function)
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        before(*args, **kwargs)
        result = await function(*args, **kwargs)
        after(*args, result, **kwargs)
        return result

    setattr(owner, name, awaited if inspect.iscoroutinefunction(function) else wrapped)


class KilledTrainer(TrainerActor):
    """The trainer; args `plan` is the folder of a `Plan`."""

    async def on_start(self) -> None:
        self._plan_of_kills = Plan(Path(self.args["plan"]))
        moment = self._plan_of_kills.next()
        if moment is not None:
            self._arm(moment)
        await super().on_start()

    def _arm(self, moment: Moment) -> None:
        place = TRAINER_PLACES[moment.name]

        def strike() -> None:
            if getattr(self, "_committed", math.inf) >= moment.after:  # at the start it is not known yet
                self._plan_of_kills.strike(moment.name)

        if place.side == "inside":
            wrap(
                Place("dart.training.learner:Learner._optimize", "before", self._inside(place, strike)),
                lambda: None,
            )
            return
        if moment.name == AHEAD:
            wrap(Place("dart.store.checkpoints:_publish", "before"), lambda: self._hold(moment))
        wrap(place, strike)

    @staticmethod
    def _inside(place: Place, strike: Callable[[], None]) -> Callable[..., bool]:
        """Strike within a pass of the model with gradients: half its modules or weights are computed then."""

        def hook(learner: Any, *_: Any, **__: Any) -> bool:
            module = learner._policy.module
            if place.function == "forward":
                modules = list(module.modules())
                modules[len(modules) // 2].register_forward_hook(lambda *_: strike())
            else:
                weights = list(module.parameters())
                weights[len(weights) // 2].register_hook(lambda _: strike())
            return True

        return hook

    def _hold(self, moment: Moment) -> None:
        """Hold a checkpoint back until this process is killed, once the moment may come."""
        if self._committed >= moment.after:
            threading.Event().wait(AHEAD_DEADLINE_S)


class KilledEngine(RolloutActor):
    """The rollout actor; args `plan` is the folder of a `Plan`."""

    async def on_start(self) -> None:
        plan, is_first = Plan(Path(self.args["plan"])), self.identity.incarnation == 1
        moment = plan.next()
        if moment is not None and not is_first:  # a first start that fails ends the tree
            self._arm(plan, moment)
        await super().on_start()
        if moment is not None and is_first:
            self._arm(plan, moment)

    @staticmethod
    def _arm(plan: Plan, moment: Moment) -> None:
        wrap(ENGINE_PLACES[moment.name], functools.partial(plan.strike, moment.name))
