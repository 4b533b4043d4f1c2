"""Every family of vision-language checkpoints is driven by its own processor and chat template, or refused
with what it lacks."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tokenizers import processors

from dart.config.sections import ContextSettings
from dart.core.types import GenerateRequest, PastStep
from dart.policy.coordinates import frame_of
from dart.policy.load import load_codec
from dart.policy.prompt_spec import PromptSpec
from dart.policy.protocols import Screen, UnsupportedCheckpoint
from dart.policy.vlm_chat import PLACEHOLDER_TURN
from dart.policy.vlm_codec import VisionLanguageCodec, load_vlm_codec
from dart.policy.vlm_images import ImageEncoder
from dart.policy.vlm_processor import load_config, load_processor
from dart.testing.tiny_checkpoints import make_tiny
from dart.testing.tiny_families import FAMILIES
from tests.pictures import png_of

pytestmark = pytest.mark.slow

SIZES = ((160, 210), (210, 160), (300, 90))

FEW = PromptSpec(context=ContextSettings(screenshots=2, turns=9))

Maker = Callable[[str], Path]


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def checkpoint(request: pytest.FixtureRequest, tiny_checkpoint: Maker) -> Path:
    return tiny_checkpoint(request.param)


@pytest.fixture(scope="module")
def codec(checkpoint: Path) -> VisionLanguageCodec:
    return load_vlm_codec(checkpoint, PromptSpec())


def screen(codec: VisionLanguageCodec, number: int) -> Screen:
    noise = np.random.default_rng(number).integers(0, 256, (8, 6, 3), dtype=np.uint8)
    return codec.screen(f"{number}", png_of(Image.fromarray(noise).resize(SIZES[number % len(SIZES)])))


def request(codec: VisionLanguageCodec, steps: int) -> GenerateRequest:
    """At the step after so many."""
    said = tuple(codec.encode_action("wait()", "", screen(codec, 0).frame))
    past = [PastStep(screenshot_sha256=f"{number}", token_ids=said) for number in range(steps)]
    return GenerateRequest(
        screenshot_sha256=f"{steps}",
        instruction="Click it.",
        history=(),
        temperature=1.0,
        past=tuple(past),
    )


def screens(codec: VisionLanguageCodec, asked: GenerateRequest) -> list[Screen]:
    return [screen(codec, int(shown)) for shown in codec.shown(asked)]


# ---- prompts ----


def test_a_prompt_is_as_long_as_the_familys_own_processor_makes_its_text(
    codec: VisionLanguageCodec, checkpoint: Path
) -> None:
    asked = request(codec, 2)
    seen = screens(codec, asked)
    prompt = codec.prompt(asked, seen)
    expanded = codec.expand_images(prompt.token_ids, seen)
    processor = load_processor(checkpoint, load_config(checkpoint))
    text = codec.tokenizer.decode(list(prompt.token_ids))
    own = processor(
        images=[Image.fromarray(one.pixels) for one in seen], text=[text], add_special_tokens=False
    )
    own_ids = list(own["input_ids"][0])
    assert codec.tokenizer.decode(list(expanded.token_ids)) == codec.tokenizer.decode(own_ids)
    of_pictures = len(own_ids) - len(codec.tokenizer.encode(text, add_special_tokens=False))
    assert len(expanded.token_ids) - len(prompt.token_ids) == of_pictures
    assert of_pictures == sum(image.tokens - 1 for image in prompt.images)
    if codec.image_encoder.kinds_name is not None:
        assert sum(expanded.kinds) == sum(own[codec.image_encoder.kinds_name][0])


def test_how_a_picture_is_spelled_out_follows_from_its_size_alone(codec: VisionLanguageCodec) -> None:
    pictures = [screen(codec, number).pixels for number in range(6)]
    together = codec.image_encoder._process(pictures, "np")
    for number, picture in enumerate(pictures):
        height, width, _ = picture.shape
        ids, is_there = together["input_ids"][number], together["attention_mask"][number]
        assert codec.image_encoder.tokens_for(width, height).token_ids == tuple(ids[is_there == 1])


@pytest.mark.parametrize("numbers", [(0, 3, 0), (0, 1, 2)], ids=["one size", "three sizes"])
def test_screenshots_prepared_one_by_one_are_those_prepared_together(
    codec: VisionLanguageCodec, numbers: tuple[int, ...]
) -> None:
    shown = [screen(codec, number) for number in numbers]
    together = codec.image_encoder._tensors([one.pixels for one in shown])
    uses = {one.sha256: 4 for one in shown}
    with codec.image_encoder.keeping(uses, limit_bytes=2**30):
        for _ in range(2):  # the second time from the cache, where the family allows it
            made = codec.image_encoder.inputs(shown)
            assert made.keys() == together.keys()
            assert all(torch.equal(made[name], together[name]) for name in together)


def test_special_tokens_of_pictures_are_never_sampled(codec: VisionLanguageCodec) -> None:
    special = set(codec.tokenizer.added_tokens_decoder)
    for number in range(3):
        spelled = set(codec._tokens_of(screen(codec, number)).token_ids)
        assert spelled & special <= set(codec.never_sampled)
    assert codec.image_encoder.placeholder_id in codec.never_sampled
    assert not set(codec.end_ids) & set(codec.never_sampled)


def test_rows_and_columns_have_their_names(tiny_checkpoint: Maker) -> None:
    codec = load_vlm_codec(tiny_checkpoint("idefics3"), PromptSpec())
    wide = codec.tokenizer.decode(list(codec._tokens_of(screen(codec, 2)).token_ids))
    tiles = "<image>" * 4
    assert wide == (
        f"<fake_token_around_image><row_1_col_1>{tiles}<fake_token_around_image><row_1_col_2>{tiles}\n"
        f"\n<fake_token_around_image><global-img>{tiles}<fake_token_around_image>"
    )


@pytest.mark.parametrize(
    ("family", "end"),
    [("idefics3", "<end_of_utterance>"), ("gemma3", "<end_of_turn>"), ("qwen3_vl", "<|im_end|>")],
)
def test_an_answer_ends_as_the_chat_template_ends_it(tiny_checkpoint: Maker, family: str, end: str) -> None:
    codec = load_vlm_codec(tiny_checkpoint(family), PromptSpec())
    frame = screen(codec, 0).frame
    said = codec.encode_action("wait()", "", frame)
    assert codec.tokenizer.decode(said) == f"Action: wait(){end}"
    assert len(codec.end_ids) == 2
    for last in codec.end_ids:
        assert codec.decode_action([*said[:-1], last], "", frame) == "wait()"
    asked = request(codec, 1)
    told = codec.tokenizer.decode(list(codec.prompt(asked, screens(codec, asked)).token_ids))
    assert told.count(f"Action: wait(){end}") == 1


def test_a_template_that_alternates_is_told_that_screenshots_are_left_out(tiny_checkpoint: Maker) -> None:
    for family, is_told in (("gemma3", True), ("internvl", False)):
        codec = load_vlm_codec(tiny_checkpoint(family), FEW)
        asked = request(codec, 4)
        prompt = codec.prompt(asked, screens(codec, asked))
        text = codec.tokenizer.decode(list(prompt.token_ids))
        assert len(prompt.images) == 2
        assert text.count("Action: wait()") == 4
        assert text.count(PLACEHOLDER_TURN) == (2 if is_told else 0)


def test_a_text_begins_as_the_tokenizer_begins_texts_once(tiny_checkpoint: Maker, tmp_path: Path) -> None:
    family = FAMILIES["gemma3"]
    plain = dataclasses.replace(family, chat_template=family.chat_template.replace("{{ bos_token }}", ""))
    for name, one in (("written", family), ("added", plain)):
        make_tiny(tmp_path / name, "gemma3", one)
        with_beginning(tmp_path / name)
        codec = load_vlm_codec(tmp_path / name, PromptSpec())
        asked = request(codec, 0)
        text = codec.tokenizer.decode(list(codec.prompt(asked, screens(codec, asked)).token_ids))
        assert text.startswith("<bos><start_of_turn>user\n")
        assert text.count("<bos>") == 1


def with_beginning(folder: Path) -> None:
    """Its tokenizer puts the first token before any text."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", tokenizer.bos_token_id)]
    )
    tokenizer.save_pretrained(folder)


