"""The fuzzing of every port, short; `make fuzz` sends a million frames."""

import pytest

from benchmarks.fuzz import ACTORS, SUPERVISORS, Report, broken, fuzz
from tests.fault.actors_under_test import sockets_left_to_the_collector

FRAMES = 20_000


@pytest.fixture(scope="module")
def report() -> Report:
    with sockets_left_to_the_collector():
        return fuzz(FRAMES, seed=3)


def test_forged_frames_are_refused_in_every_port_and_everybody_answers_meanwhile(report: Report) -> None:
    assert broken(report) == []
    assert report.frames == FRAMES


def test_every_port_of_the_system_was_tried(report: Report) -> None:
    thespians = {f"{name} TCP" for name in ("admin", "logger", *SUPERVISORS)}
    assert set(report.places) == thespians | {f"{name} mail" for name in ACTORS}


def test_every_kind_of_forgery_was_sent(report: Report) -> None:
    sent = {kind for kinds in report.places.values() for kind in kinds}
    assert {"replay", "bit_turned", "cut_short", "unsigned", "signed_with_another_key", "too_long"} <= sent
