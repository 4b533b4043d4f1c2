"""The verifier's actor: queries one at a time in their order, and its start."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import dart.grounding.verifier_actor as module
from actors.testing import InMemorySystem
from dart.config.sections import EvaluationSettings
from dart.grounding import jobs
from dart.grounding.verifier_actor import CannotVerify, Chosen, VerifierActor, Verify
from supervision import ChildSpec
from tests.unit.grounding.samples import data_set


class MadeVerifier:
    """Finds points with a large x right, as soon as the test lets it."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.free.set()
        self.asked: list[float] = []

    def score(self, image: Any, instruction: str, point: tuple[float, float]) -> float:
        self.asked.append(point[0])
        assert self.free.wait(30)
        return point[0]


@pytest.fixture
def verifier(monkeypatch: pytest.MonkeyPatch) -> MadeVerifier:
    made = MadeVerifier()
    monkeypatch.setattr(VerifierActor, "_load", lambda self, folder: made)
    return made


@pytest.fixture
def system(tmp_path: Path, verifier: MadeVerifier) -> Iterator[InMemorySystem]:
    (tmp_path / "system" / "crash").mkdir(parents=True)
    with InMemorySystem(tmp_path / "system") as system:
        system.start(VerifierActor, "verifier", {"checkpoint": "made"})
        system.finish_work("verifier", lambda: hasattr(system.actor("verifier"), "_verifier"))
        yield system


def query(folder: Path, *xs: float) -> Verify:
    (image,) = (data_set(folder) / "images").iterdir()
    return Verify(image=str(image), instruction="click", xs=xs, ys=(0.5,) * len(xs), stop_at=0.8)


def test_a_query_is_answered_with_the_choice(system: InMemorySystem, tmp_path: Path) -> None:
    answer = system.ask("verifier", query(tmp_path, 0.1, 0.9, 0.95))
    system.finish_work("verifier", lambda: answer.is_done)

    assert answer.result() == Chosen(index=1, score=0.9, scored=2)


def test_queries_are_answered_one_at_a_time_in_their_order(
    system: InMemorySystem, verifier: MadeVerifier, tmp_path: Path
) -> None:
    before = threading.enumerate()
    verifier.free.clear()
    answers = [system.ask("verifier", query(tmp_path, 0.1 * number)) for number in range(1, 4)]
    system.settle()
    at_work = [thread for thread in threading.enumerate() if thread not in before]
    verifier.free.set()
    system.finish_work("verifier", lambda: all(one.is_done for one in answers))

    assert len(at_work) == 1
    assert verifier.asked == pytest.approx([0.1, 0.2, 0.3])
    assert [one.result().score for one in answers] == verifier.asked


def test_a_wrong_query_gets_the_reason_and_the_actor_goes_on(system: InMemorySystem, tmp_path: Path) -> None:
    good = query(tmp_path, 0.9)
    wrong = Verify(image=str(tmp_path / "gone.png"), instruction="", xs=(0.5,), ys=(0.5,), stop_at=0.8)
    answers = [system.ask("verifier", one) for one in (wrong, good)]
    system.finish_work("verifier", lambda: all(one.is_done for one in answers))

    assert isinstance(answers[0].result(), CannotVerify)
    assert isinstance(answers[1].result(), Chosen)


def test_the_verifiers_child_has_the_whole_start_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """It loads its checkpoint before it is ready, and its supervisor kills it at its own deadline."""
    deadlines_s: list[float] = []

    @contextmanager
    def supervised(child: ChildSpec, *, start_deadline_s: float) -> Iterator[None]:
        deadlines_s.extend((child.start_deadline_s, start_deadline_s))
        yield

    monkeypatch.setattr(jobs, "supervised", supervised)
    with jobs._chooser(EvaluationSettings(verifier="made")):
        assert deadlines_s == [module.START_DEADLINE_S] * 2


def test_a_checkpoint_may_take_almost_the_whole_start_deadline_to_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_load = threading.Event()
    monkeypatch.setattr(VerifierActor, "_load", lambda self, folder: may_load.wait(30))
    (tmp_path / "crash").mkdir()
    with InMemorySystem(tmp_path) as system:
        system.start(VerifierActor, "verifier", {"checkpoint": "made"})
        system.advance(module.START_DEADLINE_S - 1.0)
        may_load.set()
        system.finish_work("verifier", lambda: hasattr(system.actor("verifier"), "_verifier"))
