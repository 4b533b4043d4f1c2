"""The learner on a policy of a few thousand parameters and screens of noise."""

import dataclasses
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from dart.core.types import Demonstration, Group, Step
from dart.policy.adapter_files import fingerprint
from dart.policy.codec import load_pixels
from dart.policy.protocols import ForeignPrompt
from dart.policy.sampling import AnswerScores, answer_scores, sample, teacher_forced
from dart.policy.scoring import score_steps
from dart.policy.small_policy import SmallPolicy, save_policy
from dart.policy.tokenizer import train_tokenizer
from dart.store.blobs import FolderBlobs
from dart.store.checkpoints import latest_good, load_checkpoint
from dart.store.errors import BlobMissing
from dart.training.batch_errors import Blame, NonFiniteUpdate, NothingToLearn, blame
from dart.training.failure_penalty import FailurePenalty
from dart.training.learner import Learner, LearnerConfig
from dart.training.reference_policy import base_sha256
from tests.tiny_small_policy import noise_png, tiny_small_policy

pytestmark = pytest.mark.slow

INSTRUCTIONS = ("Click the button.", 'Type "a" and submit.')


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    tokenizer = train_tokenizer(INSTRUCTIONS)
    save_policy(tiny_small_policy(tokenizer), tokenizer, folder)
    return folder


@pytest.fixture
def blobs(tmp_path: Path) -> FolderBlobs:
    return FolderBlobs(tmp_path / "blobs")


def screen(blobs: FolderBlobs, seed: int) -> str:
    return blobs.put(noise_png(seed))