# ---- points ----


@pytest.mark.parametrize(
    ("family", "points", "said"),
    [
        ("qwen2_vl", "auto", "(500,500)"),
        ("qwen2_5_vl", "auto", "(84,112)"),
        ("qwen3_vl", "auto", "(500,500)"),
        ("internvl", "auto", "(500,500)"),
        ("idefics3", "auto", "(80,105)"),
        ("gemma3", "auto", "(80,105)"),
        ("idefics3", "thousandths", "(500,500)"),
        ("qwen3_vl", "screen", "(80,105)"),
        ("qwen3_vl", "image", "(80,112)"),
    ],
)
def test_points_are_said_as_the_family_was_taught(
    tiny_checkpoint: Maker, family: str, points: Any, said: str
) -> None:
    codec = load_codec(tiny_checkpoint(family), PromptSpec(context=ContextSettings(points=points)))
    assert isinstance(codec, VisionLanguageCodec)
    frame = screen(codec, 0).frame
    tokens = codec.encode_action("click(start_box='(80,105)')", "", frame)
    assert said in codec.tokenizer.decode(tokens)
    assert codec.decode_action(tokens, "", frame) == "click(start_box='(80,105)')"


def test_the_prompt_says_what_points_are(tiny_checkpoint: Maker) -> None:
    told = []
    for family in ("qwen3_vl", "idefics3"):
        codec = load_vlm_codec(tiny_checkpoint(family), PromptSpec())
        asked = request(codec, 0)
        told.append(codec.tokenizer.decode(list(codec.prompt(asked, screens(codec, asked)).token_ids)))
    assert "Points are thousandths of the last screenshot's width and height." in told[0]
    assert "Points are pixels of the last screenshot." in told[1]


