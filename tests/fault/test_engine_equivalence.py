"""An engine that is killed at named moments and started again answers as one that is not.

Rollout actor, engine, policy and kills are real; the screens were recorded before. Greedy answers are equal.
Sampled ones are drawn from one generator for each incarnation, not one for each request
(`dart.inference.engine_factory`): the same incarnation gives the same answers to the same requests, and a
restarted engine draws others by design.
"""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from actors.errors import ActorDied
from actors.system import ActorSystem
from dart.core import messages as m
from dart.core.types import GenerateRequest, Generation
from dart.run.tree import root_of
from dart.store.reader import StoreReader
from dart.store.run_blobs import local_blobs
from supervision.child_spec import Backoff, ChildSpec
from tests.fault.actors_under_test import Running
from tests.fault.kill_moments import ENGINE_PLACES, Moment, Plan
from tests.fault.recorded_batches import INSTRUCTIONS, config_of, record_batches

GROUPS = 4
MOMENTS = [Moment(name=name) for name in ENGINE_PLACES]
"""Those of a start come last: a first start that fails ends the tree."""

DEADLINE_S = 600.0


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded") / "run"
    record_batches(folder, GROUPS)
    return folder


def requests_of(recorded: Path, temperature: float) -> list[GenerateRequest]:
    """A request for each recorded screen and instruction."""
    with StoreReader(recorded / "store.db", steps=local_blobs(recorded).steps) as reader:
        groups = reader.groups_to_trajectories([*range(1, GROUPS + 1)])
    screens = {step.screenshot_sha256 for group in groups for one in group.trajectories for step in one.steps}
    return [
        GenerateRequest(
            screenshot_sha256=sha256, instruction=instruction, history=(), temperature=temperature
        )
        for sha256 in sorted(screens)
        for instruction in INSTRUCTIONS
    ]


@contextlib.contextmanager
def engine(recorded: Path, kills: Sequence[Moment]) -> Iterator[tuple[Running, Path]]:
    """A tree with one rollout actor, which is killed at each of these moments, and the folder of the plan."""
    folder = Path(tempfile.mkdtemp(prefix="engine-", dir="/tmp"))
    try:
        shutil.copytree(recorded, folder / "run")
        (folder / "mail").mkdir()
        Plan.make(folder, kills)
        config = config_of(folder / "run", ["rollout.count=1", "supervision.root.max_restarts=1000"])
        args = {
            "config": config.model_dump(mode="json"),
            "store": str(folder / "run" / "store.db"),
            "engines": ["rollout-0"],
            "plan": str(folder),
        }
        spec = ChildSpec(
            id="rollout-0",
            actor="tests.fault.kill_moments:KilledEngine",
            args=args,
            preload=("dart.inference.transformers_engine", "dart.policy.small_policy"),
            backoff=Backoff(initial_s=0.0, max_s=0.0),
            start_deadline_s=DEADLINE_S,
            hang_deadline_s=DEADLINE_S,
        )
        system = ActorSystem(
            folder / "run",
            folder / "mail",
            root_of(config, (spec,)),
            prints_reports=False,
            start_deadline_s=DEADLINE_S,
        )
        with system:
            running = Running(system, folder / "mail")
            try:
                yield running, folder
            finally:
                running.probe.close()
        system.board.close()
    finally:
        shutil.rmtree(folder)


def answers(running: Running, requests: Sequence[GenerateRequest]) -> list[Generation]:
    """The answer to each request, which is repeated while the engine is started again."""
    found = []
    for request in requests:
        while True:
            with contextlib.suppress(ActorDied):
                found.append(running.probe.ask("rollout-0", m.Generate(request=request), DEADLINE_S))
                break
    return found


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_an_engine_killed_at_every_named_moment_answers_as_one_that_was_not(recorded: Path) -> None:
    greedy, sampled = requests_of(recorded, 0.0), requests_of(recorded, 1.0)
    with engine(recorded, []) as (running, _):
        running.system.await_ready("rollout-0", deadline_s=DEADLINE_S)
        drawn, wanted = answers(running, sampled), answers(running, greedy)
    with engine(recorded, []) as (running, _):
        running.system.await_ready("rollout-0", deadline_s=DEADLINE_S)
        assert answers(running, sampled) == drawn, "the same incarnation and requests, other draws"
    with engine(recorded, MOMENTS) as (running, folder):
        running.system.await_ready("rollout-0", deadline_s=DEADLINE_S)
        while len(Plan.struck(folder)) < len(MOMENTS):
            assert answers(running, greedy) == wanted
        assert Plan.struck(folder) == [moment.name for moment in MOMENTS]
        assert answers(running, greedy) == wanted
        assert running.row("rollout-0").incarnation == 1 + len(MOMENTS)