def sampled_group(
    base: Path, blobs: FolderBlobs, group_of: Callable[..., Group], *, seed: int = 0, rollouts: int = 4
) -> Group:
    """Rollouts of one step from the same screen, really sampled; the first half of them succeeds."""
    policy = SmallPolicy(base)
    sha256 = screen(blobs, seed)
    prompt = policy.codec.encode_prompt(INSTRUCTIONS[0], [])
    pixels = torch.from_numpy(load_pixels(blobs.read(sha256)))
    answers = sample(
        policy.module,
        [prompt] * rollouts,
        torch.stack([pixels] * rollouts),
        [1.0] * rollouts,
        torch.Generator().manual_seed(seed),
        max_new_tokens=5,
    )
    template = group_of(
        rewards=[1.0] * (rollouts // 2) + [0.0] * (rollouts - rollouts // 2), lengths=[1] * rollouts
    )
    trajectories = tuple(
        dataclasses.replace(
            trajectory,
            steps=(
                dataclasses.replace(
                    trajectory.steps[0],
                    screenshot_sha256=sha256,
                    prompt_ids=tuple(prompt),
                    token_ids=answer.token_ids,
                    logprobs=answer.logprobs,
                    entropies=answer.entropies,
                ),
            ),
        )
        for trajectory, answer in zip(template.trajectories, answers, strict=True)
    )
    return dataclasses.replace(template, trajectories=trajectories)


def steps_of(groups: list[Group]) -> list[Step]:
    return [step for group in groups for trajectory in group.trajectories for step in trajectory.steps]


def after_another_history(steps: list[Step], base: Path) -> list[Step]:
    """The same answers on the same screenshots, after another history."""
    prompt = SmallPolicy(base).codec.encode_prompt(INSTRUCTIONS[0], ["click(start_box='(30,40)')"])
    return [dataclasses.replace(step, prompt_ids=tuple(prompt)) for step in steps]


def weights(learner: Learner, parent: Path) -> dict[str, torch.Tensor]:
    return SmallPolicy(learner.save(parent)).module.state_dict()


def log_likelihoods(folder: Path, steps: list[Step], blobs: FolderBlobs) -> list[float]:
    model = SmallPolicy(folder).module
    pixels = {
        s.screenshot_sha256: torch.from_numpy(load_pixels(blobs.read(s.screenshot_sha256))) for s in steps
    }
    with torch.no_grad():
        return [float(x) for x in score_steps(model, steps, pixels, 1.0).logprobs.sum(-1)]


def test_shared_prefixes_and_screenshots_give_the_log_probs_of_every_step_alone(
    base: Path, blobs: FolderBlobs, group_of: Callable[..., Group]
) -> None:
    groups = [sampled_group(base, blobs, group_of, seed=seed) for seed in (0, 1)]
    steps = steps_of(groups)
    steps += after_another_history(steps, base)
    model = SmallPolicy(base).module
    pixels = {
        s.screenshot_sha256: torch.from_numpy(load_pixels(blobs.read(s.screenshot_sha256))) for s in steps
    }
    shared = score_steps(model, steps, pixels, 0.7)
    out, targets, mask = teacher_forced(
        model,
        [s.prompt_ids for s in steps],
        [s.token_ids for s in steps],
        torch.stack([pixels[s.screenshot_sha256] for s in steps]),
    )
    alone = answer_scores(out.logits, targets, mask, 0.7)
    assert torch.allclose(shared.logprobs, alone.logprobs, atol=1e-5)
    assert torch.allclose(shared.entropies, alone.entropies, atol=1e-5)
    assert torch.equal(shared.mask, alone.mask)


def test_the_stem_sees_a_screenshot_once_whatever_the_histories(
    base: Path, blobs: FolderBlobs, group_of: Callable[..., Group]
) -> None:
    steps = steps_of([sampled_group(base, blobs, group_of)])
    steps += after_another_history(steps, base)
    pixels = {
        s.screenshot_sha256: torch.from_numpy(load_pixels(blobs.read(s.screenshot_sha256))) for s in steps
    }
    model, seen = SmallPolicy(base).module, []
    model.stem.register_forward_hook(lambda _, given, __: seen.append(len(given[0])))
    score_steps(model, steps, pixels, 1.0)
    assert len({s.prompt_ids for s in steps}) == 2
    assert seen == [1]


def test_shared_prefixes_and_screenshots_give_the_gradient_of_every_step_alone(
    base: Path, blobs: FolderBlobs, group_of: Callable[..., Group]
) -> None:
    steps = steps_of([sampled_group(base, blobs, group_of)])
    steps += after_another_history(steps, base)
    pixels = {
        s.screenshot_sha256: torch.from_numpy(load_pixels(blobs.read(s.screenshot_sha256))) for s in steps
    }
    together = SmallPolicy(base).module
    score_steps(together, steps, pixels, 1.0).logprobs.sum().backward()
    apart = SmallPolicy(base).module
    for step in steps:
        score_steps(apart, [step], pixels, 1.0).logprobs.sum().backward()
    for (name, a), b in zip(together.named_parameters(), apart.parameters(), strict=True):
        assert a.grad is not None, name
        assert b.grad is not None, name
        assert torch.allclose(a.grad, b.grad, atol=1e-4, rtol=1e-3), name


@pytest.mark.parametrize("kl_beta", [0.0, 0.01])
@pytest.mark.parametrize("minibatches", [1, 2])
def test_an_update_makes_rewarded_answers_likelier_and_others_less_likely(
    base: Path,
    blobs: FolderBlobs,
    group_of: Callable[..., Group],
    tmp_path: Path,
    minibatches: int,
    kl_beta: float,
) -> None:
    group = sampled_group(base, blobs, group_of)
    steps = steps_of([group])
    learner = Learner(base, LearnerConfig(lr=1e-3, kl_beta=kl_beta, minibatches=minibatches, micro_batch=3))
    report = learner.update([group], blobs)
    before = log_likelihoods(base, steps, blobs)
    after = log_likelihoods(learner.save(tmp_path / "checkpoints"), steps, blobs)
    gain = [b - a for a, b in zip(before, after, strict=True)]
    assert gain[0] + gain[1] > 0
    assert gain[2] + gain[3] < 0
    assert report.version == learner.version == 1
    assert (report.samples, report.prefixes, report.optimizer_steps) == (4, 1, minibatches)
    assert report.mean_reward == 0.5


def test_the_behaviour_log_probs_of_an_engine_are_those_of_the_learner(
    base: Path, blobs: FolderBlobs, group_of: Callable[..., Group]
) -> None:
    report = Learner(base, LearnerConfig(kl_beta=0.1)).update([sampled_group(base, blobs, group_of)], blobs)
    assert report.tis_weight == pytest.approx(1.0, abs=1e-4)
    assert report.ratio == pytest.approx(1.0, abs=1e-6)
    assert report.kl == pytest.approx(0.0, abs=1e-6)


def test_the_kl_divergence_is_not_known_without_a_kl_term(
    base: Path, blobs: FolderBlobs, group_of: Callable[..., Group]
) -> None:
    report = Learner(base, LearnerConfig(kl_beta=0.0)).update([sampled_group(base, blobs, group_of)], blobs)
    assert (report.kl, report.kl_bounded_fraction) == (None, None)


def test_micro_batches_change_nothing_but_memory(
    base: Path, blobs: FolderBlobs, group_of: Callable[..., Group]
) -> None:
    groups = [sampled_group(base, blobs, group_of, seed=seed) for seed in (0, 1)]
    reports = [Learner(base, LearnerConfig(micro_batch=size)).update(groups, blobs) for size in (1, 3, 64)]
    for report in reports[1:]:
        assert report.loss == pytest.approx(reports[0].loss, abs=1e-5)
        assert report.grad_norm == pytest.approx(reports[0].grad_norm, rel=1e-3)
        assert report.entropy == pytest.approx(reports[0].entropy, rel=1e-4)


def test_groups_without_spread_are_left_out_and_counted(
    base: Path, blobs: FolderBlobs, group_of: Callable[..., Group]
) -> None:
    flat = group_of(rewards=[1.0, 1.0], lengths=[1, 1])
    report = Learner(base, LearnerConfig()).update([sampled_group(base, blobs, group_of), flat], blobs)
    assert (report.groups, report.groups_without_spread, report.samples) == (2, 1, 4)
    assert report.mean_reward == pytest.approx(4 / 6)


def test_with_a_penalty_answers_that_all_failed_become_less_likely(
    base: Path, blobs: FolderBlobs, group_of: Callable[..., Group], tmp_path: Path
) -> None:
    played = sampled_group(base, blobs, group_of)
    failed = tuple(dataclasses.replace(one, reward=0.0) for one in played.trajectories)
    group = dataclasses.replace(played, trajectories=failed)
    steps = steps_of([group])
    learner = Learner(base, LearnerConfig(lr=1e-3, kl_beta=0.0, failure_penalty=FailurePenalty(weight=0.5)))
    report = learner.update([group], blobs)
    before = log_likelihoods(base, steps, blobs)
    after = log_likelihoods(learner.save(tmp_path / "checkpoints"), steps, blobs)
    assert sum(after) < sum(before)
    assert (report.samples, report.groups_without_spread) == (4, 0)


def test_a_batch_without_any_spread_is_refused(
    base: Path, blobs: FolderBlobs, group_of: Callable[..., Group]
) -> None:
    learner = Learner(base, LearnerConfig())
    with pytest.raises(NothingToLearn, match="none of the 1 groups"):
        learner.update([group_of(rewards=[0.0, 0.0], lengths=[1, 2])], blobs)
    assert learner.version == 0


def test_a_missing_screenshot_stops_the_update_before_anything_changes(
    base: Path, blobs: FolderBlobs, group_of: Callable[..., Group]
) -> None:
    group = sampled_group(base, blobs, group_of)
    blobs.path(group.trajectories[0].steps[0].screenshot_sha256).unlink()
    learner = Learner(base, LearnerConfig())
    with pytest.raises(BlobMissing):
        learner.update([group], blobs)
    assert learner.version == 0


@pytest.mark.parametrize("minibatches", [1, 2])
def test_a_number_that_is_not_finite_changes_nothing(
    base: Path, blobs: FolderBlobs, group_of: Callable[..., Group], tmp_path: Path, minibatches: int
) -> None:
    """One broken reward among good ones: with two optimizer steps the first may already have been taken."""
    group = sampled_group(base, blobs, group_of)
    first = dataclasses.replace(group.trajectories[0].steps[0], logprobs=(math.nan,) * 5)
    first = dataclasses.replace(first, logprobs=first.logprobs[: len(first.token_ids)])
    broken = dataclasses.replace(group.trajectories[0], steps=(first,))
    learner = Learner(base, LearnerConfig(lr=1e-2, minibatches=minibatches))
    learner.update([group], blobs)
    before = weights(learner, tmp_path / "before")
    with pytest.raises(NonFiniteUpdate, match=r"loss .* nothing was applied"):
        learner.update([dataclasses.replace(group, trajectories=(broken, *group.trajectories[1:]))], blobs)
    assert learner.version == 1
    after = weights(learner, tmp_path / "after")
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("minibatches", [1, 3])
def test_of_a_batch_that_is_not_finite_the_guilty_steps_are_named(
    base: Path, blobs: FolderBlobs, group_of: Callable[..., Group], minibatches: int
) -> None:
    good, bad = (sampled_group(base, blobs, group_of, seed=seed) for seed in (0, 1))
    wild: dict[str, object] = {"logprobs": (math.nan,) * len(steps_of([bad])[2].token_ids)}
    bad = with_step_changes(bad, {}, {}, wild, {})
    learner = Learner(base, LearnerConfig(minibatches=minibatches, micro_batch=3))
    with pytest.raises(NonFiniteUpdate, match="1 steps have a loss that is not finite") as refused:
        learner.update([good, bad], blobs)
    assert [id(step) for step in refused.value.steps] == [id(steps_of([bad])[2])]
    assert learner.update([good], blobs).version == 1


@pytest.mark.parametrize("minibatches", [1, 4])
def test_an_update_that_is_not_finite_leaves_no_trace_in_those_after_it(
    base: Path, blobs: FolderBlobs, group_of: Callable[..., Group], tmp_path: Path, minibatches: int
) -> None:
    good, bad = (sampled_group(base, blobs, group_of, seed=seed) for seed in (0, 1))
    wild: dict[str, object] = {"logprobs": (math.nan,) * len(steps_of([bad])[3].token_ids)}
    config = LearnerConfig(lr=1e-3, minibatches=minibatches, micro_batch=1)
    learners = [Learner(base, config) for _ in range(2)]
    for learner in learners:
        learner.update([good], blobs)
    with pytest.raises(NonFiniteUpdate):
        learners[0].update([good, with_step_changes(bad, {}, {}, {}, wild)], blobs)
    for learner in learners:
        learner.update([good], blobs)
    tried, straight = (weights(learner, tmp_path / str(id(learner))) for learner in learners)
    assert all(torch.equal(tried[name], straight[name]) for name in straight)


def test_a_gradient_whose_norm_is_not_finite_changes_nothing(
    base: Path,
    blobs: FolderBlobs,
    group_of: Callable[..., Group],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Several ranks check nothing else, because each has a loss of its own."""
    group = sampled_group(base, blobs, group_of)
    learner = Learner(base, LearnerConfig(lr=1e-3))
    before = weights(learner, tmp_path / "before")
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda *_: torch.tensor(math.inf))
    with pytest.raises(NonFiniteUpdate, match="gradient norm of the update on policy version 0 is inf"):
        learner.update([group], blobs)
    after = weights(learner, tmp_path / "after")
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_the_gradient_is_clipped_to_its_largest_norm_and_reported_before_that(
    base: Path, blobs: FolderBlobs, group_of: Callable[..., Group]
) -> None:
    learner = Learner(base, LearnerConfig(max_grad_norm=1e-3, betas=(0.5, 0.999)))
    report = learner.update([sampled_group(base, blobs, group_of)], blobs)
    moments = learner._optimizer.state_dict()["state"].values()
    norm = math.sqrt(sum(float(one["exp_avg"].square().sum()) for one in moments)) / 0.5
    assert report.grad_norm > 2e-3
    assert norm == pytest.approx(1e-3, rel=1e-2)


def test_when_an_optimizer_step_breaks_the_policy_no_group_is_blamed_and_nothing_has_changed(
    base: Path, blobs: FolderBlobs, group_of: Callable[..., Group], tmp_path: Path
) -> None:
    group = sampled_group(base, blobs, group_of)
    learner = Learner(base, LearnerConfig(lr=1e30, minibatches=2))
    before = weights(learner, tmp_path / "before")
    with pytest.raises(NonFiniteUpdate) as refused:
        learner.update([group], blobs)
    assert refused.value.steps == ()
    after = weights(learner, tmp_path / "after")
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_token_far_from_the_reference_costs_no_batch(
    base: Path, blobs: FolderBlobs, group_of: Callable[..., Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference finds one answer 100 nats likelier: k3 alone would be infinite."""
    group = sampled_group(base, blobs, group_of)
    learner = Learner(base, LearnerConfig(kl_beta=0.1))
    score = learner._reference
    assert score is not None

    def likelier(*arguments: object) -> AnswerScores:
        found = score(*arguments)  # type: ignore[arg-type]
        found.logprobs[0] += 100.0
        return found

    monkeypatch.setattr(learner, "_reference", likelier)
    report = learner.update([group], blobs)
    assert report.kl_bounded_fraction == pytest.approx(1 / 4)
    assert math.isfinite(report.loss)
    assert (report.dual_clip_fraction, report.ratio_bounded_fraction) == (0.0, 0.0)


def test_the_betas_of_the_optimizer_are_those_of_the_configuration(base: Path) -> None:
    assert LearnerConfig().betas == (0.9, 0.999)
    learner = Learner(base, LearnerConfig(betas=(0.5, 0.6)))
    assert learner._optimizer.param_groups[0]["betas"] == (0.5, 0.6)


def test_a_resumed_learner_has_the_optimizer_settings_of_its_own_configuration(
    base: Path, blobs: FolderBlobs, group_of: Callable[..., Group], tmp_path: Path
) -> None:
    first = Learner(base, LearnerConfig(lr=1e-3, betas=(0.5, 0.6), weight_decay=0.5))
    first.update([sampled_group(base, blobs, group_of)], blobs)
    checkpoint = load_checkpoint(first.save(tmp_path / "run"))

    config = LearnerConfig(lr=1e-4, betas=(0.7, 0.8), weight_decay=0.0)
    resumed = Learner(base, config, resume=checkpoint)

    settings = resumed._optimizer.param_groups[0]
    assert (settings["lr"], settings["betas"], settings["weight_decay"]) == (1e-4, (0.7, 0.8), 0.0)
    before, after = (one._optimizer.state_dict()["state"] for one in (first, resumed))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key]["exp_avg"], after[key]["exp_avg"]) for key in before)


