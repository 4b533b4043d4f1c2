"""The model of an engine: how long it takes, what it answers, and which checkpoints it refuses."""

import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from dart.config.sections import SimulationSettings
from dart.core.actions import Click, parse_action
from dart.core.types import GenerateRequest, Group, Outcome, Step, Trajectory
from dart.inference.simulated_engine import SimulatedEngine
from dart.store.blobs import FolderBlobs
from dart.store.checkpoints import CorruptCheckpoint, load_checkpoint
from dart.training.simulated_learner import SimulatedLearner

SIMULATED = SimulationSettings(
    generate_base_s=0.1, generate_each_s=0.01, load_s=2.0, swap_s=0.25, update_base_s=1.0, update_each_s=0.01
)


class Waits:
    """Instead of sleeping, how long it would have been."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def engine(seed: int = 0, *, waits: Waits | None = None) -> SimulatedEngine:
    return SimulatedEngine(Path("base"), 0, simulated=SIMULATED, seed=seed, wait=waits or Waits())


def request(temperature: float = 1.0) -> GenerateRequest:
    return GenerateRequest(screenshot_sha256="0", instruction="", history=(), temperature=temperature)


def trajectory(rollout_id: int, reward: float, steps: int) -> Trajectory:
    step = Step(
        screenshot_sha256="0",
        prompt_ids=(1,),
        token_ids=(1, 2, 3),
        logprobs=(-0.1,) * 3,
        entropies=(0.1,) * 3,
        answer="wait()",
        policy_version=0,
        observe_ms=1.0,
        generate_ms=1.0,
        act_ms=1.0,
    )
    return Trajectory(
        rollout_id=rollout_id,
        group_id=1,
        task_id="simulated/0",
        seed=0,
        environment="env-000",
        instruction="",
        outcome=Outcome.TERMINATED,
        reward=reward,
        steps=(step,) * steps,
        started_unix_s=0.0,
        duration_s=1.0,
    )


def group(*played: tuple[float, int]) -> Group:
    trajectories = tuple(trajectory(number, reward, steps) for number, (reward, steps) in enumerate(played))
    return Group(group_id=1, task_id="simulated/0", seed=0, trajectories=trajectories)


def test_a_batch_takes_a_base_and_so_much_for_each_request() -> None:
    waits = Waits()
    model = engine(waits=waits)
    model.generate([request()] * 5)
    model.generate([request()])
    model.generate([])
    assert waits.seconds == pytest.approx([2.0, 0.25, 0.15, 0.11])


def test_answers_are_clicks_with_as_many_figures_as_tokens() -> None:
    model = engine()
    answers = model.generate([request()] * 200)
    for answer in answers:
        click = parse_action(answer.answer)
        assert isinstance(click, Click)
        assert 0 <= click.x < 160
        assert 0 <= click.y < 210
        assert len(answer.token_ids) == len(answer.logprobs) == len(answer.entropies) > 0
        assert max(answer.logprobs) <= 0 <= min(answer.entropies)
        assert answer.policy_version == 0
    median = statistics.median(len(answer.token_ids) for answer in answers)
    assert 60 < median < 100
    assert set(model.generate([request(temperature=0.0)])[0].logprobs) == {0.0}


def test_the_seed_of_the_model_decides_its_answers() -> None:
    first, same, other = (engine(seed).generate([request()] * 3) for seed in (1, 1, 2))
    assert first == same
    assert first != other


def test_the_model_takes_over_the_version_of_a_whole_checkpoint_and_refuses_others(tmp_path: Path) -> None:
    learner = SimulatedLearner(SIMULATED, wait=Waits())
    learner.update([group((1.0, 2), (0.0, 3))], FolderBlobs(tmp_path))
    folder = learner.copy()(tmp_path)
    waits = Waits()
    model = engine(waits=waits)
    model.load(folder, 1)
    assert model.version == 1
    assert waits.seconds == [2.0, 0.25, 2.0, 0.25]
    for broken, version in ((folder, 2), (tmp_path / "nowhere", 3)):
        with pytest.raises(CorruptCheckpoint):
            model.load(broken, version)
    (folder / "weights.json").write_text("{}")
    with pytest.raises(CorruptCheckpoint, match="sha256"):
        model.load(folder, 1)
    assert model.version == 1
    assert model.generate([request()])[0].policy_version == 1


def test_an_update_takes_a_base_and_so_much_for_each_step_of_groups_with_spread(tmp_path: Path) -> None:
    waits = Waits()
    learner = SimulatedLearner(SIMULATED, wait=waits)
    report = learner.update([group((1.0, 2), (0.0, 3)), group((1.0, 7), (1.0, 7))], FolderBlobs(tmp_path))
    assert waits.seconds == pytest.approx([1.05])
    assert (report.version, report.samples, report.tokens) == (1, 5, 15)
    assert (report.groups, report.groups_without_spread, report.mean_reward) == (2, 1, 0.75)


def test_a_simulated_learner_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    learner = SimulatedLearner(SIMULATED, wait=Waits())
    for _ in range(3):
        learner.update([group((1.0, 1), (0.0, 1))], FolderBlobs(tmp_path))
    folder = learner.copy()(tmp_path)
    assert folder.name == "v000003"
    again = SimulatedLearner(SIMULATED, resume=load_checkpoint(folder), wait=Waits())
    assert again.update([group((1.0, 1), (0.0, 1))], tmp_path).version == 4


def test_simulated_parts_and_the_rollout_actor_load_no_heavy_library() -> None:
    code = (
        "import sys, dart.inference.simulated_engine, dart.training.simulated_learner, dart.inference.actor;"
        "print([name for name in ('torch', 'transformers', 'vllm') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
