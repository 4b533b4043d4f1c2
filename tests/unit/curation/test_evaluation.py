"""Which evaluation episode a request gets, while many are played."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from dart.config.config import Config, load_config
from dart.core.records import Evaluation, EvaluationPhase
from dart.core.types import FaultKind
from dart.curation.episode_leases import LOOKS_PER_REQUEST
from dart.curation.evaluation import EvaluationLease, EvaluationSchedule
from dart.curation.run_phases import RunPlan

MANY = 3 * LOOKS_PER_REQUEST
BEFORE = EvaluationPhase.BEFORE


class NoRecord:
    """The part of a reader that a schedule needs, of a record without evaluations."""

    reads = 0
    newest: int | None = None

    def evaluations(self, phase: EvaluationPhase) -> tuple[()]:
        self.reads += 1
        return ()

    def latest_version(self) -> SimpleNamespace | None:
        return None if self.newest is None else SimpleNamespace(version=self.newest)


class Scene:
    """A schedule, and the incarnations of environments, of which most play."""

    def __init__(self, episodes: int) -> None:
        config: Config = load_config(
            None,
            [
                "tasks.train=['miniwob/click-test']",
                f"evaluation.seeds_per_task={episodes}",
                "evaluation.greedy_seeds_per_task=0",
            ],
        )
        reader: Any = NoRecord()
        self.reader = reader
        self.reports: list[dict[str, Any]] = []
        self.incarnations: dict[str, int] = {}
        self.looks = 0
        self.schedule = EvaluationSchedule(
            RunPlan(config=config, training_ends_s=math.inf),
            reader,
            lambda task_id, data: self.reports.append(dict(data)),
            lease_s=1000.0,
            max_attempts=3,
            incarnation=1,
        )

    def incarnation_of(self, environment: str) -> int | None:
        self.looks += 1
        return self.incarnations.get(environment)

    def ask(self, environment: str) -> int | None:
        """The seed of the episode that an environment gets."""
        self.incarnations.setdefault(environment, 1)
        lease = self.schedule.lease(BEFORE, environment, self.incarnation_of, 0.0)
        return None if lease is None else lease.episode.seed


def test_a_request_looks_at_a_bounded_number_of_holders_however_many_play() -> None:
    scene = Scene(MANY + 1)
    for number in range(MANY):
        scene.ask(f"env-{number}")
    scene.looks = 0
    assert scene.ask("last") is not None
    assert scene.looks == LOOKS_PER_REQUEST + 1, "the holders, and who asks"


def test_the_episode_of_a_process_that_ended_is_found_in_turn_and_played_by_another() -> None:
    scene = Scene(MANY)
    seeds = {name: scene.ask(name) for name in (f"env-{number}" for number in range(MANY))}
    scene.incarnations["env-150"] = 2
    given = [scene.ask("last") for _ in range(MANY // LOOKS_PER_REQUEST)]
    assert {seed for seed in given if seed is not None} == {seeds["env-150"]}
    assert [report["detail"] for report in scene.reports] == ["env-150 ended while it played"]


@pytest.mark.parametrize(("phase", "is_played_again"), [(BEFORE, False), (EvaluationPhase.AFTER, True)])
def test_a_result_costs_no_read_of_the_others_and_of_another_version_counts_only_before_training(
    phase: EvaluationPhase, is_played_again: bool
) -> None:
    scene = Scene(2)
    lease = scene.schedule.lease(phase, "a", scene.incarnation_of, 0.0)
    assert lease is not None
    reads, episode = scene.reader.reads, lease.episode
    result = Evaluation(phase=phase, policy_version=3, task_id=episode.task_id, seed=episode.seed, reward=1.0)
    scene.schedule.recorded(lease, result)
    assert scene.reader.reads == reads
    assert (episode in scene.schedule.missing[phase]) is is_played_again
    following = scene.schedule.lease(phase, "b", scene.incarnation_of, 0.0)
    assert following is not None
    assert (following.episode == episode) is is_played_again


def test_an_episode_that_came_back_is_the_next_again() -> None:
    scene = Scene(4)
    first, second = scene.ask("a"), scene.ask("b")
    lease = scene.schedule.holder(2**32 + 1)
    assert lease is not None
    scene.schedule.interrupted(lease, "its environment was ordered to stop")
    assert (scene.ask("c"), scene.ask("d")) == (first, (second or 0) + 1)
    assert scene.schedule.num_playing == 3


def test_a_lease_whose_result_is_being_recorded_ends_neither_by_a_request_nor_by_its_deadline() -> None:
    scene = Scene(3)
    scene.incarnations["a"] = 1
    lease = scene.schedule.lease(BEFORE, "a", scene.incarnation_of, 0.0)
    assert lease is not None
    with scene.schedule.recording(lease):
        scene.incarnations["a"] = 2
        following = scene.schedule.lease(BEFORE, "a", scene.incarnation_of, 0.0)
        assert following is not None
        scene.schedule.give_up_overdue(5000.0, lambda _: 0.0)
        assert scene.schedule.holder(following.fence) is None
        assert scene.schedule.holder(lease.fence) is lease
    task_id, seed = lease.episode.task_id, lease.episode.seed
    result = Evaluation(phase=BEFORE, policy_version=0, task_id=task_id, seed=seed, reward=1.0)
    scene.schedule.recorded(lease, result)
    assert lease.episode not in scene.schedule.missing[BEFORE]
    assert [report["seed"] for report in scene.reports] == [following.episode.seed]


def test_an_episode_is_played_from_the_beginning_of_its_lease_until_its_one_end() -> None:
    scene = Scene(1)
    lease = scene.schedule.lease(BEFORE, "a", scene.incarnation_of, 100.0)
    assert lease is not None
    assert [(one.environment, one.for_s) for one in scene.schedule.playing(130.0)] == [("a", 30.0)]
    assert [scene.schedule.end(lease.fence) for _ in range(2)] == [lease, None]
    assert list(scene.schedule.playing(130.0)) == []


def test_a_newer_version_is_measured_anew_and_its_episodes_have_all_their_attempts() -> None:
    scene, after = Scene(1), EvaluationPhase.AFTER

    def lease() -> EvaluationLease | None:
        return scene.schedule.lease(after, "a", scene.incarnation_of, 0.0)

    def trained(version: int) -> None:
        scene.reader.newest = version
        scene.schedule.measure_newest()

    trained(1)
    while (failing := lease()) is not None:
        scene.schedule.failed(failing, FaultKind.EVALUATOR, "made up")
    assert [report["attempts"] for report in scene.reports] == [1, 2, 3]
    trained(1)
    assert lease() is None, "the version is the same"
    trained(2)
    played = lease()
    assert played is not None
    task_id, seed = played.episode.task_id, played.episode.seed
    result = Evaluation(phase=after, policy_version=2, task_id=task_id, seed=seed, reward=1.0)
    scene.schedule.recorded(played, result)
    assert lease() is None
