"""The interface of an environment: a screen that is reset, observed, acted on and scored.

Browsers, desktops and virtual machines are all subclasses of `Environment`, which gives them the methods that
have a default. To write one of your own:

1. write a subclass of `Environment` (`dart.environments.simulated` is the shortest example);
2. to inject faults into it, make it a subclass of `dart.environments.screen_io.Breakable`, and give it
   ``screen_io`` and ``send_signal``;
3. name the function that makes it in `environments.make`, with ``kind = "own"``; or, in this package, in a
   row of `dart.config.environment_kinds.KINDS`.

Every call has a deadline in seconds. A failure is an exception, an
`dart.environments.faults.EnvironmentFault` that names its kind. It is never ``None`` or a reward of 0.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, TypeVar

from dart.core.actions import Action

T = TypeVar("T")

Box = tuple[float, float, float, float]
"""Left, top, right and bottom of an element, in pixels of the screenshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the policy sees. The coordinates of its actions are pixels of the screenshot."""

    screenshot: bytes
    """The screen as a PNG file."""
    instruction: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """The result of one action."""

    terminated: bool
    """Whether the environment ended the episode. `Environment.evaluate` then returns the final score."""
    box: Box | None = None
    """The element that the action clicked, on the screenshot before it. None if the action is no click, or if
    the environment does not know the element. A box without area counts as None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeKey:
    """The rollout that an episode belongs to, for logs. It has no effect on the start screen."""

    rollout_id: int = 0
    """Id of the rollout; 0 for an episode without a rollout, such as an evaluation."""
    attempt: int = 0
    fence: int = 0


NO_ROLLOUT = EpisodeKey()


class Environment(Protocol):
    """One screen that plays one episode at a time.

    The caller may repeat ``reset``, ``observe``, ``evaluate`` and ``healthy`` after a fault, and ``reset``
    and ``evaluate`` after an OSError of a full disk. It never repeats ``step``: an action is applied at most
    once, and after a fault it is unknown whether it was applied.

    The coroutines run on one asyncio loop, one after the other. Only ``healthy`` may be called while another
    call waits, and ``close`` beside a call that does not end. A call that lasts longer than a lease
    (`dart.environments.call_watch`), and an exception that is no fault, end the process of the environment. A
    TimeoutError counts as an InfrastructureFault. A fault of ``healthy``, ``give_back`` or ``close`` is only
    logged.
    """

    async def reset(
        self, task_id: str, seed: int, *, deadline_s: float, episode: EpisodeKey = NO_ROLLOUT
    ) -> Observation:
        """Start a fresh episode and return its first observation.

        The same task and seed give the same start screen. A reset also repairs what an earlier fault broke:
        it starts a browser or a machine that is missing. Raises UnknownTask for a task that this environment
        does not have, and other faults.
        """
        ...

    async def observe(self, *, deadline_s: float) -> Observation:
        """Return the screen as it is now."""
        ...

    async def step(self, action: Action, *, deadline_s: float) -> StepResult:
        """Apply ``action`` exactly once and wait until the screen shows its effect.

        The actions Finished and CallUser end an episode before they get here.

        Raises ActionNotConfirmed when the screen received the action partly, twice or not at all.
        """
        ...

    async def evaluate(self, *, deadline_s: float) -> float:
        """Return the score of the episode so far, in [0, 1] (`dart.environments.scoring`).

        Raises EvaluatorFailed when there is no valid score, and FrozenFrame when the screenshots of the
        episode did not show the screen.
        """
        ...

    async def keep_judgement(self) -> None:
        """Write what the last evaluation was based on to the run directory; by default do nothing.

        The caller repeats this method while the disk is full, and uses the score only afterwards. Raises
        OSError or StoreUnavailable when the disk refuses.
        """
        return

    def is_infeasible(self, task_id: str) -> bool:
        """Whether the task cannot be done, so that the policy should say so; False by default."""
        return False

    async def park(self, *, deadline_s: float) -> None:
        """Stop the clock of the screen while no action comes; by default do nothing.

        Parking twice is the same as once.
        """
        return

    async def unpark(self, *, deadline_s: float) -> None:
        """Let the clock run again from where `park` stopped it; by default do nothing."""
        return

    async def healthy(self, *, deadline_s: float) -> bool:
        """Whether the screen can be captured right now; for a parked screen, whether it responds at all.

        True also for a screen that `give_back` took away. Returns False instead of raising a fault.
        """
        ...

    async def give_back(self) -> None:
        """Give back what no later episode can use, such as a machine that the next reset replaces anyway; by
        default do nothing.

        Call this method between two episodes, when the next one may be hours away. It never fails and ends
        within seconds.
        """
        return

    async def inspect(self, expression: str) -> Any:
        """Return the JSON value of a JavaScript expression in the page that the screen shows; for oracles,
        exploration and tests, not for policies. Only environments whose screens are web pages can do this;
        others raise NotImplementedError.
        """
        return _refuse_without_pages(self, "inspected")

    async def filter_requests(self, origins: Collection[str] | None) -> None:
        """Set which origins the pages may reach, from the next reset on.

        origins   web origins besides that of the start page; every other request fails before it is sent, and
                  to an origin that is not on this machine nothing but GET and HEAD is sent. None: what the
                  environment allows otherwise

        A reset raises UsageError when its start page is not on this machine and its origin is not named. Only
        environments whose screens are web pages can do this; others raise NotImplementedError.
        """
        _refuse_without_pages(self, "explored")

    async def explore(self) -> None:
        """Make the episode go on after wrong actions, if the page would end it; by default do nothing.

        Call this method after each reset.
        """
        return

    async def close(self) -> None:
        """Kill the browser or machine, then clean up; by default do nothing.

        It never fails, ends within seconds and may be repeated.
        """
        return