def test_a_resumed_learner_goes_on_as_if_it_had_not_stopped(
    base: Path, blobs: FolderBlobs, group_of: Callable[..., Group], tmp_path: Path
) -> None:
    config = LearnerConfig(lr=1e-3, minibatches=2, warmup_updates=4, kl_beta=0.01)
    first, second = (sampled_group(base, blobs, group_of, seed=seed) for seed in (0, 1))
    straight = Learner(base, config)
    straight.update([first], blobs)
    saved = straight.save(tmp_path / "run")
    straight.update([second], blobs)

    checkpoint = load_checkpoint(saved)
    assert checkpoint.state.learner["config"]["warmup_updates"] == 4
    resumed = Learner(base, config, resume=checkpoint)
    assert resumed.version == 1
    resumed.update([second], blobs)
    a, b = weights(straight, tmp_path / "a"), weights(resumed, tmp_path / "b")
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_every_version_names_the_base_policy_with_which_the_run_began(base: Path, tmp_path: Path) -> None:
    replaced = shutil.copytree(base, tmp_path / "base")
    began_with = fingerprint(replaced)
    checkpoint = load_checkpoint(Learner(replaced, LearnerConfig(kl_beta=0.0)).save(tmp_path / "run"))
    (replaced / "model.safetensors").write_bytes(b"of another release")
    resumed = Learner(replaced, LearnerConfig(kl_beta=0.0), resume=checkpoint)
    assert base_sha256(checkpoint.state) == base_sha256(resumed.state()) == began_with


