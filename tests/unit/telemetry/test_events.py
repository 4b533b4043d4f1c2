"""Every event that is recorded is declared, and says what its fields are."""

import re
from pathlib import Path

from dart.telemetry import events

SOURCES = Path(events.__file__).parents[1].rglob("*.py")
RECORDED = re.compile(
    r"""(?:EventDraft\(\s*kind=|record_event\(|_event_row\(|\bemit\([\w.]+, )("?\w+"?)(?=[,)])"""
)
"""What stands first where an event is made."""

SUPERVISION = Path(events.__file__).parents[2] / "supervision"
REPORTED = re.compile(r"""\bReport\("(\w+)",""")
"""The kind of a report, where a supervisor makes one."""

CONSTANTS = {name: value for name, value in vars(events).items() if name.isupper() and isinstance(value, str)}


def recorded_kinds() -> set[str]:
    """As they stand in the code; `kind` and `self` are those of functions that pass it on."""
    found = {kind for path in SOURCES for kind in RECORDED.findall(path.read_text(encoding="utf-8"))}
    return found - {"kind", "self"}


def test_every_recorded_kind_is_declared_by_its_constant() -> None:
    recorded = recorded_kinds()

    assert {"LOAD", "STARVED", "PAUSED"} <= recorded
    assert recorded <= CONSTANTS.keys()


def test_every_constant_has_a_description() -> None:
    assert set(CONSTANTS.values()) == events.KINDS.keys()


def test_every_kind_of_report_that_a_supervisor_makes_has_a_description() -> None:
    made = {kind for path in SUPERVISION.glob("*.py") for kind in REPORTED.findall(path.read_text("utf-8"))}

    assert {"child_terminated", "outage", "outage_over"} <= made
    assert made == events.REPORTS.keys()
