"""The boundary between an environment and its screen, where faults can be injected.

An environment sends input events and reads screenshots and scores through a `ScreenIO`. `ScreenIO` changes
nothing. `dart.environments.fault_injection.FaultyScreenIO` loses, doubles and freezes what passes
through it, below the checks that must notice such faults.
"""

import signal
from typing import Any, Protocol, TypeVar

from dart.config.injected_faults import InjectedFault
from dart.environments.protocol import Environment

T = TypeVar("T")


class ScreenIO:
    """Passes input, screenshots and scores through unchanged."""

    async def on_start(self) -> None:
        """Called when the screen has started, before the environment checks that it is ready and clean."""

    def filter_input(self, calls: list[T]) -> list[T]:
        """Return the input events that reach the screen when the environment sends ``calls``."""
        return calls

    def filter_screenshot(self, png: bytes) -> bytes:
        """Return the screenshot that reaches the environment when the screen shows ``png``."""
        return png

    def filter_score(self, raw: Any) -> Any:
        """Return the score that reaches the environment when the evaluator says ``raw``."""
        return raw


class Breakable(Environment, Protocol):
    """An environment that faults can be injected into."""

    screen_io: ScreenIO

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the process behind the screen, if it runs."""
        ...

    async def disturb(self, kind: InjectedFault) -> None:
        """Cause a fault of windows or applications on the screen.

        Raises ValueError for a fault that this environment cannot have; by default that is every fault.
        """
        raise ValueError(
            f"this environment cannot have the fault {kind.value!r}: set environments.faults.{kind} = 0"
        )