# ---- what is refused ----


Change = Callable[[Path], object]


def refused(folder: Path, tmp_path: Path, change: Change) -> str:
    """What is said of the checkpoint after the change."""
    shutil.copytree(folder, tmp_path / "changed")
    change(tmp_path / "changed")
    with pytest.raises(UnsupportedCheckpoint) as said:
        load_vlm_codec(tmp_path / "changed", PromptSpec())
    return str(said.value)


def with_template(template: str) -> Change:
    return lambda folder: (folder / "chat_template.jinja").write_text(template)


def without(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            without("chat_template.jinja"),
            "has no chat template, neither in its processor nor in its tokenizer",
        ),
        (without("preprocessor_config.json"), "has no image processor that can be used"),
        (
            with_template("{{ messages[0]['content'][0]['text'] }}"),
            "wrote 1 texts and 0 placeholders '<image>'",
        ),
        (
            with_template("{{ raise_exception('Only one message.') }}"),
            "cannot render an episode: Only one message.",
        ),
    ],
)
def test_what_a_checkpoint_lacks_is_named(
    tiny_checkpoint: Maker, tmp_path: Path, change: Change, said: str
) -> None:
    assert said in refused(tiny_checkpoint("idefics3"), tmp_path, change)


def test_an_image_processor_that_transformers_has_renamed_is_named_with_its_new_name(
    tiny_checkpoint: Maker, tmp_path: Path
) -> None:
    def rename(folder: Path) -> None:
        file = folder / "preprocessor_config.json"
        settings = json.loads(file.read_text())
        file.write_text(json.dumps({**settings, "image_processor_type": "Qwen2_5_VLImageProcessor"}))

    said = refused(tiny_checkpoint("qwen2_5_vl"), tmp_path, rename)
    assert "names the image processor Qwen2_5_VLImageProcessor, which" in said
    assert said.endswith('write "Qwen2VLImageProcessor" there')


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        ({"size": {"min_pixels": 3136, "max_pixels": 100_000}}, "got None and None"),
        ({"size": {"longest_edge": 100_000}}, "got None and 100000"),
        ({"size": {"height": 224, "width": 224}}, "got None and None"),
        ({"min_pixels": 200_000, "max_pixels": 100_000}, "got 200000 and 100000"),
        ({"min_pixels": "many", "max_pixels": 100_000}, "got 'many' and 100000"),
        ({"min_pixels": 0, "max_pixels": 0}, "got 0 and 0"),
    ],
)
def test_bounds_of_an_image_that_no_image_can_keep_are_named(
    tiny_checkpoint: Maker, tmp_path: Path, bounds: dict[str, Any], said: str
) -> None:
    def only_these_bounds(folder: Path) -> None:
        file = folder / "preprocessor_config.json"
        settings = json.loads(file.read_text())
        for name in ("size", "min_pixels", "max_pixels"):
            del settings[name]
        file.write_text(json.dumps({**settings, **bounds}))

    found = refused(tiny_checkpoint("qwen2_5_vl"), tmp_path, only_these_bounds)
    assert "preprocessor_config.json" in found
    assert "min_pixels and max_pixels" in found
    assert said in found


