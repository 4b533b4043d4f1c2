"""The learner on a vision-language checkpoint: the tiny one, with episodes of two steps it really sampled."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dart.config.bundled import bundled_folder
from dart.config.config import Config, load_config
from dart.config.layers import literal
from dart.config.sections import ContextSettings
from dart.core.errors import UnavailableError
from dart.core.types import Demonstration, GenerateRequest, Group, PastStep, Step
from dart.inference.tensor_layout import layout_of, refuse_other_layout
from dart.inference.transformers_engine import TransformersEngine
from dart.policy.load import load
from dart.policy.placement import ModelPlacement
from dart.policy.prompt_spec import PromptSpec
from dart.policy.protocols import ForeignPrompt, Pixels, UnsupportedCheckpoint, screenshots_of
from dart.policy.sampling import AnswerScores
from dart.policy.vlm import VisionLanguagePolicy
from dart.policy.vlm_images import ImageEncoder
from dart.store.blobs import FolderBlobs
from dart.store.checkpoints import load_checkpoint, write_checkpoint
from dart.testing.tiny_families import FAMILIES
from dart.training.batch import step_samples
from dart.training.batch_errors import Blame, blame
from dart.training.distributed import copied_parts, write_parts
from dart.training.learner import Learner, LearnerConfig
from dart.training.learner_factory import learner_at, learner_config
from dart.training.loss import TokenBatch, dart_loss
from dart.training.rank_group import OPTIMIZER_FILE
from tests.pictures import png_of
from tests.sampled import recorded

pytestmark = [pytest.mark.slow, pytest.mark.long]

READING = PromptSpec(context=ContextSettings(screenshots=2, turns=4, answer_tokens=5))


@pytest.fixture
def blobs(tmp_path: Path) -> FolderBlobs:
    return FolderBlobs(tmp_path / "blobs")


def screen(blobs: FolderBlobs, seed: int) -> str:
    noise = np.random.default_rng(seed).integers(0, 256, (8, 6, 3), dtype=np.uint8)
    return blobs.put(png_of(Image.fromarray(noise).resize((160, 210), Image.Resampling.NEAREST)))


def played(folder: Path, blobs: FolderBlobs, group_of: Callable[..., Group], rollouts: int = 4) -> Group:
    """Rollouts of two steps; the first half of them succeeds."""
    engine = TransformersEngine(folder, 0, screenshots=blobs, seed=7, prompt_spec=READING)
    half = rollouts // 2
    template = group_of(rewards=[1.0] * half + [0.0] * half, lengths=[2] * rollouts)
    histories: list[list[Step]] = [[] for _ in range(rollouts)]
    for number in range(2):
        sha256 = screen(blobs, number)
        asked = [
            GenerateRequest(
                screenshot_sha256=sha256,
                instruction="Click the button.",
                history=(),
                temperature=1.0,
                past=tuple(
                    PastStep(
                        screenshot_sha256=step.screenshot_sha256,
                        token_ids=step.token_ids,
                    )
                    for step in steps
                ),
            )
            for steps in histories
        ]
        for steps, one, made in zip(histories, asked, engine.generate(asked), strict=True):
            steps.append(recorded(one, made))
    trajectories = tuple(
        dataclasses.replace(old, steps=tuple(steps))
        for old, steps in zip(template.trajectories, histories, strict=True)
    )
    return dataclasses.replace(template, trajectories=trajectories)


def held(**how: object) -> ModelPlacement:
    return ModelPlacement(is_trained=True, device="cpu", **how)  # type: ignore[arg-type]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(load(folder, placement=ModelPlacement(device="cpu")).module.state_dict())  # type: ignore[attr-defined]


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor], atol: float = 0.0) -> bool:
    return all(torch.allclose(one[name], other[name], atol=atol, rtol=0.0) for name in one)


def test_an_update_goes_towards_what_succeeded_and_says_what_it_saw(
    tiny_qwen: Path, blobs: FolderBlobs, group_of: Callable[..., Group], tmp_path: Path
) -> None:
    group = played(tiny_qwen, blobs, group_of)
    learner = Learner(tiny_qwen, LearnerConfig(lr=1e-3, kl_beta=0.01, minibatches=2, placement=held()))
    report = learner.update([group], blobs)
    assert (report.version, report.samples, report.optimizer_steps) == (1, 8, 2)
    assert report.mismatch_engine is not None
    assert report.mismatch_engine < 1e-3
    assert report.tokens == sum(len(s.token_ids) for t in group.trajectories for s in t.steps)
    after = load(learner.save(tmp_path / "checkpoints"), READING, ModelPlacement(device="cpu"))
    screens = {name: after.codec.screen(name, blobs.read(name)) for name in map(blobs_name, all_steps(group))}
    with torch.no_grad():
        gained = [
            float((after.score([step], screens, 1.0).logprobs[0] - torch.tensor(step.logprobs)).sum())
            for step in all_steps(group)
        ]
    assert sum(gained[:4]) > 0 > sum(gained[4:])


@pytest.mark.parametrize(
    ("family", "part", "dropouts"),
    [
        ("qwen2_5_vl", "text_config", ("attention_dropout",)),
        ("internvl", "vision_config", ("attention_dropout", "projection_dropout", "hidden_dropout_prob")),
    ],
)
def test_the_dropout_of_a_checkpoint_does_not_change_what_a_trained_policy_scores(
    family: str,
    part: str,
    dropouts: tuple[str, ...],
    tiny_checkpoint: Callable[[str], Path],
    blobs: FolderBlobs,
    group_of: Callable[..., Group],
    tmp_path: Path,
) -> None:
    folder = tmp_path / "with dropout"
    shutil.copytree(tiny_checkpoint(family), folder)
    config = json.loads((folder / "config.json").read_text())
    config[part] |= dict.fromkeys(dropouts, 0.5)
    (folder / "config.json").write_text(json.dumps(config))
    step = all_steps(played(folder, blobs, group_of, rollouts=2))[1]

    trained, served = load(folder, READING, held()), load(folder, READING, ModelPlacement(device="cpu"))

    screens = {name: served.codec.screen(name, blobs.read(name)) for name in screenshots_of(step)}
    with torch.no_grad():
        scores = [policy.score([step], screens, 1.0).logprobs for policy in (trained, trained, served)]
    assert torch.equal(scores[0], scores[1])
    torch.testing.assert_close(scores[0], scores[2])


def all_steps(group: Group) -> list[Step]:
    return [step for trajectory in group.trajectories for step in trajectory.steps]


def blobs_name(step: Step) -> str:
    return step.screenshot_sha256


# peft still asks for the old name
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.* is deprecated:FutureWarning")
@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"qwen2_5_vl"}))
@pytest.mark.parametrize("lora_rank", [0, 4])
def test_policies_of_every_family_are_trained_and_published(
    family: str,
    lora_rank: int,
    tiny_checkpoint: Callable[[str], Path],
    blobs: FolderBlobs,
    group_of: Callable[..., Group],
    tmp_path: Path,
) -> None:
    if lora_rank:
        pytest.importorskip("peft", reason="the adapter needs peft: pip install 'dartrl[lora]'")
    base = tiny_checkpoint(family)
    group = played(base, blobs, group_of, rollouts=2)
    learner = Learner(base, LearnerConfig(lr=1e-2, kl_beta=0.0, placement=held(lora_rank=lora_rank)))
    report = learner.update([group], blobs)
    assert report.mismatch_engine is not None
    assert report.mismatch_engine < 1e-5
    assert 0 < report.grad_norm < float("inf")
    folder = learner.save(tmp_path / "one")
    after, before = weights(folder), weights(base)
    assert after.keys() == before.keys()
    assert not same(after, before, atol=1e-5)
    steps = all_steps(group)
    screens = {name: learner._policy.codec.screen(name, blobs.read(name)) for name in map(blobs_name, steps)}
    with torch.no_grad():
        trained = learner._policy.score(steps, screens, 1.0).logprobs
        served = load(folder, READING, ModelPlacement(device="cpu")).score(steps, screens, 1.0).logprobs
    assert torch.allclose(trained, served, atol=1e-4 if lora_rank else 1e-6)


def test_small_passes_and_recomputed_activations_make_the_same_update(
    tiny_qwen: Path, blobs: FolderBlobs, group_of: Callable[..., Group], tmp_path: Path
) -> None:
    group = played(tiny_qwen, blobs, group_of)
    longest = max(load(tiny_qwen).token_count(step) for step in all_steps(group))
    made = []
    for name, config in {
        "whole": LearnerConfig(lr=1e-3, kl_beta=0.0, placement=held()),
        "in parts": LearnerConfig(lr=1e-3, kl_beta=0.0, micro_batch_tokens=2 * longest, placement=held()),
        "recomputed": LearnerConfig(lr=1e-3, kl_beta=0.0, placement=held(gradient_checkpointing=True)),
    }.items():
        learner = Learner(tiny_qwen, config)
        learner.update([group], blobs)
        made.append(weights(learner.save(tmp_path / name)))
    assert not same(made[0], weights(tiny_qwen), atol=1e-5)
    assert same(made[0], made[1], atol=2e-4)
    assert same(made[0], made[2], atol=2e-4)


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.* is deprecated:FutureWarning")
def test_a_frozen_vision_tower_takes_no_part_in_the_backward_pass_of_recomputed_activations(
    tiny_qwen: Path, blobs: FolderBlobs, group_of: Callable[..., Group]
) -> None:
    pytest.importorskip("peft", reason="the adapter needs peft: pip install 'dartrl[lora]'")
    group = played(tiny_qwen, blobs, group_of)
    seen: list[bool] = []
    made = []
    for recomputes in (False, True):
        placement = held(lora_rank=4, gradient_checkpointing=recomputes)
        learner = Learner(tiny_qwen, LearnerConfig(kl_beta=0.0, placement=placement))
        blocks = learner._policy.module.get_submodule("base_model.model.model.visual.blocks")
        blocks[-1].register_forward_hook(lambda block, given, output: seen.append(output.requires_grad))
        made.append(gradients_of_update(learner, group, blobs))
    assert seen
    assert not any(seen)
    assert max(float(gradient.abs().max()) for gradient in made[0]) > 1e-3
    for kept, recomputed in zip(*made, strict=True):
        assert torch.allclose(kept, recomputed, rtol=1e-3, atol=1e-5)


def gradients_of_update(learner: Learner, group: Group, blobs: FolderBlobs) -> list[torch.Tensor]:
    """The gradient of an update with one optimizer step, as it is before the step."""
    step, found = learner._step, list[torch.Tensor]()

    def seen() -> float:
        found.extend(weight.grad.clone() for weight in learner._policy.trainable() if weight.grad is not None)
        return step()

    learner._step = seen  # type: ignore[method-assign]
    learner.update([group], blobs)
    return found


def test_the_gradient_is_that_of_every_sample_alone_with_its_screenshots_prepared_for_it(
    tiny_qwen: Path, blobs: FolderBlobs, group_of: Callable[..., Group]
) -> None:
    group = played(tiny_qwen, blobs, group_of)
    config = LearnerConfig(kl_beta=0.05, placement=held())
    made = gradients_of_update(Learner(tiny_qwen, config), group, blobs)
    plain, frozen = load(tiny_qwen, placement=held()), load(tiny_qwen, placement=ModelPlacement(device="cpu"))
    samples = step_samples([group]).kept
    for sample in samples:
        screens = {name: plain.codec.screen(name, blobs.read(name)) for name in screenshots_of(sample.step)}
        scores = plain.score([sample.step], screens, 1.0)
        batch = TokenBatch(
            logp=scores.logprobs,
            old=scores.logprobs.detach(),
            behaviour=torch.tensor([sample.step.logprobs]),
            has_behaviour=torch.tensor([True]),
            reference=frozen.score([sample.step], screens, 1.0).logprobs,
            advantage=torch.tensor([sample.advantage]),
            mask=scores.mask,
        )
        (dart_loss(batch, config).loss / len(samples)).backward()  # type: ignore[no-untyped-call]
    alone = [weight.grad for weight in plain.trainable() if weight.grad is not None]
    assert max(float(grad.abs().max()) for grad in alone) > 1e-3
    for ours, theirs in zip(made, alone, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0.0)


@pytest.mark.parametrize("minibatches", [1, 2])
def test_a_screenshot_is_prepared_once_in_an_update_and_the_first_optimizer_step_needs_no_old_pass(
    minibatches: int,
    tiny_qwen: Path,
    blobs: FolderBlobs,
    group_of: Callable[..., Group],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    group = played(tiny_qwen, blobs, group_of)
    prepared, scored = list[int](), list[int]()
    process, score = ImageEncoder._process, VisionLanguagePolicy.score

    def processed(self: ImageEncoder, pictures: list[Pixels], tensors: str, before: str = "") -> object:
        prepared.extend([1] * len(pictures) * (tensors == "pt"))
        return process(self, pictures, tensors, before)

    def counted(self: VisionLanguagePolicy, steps: list[Step], *rest: object) -> AnswerScores:
        scored.extend([1] * len(steps))
        return score(self, steps, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(ImageEncoder, "_process", processed)
    monkeypatch.setattr(VisionLanguagePolicy, "score", counted)
    made = []
    for limit_mib in (64, 0):
        config = LearnerConfig(
            lr=1e-3, minibatches=minibatches, image_cache_mib=limit_mib, micro_batch=2, placement=held()
        )
        learner = Learner(tiny_qwen, config)
        prepared.clear()
        scored.clear()
        learner.update([group], blobs)
        steps = len(all_steps(group))
        assert len(scored) == 2 * steps + steps * (minibatches - 1) // minibatches
        assert len(prepared) == 2 if limit_mib else len(prepared) > 2 * steps
        made.append(weights(learner.save(tmp_path / str(limit_mib))))
    assert same(made[0], made[1])


@pytest.mark.parametrize("is_in_parts", [False, True], ids=["one file", "in parts"])
def test_training_goes_on_from_a_checkpoint_as_if_it_had_not_ended(
    is_in_parts: bool, tiny_qwen: Path, blobs: FolderBlobs, group_of: Callable[..., Group], tmp_path: Path
) -> None:
    group = played(tiny_qwen, blobs, group_of)
    config = LearnerConfig(lr=1e-3, kl_beta=0.01, placement=held())
    learner = Learner(tiny_qwen, config)
    learner.update([group], blobs)

    def in_parts(folder: Path) -> None:
        learner.copy_files().write(folder)
        (folder / OPTIMIZER_FILE).unlink()
        write_parts(copied_parts(learner._policy.module, learner._optimizer), folder)

    if is_in_parts:
        folder = write_checkpoint(tmp_path / "one", learner.state(), in_parts)
    else:
        folder = learner.save(tmp_path / "one")
    learner.update([group], blobs)
    resumed = Learner(tiny_qwen, config, resume=load_checkpoint(folder))
    resumed.update([group], blobs)
    assert same(weights(learner.save(tmp_path / "one")), weights(resumed.save(tmp_path / "two")), atol=1e-6)


def test_bfloat16_is_computed_in_and_the_weights_keep_small_steps(
    tiny_qwen: Path, blobs: FolderBlobs, group_of: Callable[..., Group], tmp_path: Path
) -> None:
    group = played(tiny_qwen, blobs, group_of, rollouts=2)
    learner = Learner(tiny_qwen, LearnerConfig(lr=1e-6, kl_beta=0.1, placement=held(precision="bfloat16")))
    report = learner.update([group], blobs)
    assert report.mismatch_engine is not None
    assert 0 < report.mismatch_engine < 0.05
    after, before = weights(learner.save(tmp_path)), weights(tiny_qwen)
    assert not same(after, before)
    assert same(after, before, atol=1e-5)


def test_weights_kept_in_bfloat16_lose_steps_that_are_small_beside_them(
    tiny_qwen: Path, blobs: FolderBlobs, group_of: Callable[..., Group]
) -> None:
    group = played(tiny_qwen, blobs, group_of, rollouts=2)
    moved = {}
    for lr in (1e-6, 1e-3):
        placement = held(precision="bfloat16", weight_precision="bfloat16")
        learner = Learner(tiny_qwen, LearnerConfig(lr=lr, kl_beta=0.0, placement=placement))
        assert {weight.dtype for weight in learner._policy.trainable()} == {torch.bfloat16}
        before = [weight.detach().clone() for weight in learner._policy.trainable()]
        learner.update([group], blobs)
        assert {one.dtype for one in learner._optimizer.state[learner._policy.trainable()[0]].values()} >= {
            torch.bfloat16
        }
        pairs = zip(before, learner._policy.trainable(), strict=True)
        moved[lr] = sum(int((a != b).sum()) for a, b in pairs) / sum(one.numel() for one in before)
    assert moved[1e-6] < 0.05 < 0.5 < moved[1e-3]


def test_a_step_of_another_policy_is_refused_and_blamed(
    tiny_qwen: Path, blobs: FolderBlobs, group_of: Callable[..., Group]
) -> None:
    group = played(tiny_qwen, blobs, group_of)
    first = group.trajectories[0]
    image = dataclasses.replace(first.steps[0].images[0], tokens=7)
    foreign = dataclasses.replace(first.steps[0], images=(image,))
    changed = dataclasses.replace(first, steps=(foreign, first.steps[1]))
    bad = dataclasses.replace(group, group_id=99, trajectories=(changed, *group.trajectories[1:]))
    learner = Learner(tiny_qwen, LearnerConfig(kl_beta=0.0, placement=held()))
    with pytest.raises(ForeignPrompt, match="had 7 image tokens when it was sampled") as refused:
        learner.update([group, bad], blobs)
    found = blame(refused.value, [group, bad])
    assert (found.group_ids, found.reason) == ((99,), "malformed_step")
    assert learner.version == 0


def test_a_step_without_images_is_a_foreign_prompt(
    tiny_qwen: Path, blobs: FolderBlobs, group_of: Callable[..., Group]
) -> None:
    group = played(tiny_qwen, blobs, group_of)
    first = group.trajectories[0]
    foreign = dataclasses.replace(first.steps[0], images=(), prompt_ids=(1, 2, 3))
    changed = dataclasses.replace(first, steps=(foreign, first.steps[1]))
    bad = dataclasses.replace(group, group_id=99, trajectories=(changed, *group.trajectories[1:]))
    learner = Learner(tiny_qwen, LearnerConfig(kl_beta=0.0, placement=held()))
    with pytest.raises(ForeignPrompt, match="its prompt has no image") as refused:
        learner.update([group, bad], blobs)
    assert blame(refused.value, [group, bad]).group_ids == (99,)


def test_a_demonstration_with_a_picture_in_its_answer_is_blamed_with_its_group(
    tiny_qwen: Path,
    blobs: FolderBlobs,
    group_of: Callable[..., Group],
    demonstration_of: Callable[..., Demonstration],
) -> None:
    group = played(tiny_qwen, blobs, group_of)
    learner = Learner(tiny_qwen, LearnerConfig(kl_beta=0.0, placement=held()))
    policy = learner._policy
    assert isinstance(policy, VisionLanguagePolicy)
    step = group.trajectories[0].steps[0]
    token_ids = (policy.codec.image_encoder.placeholder_id, *step.token_ids[1:])
    foreign = dataclasses.replace(step, token_ids=token_ids)
    shown = dataclasses.replace(demonstration_of(steps=1), steps=(foreign,))
    bad = dataclasses.replace(group, group_id=99, demonstrations=(shown,))
    with pytest.raises(ForeignPrompt, match="which stands for images and is never sampled") as refused:
        learner.update([group, bad], blobs)
    assert learner.version == 0
    assert blame(refused.value, [group, bad]) == Blame(
        group_ids=(99,), pool_ids=(shown.pool_id,), reason="malformed_step"
    )


def test_an_adapter_without_peft_is_said_with_the_remedy(
    tiny_qwen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "peft", None)
    with pytest.raises(UnavailableError, match=r"pip install 'dartrl\[lora\]'"):
        Learner(tiny_qwen, LearnerConfig(placement=held(lora_rank=4)))


def with_lora(policy: Path, rank: int, alpha: float) -> Config:
    settings = [f"training.policy={literal(str(policy))}", "training.device='cpu'", "training.kl_beta=0.0"]
    return load_config(None, [*settings, f"training.lora.rank={rank}", f"training.lora.alpha={alpha}"])


# peft still asks for the old name
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.* is deprecated:FutureWarning")
@pytest.mark.parametrize(
    ("trained", "changed", "said"),
    [
        ((8, 32.0), (4, 32.0), r"lora\.rank = 8 and .*alpha = 32\.0, .* has training\.lora\.rank = 4"),
        ((8, 32.0), (8, 16.0), r"alpha = 32\.0, .*\.alpha = 16\.0: set them back, or start a new run"),
        ((8, 32.0), (0, 32.0), r"lora\.rank = 8 and .*, .* has training\.lora\.rank = 0: set"),
        ((0, 32.0), (8, 32.0), r"was trained with training\.lora\.rank = 0, .* training\.lora\.rank = 8"),
    ],
)
def test_training_does_not_go_on_with_another_adapter(
    trained: tuple[int, float],
    changed: tuple[int, float],
    said: str,
    tiny_qwen: Path,
    tmp_path: Path,
) -> None:
    pytest.importorskip("peft", reason="the adapter needs peft: pip install 'dartrl[lora]'")
    learner = Learner(tiny_qwen, learner_config(with_lora(tiny_qwen, *trained)))
    learner.version = 1
    learner.save(tmp_path / "checkpoints")
    with pytest.raises(UnsupportedCheckpoint, match=said):
        learner_at(with_lora(tiny_qwen, *changed), 1, tmp_path / "checkpoints")


def test_alpha_means_nothing_without_an_adapter(tiny_qwen: Path, tmp_path: Path) -> None:
    learner = Learner(tiny_qwen, learner_config(with_lora(tiny_qwen, 0, 32.0)))
    learner.version = 1
    learner.save(tmp_path / "checkpoints")
    assert learner_at(with_lora(tiny_qwen, 0, 16.0), 1, tmp_path / "checkpoints").version == 1


# peft still asks for the old name
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.* is deprecated:FutureWarning")
def test_an_adapter_alone_is_trained_and_engines_get_whole_weights(
    tiny_qwen: Path, blobs: FolderBlobs, group_of: Callable[..., Group], tmp_path: Path
) -> None:
    pytest.importorskip("peft", reason="the adapter needs peft: pip install 'dartrl[lora]'")
    group = played(tiny_qwen, blobs, group_of)
    config = LearnerConfig(lr=1e-2, kl_beta=0.1, minibatches=2, placement=held(lora_rank=4))
    learner = Learner(tiny_qwen, config)
    report = learner.update([group], blobs)
    assert report.kl > 0
    folder = learner.save(tmp_path / "one")
    after, before = weights(folder), weights(tiny_qwen)
    assert after.keys() == before.keys()
    refuse_other_layout(layout_of(tiny_qwen), folder)  # an engine takes it over
    changed = {name for name in before if not torch.equal(after[name], before[name])}
    assert len(changed) == 2 * 7
    assert all("language_model.layers" in name for name in changed)
    steps = all_steps(group)
    screens = {name: learner._policy.codec.screen(name, blobs.read(name)) for name in map(blobs_name, steps)}
    with torch.no_grad():
        trained = learner._policy.score(steps, screens, 1.0).logprobs
        served = load(folder, READING, ModelPlacement(device="cpu")).score(steps, screens, 1.0).logprobs
    assert torch.allclose(trained, served, atol=1e-4)
    learner.update([group], blobs)
    resumed = Learner(tiny_qwen, config, resume=load_checkpoint(folder))
    resumed.update([group], blobs)
    assert same(weights(learner.save(tmp_path / "one")), weights(resumed.save(tmp_path / "two")), atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.* is deprecated:FutureWarning")
def test_the_job_for_one_gpu_trains_publishes_and_answers_with_a_tiny_checkpoint_of_its_layout(
    tiny_qwen: Path, blobs: FolderBlobs, group_of: Callable[..., Group], tmp_path: Path
) -> None:
    pytest.importorskip("peft", reason="the adapter needs peft: pip install 'dartrl[lora]'")
    job = load_config(
        bundled_folder() / "one-gpu-miniwob.toml", ["training.device='cpu'", "training.lr=1e-2"]
    )
    learner = Learner(tiny_qwen, learner_config(job))
    report = learner.update([played(tiny_qwen, blobs, group_of)], blobs)
    assert (report.version, job.training.precision, job.training.lora.rank) == (1, "bfloat16", 16)
    folder = learner.save(tmp_path / "checkpoints")
    engine = TransformersEngine(
        tiny_qwen,
        0,
        screenshots=blobs,
        seed=7,
        prompt_spec=PromptSpec(context=job.context),
        takes_adapters=True,
    )
    engine.prepare(folder, 1)()
    request = GenerateRequest(
        screenshot_sha256=screen(blobs, 0), instruction="Click.", history=(), temperature=1.0
    )
    (made,) = engine.generate([request])
    assert made.policy_version == 1
    assert 0 < len(made.token_ids) <= job.context.answer_tokens
