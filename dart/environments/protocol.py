"""What every environment is: a screen that is reset, seen, acted on and scored.

Browsers, desktops and virtual machines all fit it. Every call has a deadline in
seconds; what goes wrong is an `dart.environments.faults.EnvironmentFault` with its
kind, never ``None`` and never a reward of 0.
"""

from dataclasses import dataclass
from typing import Protocol

from dart.core.actions import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the policy sees. The encoded screenshot defines the pixel frame of its actions."""

    screenshot: bytes
    """PNG, ``width`` x ``height`` pixels."""
    width: int
    height: int
    instruction: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What one action did to the episode."""

    terminated: bool
    """The environment ended the episode; `Environment.evaluate` has its reward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeKey:
    """Which episode is played, for whoever writes it down; it changes nothing on the screen at the start."""

    rollout_id: int = 0
    """0 when no rollout is behind it."""
    attempt: int = 0
    fence: int = 0


UNNAMED = EpisodeKey()


class Environment(Protocol):
    """One screen that plays one episode at a time.

    ``reset``, ``observe``, ``evaluate`` and ``healthy`` may be tried again after a fault;
    ``step`` never: it is applied at most once, and whether it was is unknown after a fault.
    """

    async def reset(
        self, task_id: str, seed: int, *, deadline_s: float, episode: EpisodeKey = UNNAMED
    ) -> Observation:
        """Start a fresh episode, repairing whatever an earlier fault broke.

        The same task and seed give the same start screen.
        """
        ...

    async def observe(self, *, deadline_s: float) -> Observation:
        """The screen as it is now."""
        ...

    async def step(self, action: Action, *, deadline_s: float) -> StepResult:
        """Apply ``action`` exactly once and wait until the screen shows its effect.

        An action that arrived not at all, in part or twice is a fault.
        """
        ...

    async def evaluate(self, *, deadline_s: float) -> float:
        """What the evaluator says of the episode so far, in [0, 1]: see `dart.environments.scoring`.

        Raises a fault when the screenshots of the episode did not show the screen.
        """
        ...

    def pays_infeasible(self, task_id: str) -> bool:
        """Whether the right answer to this task is that it cannot be done."""
        ...

    async def park(self, *, deadline_s: float) -> None:
        """Nobody will act for a while: the screen's own clock stands still. Twice is as good as once."""
        ...

    async def unpark(self, *, deadline_s: float) -> None:
        """Go on where `park` stopped."""
        ...

    async def healthy(self, *, deadline_s: float) -> bool:
        """Whether a real screenshot can be had right now; of a parked screen, whether it answers.

        A fault is the answer False.
        """
        ...

    async def close(self) -> None:
        """Kill first, then clean up. Does not fail, ends within seconds, may be called again."""
        ...
