"""Grounding with the layout of Qwen2.5-VL and random weights: it trains, saves, loads and grounds."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText, AutoTokenizer

from dart.config.sections import EvaluationSettings, GroundingSettings
from dart.core.screenspot import read_screenspot
from dart.grounding.data import batch_of, pixels_of
from dart.grounding.jobs import evaluate_job, train_job, train_verifier_job
from dart.grounding.verifier import load_verifier
from dart.policy.placement import ModelPlacement
from dart.policy.pointer.head import HEAD_NAME, PointerHead
from dart.policy.pointer.load import load_grounding
from dart.policy.pointer.model import MapModel
from dart.policy.pointer.settings import HeadSettings, write_settings
from dart.policy.pointer_checkpoint import add_pointer
from dart.policy.protocols import UnsupportedCheckpoint
from dart.policy.vlm_pointer import head_of
from dart.testing.tiny_checkpoints import HIDDEN, make_tiny
from dart.testing.tiny_families import IDEFICS3, make_tiny_qwen
from tests.unit.grounding.samples import data_set

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return data_set(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "plain"
    make_tiny_qwen(folder)
    return folder


@pytest.fixture(scope="module")
def with_head(tiny: Path) -> Path:
    folder = tiny.parent / "with-head"
    add_pointer(tiny, folder)
    return folder


def quiet(line: str) -> None:
    pass


def test_the_pointer_head_trains_in_two_stages_saves_loads_and_grounds(
    data: Path, with_head: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    settings = GroundingSettings(
        data=(data,), base=str(with_head), warmup_updates=2, updates=2, batch=2, lr=1e-4
    )
    model = train_job(settings, out, quiet)
    again = load_grounding(out)

    image = pixels_of(read_screenspot(data)[0].image)
    loaded, trained = again.ground(image, "click it", 3), model.ground(image, "click it", 3)
    assert [one.patches for one in loaded] == [one.patches for one in trained]
    assert [one.centre for one in loaded] == [pytest.approx(one.centre, abs=1e-5) for one in trained]
    assert any(name.startswith(f"{HEAD_NAME}.") for name in load_file(out / "model.safetensors"))
    report = evaluate_job(out, data, EvaluationSettings())
    assert report.head == "pointer"
    assert "<pointer>" in report.prompt
    assert "{instruction}" in report.prompt


def test_the_attention_head_needs_no_new_weights(data: Path, tiny: Path, tmp_path: Path) -> None:
    settings = GroundingSettings(
        data=(data,), base=str(tiny), head="attention", updates=2, batch=2, lr=1e-4, labels="gaussian"
    )
    model = train_job(settings, tmp_path / "out", quiet)
    again = load_grounding(tmp_path / "out")

    image = pixels_of(read_screenspot(data)[0].image)
    regions = again.ground(image, "click it", 2)
    assert regions == model.ground(image, "click it", 2)
    assert set(load_file(tmp_path / "out" / "model.safetensors")) == set(
        load_file(tiny / "model.safetensors")
    )


def test_a_batch_of_different_sizes_points_as_each_screen_alone(data: Path, with_head: Path) -> None:
    model = load_grounding(with_head)
    assert isinstance(model, MapModel)
    image = pixels_of(read_screenspot(data)[0].image)
    small = image[:100, :90]
    with torch.no_grad():
        together, grids = model.logits([image, small], ["click it", "click the third field"])
        alone, _ = model.logits([small], ["click the third field"])

    assert grids[0] != grids[1]
    assert torch.allclose(together[1, : grids[1].patches], alone[0], atol=1e-4)
    assert float(together[1, grids[1].patches :].max()) < -1e8


def test_the_loss_reaches_the_vision_tower_through_the_patches(data: Path, with_head: Path) -> None:
    model = load_grounding(with_head, placement=ModelPlacement(is_trained=True))
    batch = batch_of(read_screenspot(data)[:1])
    model.loss(batch.images, batch.instructions, batch.boxes).backward()
    reached = {name for name, weight in model.module.named_parameters() if weight.grad is not None}

    assert any("visual" in name for name in reached)
    assert any(HEAD_NAME in name for name in reached)


def test_a_checkpoint_with_the_layout_of_gui_actors_loads_by_name(
    tiny: Path, data: Path, tmp_path: Path
) -> None:
    """Its own class in config.json, its five special tokens, and the head among the weights of the model."""
    folder = gui_actor_layout(tiny, tmp_path / "gui-actor")
    weights = load_file(folder / "model.safetensors")

    model = load_grounding(folder)
    found = head_of(model.module).state_dict()

    assert {f"{HEAD_NAME}.{name}" for name in found} == {
        name for name in weights if name.startswith(HEAD_NAME)
    }
    assert all(torch.equal(value, weights[f"{HEAD_NAME}.{name}"]) for name, value in found.items())
    assert model.prompt.endswith("<|recipient|>os\npyautogui.click(<|pointer_start|><|pointer_pad|>")
    image = pixels_of(read_screenspot(data)[0].image)
    assert model.ground(image, "click it", 3)


def gui_actor_layout(tiny: Path, folder: Path) -> Path:
    """Write a checkpoint with the files, tokens and weights' names of GUI-Actor-Qwen2.5-VL."""
    from transformers import AutoModelForImageTextToText, AutoTokenizer

    model = AutoModelForImageTextToText.from_pretrained(tiny)
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    names = ("recipient", "diff_marker", "pointer_start", "pointer_end", "pointer_pad")
    tokenizer.add_tokens([f"<|{name}|>" for name in names], special_tokens=True)
    model.resize_token_embeddings(len(tokenizer))
    model.save_pretrained(folder)
    for file in tiny.iterdir():
        if not (folder / file.name).exists():
            (folder / file.name).write_bytes(file.read_bytes())
    tokenizer.save_pretrained(folder)
    torch.manual_seed(1)
    head = {f"{HEAD_NAME}.{name}": value for name, value in PointerHead(HIDDEN).state_dict().items()}
    file = folder / "model.safetensors"
    save_file({**load_file(file), **head}, file, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["Qwen2_5_VLForConditionalGenerationWithPointer"]
    config["pointer_pad_token_id"] = tokenizer.convert_tokens_to_ids("<|pointer_pad|>")
    (folder / "config.json").write_text(json.dumps(config))
    answer = "<|recipient|>os\npyautogui.click(<|pointer_start|>"
    write_settings(folder, HeadSettings(system="You are a GUI agent.", answer=answer))
    return folder


def test_a_checkpoint_without_a_head_says_how_to_get_one(tiny: Path) -> None:
    with pytest.raises(UnsupportedCheckpoint, match=r"no pointer head; add one with .*pointer_checkpoint"):
        load_grounding(tiny)


def test_a_checkpoint_whose_images_are_tiles_is_refused(tmp_path: Path) -> None:
    make_tiny(tmp_path / "tiles", "idefics3", IDEFICS3)

    with pytest.raises(UnsupportedCheckpoint, match="does not make one grid of patches"):
        load_grounding(tmp_path / "tiles", "attention")


def test_an_instruction_with_a_special_token_is_text(with_head: Path, data: Path) -> None:
    model = load_grounding(with_head)
    image = pixels_of(read_screenspot(data)[0].image)

    assert model.ground(image, "click <|image_pad|> and <pointer>", 1)


def test_a_vision_language_checkpoint_whose_words_are_pieces_is_no_verifier(tiny: Path) -> None:
    with pytest.raises(UnsupportedCheckpoint, match="to be one token"):
        load_verifier(tiny)


@pytest.fixture(scope="module")
def with_answers(tiny: Path) -> Path:
    """The tiny checkpoint with True and False as tokens, as large vocabularies have them."""
    folder = tiny.parent / "with-answers"
    shutil.copytree(tiny, folder)
    module = AutoModelForImageTextToText.from_pretrained(tiny)
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    tokenizer.add_tokens(["True", "False"])
    module.resize_token_embeddings(len(tokenizer))
    module.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_a_verifier_trains_saves_and_loads(data: Path, with_answers: Path, tmp_path: Path) -> None:
    settings = GroundingSettings(data=(data,), base=str(with_answers), updates=2, batch=2, lr=1e-4)
    out = tmp_path / "verifier"
    train_verifier_job(settings, out, quiet)

    image = pixels_of(read_screenspot(data)[0].image)
    before = load_verifier(with_answers).score(image, "click it", (0.5, 0.5))
    after = load_verifier(out).score(image, "click it", (0.5, 0.5))
    assert 0.0 < after < 1.0
    assert after != before
    assert load_verifier(out).score(image, "click it", (0.5, 0.5)) == pytest.approx(after, abs=1e-5)


def test_near_misses_of_a_verifier_follow_the_size_of_the_screen(with_answers: Path) -> None:
    verifier = load_verifier(with_answers)
    wide, tall = (verifier.patch(np.zeros((h, w, 3), np.uint8)) for w, h in ((1920, 1080), (1080, 2340)))

    assert wide[0] < wide[1]
    assert tall[0] > tall[1]
