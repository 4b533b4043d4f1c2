"""Which deadlines the calls of an environment get."""

from typing import Any

import pytest


def note_deadlines(monkeypatch: pytest.MonkeyPatch, environment: type, operation: str) -> set[float]:
    """Return a set to which each call of the operation adds the deadline that it gets."""
    call, deadlines = getattr(environment, operation), set[float]()

    async def noted(self: Any, *given: Any, deadline_s: float, **named: Any) -> Any:
        deadlines.add(deadline_s)
        return await call(self, *given, deadline_s=deadline_s, **named)

    monkeypatch.setattr(environment, operation, noted)
    return deadlines
