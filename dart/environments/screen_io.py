"""The boundary between an environment and its screen: start, input events, screenshots and raw scores.

Every environment sends and reads through a `ScreenIO`. This class changes nothing;
`dart.environments.fault_injection.FaultyScreenIO` loses, doubles and freezes what passes, below the checks
that have to notice it.
"""

from typing import Any

from dart.environments.browser_inputs import Call


class ScreenIO:
    """Passes everything through unchanged."""

    async def on_start(self) -> None:
        """Called when the screen has started, before the environment checks that it is ready and clean."""

    def filter_input(self, calls: list[Call]) -> list[Call]:
        """Return the input events that reach the screen when the environment sends ``calls``."""
        return calls

    def filter_screenshot(self, png: bytes) -> bytes:
        """Return the screenshot that reaches the environment when the screen shows ``png``."""
        return png

    def filter_score(self, raw: Any) -> Any:
        """Return the score that reaches the environment when the evaluator says ``raw``."""
        return raw