def test_a_saved_version_is_a_policy_the_auto_classes_load(base: Path, tmp_path: Path) -> None:
    learner = Learner(base, LearnerConfig())
    folder = learner.save(tmp_path / "run")
    good, refused = latest_good(tmp_path / "run")
    assert good is not None
    assert (good.folder, refused) == (folder, [])
    saved, first = SmallPolicy(folder), SmallPolicy(base)
    prompts = [policy.codec.encode_prompt(INSTRUCTIONS[0], []) for policy in (saved, first)]
    assert prompts[0] == prompts[1]
    both = zip(saved.module.parameters(), first.module.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in both)


def test_the_learning_rate_rises_over_the_warm_up(
    base: Path, blobs: FolderBlobs, group_of: Callable[..., Group], tmp_path: Path
) -> None:
    """Adam's first step moves each weight by about the learning rate, whatever the gradient."""
    group = sampled_group(base, blobs, group_of)
    moved = []
    for warmup in (0, 10):
        learner = Learner(base, LearnerConfig(lr=1e-3, warmup_updates=warmup, weight_decay=0.0))
        learner.update([group], blobs)
        now, then = weights(learner, tmp_path / str(warmup)), SmallPolicy(base).module.state_dict()
        moved.append(max(float((now[name] - then[name]).abs().max()) for name in now))
    assert moved[0] == pytest.approx(1e-3, rel=0.05)
    assert moved[1] == pytest.approx(1e-4, rel=0.05)


