"""The commands of the control endpoint: which actor each request asks, and the answer in time.

Work that is not done when its answer is due goes on. A supervisor that does not answer gets no request: it
would carry it out when it answers again, perhaps an hour later.
"""

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from actors.actor import Actor
from actors.board import Vitals
from actors.errors import AskError, MailboxFull
from actors.future import Future, Lock
from dart.config.config import Config
from dart.config.sections import POOLS
from dart.core import messages as m
from dart.core.errors import ConfigurationError
from dart.inspect.utilisation import sizes_in
from dart.run import preconditions, reload
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
from dart.run.definition import ENVIRONMENT_POOL, RunDefinition
from dart.telemetry.emit import emit
from dart.telemetry.events import POOLS_SIZED
from supervision.errors import SupervisionError
from supervision.management import RESTARTING, RUNNING
from supervision.messages import (
    Children,
    CountChildren,
    DeleteChild,
    Managed,
    ReleaseChild,
    RestartChild,
    TerminateChild,
    WhichChildren,
    start_child,
)

ROOT = "root"
CURATOR = "curator"
CALL_DEADLINE_S = 180.0
"""For a start or an end of a child; the deadlines of its child spec come first."""

PAUSE_DEADLINE_S = 10.0
"""For the curator to record that no new work begins."""

REACH_SHARE, REACH_MIN_S, REACH_MAX_S = 0.75, 0.25, 5.0
"""Share of the time of a request in which a supervisor has to show that it answers, and its limits."""

DRAIN_POLL_S = 0.5
"""Interval of the check whether an episode or an update still runs."""

STARTS_AT_ONCE = 16
"""Most environments started together; more would fill the mailbox of their pool."""

T = TypeVar("T")


