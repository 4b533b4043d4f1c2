"""What passes between an environment and its screen: its start, input events, screenshots, the raw score.

Every environment sends and reads through a `ScreenIO`. This one changes nothing.
`dart.environments.fault_injection` has one that loses, doubles and freezes, below the checks that must notice
it.
"""

from typing import Any

from dart.environments.browser_inputs import Call


class ScreenIO:
    """Passes everything on as it is."""

    async def started(self) -> None:
        """The screen was just started; nobody has looked yet whether it is ready and clean."""

    def sent(self, calls: list[Call]) -> list[Call]:
        """The input events that reach the screen for those that were sent."""
        return calls

    def seen(self, png: bytes) -> bytes:
        """The screenshot that arrives for the one that was taken."""
        return png

    def scored(self, raw: Any) -> Any:
        """The score that arrives for the one the evaluator gave."""
        return raw