def test_the_learning_rate_stays_at_its_value_after_the_warm_up(
    base: Path, blobs: FolderBlobs, group_of: Callable[..., Group]
) -> None:
    group = sampled_group(base, blobs, group_of)
    learner = Learner(base, LearnerConfig(lr=1e-3, warmup_updates=2))
    rates = []
    for _ in range(3):
        learner.update([group], blobs)
        rates.append(learner._optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([0.5e-3, 1e-3, 1e-3])


def with_step_changes(group: Group, *changes: dict[str, object]) -> Group:
    """The group of one-step trajectories whose i-th step is changed."""
    trajectories = tuple(
        dataclasses.replace(one, steps=(dataclasses.replace(one.steps[0], **change),))  # type: ignore[arg-type]
        for one, change in zip(group.trajectories, changes, strict=True)
    )
    return dataclasses.replace(group, trajectories=trajectories)


def test_steps_of_low_entropy_change_no_weight_and_still_count_in_the_mean(
    base: Path, blobs: FolderBlobs, group_of: Callable[..., Group], tmp_path: Path
) -> None:
    """With the gradient clip far away, half the steps left out leaves their half of the gradient."""
    group = sampled_group(base, blobs, group_of)
    entropies = [
        {"entropies": (h,) * len(s.token_ids)}
        for h, s in zip((0.1, 0.9, 0.2, 0.8), steps_of([group]), strict=True)
    ]
    group = with_step_changes(group, *entropies)  # type: ignore[arg-type]
    config = LearnerConfig(kl_beta=0.1, max_grad_norm=1e9, entropy_quantile=0.5)
    report = Learner(base, config).update([group], blobs)
    assert (report.samples, report.steps, report.steps_masked) == (2, 4, 2)

    kept = dataclasses.replace(group, trajectories=(group.trajectories[1], group.trajectories[3]))
    alone = Learner(base, dataclasses.replace(config, entropy_quantile=None)).update([kept], blobs)
    assert report.grad_norm == pytest.approx(alone.grad_norm / 2, rel=1e-4)
    assert report.loss == pytest.approx(alone.loss, abs=1e-6)


def test_masked_screens_are_not_even_read(
    base: Path, blobs: FolderBlobs, group_of: Callable[..., Group]
) -> None:
    group = sampled_group(base, blobs, group_of)
    first = steps_of([group])[0]
    unseen: dict[str, object] = {"entropies": (0.0,) * len(first.token_ids), "screenshot_sha256": "f" * 64}
    group = with_step_changes(group, unseen, {}, {}, {})
    assert Learner(base, LearnerConfig(entropy_quantile=0.2)).update([group], blobs).steps_masked == 1


def test_groups_whose_answers_are_all_empty_are_nothing_to_learn_from(
    base: Path, blobs: FolderBlobs, group_of: Callable[..., Group]
) -> None:
    empty: dict[str, object] = {"token_ids": (), "logprobs": (), "entropies": ()}
    learner = Learner(base, LearnerConfig(entropy_quantile=0.2))
    with pytest.raises(NothingToLearn):
        learner.update([group_of(rewards=[1.0, 0.0], lengths=[1, 1], **empty)], blobs)
    group = sampled_group(base, blobs, group_of)
    report = learner.update([with_step_changes(group, {}, empty, {}, {})], blobs)
    assert (report.samples, report.steps, report.steps_masked) == (2, 4, 1)
    assert math.isfinite(report.loss)
    assert math.isfinite(report.grad_norm)


def test_a_demonstration_makes_its_answer_likelier_with_weight_1(
    base: Path,
    blobs: FolderBlobs,
    group_of: Callable[..., Group],
    demonstration_of: Callable[..., Demonstration],
    tmp_path: Path,
) -> None:
    group = sampled_group(base, blobs, group_of)
    failed = dataclasses.replace(
        group, trajectories=tuple(dataclasses.replace(one, reward=0.0) for one in group.trajectories)
    )
    seen = steps_of([group])[0]
    shown = demonstration_of(
        steps=1,
        screenshot_sha256=seen.screenshot_sha256,
        prompt_ids=seen.prompt_ids,
        token_ids=(9, 40, 70, 1),
    )
    learner = Learner(base, LearnerConfig(lr=1e-3, kl_beta=0.0))
    report = learner.update([dataclasses.replace(failed, demonstrations=(shown,))], blobs)
    assert (report.injected, report.without_behaviour, report.samples) == (1, 1, 5)
    assert report.tis_weight == pytest.approx(1.0, abs=1e-4)
    assert report.mean_reward == 0.0
    before = log_likelihoods(base, list(shown.steps), blobs)
    after = log_likelihoods(learner.save(tmp_path / "checkpoints"), list(shown.steps), blobs)
    assert after[0] > before[0]


@pytest.mark.parametrize(
    ("instruction", "typed", "said"),
    [("word " * 700, "a", "512 text tokens"), ("x", "wxyz " * 300, "answers of at most 512 tokens")],
)
def test_a_demonstration_that_is_too_long_is_named_before_anything_changes(
    base: Path,
    blobs: FolderBlobs,
    group_of: Callable[..., Group],
    demonstration_of: Callable[..., Demonstration],
    instruction: str,
    typed: str,
    said: str,
) -> None:
    codec = SmallPolicy(base).codec
    group = sampled_group(base, blobs, group_of)
    shown = demonstration_of(
        steps=1,
        screenshot_sha256=steps_of([group])[0].screenshot_sha256,
        prompt_ids=tuple(codec.encode_prompt(instruction, [])),
        token_ids=tuple(codec.encode_answer(f"type(content='{typed}')", instruction)),
    )
    helped = dataclasses.replace(group, demonstrations=(shown,))
    learner = Learner(base, LearnerConfig())
    with pytest.raises(ForeignPrompt, match=said) as refused:
        learner.update([helped], blobs)
    assert learner.version == 0
    assert blame(refused.value, [helped]) == Blame(
        group_ids=(helped.group_id,), pool_ids=(shown.pool_id,), reason="malformed_step"
    )


def test_a_prompt_without_a_place_for_the_screenshot_costs_only_its_group(
    base: Path, blobs: FolderBlobs, group_of: Callable[..., Group]
) -> None:
    group = sampled_group(base, blobs, group_of)
    first = group.trajectories[0]
    changed = dataclasses.replace(first, steps=(dataclasses.replace(first.steps[0], prompt_ids=(1, 2, 3)),))
    bad = dataclasses.replace(group, group_id=99, trajectories=(changed, *group.trajectories[1:]))
    learner = Learner(base, LearnerConfig())
    with pytest.raises(ForeignPrompt, match="expected 70 image placeholders in its prompt, got 1") as refused:
        learner.update([group, bad], blobs)
    assert learner.version == 0
    assert blame(refused.value, [group, bad]) == Blame(group_ids=(99,), reason="malformed_step")


@pytest.mark.parametrize("minibatches", [1, 2])
def test_a_self_rolled_answer_is_weighed_by_how_likely_it_is_without_the_hint(
    base: Path, blobs: FolderBlobs, group_of: Callable[..., Group], minibatches: int
) -> None:
    group = sampled_group(base, blobs, group_of)
    failed = dataclasses.replace(
        group, trajectories=tuple(dataclasses.replace(one, reward=0.0) for one in group.trajectories)
    )
    # Under the hint each token was e^0.5 times as likely; the prompt that is recorded has no hint.
    seen = steps_of([group])[0]
    sampled = dataclasses.replace(seen, logprobs=tuple(p + 0.5 for p in seen.logprobs), entropies=())
    own = Demonstration(
        pool_id=2,
        task_id=group.task_id,
        seed=group.seed,
        origin="self-rolled",
        instruction="Click the button.",
        reward=1.0,
        steps=(sampled,),
        guide_id=1,
    )
    learner = Learner(base, LearnerConfig(lr=1e-4, kl_beta=0.0, minibatches=minibatches))
    report = learner.update([dataclasses.replace(failed, demonstrations=(own,))], blobs)
    assert (report.injected, report.without_behaviour, report.samples) == (1, 0, 5)
    assert report.tis_weight == pytest.approx((4 + math.exp(-0.5)) / 5, abs=1e-3)
    assert report.mismatch_engine == pytest.approx(0.0, abs=1e-4)  # a fault of no engine


@pytest.mark.parametrize("minibatches", [1, 3])
def test_the_difference_to_the_engine_and_the_age_of_steps_are_reported_apart(
    base: Path, blobs: FolderBlobs, group_of: Callable[..., Group], minibatches: int
) -> None:
    group = sampled_group(base, blobs, group_of)
    shifted = [{"logprobs": tuple(p - 0.5 for p in step.logprobs)} for step in steps_of([group])]
    learner = Learner(base, LearnerConfig(minibatches=minibatches))
    report = learner.update([with_step_changes(group, shifted[0], {}, {}, {})], blobs)
    tokens = [len(step.token_ids) for step in steps_of([group])]
    assert report.mismatch_engine == pytest.approx(0.5 * tokens[0] / sum(tokens), abs=1e-3)
    assert report.mismatch_stale is None
    assert report.tis_truncated == pytest.approx(tokens[0] / sum(tokens), abs=1e-6)
    later = learner.update([with_step_changes(group, {"policy_version": 1}, {}, {}, {})], blobs)
    assert later.mismatch_stale is not None
    assert later.mismatch_engine is not None
