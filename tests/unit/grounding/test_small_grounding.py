"""Grounding with the small policy: every head trains, saves, loads and points; the verifier too."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from dart.config.sections import EvaluationSettings, GroundingSettings
from dart.core.errors import ConfigurationError
from dart.core.screenspot import read_screenspot
from dart.grounding.data import batch_of, pixels_of
from dart.grounding.jobs import evaluate_job, new_small_policy, train_job, train_verifier_job
from dart.grounding.training import only, train_grounding
from dart.grounding.verification import MarkedPoint
from dart.grounding.verifier import answer_ids, load_verifier, verifier_loss
from dart.policy.codec import fitted
from dart.policy.pointer.head import HEAD_NAME
from dart.policy.pointer.load import load_grounding
from dart.policy.pointer.model import INSTRUCTION, MapModel
from dart.policy.pointer.settings import BadSettings, HeadSettings, read_settings
from dart.policy.pointer.small_grounding import SmallAttention
from dart.policy.protocols import UnsupportedCheckpoint
from tests.unit.grounding.samples import data_set

pytestmark = pytest.mark.slow

HEADS = ("pointer", "attention", "coordinates")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return data_set(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    new_small_policy(["click what is red", "click what is green", "click what is blue"], 0, folder)
    return folder


def quiet(line: str) -> None:
    pass


@pytest.mark.parametrize("head", HEADS)
def test_a_head_is_trained_saved_loaded_and_measured(head: str, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    settings = GroundingSettings(data=(data,), head=head, updates=2, batch=3)  # type: ignore[arg-type]
    model = train_job(settings, out, quiet)
    again = load_grounding(out)

    sample = read_screenspot(data)[0]
    image = pixels_of(sample.image)
    assert again.ground(image, sample.instruction, 3) == model.ground(image, sample.instruction, 3)
    assert read_settings(out).head == head
    report = evaluate_job(out, data, EvaluationSettings())
    assert (report.head, report.rows[0].samples, report.shown_sizes_px) == (head, 3, ("160x210",))
    assert INSTRUCTION in report.prompt


def test_a_head_of_coordinates_that_was_not_trained_is_refused_until_it_is_trained_as_the_error_says(
    data: Path, base: Path, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedCheckpoint, match=r"no trained .*--set grounding.head=coordinates"):
        evaluate_job(base, data, EvaluationSettings(), head="coordinates")

    settings = GroundingSettings(base=str(base), data=(data,), head="coordinates", updates=1, batch=3)
    train_job(settings, tmp_path / "out", quiet)
    report = evaluate_job(tmp_path / "out", data, EvaluationSettings(), head="coordinates")
    assert report.head == "coordinates"


@pytest.mark.parametrize("labels", ["overlap", "gaussian"])
@pytest.mark.parametrize("head", ["pointer", "attention"])
def test_training_on_one_screen_brings_the_attention_there(
    head: str, labels: str, data: Path, base: Path
) -> None:
    model = load_grounding(base, head)  # type: ignore[arg-type]
    model.settings = replace(model.settings, labels=labels)  # type: ignore[arg-type]
    samples = read_screenspot(data)[:1]
    batch = batch_of(samples)
    before = float(model.loss(batch.images, batch.instructions, batch.boxes).detach())
    train_grounding(model, samples, GroundingSettings(updates=25, batch=1, lr=2e-3), quiet)

    after = float(model.loss(batch.images, batch.instructions, batch.boxes).detach())
    assert after < before / 2


def test_the_warm_up_changes_the_head_and_the_pointers_row_and_nothing_else(data: Path, base: Path) -> None:
    model = load_grounding(base)
    before = {name: weight.detach().clone() for name, weight in model.module.named_parameters()}
    batch = batch_of(read_screenspot(data))
    with only(model.warm_up(), model.module):
        weights = [weight for weight in model.module.parameters() if weight.requires_grad]
        optimizer = torch.optim.AdamW(weights, lr=1e-2, weight_decay=0.0)
        model.loss(batch.images, batch.instructions, batch.boxes).backward()
        optimizer.step()
    changed = {
        name for name, weight in model.module.named_parameters() if not torch.equal(weight, before[name])
    }
    table = model.module.embed.weight
    rows = (table != before["embed.weight"]).any(-1).nonzero().flatten().tolist()

    assert all(name == "embed.weight" or name.startswith("pointer.") for name in changed)
    assert any(HEAD_NAME in name for name in changed)
    assert rows == [model.module.config.pointer_token_id]
    assert all(weight.requires_grad for weight in model.module.parameters())


def test_the_attention_head_merges_what_the_model_itself_computes(data: Path, base: Path) -> None:
    """Its attention, computed again from queries and keys, makes the layer's output."""
    from dart.policy.pointer.small_grounding import _seen, recorded_layers

    model = load_grounding(base, "attention")
    assert isinstance(model, SmallAttention)
    batch = batch_of(read_screenspot(data)[:2])
    ids, valid, pixels = model.inputs(batch.images, ["click", "click what is green now"])
    outputs: list[torch.Tensor] = []
    first = model.module.layers[0]
    hook = first.out.register_forward_pre_hook(lambda _, args: outputs.append(args[0]))
    with torch.no_grad(), recorded_layers(model.module) as layers:
        model.module(ids, valid, pixels, logits_to_keep=1)
    hook.remove()
    (attention, *_) = layers.attentions(_seen(valid, 2))
    size = layers.projections[0].shape[-1] // 3
    value = layers.projections[0][..., 2 * size :].unflatten(-1, (attention.shape[1], -1)).transpose(1, 2)
    mixed = (attention @ value).transpose(1, 2).flatten(2)

    assert torch.allclose(mixed[valid], outputs[0][valid], atol=1e-5)


