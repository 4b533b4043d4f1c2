"""The configurations of the paper's job: whole, valid, and every value with where it comes from."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from dart.config.bundled import bundled_names, configuration_file
from dart.config.cluster import is_cluster_file, load_cluster
from dart.config.config import Config, differences, load_config
from dart.config.gpus import GpuAssignment, assign_gpus, shared_gpu_problems
from dart.config.sections import ExperiencePoolSettings
from dart.curation.stall_diagnosis import Component, RunFacts, diagnose
from dart.environments.actor import CANCEL_SHARE
from dart.preflight.idle_environments import idle_lines

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
VALUE = re.compile(r"^[a-z_]+ = ")

OTHERS = (
    "one-gpu.toml",
    "one-gpu-miniwob.toml",
    "decoupling.toml",
    "desktop.toml",
    "explore.toml",
    "grounding.toml",
)
"""Files of a large policy, of a simulated learner, or of training by supervision."""


def test_the_papers_job_has_the_papers_values() -> None:
    config = load_config(CONFIGS / "osworld-uitars-7b.toml")
    training, curation = config.training, config.curation
    assert (training.lr, training.kl_beta, training.clip_low, training.clip_high) == (1e-6, 0.1, 0.2, 0.28)
    assert (curation.rollouts_per_group, curation.step_cap, config.rollout.temperature) == (8, 30, 1.0)
    assert (curation.high_entropy.quantile, curation.importance.cap) == (0.2, 1.0)
    assert (config.context.screenshots, config.context.turns, config.context.answer_tokens) == (5, 35, 500)
    switches = (
        *(curation.rollout_number, curation.trajectory_length, curation.experience_pool),
        *(curation.high_entropy, curation.importance),
    )
    assert all(part.enabled for part in switches)
    assert len(config.tasks.train) == 45


def test_the_papers_job_fits_one_node_of_eight_gpus_and_its_second_file_two() -> None:
    one = load_config(CONFIGS / "osworld-uitars-7b.toml")
    eight = tuple("01234567")
    assert list(shared_gpu_problems(one, eight)) == []
    assert assign_gpus(one, eight) == GpuAssignment(
        engines=(("0",), ("1",), ("2",), ("3",)), trainer=("4", "5", "6", "7")
    )
    two = load_cluster(CONFIGS / "osworld-uitars-7b-two-nodes.toml").run
    assert (two.rollout.count * two.rollout.vllm.tensor_parallel, two.training.ranks) == (8, 8)
    different = {key for key, _, _ in differences(one, two)}
    assert different == {
        *("run.record", "run.blobs", "rollout.count", "rollout.gpus"),
        *("training.ranks", "training.gpus", "training.minibatches"),
        *("environments.osworld.pool.own_token", "environments.osworld.pool.server"),
    }


def test_an_environment_of_the_papers_job_that_stops_has_time_for_a_machine_that_boots() -> None:
    config, boot_s = load_config(CONFIGS / "osworld-uitars-7b.toml"), 300.0
    assert config.supervision.environment_pool.shutdown_s * CANCEL_SHARE > boot_s


@pytest.mark.parametrize("name", bundled_names())
def test_every_environment_of_a_bundled_job_can_play_while_an_update_is_computed(name: str) -> None:
    file = configuration_file(Path(name))
    config = load_cluster(file).run if is_cluster_file(file) else load_config(file)

    assert list(idle_lines(config)) == []


@pytest.mark.parametrize(("name", "longest_s"), [("osworld-uitars-7b", 6000.0), ("one-gpu", 4200.0)])
def test_environments_that_wait_for_a_usual_update_of_a_large_policy_are_no_stall(
    name: str, longest_s: float
) -> None:
    config = load_config(Path(name))
    waits = RunFacts(
        starved_after_s=config.curation.starved_after_s,
        update_deadline_s=config.training.update_deadline_s,
        trainer=Component(name="trainer", doing="update", doing_s=longest_s),
        environments_wait_because={"env-000": "16 groups are live"},
    )

    assert diagnose(replace(waits, waiting={"env-000": longest_s - 1.0})) is None
    assert diagnose(replace(waits, waiting={"env-000": longest_s})) is not None


def test_every_value_of_it_says_where_it_comes_from() -> None:
    text = (CONFIGS / "osworld-uitars-7b.toml").read_text()
    values = [line for line in text.splitlines() if VALUE.match(line)]
    assert len(values) > 60
    assert [line for line in values if not re.search(r"# (?:paper|code|here|OSWorld)", line)] == ["train = ["]


def test_one_gpu_is_the_same_job_made_small() -> None:
    paper, small = (load_config(CONFIGS / name) for name in ("osworld-uitars-7b.toml", "one-gpu.toml"))

    def same(config: Config) -> tuple[object, ...]:
        training, curation = config.training, config.curation
        return (
            *(training.policy.name, training.kl_beta, training.clip_low, training.clip_high),
            *(curation.rollouts_per_group, curation.staleness, curation.high_entropy, curation.importance),
            *(config.context, config.rollout.engine, config.rollout.temperature),
        )

    assert same(paper) == same(small)
    assert (small.training.ranks, small.rollout.count, small.training.lora.rank) == (1, 1, 32)
    assert small.rollout.vllm.memory < 0.5


def test_the_tiny_job_is_told_what_is_in_the_repository_and_clicks_once() -> None:
    config = load_config(CONFIGS / "tiny-vlm.toml")
    assert (CONFIGS.parent / config.context.prompt).read_text().endswith("Task: \n")
    assert (config.curation.step_cap, config.training.kl_beta) == (1, 0.0)


def test_the_job_with_the_pointer_head_differs_from_the_laptop_job_by_policy_unit_of_clicks_and_pool() -> (
    None
):
    one, two = load_config(CONFIGS / "laptop.toml"), load_config(CONFIGS / "laptop-pointer.toml")
    run, training = {"dir": two.run.dir}, {"policy": two.training.policy, "click_unit": "element"}
    changed = {
        "run": one.run.model_copy(update=run),
        "training": one.training.model_copy(update=training),
        "curation": one.curation.model_copy(update={"experience_pool": ExperiencePoolSettings()}),
    }
    assert one.model_copy(update=changed) == two


def test_a_file_keeps_the_betas_its_results_were_measured_with_and_others_have_the_usual_ones() -> None:
    files = [path for path in CONFIGS.glob("*.toml") if not is_cluster_file(path)]
    betas = {path.name: load_config(path).training.betas for path in files}
    measured = {name for name, pair in betas.items() if pair == (0.9, 0.99)}
    assert measured == {
        *("laptop.toml", "laptop-pointer.toml", "hard.toml", "tiny-vlm.toml", "grounding-rl.toml"),
        "demo.toml",
    }
    assert {betas[name] for name in betas.keys() - measured} == {(0.9, 0.999)}


def test_what_a_file_does_not_say_is_as_in_the_papers_job() -> None:
    paper, default = load_config(CONFIGS / "osworld-uitars-7b.toml"), Config()
    of_loss = ("clip_low", "clip_high", "dual_clip", "kl_beta")
    for name in ("lr", "betas", "weight_decay", "max_grad_norm", *of_loss):
        assert getattr(default.training, name) == getattr(paper.training, name), name
    assert default.curation.experience_pool.max_uses == paper.curation.experience_pool.max_uses == 0


def test_small_jobs_keep_the_optimizer_that_their_results_were_measured_with() -> None:
    files = [path for path in CONFIGS.glob("*.toml") if not is_cluster_file(path)]
    small = {path.name: load_config(path) for path in files if "osworld" not in path.name}
    trained = {name: one.training for name, one in small.items() if name not in OTHERS}
    assert {(one.weight_decay, one.max_grad_norm) for one in trained.values()} == {(0.0, 1.0)}
    assert {name: one.lr for name, one in trained.items() if one.lr != 3e-4} == {"chaos.toml": 1e-9}
    assert small["hard.toml"].curation.experience_pool.max_uses == 16