def _refuse_without_pages(environment: object, verb: str) -> NoReturn:
    raise NotImplementedError(
        f"the screens of {type(environment).__name__} are not web pages: they cannot be {verb}"
    )


class WrappedEnvironment(Environment):
    """Passes every call to an inner environment; a subclass overrides the calls that it changes."""

    def __init__(self, inner: Environment) -> None:
        self._inner = inner

    async def reset(
        self, task_id: str, seed: int, *, deadline_s: float, episode: EpisodeKey = NO_ROLLOUT
    ) -> Observation:
        return await self._inner.reset(task_id, seed, deadline_s=deadline_s, episode=episode)

    async def observe(self, *, deadline_s: float) -> Observation:
        return await self._inner.observe(deadline_s=deadline_s)

    async def step(self, action: Action, *, deadline_s: float) -> StepResult:
        return await self._inner.step(action, deadline_s=deadline_s)

    async def evaluate(self, *, deadline_s: float) -> float:
        return await self._inner.evaluate(deadline_s=deadline_s)

    async def keep_judgement(self) -> None:
        await self._inner.keep_judgement()

    def is_infeasible(self, task_id: str) -> bool:
        return self._inner.is_infeasible(task_id)

    async def park(self, *, deadline_s: float) -> None:
        await self._inner.park(deadline_s=deadline_s)

    async def unpark(self, *, deadline_s: float) -> None:
        await self._inner.unpark(deadline_s=deadline_s)

    async def healthy(self, *, deadline_s: float) -> bool:
        return await self._inner.healthy(deadline_s=deadline_s)

    async def give_back(self) -> None:
        await self._inner.give_back()

    async def inspect(self, expression: str) -> Any:
        return await self._inner.inspect(expression)

    async def filter_requests(self, origins: Collection[str] | None) -> None:
        await self._inner.filter_requests(origins)

    async def explore(self) -> None:
        await self._inner.explore()

    async def close(self) -> None:
        await self._inner.close()


def require_episode(episode: T | None, operation: str) -> T:
    """Return the episode that is being played.

    Raises RuntimeError when there is none: before the first reset and after a fault.
    """
    if episode is None:
        raise RuntimeError(f"{operation} without an episode: call reset first")
    return episode
