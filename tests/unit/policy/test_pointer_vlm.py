"""A vision-language checkpoint with a pointer head, in the layout of Qwen2.5-VL: it points, is scored as it
was sampled, is trained, saved and loaded."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from dart.config.sections import ContextSettings
from dart.core.actions import ActionParseError
from dart.core.types import GenerateRequest, Group, PastStep, Step
from dart.inference.tensor_layout import layout_of, refuse_other_layout
from dart.inference.transformers_engine import TransformersEngine
from dart.policy.load import CheckpointError, load
from dart.policy.lora import TRAINED_COPY
from dart.policy.placement import ModelPlacement
from dart.policy.pointer.head import HEAD_NAME, PointerHead
from dart.policy.pointer_checkpoint import add_pointer
from dart.policy.prompt_spec import PromptSpec
from dart.policy.protocols import ForeignPrompt, Screen, UnsupportedCheckpoint
from dart.policy.vlm import VisionLanguagePolicy
from dart.policy.vlm_codec import load_vlm_codec
from dart.policy.vlm_pointer import Seen, head_tensors, watching
from dart.policy.vocabulary import POINTER_KEY
from dart.store.blobs import FolderBlobs
from dart.store.checkpoints import load_checkpoint
from dart.training.learner import Learner, LearnerConfig
from tests.pointing import ACTIONS, READING, asking, make_pointing, png
from tests.sampled import recorded
from tests.unit.training.conftest import trajectory_of

pytestmark = [pytest.mark.slow, pytest.mark.long]

Maker = Callable[[str], Path]


@pytest.fixture(scope="module")
def pointing(tmp_path_factory: pytest.TempPathFactory, tiny_qwen: Path) -> Path:
    """A checkpoint whose answers have patches."""
    folder = tmp_path_factory.mktemp("pointing") / "policy"
    make_pointing(tiny_qwen, folder)
    return folder


@pytest.fixture(scope="module")
def policy(pointing: Path) -> VisionLanguagePolicy:
    found = load(pointing, READING, ModelPlacement(device="cpu"))
    assert isinstance(found, VisionLanguagePolicy)
    return found


@pytest.fixture(scope="module")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> FolderBlobs:
    return FolderBlobs(tmp_path_factory.mktemp("blobs"))


def played(
    folder: Path, blobs: FolderBlobs, requests: list[GenerateRequest]
) -> tuple[list[Step], dict[str, Screen]]:
    """Steps that an engine sampled, and all screenshots of their prompts."""
    engine = TransformersEngine(folder, 0, screenshots=blobs, seed=5, prompt_spec=READING)
    steps = [recorded(*one) for one in zip(requests, engine.generate(requests), strict=True)]
    codec = load_vlm_codec(folder, READING)
    shown = {sha256 for request in requests for sha256 in codec.shown(request)}
    return steps, {sha256: codec.screen(sha256, blobs.read(sha256)) for sha256 in shown}


def requests(blobs: FolderBlobs, policy: VisionLanguagePolicy, temperature: float) -> list[GenerateRequest]:
    """Requests on screens of three sizes; the later ones show an earlier answer, which has patches."""
    first = [asking(blobs.put(png(number)), temperature) for number in range(3)]
    frame = policy.codec.screen("0", png(0)).frame
    past = PastStep(
        screenshot_sha256=blobs.put(png(0)),
        token_ids=tuple(policy.codec.encode_action(ACTIONS[1], "", frame)),
    )
    return [*first, *(dataclasses.replace(one, past=(past,)) for one in first)]


def patches_of(step: Step, policy: VisionLanguagePolicy) -> list[int]:
    assert policy.codec.pointer is not None
    return [token for token in step.token_ids if token >= policy.codec.pointer.first_patch_id]


# ---- answers ----


def test_points_are_the_pointer_and_a_patch_in_every_action_that_has_them(
    policy: VisionLanguagePolicy,
) -> None:
    codec = policy.codec
    assert codec.pointer is not None
    frame = codec.screen("0", png(0)).frame
    for action, points in (*zip(ACTIONS, (1, 2), strict=True), ("type(content='(1,2)')", 0), ("wait()", 0)):
        tokens = codec.encode_action(action, "", frame)
        assert tokens.count(codec.pointer.token_id) == points
        answer = codec.decode_action(tokens, "", frame)
        assert codec.encode_action(answer, "", frame) == tokens
        assert points or answer == action
    with pytest.raises(ActionParseError, match="pointer"):
        codec.encode_answer("Action: click(start_box='<pointer>')", "")


def test_a_thought_is_kept_apart_from_its_pointer(policy: VisionLanguagePolicy) -> None:
    frame = policy.codec.screen("0", png(0)).frame
    thought = policy.codec.encode_answer("Thought: there it is.\n", "")[:-1]
    tokens = policy.codec.encode_action(ACTIONS[0], "", frame)
    assert policy.codec.lacks_thought(tokens)
    assert not policy.codec.lacks_thought([*thought, *tokens])


# ---- samples and scores ----


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_every_patch_is_scored_as_it_was_sampled(
    pointing: Path, policy: VisionLanguagePolicy, blobs: FolderBlobs, temperature: float
) -> None:
    steps, screens = played(pointing, blobs, requests(blobs, policy, temperature))
    assert sum(bool(patches_of(step, policy)) for step in steps) > 2
    with torch.no_grad():
        together = policy.score(steps, screens, temperature)
        alone = [policy.score([step], screens, temperature) for step in steps]
    for row, step in enumerate(steps):
        policy.check_prompt(step, screens)
        length = len(step.token_ids)
        for scores in (together.logprobs[row], alone[row].logprobs[0]):
            assert step.logprobs == pytest.approx(scores[:length].tolist(), abs=1e-5)
        entropies = together.entropies[row, :length].tolist()
        assert step.entropies == pytest.approx(entropies, abs=2e-5)


def test_a_click_counts_as_the_sum_over_the_patches_of_its_element(
    pointing: Path, policy: VisionLanguagePolicy, blobs: FolderBlobs
) -> None:
    steps, screens = played(pointing, blobs, requests(blobs, policy, 1.0))
    step = next(one for one in steps if len(patches_of(one, policy)) == 1)
    screen = screens[step.screenshot_sha256]
    grid, frame = policy.patch_grid(screen), screen.frame
    width, height = frame.width_px / grid.columns, frame.height_px / grid.rows
    [drawn] = patches_of(step, policy)
    place = step.token_ids.index(drawn)
    first = drawn - policy.codec.pointer.first_patch_id  # type: ignore[union-attr]
    row, column = first // grid.columns, min(first % grid.columns, grid.columns - 2)
    box = (column * width, row * height, (column + 2) * width, (row + 1) * height)
    both = [row * grid.columns + column, row * grid.columns + column + 1]
    clicks = [
        dataclasses.replace(step, token_ids=_with(step.token_ids, place, drawn - first + patch), box=box)
        for patch in both
    ]
    with torch.no_grad():
        scores = policy.score([*clicks, dataclasses.replace(step, box=None)], screens, 1.0)
    assert scores.element_logprobs is not None
    total = scores.logprobs[:2, place].exp().sum().log()
    torch.testing.assert_close(scores.element_logprobs[:2, place], total.expand(2))
    torch.testing.assert_close(scores.element_logprobs[2], scores.logprobs[2])


def _with(tokens: tuple[int, ...], place: int, token: int) -> tuple[int, ...]:
    return (*tokens[:place], token, *tokens[place + 1 :])


def test_a_greedy_answer_has_the_centres_of_regions_and_is_never_trained_on(
    pointing: Path, policy: VisionLanguagePolicy, blobs: FolderBlobs
) -> None:
    steps, screens = played(pointing, blobs, [asking(blobs.put(png(0)), 0.0), asking(blobs.put(png(1)), 1.0)])
    assert steps[0].centres
    assert len(steps[0].centres) == len(patches_of(steps[0], policy))
    assert set(steps[0].logprobs) == {0.0}
    assert not steps[1].centres
    with pytest.raises(ForeignPrompt, match="never trained on"):
        policy.check_prompt(steps[0], screens)


def test_a_patch_of_a_larger_screen_is_refused(
    pointing: Path, policy: VisionLanguagePolicy, blobs: FolderBlobs
) -> None:
    assert policy.codec.pointer is not None
    (step,), screens = played(pointing, blobs, [asking(blobs.put(png(0)))])
    patches = step.images[-1].tokens
    tokens = (policy.codec.pointer.token_id, policy.codec.pointer.first_patch_id + patches, 2)
    with pytest.raises(ForeignPrompt, match=f"one of {patches} patches"):
        policy.check_prompt(dataclasses.replace(step, token_ids=tokens), screens)


# ---- training ----


def group_of(steps: list[Step]) -> Group:
    half = len(steps) // 2
    trajectories = tuple(
        trajectory_of((step,), float(number < half), number) for number, step in enumerate(steps)
    )
    return Group(group_id=1, task_id="click-test", seed=7, trajectories=trajectories)


# peft still asks for the old name
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.* is deprecated:FutureWarning")
@pytest.mark.parametrize("lora_rank", [0, 4])
def test_the_head_is_trained_saved_and_resumed_also_beside_an_adapter(
    pointing: Path, policy: VisionLanguagePolicy, blobs: FolderBlobs, tmp_path: Path, lora_rank: int
) -> None:
    if lora_rank:
        pytest.importorskip("peft", reason="the adapter needs peft: pip install 'dartrl[lora]'")
    steps, screens = played(pointing, blobs, requests(blobs, policy, 1.0))
    placement = ModelPlacement(is_trained=True, device="cpu", lora_rank=lora_rank)
    config = LearnerConfig(lr=1e-3, kl_beta=0.1, minibatches=2, placement=placement)
    learner = Learner(pointing, config)
    report = learner.update([group_of(steps)], blobs)
    assert report.mismatch_engine is not None
    assert report.mismatch_engine < 1e-5
    assert report.kl > 0
    folder = learner.save(tmp_path / "one")
    refuse_other_layout(layout_of(pointing), folder)  # an engine takes it over
    before, after = head_tensors(pointing), head_tensors(folder)
    assert after.keys() == before.keys()
    assert any(not torch.equal(after[name], before[name]) for name in before)
    with torch.no_grad():
        trained = learner._policy.score(steps, screens, 1.0).logprobs
        served = load(folder, READING, ModelPlacement(device="cpu")).score(steps, screens, 1.0).logprobs
    assert torch.allclose(trained, served, atol=1e-4 if lora_rank else 1e-6)
    learner.update([group_of(steps)], blobs)
    resumed = Learner(pointing, config, resume=load_checkpoint(folder))
    resumed.update([group_of(steps)], blobs)
    one, two = head_tensors(learner.save(tmp_path / "one")), head_tensors(resumed.save(tmp_path / "two"))
    assert all(torch.allclose(one[name], two[name], atol=1e-5) for name in one)


# peft still asks for the old name
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.* is deprecated:FutureWarning")
def test_beside_an_adapter_in_bfloat16_the_head_is_float32_and_keeps_small_steps(
    pointing: Path, policy: VisionLanguagePolicy, blobs: FolderBlobs, tmp_path: Path
) -> None:
    pytest.importorskip("peft", reason="the adapter needs peft: pip install 'dartrl[lora]'")
    steps, _ = played(pointing, blobs, requests(blobs, policy, 1.0))
    placement = ModelPlacement(is_trained=True, device="cpu", precision="bfloat16", lora_rank=4)
    config = LearnerConfig(lr=1e-6, kl_beta=0.1, placement=placement)
    learner = Learner(pointing, config)
    trained = learner._policy.trainable()
    assert {weight.dtype for weight in trained} == {torch.float32}
    of_head = [one for name, one in learner._policy.module.named_parameters() if TRAINED_COPY in name]
    before = [weight.detach().clone() for weight in of_head]
    learner.update([group_of(steps)], blobs)
    moved = sum(int((now != was).sum()) for now, was in zip(of_head, before, strict=True))
    assert moved > 0.5 * sum(weight.numel() for weight in of_head)
    folder = learner.save(tmp_path / "one")
    resumed = Learner(pointing, config, resume=load_checkpoint(folder))
    for now, was in zip(resumed._policy.trainable(), trained, strict=True):
        assert torch.equal(now, was)


# peft still asks for the old name
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.* is deprecated:FutureWarning")
def test_an_adapter_that_is_prepared_while_the_base_samples_does_not_write_into_its_batch(
    pointing: Path, blobs: FolderBlobs, tmp_path: Path
) -> None:
    pytest.importorskip("peft", reason="the adapter needs peft: pip install 'dartrl[lora]'")
    placement = ModelPlacement(is_trained=True, device="cpu", lora_rank=4, publishes_adapter=True)
    learner = Learner(pointing, LearnerConfig(placement=placement))
    learner.version = 1
    folder = learner.save(tmp_path)
    engine = TransformersEngine(
        pointing, 0, screenshots=blobs, seed=1, prompt_spec=READING, takes_adapters=True
    )
    asked = asking(blobs.put(png(0)))
    with watching(engine._policy.module) as seen:
        swap = engine.prepare(folder, 1, asked)
    assert seen == Seen()
    swap()
    (made,) = engine.generate([asked])
    assert made.policy_version == 1


def test_a_patchs_entropy_counts_as_a_share_of_the_largest_one(pointing: Path, blobs: FolderBlobs) -> None:
    learner = Learner(
        pointing, LearnerConfig(kl_beta=0.0, placement=ModelPlacement(is_trained=True, device="cpu"))
    )
    pointing_of = learner._pointing()
    assert pointing_of is not None
    (step,), _ = played(pointing, blobs, [asking(blobs.put(png(0)))])
    assert pointing_of.patches(step) == 8 * 6


# ---- checkpoints ----


def test_published_weights_are_found_by_their_names(pointing: Path) -> None:
    expected = PointerHead(128).state_dict()
    assert head_tensors(pointing).keys() == expected.keys()
    assert json.loads((pointing / "config.json").read_text())[POINTER_KEY] == 512


def test_a_checkpoint_without_its_head_is_refused(pointing: Path, tiny_qwen: Path, tmp_path: Path) -> None:
    shutil.copytree(pointing, tmp_path / "headless")
    (tmp_path / "headless" / "model.safetensors").unlink()
    policy = load(pointing, READING, ModelPlacement(device="cpu"))
    kept = {name: value for name, value in policy.module.state_dict().items() if HEAD_NAME not in name}
    policy.module.save_pretrained(tmp_path / "headless", state_dict=kept)
    with pytest.raises(UnsupportedCheckpoint, match="pointer_checkpoint"):
        load(tmp_path / "headless", READING)


def test_images_without_a_grid_of_patches_and_numbers_of_points_are_refused(
    tiny_checkpoint: Maker, pointing: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_checkpoint("idefics3"), tmp_path / "tiles")
    config = tmp_path / "tiles" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {POINTER_KEY: 5}))
    with pytest.raises(UnsupportedCheckpoint, match="Qwen-VL family"):
        load_vlm_codec(tmp_path / "tiles", PromptSpec())
    with pytest.raises(UnsupportedCheckpoint, match=r"leave context\.points"):
        load_vlm_codec(pointing, PromptSpec(context=ContextSettings(points="thousandths")))


def test_a_head_is_added_once(pointing: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="has a pointer head already"):
        add_pointer(pointing, tmp_path / "again")
