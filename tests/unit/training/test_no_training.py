"""What is in the trainer's place in a run that only measures."""

from pathlib import Path
from typing import Any

from actors.actor import Actor, Sender, receives
from actors.testing import InMemorySystem
from dart.core import messages as m
from dart.training.no_training import NoTrainingActor


class Curator(Actor):
    """Gives the answers of a test, one after the other."""

    def on_start(self) -> None:
        self.answers: list[Any] = []

    @receives(m.BatchRequest)
    def batch(self, call: m.BatchRequest, sender: Sender) -> Any:
        return self.answers.pop(0)


def test_it_waits_for_its_curator_and_ends_when_the_run_is_over(tmp_path: Path) -> None:
    with InMemorySystem(tmp_path) as bench:
        bench.start(NoTrainingActor, "trainer")
        bench.advance(1.0)
        curator = bench.start(Curator, "curator")
        curator.answers = [m.NoWorkYet(retry_after_s=5.0, reason="an evaluation"), m.RunOver()]
        bench.advance(1.0)
        assert (len(curator.answers), bench.is_alive("trainer")) == (1, True)
        bench.advance(5.0)
        assert (len(curator.answers), bench.is_alive("trainer")) == (0, False)