def test_other_rows_of_a_batch_change_nothing(data: Path, base: Path) -> None:
    image = pixels_of(read_screenspot(data)[0].image)
    for head in ("pointer", "attention"):
        model = load_grounding(base, head)  # type: ignore[arg-type]
        assert isinstance(model, MapModel)
        with torch.no_grad():
            alone, _ = model.logits([image], ["click it"])
            together, _ = model.logits([image, image], ["click it", "click the second long text field"])
        assert torch.allclose(alone[0], together[0], atol=1e-4)


def test_screens_of_other_sizes_are_resized_to_the_frame() -> None:
    assert fitted(np.zeros((50, 70, 3), dtype=np.uint8)).shape == (210, 160, 3)


# ---- the verifier ----


def test_a_verifier_learns_one_crop_from_another_and_is_loaded_again(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "verifier"
    settings = GroundingSettings(data=(data,), updates=2, batch=4)
    train_verifier_job(settings, out, quiet)
    verifier = load_verifier(out)
    sample = read_screenspot(data)[0]
    image = pixels_of(sample.image)

    assert verifier.patch(image) == (8 / 160, 8 / 210)
    assert 0.0 < verifier.score(image, sample.instruction, (0.2, 0.4)) < 1.0
    points = [MarkedPoint(sample, (0.18, 0.38), True), MarkedPoint(sample, (0.9, 0.9), False)]
    optimizer = torch.optim.AdamW(verifier.module.parameters(), lr=2e-3)
    losses = []
    for _ in range(12):
        optimizer.zero_grad()
        loss = verifier_loss(verifier, points)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 2


def test_words_that_are_not_one_token_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedCheckpoint, match=r"expected 'True' to be one token .* got 4"):
        answer_ids(lambda text: [ord(character) for character in text], tmp_path)


# ---- bad input ----


def test_no_data_is_refused_with_what_makes_some(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"grounding.data is empty.*dart.grounding.pages"):
        train_job(GroundingSettings(), tmp_path / "out", quiet)


@pytest.mark.parametrize("text", ["{", "[]", "[" * 10_000, '{"head": "mouth"}', '{"hed": "pointer"}'])
def test_wrong_settings_of_a_checkpoint_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "grounding.json").write_text(text)

    with pytest.raises(BadSettings, match=r"grounding.json"):
        read_settings(tmp_path)


def test_a_checkpoint_without_settings_has_the_defaults(tmp_path: Path) -> None:
    assert read_settings(tmp_path) == HeadSettings()


def test_the_base_policy_of_the_laptop_job_has_no_pointer_and_says_so() -> None:
    from dart.config.bundled import bundled_folder

    with pytest.raises(UnsupportedCheckpoint, match="without <pointer>"):
        load_grounding(bundled_folder() / "base-policy")