class Commands:
    """Carries requests out on behalf of one actor, which asks the others.

    definition   the run; commands replace its configuration
    """

    def __init__(self, actor: Actor, definition: RunDefinition) -> None:
        self._actor = actor
        self._definition = definition
        self._up_to_date: dict[str, int] = {}
        """The incarnation of each pool that has the current limits; the first one of a run has."""
        self._changing = Lock()

    async def answer(self, call: Request) -> ControlAnswer:
        """The outcome of a request, after `wait_ms` at the latest."""
        match call:
            case Ping():
                return await self._within(call, ROOT, self._ping(call))
            case RestartActor() | StopActor() | ReleaseActor():
                return await self._on_actor(call)
            case Pause() | Resume():
                return await self._within(call, CURATOR, self._pause(is_held=isinstance(call, Pause)))
            case Drain():
                return await self._within(call, CURATOR, self._drain(call))
            case Scale():
                return await self._within(call, ENVIRONMENT_POOL, self._alone(self._scale(call)))
            case Reload():
                return await self._within(call, ROOT, self._alone(self._reload(call)))

    async def _ping(self, call: Ping) -> ControlAnswer:
        counts = await self._ask(ROOT, CountChildren(), call.wait_ms / 1000)
        return ControlAnswer(
            ControlOutcome.DONE, f"root answers; {counts.active} of {counts.specs} children are up"
        )

    # ---- one actor ----

    async def _on_actor(self, call: RestartActor | StopActor | ReleaseActor) -> ControlAnswer:
        actors = self._actors()
        why_not = preconditions.why_not_stop if isinstance(call, StopActor) else preconditions.why_not_restart
        if reason := why_not(call.name, actors):
            return ControlAnswer(ControlOutcome.REFUSED, reason)
        return await self._within(call, call.name, self._managing(call, actors[call.name].parent))

    async def _managing(self, call: RestartActor | StopActor | ReleaseActor, parent: str) -> ControlAnswer:
        await self._reach(parent, call)
        match call:
            case RestartActor(name=name):
                return await self._restart(name, parent)
            case StopActor(name=name):
                ended = await self._managed(parent, TerminateChild(id=name))
                return _answer(ended, f"{name} is down until `dartrl actors restart {name}`")
            case ReleaseActor(name=name):
                released = await self._managed(parent, ReleaseChild(id=name))
                return _answer(released, f"{name} is being started; its earlier failures are forgotten")

    async def _restart(self, name: str, parent: str) -> ControlAnswer:
        ended = await self._managed(parent, TerminateChild(id=name))
        if not ended.ok:
            return _answer(ended, "")
        started = await self._managed(parent, RestartChild(id=name))
        if started.ok:
            return ControlAnswer(
                ControlOutcome.DONE, f"{name} runs again, as incarnation {started.incarnation}"
            )
        if started.reason in (RUNNING, RESTARTING):
            text = f"{name} ended, and its supervisor is already starting it again"
            return ControlAnswer(ControlOutcome.DONE, text)
        return ControlAnswer(
            ControlOutcome.REFUSED, f"{name} is down until it is restarted again: {started.reason}"
        )

    # ---- the pool ----

    async def _scale(self, call: Scale) -> ControlAnswer:
        await self._reach(ENVIRONMENT_POOL, call)
        failed = self._adopt(self._definition.with_environments(call.environments))
        failed += await self._resize(call.environments)
        size = f"{len(await self._environments())} environments"
        if failed:
            return ControlAnswer(
                ControlOutcome.REFUSED, f"{size}, not {call.environments}: {'; '.join(failed)}"
            )
        return ControlAnswer(ControlOutcome.DONE, size)

    async def _resize(self, count: int) -> list[str]:
        """Bring the pool to `count` environments; returns what failed, and why."""
        specs = self._definition.environments(count)
        plan = preconditions.resized(await self._environments(), specs)
        failed = []
        for first in range(0, len(plan.start), STARTS_AT_ONCE):
            names = plan.start[first : first + STARTS_AT_ONCE]
            failed += await self._each(names, lambda name: start_child(specs[name]))
        failed += await self._each(plan.end, lambda name: TerminateChild(id=name))
        failed += await self._each(plan.end, lambda name: DeleteChild(id=name))
        return failed

    async def _environments(self) -> list[str]:
        """The children of the pool, up or not; the board may also show those of an earlier pool."""
        names: list[str] = []
        while True:
            page: Children = await self._ask(
                ENVIRONMENT_POOL, WhichChildren(offset=len(names)), CALL_DEADLINE_S
            )
            names += [child.id for child in page.children]
            if not page.children or len(names) >= page.total:
                return names

    async def _each(self, names: Sequence[str], call_for: Callable[[str], Any]) -> list[str]:
        """Make one call to the pool for each name, all at once; returns what failed, and why."""
        asked = [self._ask(ENVIRONMENT_POOL, call_for(name), CALL_DEADLINE_S) for name in names]
        failed = []
        for name, managed in zip(names, asked, strict=True):
            try:
                reason = "" if (await managed).ok else managed.result().reason
            except (AskError, MailboxFull) as error:
                reason = str(error)
            failed += [f"{name}: {reason}"] if reason else []
        return failed

    # ---- the configuration ----

    async def _reload(self, call: Reload) -> ControlAnswer:
        """Check everything, and reach every supervisor concerned, before anything changes."""
        definition = self._definition
        if definition.reread is None:
            return ControlAnswer(
                ControlOutcome.REFUSED, "only a run started with `dartrl up` can reload its configuration"
            )
        try:
            new = definition.reread()
            plan = reload.planned(definition.config, new, definition.tree_of)
        except (ConfigurationError, SupervisionError) as error:
            return ControlAnswer(ControlOutcome.REFUSED, f"nothing was changed: {error}")
        if plan.refused:
            return ControlAnswer(ControlOutcome.REFUSED, reload.in_words(plan))
        for supervisor in dict.fromkeys([change.supervisor for change in plan.changes]):
            await self._reach(supervisor, call)
        failed = await self._tell(plan.changes)
        has_resized = new.environments.count != definition.config.environments.count
        failed += self._adopt(new)
        if has_resized:
            failed += await self._resize(new.environments.count)
        if failed:
            return ControlAnswer(
                ControlOutcome.REFUSED, f"{reload.in_words(plan)}; but not done: {'; '.join(failed)}"
            )
        return ControlAnswer(ControlOutcome.DONE, reload.in_words(plan))

    async def _tell(self, changes: Iterable[reload.Change]) -> list[str]:
        """Send changes to supervisors; returns what failed, and why."""
        failed = []
        for change in changes:
            managed = await self._managed(change.supervisor, change.call)
            failed += [] if managed.ok else [f"{change.supervisor}: {managed.reason}"]
        return failed

    async def restore(self) -> None:
        """Send every pool that was itself restarted the changes since the run was started."""
        actors = self._actors()
        for pool in POOLS.values():
            row = actors.get(pool)
            if row is None or not row.ready or row.incarnation == self._up_to_date.get(pool, 1):
                continue
            try:
                failed = await self._alone(self._apply_again(pool))
            except (AskError, MailboxFull) as error:
                self._actor.log.warning("pool_not_restored", pool=pool, reason=str(error))
                continue  # until the next call
            self._up_to_date[pool] = row.incarnation
            self._actor.log.info("pool_restored", pool=pool, failed=failed)

    async def _apply_again(self, pool: str) -> list[str]:
        plan = reload.planned(self._definition.as_started, self._definition.config, self._definition.tree_of)
        failed = await self._tell(change for change in plan.changes if change.supervisor == pool)
        if pool == ENVIRONMENT_POOL:
            failed += await self._resize(self._definition.config.environments.count)
        return failed

    async def _alone(self, work: Coroutine[Any, Any, T]) -> T:
        """Run changes of sizes and limits one after the other."""
        async with self._changing:
            return await work

    def _adopt(self, config: Config) -> list[str]:
        """Make a configuration the current one; returns what failed."""
        if sizes_in(config) != sizes_in(self._definition.config):
            emit(self._actor, POOLS_SIZED, ROOT, sizes_in(config))
        try:
            self._definition.adopt(config)
        except OSError as error:
            return [f"the configuration cannot be written, so the next start will not have it: {error}"]
        return []

    # ---- new work ----

    async def _pause(self, *, is_held: bool) -> ControlAnswer:
        held = await self._ask_curator(m.PauseWork(is_held=is_held))
        if isinstance(held, ControlAnswer):
            return held
        going_on = f"until `dartrl resume` nothing new begins; {_going_on(held)}"
        return ControlAnswer(ControlOutcome.DONE, going_on if is_held else "episodes and updates begin again")

    async def _drain(self, call: Drain) -> ControlAnswer:
        now_s = self._actor.clock.monotonic_s
        give_up_s = now_s() + call.wait_ms / 1000
        held = await self._ask_curator(m.PauseWork(is_held=True))
        while isinstance(held, m.WorkPaused) and held.is_held and (held.playing or held.is_training):
            if now_s() >= give_up_s:
                return ControlAnswer(ControlOutcome.UNDER_WAY, f"nothing new begins; {_going_on(held)}")
            await self._actor.sleep(DRAIN_POLL_S)
            held = await self._ask_curator(m.PauseWork(is_held=None))
        if isinstance(held, ControlAnswer):
            return held
        if not held.is_held:
            return ControlAnswer(ControlOutcome.REFUSED, "the run was resumed meanwhile")
        return ControlAnswer(
            ControlOutcome.DONE, "nothing is played or trained any more; `dartrl resume` goes on"
        )

    async def _ask_curator(self, call: m.PauseWork) -> m.WorkPaused | ControlAnswer:
        answer = await self._ask(CURATOR, call, PAUSE_DEADLINE_S)
        if isinstance(answer, m.WorkPaused):
            return answer
        return ControlAnswer(ControlOutcome.REFUSED, f"the record takes no writes now: {answer.reason}")

    # ---- asking ----

    async def _reach(self, supervisor: str, call: Request) -> None:
        """Raises AskError when the supervisor does not answer soon enough."""
        wait_s = min(max(REACH_SHARE * call.wait_ms / 1000, REACH_MIN_S), REACH_MAX_S)
        await self._ask(supervisor, CountChildren(), wait_s)

    async def _managed(self, supervisor: str, call: Any) -> Managed:
        managed: Managed = await self._ask(supervisor, call, CALL_DEADLINE_S)
        return managed

    def _ask(self, to: str, call: Any, deadline_s: float) -> Future[Any]:
        return self._actor.ask(to, call, deadline_s=deadline_s)

    async def _within(
        self, call: Request, who: str, work: Coroutine[Any, Any, ControlAnswer]
    ) -> ControlAnswer:
        """The answer to a request; when it is due before the work is done, the state of the actor `who`."""
        answer: Future[ControlAnswer] = Future()

        def is_due() -> None:
            how = preconditions.condition(who, self._actors())
            answer.succeed(ControlAnswer(ControlOutcome.UNDER_WAY, f"not done yet, it goes on: {how}"))

        async def to_its_end() -> None:
            ended = await self._ended(call, work)
            answer.succeed(ended)

        self._actor.run(to_its_end())
        self._actor.after(call.wait_ms / 1000, is_due)
        return await answer

    async def _ended(self, call: Request, work: Coroutine[Any, Any, ControlAnswer]) -> ControlAnswer:
        """Turn every failure of a request into an answer, so that the next request is served."""
        try:
            answer = await work
        except (AskError, MailboxFull) as error:
            answer = ControlAnswer(ControlOutcome.SILENT, str(error))
        except Exception as error:
            self._actor.log.exception("request_failed", request=repr(call))
            answer = ControlAnswer(ControlOutcome.REFUSED, f"it failed by a defect, see the log: {error!r}")
        if not isinstance(call, Ping):
            self._actor.log.info(
                "request_ended", request=repr(call), outcome=answer.outcome.value, text=answer.text
            )
        return answer

    def _actors(self) -> dict[str, Vitals]:
        return preconditions.known(self._actor.board.rows())


def _answer(managed: Managed, done: str) -> ControlAnswer:
    """The answer of a supervisor as that of the endpoint."""
    return (
        ControlAnswer(ControlOutcome.DONE, done)
        if managed.ok
        else ControlAnswer(ControlOutcome.REFUSED, managed.reason)
    )


def _going_on(held: m.WorkPaused) -> str:
    if not (held.playing or held.is_training):
        return "nothing is played or trained any more"
    update = " and an update" if held.is_training else ""
    return f"{held.playing} episodes{update} go on to their end"
