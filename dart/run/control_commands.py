"""The commands of the control endpoint: which actors carry out each request.

If a request is not done when the operator's answer is due, the work continues after the answer. A supervisor
that hangs gets no request, because it would carry the request out when it works again, perhaps an hour later.
"""

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from actors.actor import Actor
from actors.board import ActorState, Vitals
from actors.errors import AskError, AskTimeout, MailboxFull
from actors.future import Future, Lock
from actors.timers import LONGEST_S
from dart.config.config import Config, contradictions
from dart.config.gpus import assign_gpus, gpus_here, shared_gpu_problems
from dart.config.sections import POOLS
from dart.core import messages as m
from dart.core.errors import ConfigurationError, RunDirectoryError
from dart.inspect.formatting import counted
from dart.inspect.utilisation import sizes_in
from dart.run import actor_conditions, reload
from dart.run.control_protocol import (
    ControlAnswer,
    ControlOutcome,
    Drain,
    Pause,
    Ping,
    ReleaseActor,
    Reload,
    Request,
    RestartActor,
    Resume,
    Scale,
    StopActor,
)
from dart.run.definition import SECTIONS, RunDefinition, size_of
from dart.run.tree import ENVIRONMENT_POOL, ROLLOUT_POOL
from dart.telemetry.board_gauges import Gauge
from dart.telemetry.emit import emit
from dart.telemetry.events import POOLS_SIZED
from supervision.errors import SupervisionError
from supervision.management import RESTARTING, RUNNING
from supervision.messages import (
    ANSWER_ROOM_S,
    Children,
    CountChildren,
    DeleteChild,
    Managed,
    ReleaseChild,
    RestartChild,
    StartChild,
    TerminateChild,
    WhichChildren,
    start_child,
)

ROOT = "root"
CURATOR = "curator"
CALL_DEADLINE_S = 180.0
"""Longest wait for an answer of a supervisor that waits for no child, or for one with deadlines that are not
known here."""

END_ROOM_S = 30.0
"""How many seconds after a child's `shutdown_s` the answer may come. The child is killed then, and a process
with much memory, above all of a GPU, takes a while to end."""

PAUSE_DEADLINE_S = 10.0
"""Longest wait until the curator has recorded that no new work begins."""

REACH_SHARE, REACH_MIN_S, REACH_MAX_S = 0.75, 0.25, 5.0
"""How long a supervisor may take to answer a test call before it gets a request: this share of the request's
`wait_ms`, at least `REACH_MIN_S` and at most `REACH_MAX_S` seconds."""

DRAIN_POLL_S = 0.5
"""Seconds between two checks whether an episode, an update or a request of an engine is still in progress."""

STARTS_AT_ONCE = 16
"""Largest number of children that are started together; more could fill the mailbox of their pool."""

ROUTED_ELSEWHERE_S = 2.0
"""Seconds after which no environment sends requests to an engine that is removed. weight_sync reads the
number of engines every second, and environments read it before each request."""

POOL_WORDS = {ENVIRONMENT_POOL: "environments", ROLLOUT_POOL: "rollouts"}


class NotDone(Exception):
    """A request was refused, or has not been carried out yet; the message tells the operator why."""

    def __init__(self, text: str, outcome: ControlOutcome = ControlOutcome.REFUSED) -> None:
        super().__init__(text)
        self.outcome = outcome