def test_a_tokenizer_without_the_placeholder_is_named(tiny_checkpoint: Maker, tmp_path: Path) -> None:
    def other_placeholder(folder: Path) -> None:
        path = folder / "processor_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"image_token": "<picture of it>"}))

    said = refused(tiny_checkpoint("llava_onevision"), tmp_path, other_placeholder)
    assert "expected the image placeholder '<picture of it>' to be one token" in said


class Processor:
    """One that makes of a picture what it is told to."""

    image_token = "<image>"

    def __init__(self, makes: Callable[[str], dict[str, Any]]) -> None:
        self.tokenizer = SimpleNamespace(encode=lambda *_, **__: [7], eos_token="</s>")
        self._makes = makes

    def __call__(self, *, text: list[str], **_: Any) -> dict[str, Any]:
        ones = np.ones((len(text), 1), dtype=int)
        return {"input_ids": 7 * ones, "attention_mask": ones, **self._makes(text[0])}


@pytest.mark.parametrize(
    ("makes", "said"),
    [
        (
            lambda text: {"pixel_values": np.ones(3), "places": np.ones(len(text))},
            "makes places from the position",
        ),
        (lambda text: {"attention_mask": np.ones(1)}, "makes no tensors of an image"),
        (lambda text: {"pixel_values": text.shape}, "cannot prepare a blank image of 448 px"),
    ],
)
def test_a_processor_that_cannot_be_driven_with_tokens_is_named(
    makes: Callable[[str], dict[str, Any]], said: str
) -> None:
    with pytest.raises(UnsupportedCheckpoint, match=said):
        ImageEncoder(Processor(makes), None)


def test_a_picture_that_is_spelled_out_otherwise_than_its_size_says_is_no_input() -> None:
    tokens = [1]
    pictures = ImageEncoder(
        Processor(lambda _: {"pixel_values": np.ones(3), "attention_mask": np.ones((1, tokens[0]))}), None
    )
    seen = Screen("", np.zeros((9, 8, 3), dtype=np.uint8), frame_of(8, 9, None, "screen"))
    assert set(pictures.inputs([seen])) == {"pixel_values"}
    tokens[0] = 3
    with pytest.raises(ValueError, match=r"made 3 tokens of an image of 8x9 px, but 1"):
        pictures.inputs([seen])
