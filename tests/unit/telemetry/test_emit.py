"""One call tells an event: to the log, and to the record."""

from typing import Any

import pytest

from dart.core.messages import EventDraft, RecordEvents
from dart.telemetry import events
from dart.telemetry.emit import emit
from dart.telemetry.load_meter import LOAD


class Speaker:
    """Who tells: its log, and what it sent to whom."""

    def __init__(self) -> None:
        self.log = self
        self.lines: list[tuple[str, str, dict[str, Any]]] = []
        self.sent: list[tuple[str, Any]] = []

    def tell(self, to: str, content: Any) -> bool:
        self.sent.append((to, content))
        return False

    def __getattr__(self, level: str) -> Any:
        return lambda event, **fields: self.lines.append((level, event, fields))


@pytest.mark.parametrize("kind", events.KINDS)
def test_an_event_is_one_line_as_loud_as_declared_and_one_row(kind: str) -> None:
    speaker = Speaker()

    emit(speaker, kind, "env-000", {"reason": "so", "wall_s": 2.0})

    level = events.KINDS[kind].level
    told = [(level, kind, {"subject": "env-000", "reason": "so", "wall_s": 2.0})]
    assert speaker.lines == (told if level else [])
    draft = EventDraft(kind=kind, subject="env-000", data={"reason": "so", "wall_s": 2.0})
    assert speaker.sent == [("store", RecordEvents(events=(draft,)))]


def test_only_the_load_which_comes_every_few_seconds_is_no_line_and_not_counted() -> None:
    assert [kind for kind, declared in events.KINDS.items() if declared.level is None] == [LOAD]
    assert set(events.USER_VISIBLE) == events.KINDS.keys() - {LOAD}


def test_a_kind_that_is_not_declared_cannot_be_told() -> None:
    with pytest.raises(KeyError, match="nonsense"):
        emit(Speaker(), "nonsense", "env-000", {})