class Commands:
    """Carries out the requests of the control socket by asking other actors.

    actor        the actor of the control endpoint, which sends the asks
    definition   the definition of the run; `scale` and `reload` replace its configuration
    """

    def __init__(self, actor: Actor, definition: RunDefinition) -> None:
        self._actor = actor
        self._definition = definition
        self._up_to_date: dict[str, int] = {}
        """For each pool, the incarnation that has the current limits; incarnation 1 if there is no entry."""
        self._changing = Lock()
        """Lock held while sizes and limits change, so that changes are made one after the other."""

    async def answer(self, call: Request) -> ControlAnswer:
        """Carry out a request and return its outcome.

        If the request is not done after its `wait_ms`, the outcome is `UNDER_WAY`, with the state of the
        actor that the request waits for. The work then continues.
        """
        answer: Future[ControlAnswer] = Future()
        who, work = self._work_of(call)

        def is_due() -> None:
            how = actor_conditions.condition(who, self._actors())
            answer.succeed(ControlAnswer(ControlOutcome.UNDER_WAY, f"not done yet: {how}"))

        async def to_its_end() -> None:
            answer.succeed(await self._ended(call, work))

        self._actor.run(to_its_end())
        self._actor.after(call.wait_ms / 1000, is_due)
        return await answer

    def _work_of(self, call: Request) -> tuple[str, Coroutine[Any, Any, str]]:
        """Return the actor that a request waits for, and the coroutine that carries the request out.

        The coroutine returns a text for the operator.
        """
        match call:
            case Ping():
                return ROOT, self._ping(call)
            case RestartActor():
                return call.name, self._restart(call)
            case StopActor():
                return call.name, self._stop(call)
            case ReleaseActor():
                return call.name, self._release(call)
            case Pause():
                return CURATOR, self._pause()
            case Resume():
                return CURATOR, self._resume()
            case Drain():
                return CURATOR, self._drain(call)
            case Scale():
                pool = ROLLOUT_POOL if call.environments is None else ENVIRONMENT_POOL
                return pool, self._scale(call)
            case Reload():
                return ROOT, self._reload(call)

    async def _ended(self, call: Request, work: Coroutine[Any, Any, str]) -> ControlAnswer:
        """Carry out a request, and turn every failure into an answer, so that the next request is served."""
        try:
            answer = ControlAnswer(ControlOutcome.DONE, await work)
        except NotDone as reason:
            answer = ControlAnswer(reason.outcome, str(reason))
        except (AskError, MailboxFull) as error:
            answer = ControlAnswer(ControlOutcome.SILENT, str(error))
        except Exception as error:
            self._actor.log.exception("request_failed", request=repr(call))
            answer = ControlAnswer(
                ControlOutcome.REFUSED, f"the request failed by a defect, see the log: {error!r}"
            )
        if not isinstance(call, Ping):
            self._actor.log.info(
                "request_ended", request=repr(call), outcome=answer.outcome.value, text=answer.text
            )
        return answer

    async def _ping(self, call: Ping) -> str:
        counts = await self._ask(ROOT, CountChildren(), call.wait_ms / 1000)
        return f"root answers; {counts.active} of {counts.specs} children are up"

    # ---- one actor ----

    async def _supervisor_of(self, call: RestartActor | StopActor | ReleaseActor) -> str:
        """Return the supervisor of the actor that a request names.

        Raises NotDone if the request is not possible for this actor, and AskError if the supervisor hangs.
        """
        actors = self._actors()
        why_not = (
            actor_conditions.why_not_stop if isinstance(call, StopActor) else actor_conditions.why_not_restart
        )
        if reason := why_not(call.name, actors):
            raise NotDone(reason)
        await self._reach(actors[call.name].parent, call)
        return actors[call.name].parent

    async def _restart(self, call: RestartActor) -> str:
        supervisor = await self._supervisor_of(call)
        try:
            await self._manage(supervisor, TerminateChild(id=call.name))
        except AskTimeout as error:
            raise NotDone(
                f"{call.name} was told to end and stays down when it has ended: {error}; "
                f"`dartrl actors restart {call.name}` waits for its end and starts it",
                ControlOutcome.SILENT,
            ) from error
        started = await self._call(supervisor, RestartChild(id=call.name))
        if started.ok:
            return f"{call.name} runs again, as incarnation {started.incarnation}"
        if started.reason in (RUNNING, RESTARTING):
            return f"{call.name} ended, and its supervisor is already starting it again"
        raise NotDone(
            f"{call.name} has ended and could not be started again: {started.reason}; "
            f"`dartrl actors restart {call.name}` tries again"
        )

    async def _stop(self, call: StopActor) -> str:
        await self._manage(await self._supervisor_of(call), TerminateChild(id=call.name))
        return f"{call.name} is down until `dartrl actors restart {call.name}`"

    async def _release(self, call: ReleaseActor) -> str:
        await self._manage(await self._supervisor_of(call), ReleaseChild(id=call.name))
        return f"{call.name} is being started; its earlier failures are forgotten"

    # ---- the pools ----

    async def _scale(self, call: Scale) -> str:
        wanted = {ENVIRONMENT_POOL: call.environments, ROLLOUT_POOL: call.rollouts}
        sizes = {pool: count for pool, count in wanted.items() if count is not None}
        if not all(self._definition.has_pool(pool) for pool in (ENVIRONMENT_POOL, *sizes)):
            raise NotDone(
                "the environments and engines of a run on a cluster cannot be scaled while it runs: end it "
                "with `dartrl down`, change environments.count or rollout.count in its file, and start it "
                "again with `dartrl up` and the cluster file"
            )
        async with self._changing:
            for pool in sizes:
                await self._reach(pool, call)
            new = self._definition.sized(sizes)
            self._refuse_unfit(new)  # all sizes together, before anything changes
            failed = self._adopt(new)
            for pool in sizes:
                failed += await self._resize(pool)
            size = await self._sizes_text(sizes)
        if failed:
            raise NotDone(f"the run has {size}, not what was asked for: {'; '.join(failed)}")
        return size

    async def _sizes_text(self, pools: Iterable[str]) -> str:
        """Return how many children some pools have now, such as `3 environments and 2 rollouts`."""
        sizes = [f"{len(await self._children(pool))} {POOL_WORDS[pool]}" for pool in pools]
        return " and ".join(sizes)

    def _refuse_unfit(self, new: Config) -> None:
        """Raise NotDone if the configuration is not valid, or its engines do not fit on the GPUs.

        The trainer keeps the GPUs that it was started with.
        """
        here = gpus_here()
        trainer = assign_gpus(self._definition.as_started, here).trainer
        training = new.training.model_copy(update={"gpus": trainer})
        fixed = new.model_copy(update={"training": training}) if trainer else new
        problems = [*contradictions(new), *(shared_gpu_problems(fixed, here) if here else ())]
        if problems:
            (key, *_), problem = problems[0]
            raise NotDone(f"nothing was changed: {key} {problem}")

    async def _resize(self, pool: str) -> list[str]:
        """Start or remove children of a pool until it has the size of the configuration.

        An engine is removed only after it has answered its requests. Returns a line for each child that could
        not be started or removed, with the reason.
        """
        specs, existing = self._definition.children(pool), await self._children(pool)
        missing = sorted(specs.keys() - set(existing))
        surplus = sorted(set(existing) - specs.keys(), reverse=True)
        failed = []
        for first in range(0, len(missing), STARTS_AT_ONCE):
            names = missing[first : first + STARTS_AT_ONCE]
            failed += await self._each(pool, names, lambda name: start_child(specs[name]))
        if pool == ROLLOUT_POOL:
            await self._answered(surplus)
        failed += await self._each(pool, surplus, lambda name: TerminateChild(id=name))
        failed += await self._each(pool, surplus, lambda name: DeleteChild(id=name))
        return failed

    async def _answered(self, engines: Sequence[str]) -> None:
        """Wait until engines have answered all their requests, at most `rollout.answer_deadline_s`.

        They get no new ones: environments use the other engines as soon as the record has the new number.
        """
        now_s = self._actor.clock.monotonic_s
        give_up_s = now_s() + self._definition.config.rollout.answer_deadline_s
        await self._actor.sleep(ROUTED_ELSEWHERE_S if engines else 0.0)
        while any(self._asked_of(name) for name in engines) and now_s() < give_up_s:
            await self._actor.sleep(DRAIN_POLL_S)

    def _asked_of(self, engine: str) -> int:
        """Return how many requests a running engine has not answered yet; 0 if the engine does not run."""
        row = self._actors().get(engine)
        return row.gauges[Gauge.IN_FLIGHT] if row is not None and row.state is ActorState.RUNNING else 0

    async def _children(self, pool: str) -> list[str]:
        """Ask a pool for the names of its children, whether they are up or not.

        The board would not do, because it may also show children of an earlier incarnation of the pool.
        """
        names: list[str] = []
        while True:
            page: Children = await self._call(pool, WhichChildren(offset=len(names)))
            names += [child.id for child in page.children]
            if not page.children or len(names) >= page.total:
                return names

    async def _each(self, pool: str, names: Sequence[str], call_for: Callable[[str], Any]) -> list[str]:
        """Call a pool once for each name, all at the same time; return a line for each call that failed."""
        asked = [self._call(pool, call_for(name)) for name in names]
        failed = []
        for name, managed in zip(names, asked, strict=True):
            try:
                ended = await managed
                reason = "" if ended.ok else ended.reason
            except (AskError, MailboxFull) as error:
                reason = str(error)
            failed += [f"{name}: {reason}"] if reason else []
        return failed

    # ---- the configuration ----

    async def _reload(self, call: Reload) -> str:
        async with self._changing:
            new, plan = self._planned()
            old = self._definition.config
            resized = [pool for pool in SECTIONS if size_of(new, pool) != size_of(old, pool)]
            for supervisor in dict.fromkeys([*(change.supervisor for change in plan.changes), *resized]):
                await self._reach(supervisor, call)  # all of them, before anything changes
            if ROLLOUT_POOL in resized:
                self._refuse_unfit(new)
            failed = await self._apply(plan.changes) + self._adopt(new)
            for pool in resized:
                failed += await self._resize(pool)
            others = [pool for pool in SECTIONS if pool not in resized]
            repaired, unrepaired = await self._repair(others, call)
            size = f"; the run has {await self._sizes_text(repaired)} again" if repaired else ""
        if failed or unrepaired:
            raise NotDone(f"{plan}{size}; but this could not be applied: {'; '.join(failed + unrepaired)}")
        return f"{plan}{size}"

    async def _repair(self, pools: Iterable[str], call: Reload) -> tuple[list[str], list[str]]:
        """Resize the pools whose children are not those of the configuration, as after a failed resize.

        Returns the pools that were resized, and a line for each failure. A pool that does not answer is such
        a failure, and the others are resized.
        """
        repaired, failed = [], []
        for pool in pools:
            try:
                await self._reach(pool, call)
                if set(await self._children(pool)) == self._definition.children(pool).keys():
                    continue
                problems = await self._resize(pool)
            except (AskError, MailboxFull) as error:
                problems = [f"the number of {POOL_WORDS[pool]} could not be checked: {error}"]
            repaired += [] if problems else [pool]
            failed += problems
        return repaired, failed

    def _planned(self) -> tuple[Config, reload.ReloadPlan]:
        """Read the configuration again and plan how to apply it. Raises NotDone if this is not possible."""
        definition = self._definition
        if definition.reread is None:
            raise NotDone("only a run on one machine, started with `dartrl up`, can reload its configuration")
        try:
            new = definition.reread()
            return new, reload.planned(definition.config, new, definition.tree_of)
        except (ConfigurationError, RunDirectoryError, SupervisionError) as error:
            raise NotDone(f"nothing was changed: {error}") from error

    async def _apply(self, changes: Iterable[reload.Change]) -> list[str]:
        """Send changes to their supervisors; return a line for each change that a supervisor refused."""
        failed = []
        for change in changes:
            managed = await self._call(change.supervisor, change.call)
            failed += [] if managed.ok else [f"{change.supervisor}: {managed.reason}"]
        return failed

    async def restore(self) -> None:
        """Send the changes since the start of the run again to each pool that was restarted."""
        actors = self._actors()
        for pool in POOLS.values():
            row = actors.get(pool)
            if row is None or not row.ready or row.incarnation == self._up_to_date.get(pool, 1):
                continue
            try:
                failed = await self._apply_again(pool)
            except (AskError, MailboxFull) as error:
                self._actor.log.warning("pool_not_restored", pool=pool, reason=str(error))
                continue  # until the next call
            self._up_to_date[pool] = row.incarnation
            self._actor.log.info("pool_restored", pool=pool, failed=failed)

    async def _apply_again(self, pool: str) -> list[str]:
        definition = self._definition
        async with self._changing:
            plan = reload.planned(definition.as_started, definition.config, definition.tree_of)
            failed = await self._apply(change for change in plan.changes if change.supervisor == pool)
            if pool in SECTIONS:
                failed += await self._resize(pool)
        return failed

    def _adopt(self, config: Config) -> list[str]:
        """Make a configuration the current one. Return a line if it cannot be written, else an empty list."""
        if sizes_in(config) != sizes_in(self._definition.config):
            emit(self._actor, POOLS_SIZED, ROOT, sizes_in(config))
        try:
            self._definition.adopt(config)
        except OSError as error:
            return [f"the configuration cannot be written, so the next start will not have it: {error}"]
        return []

    # ---- new work ----

    async def _pause(self) -> str:
        held = await self._hold_work(is_held=True)
        return f"until `dartrl resume` nothing new begins; {_going_on(held)}"

    async def _resume(self) -> str:
        await self._hold_work(is_held=False)
        return "episodes and updates begin again"

    async def _drain(self, call: Drain) -> str:
        now_s = self._actor.clock.monotonic_s
        give_up_s = now_s() + call.wait_ms / 1000
        held = await self._hold_work(is_held=True)
        while held.is_held and (held.playing or held.is_training):
            if now_s() >= give_up_s:
                raise NotDone(f"nothing new begins; {_going_on(held)}", ControlOutcome.UNDER_WAY)
            await self._actor.sleep(DRAIN_POLL_S)
            held = await self._hold_work(is_held=None)
        if not held.is_held:
            raise NotDone("the drain ended early: the run was resumed in the meantime")
        return "nothing is played or trained any more; `dartrl resume` continues the run"

    async def _hold_work(self, *, is_held: bool | None) -> m.WorkPaused:
        """Have the curator hold back new work or give it out again; with None, only ask for its state.

        Raises NotDone if the record takes no writes now, and AskError if the curator does not answer.
        """
        answer = await self._ask(CURATOR, m.PauseWork(is_held=is_held), PAUSE_DEADLINE_S)
        if not isinstance(answer, m.WorkPaused):
            raise NotDone(f"the record takes no writes now: {answer.reason}")
        return answer

    # ---- asking ----

    async def _reach(self, supervisor: str, call: Request) -> None:
        """Check with a call that a supervisor answers. Raises AskError if it does not answer soon enough."""
        wait_s = min(max(REACH_SHARE * call.wait_ms / 1000, REACH_MIN_S), REACH_MAX_S)
        await self._ask(supervisor, CountChildren(), wait_s)

    async def _manage(self, supervisor: str, call: TerminateChild | ReleaseChild) -> None:
        """Have a supervisor change a child. Raises NotDone if it refuses, AskError if it is silent."""
        managed: Managed = await self._call(supervisor, call)
        if not managed.ok:
            raise NotDone(managed.reason)

    def _call(self, supervisor: str, call: Any) -> Future[Any]:
        """Ask a supervisor, with a deadline after those of the child for which it waits."""
        return self._ask(supervisor, call, min(LONGEST_S, self._deadline_s(call)))

    def _deadline_s(self, call: Any) -> float:
        """Return the seconds in which a supervisor answers a call, unless it hangs."""
        deadlines_of = self._definition.deadlines_of
        match call:
            case StartChild():
                return call.answer_within_s
            case TerminateChild() if (child := deadlines_of(call.id)) is not None:
                return child.shutdown_s + END_ROOM_S
            case RestartChild() if (child := deadlines_of(call.id)) is not None:
                return child.start_deadline_s + ANSWER_ROOM_S
        return CALL_DEADLINE_S

    def _ask(self, to: str, call: Any, deadline_s: float) -> Future[Any]:
        return self._actor.ask(to, call, deadline_s=deadline_s)

    def _actors(self) -> dict[str, Vitals]:
        return actor_conditions.known(self._actor.board.rows())


def _going_on(held: m.WorkPaused) -> str:
    if not (held.playing or held.is_training):
        return "nothing is played or trained any more"
    played = f"work in {counted(held.playing, 'environment')}" if held.playing else ""
    trained = "an update" if held.is_training else ""
    return f"still under way: {' and '.join(filter(None, (played, trained)))}"
