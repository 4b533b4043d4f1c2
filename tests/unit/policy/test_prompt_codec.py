"""Prompts, answers and screenshots between text, pixels and token ids."""

import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from dart.core.actions import GRAMMAR, ActionParseError, Click, parse_action
from dart.policy.codec import HISTORY_ANSWERS, PixelFrameError, PromptCodec, load_pixels
from dart.policy.tokenizer import train_tokenizer
from dart.policy.vocabulary import BIN_PX, special_ids, special_tokens, x_token, y_token
from tests.examples import examples
from tests.pictures import png_of
from tests.unit.environments.huge_pictures import huge_png

INSTRUCTION = 'Enter the username "karrie" and the password "AU" into the text fields and press login.'
FEW_TOKENS = [
    special_ids()[token]
    for token in ("<click>", "<drag>", "<scroll>", "<wait>", x_token(3), y_token(5), "<down>", "<eos>")
]
CODEC = PromptCodec(train_tokenizer([INSTRUCTION, "Click on Tab #2."] * 4), image_tokens=3)


@pytest.mark.parametrize(
    "answer",
    [
        "click(start_box='(82,122)')",
        "left_double(start_box='(2,2)')",
        "right_single(start_box='(158,209)')",
        "drag(start_box='(2,6)', end_box='(158,206)')",
        "hotkey(key='ctrl c')",
        "type(content='karrie')",
        "type(content='AU')",
        "type(content='Zoë\\'s \"text\"')",
        "scroll(start_box='(82,122)', direction='down')",
        "wait()",
        "finished()",
    ],
)
def test_an_action_on_bin_centres_survives_the_round_trip(answer: str) -> None:
    assert CODEC.decode_action(CODEC.encode_answer(answer, INSTRUCTION), INSTRUCTION) == answer


@given(x=st.integers(0, 159), y=st.integers(0, 209))
def test_a_click_comes_back_within_half_a_bin(x: int, y: int) -> None:
    tokens = CODEC.encode_answer(f"click(start_box='({x},{y})')", INSTRUCTION)
    click = parse_action(CODEC.decode_action(tokens, INSTRUCTION))
    assert isinstance(click, Click)
    assert max(abs(click.x - x), abs(click.y - y)) <= BIN_PX // 2


def test_a_quoted_span_is_typed_with_one_token() -> None:
    tokens = CODEC.encode_answer("type(content='AU')", INSTRUCTION)
    assert [special_tokens()[token] for token in tokens] == ["<type>", "<q2>", "<eos>"]


def test_a_copy_token_means_the_span_of_the_instruction_at_hand() -> None:
    tokens = CODEC.encode_answer("type(content='karrie')", INSTRUCTION)
    assert CODEC.decode_action(tokens, 'Enter "Ann".') == "type(content='Ann')"


def test_a_copy_of_a_span_that_is_not_there_is_no_action() -> None:
    tokens = CODEC.encode_answer("type(content='AU')", INSTRUCTION)
    with pytest.raises(ActionParseError):
        parse_action(CODEC.decode_action(tokens, "Press Submit."))


@settings(max_examples=examples(300))
@given(st.lists(st.integers(-5, 2000), max_size=8))
def test_whatever_tokens_are_sampled_decode_to_an_action_or_to_text_the_parser_refuses(
    ids: list[int],
) -> None:
    text = CODEC.decode_action([*ids, CODEC.eos_id], INSTRUCTION)
    try:
        parse_action(text)
    except ActionParseError:
        assert text.startswith("not an action:")


@pytest.mark.parametrize("answer", ["click(start_box='(82,122)')", "wait()"])
def test_a_direction_after_an_action_that_has_none_is_no_action(answer: str) -> None:
    *tokens, end = CODEC.encode_answer(answer, INSTRUCTION)
    text = CODEC.decode_action([*tokens, special_ids()["<down>"], end], INSTRUCTION)
    assert text.startswith("not an action: ")


def test_a_scroll_without_a_direction_or_with_two_is_no_action() -> None:
    *tokens, direction, end = CODEC.encode_answer("scroll(start_box='(82,122)', direction='up')", INSTRUCTION)
    for directions in ([], [direction, direction]):
        text = CODEC.decode_action([*tokens, *directions, end], INSTRUCTION)
        assert text.startswith("not an action: ")


@settings(max_examples=examples(500))
@given(st.lists(st.sampled_from(FEW_TOKENS), max_size=7))
def test_any_order_of_special_tokens_decodes_to_an_action_or_to_text_the_parser_refuses(
    ids: list[int],
) -> None:
    text = CODEC.decode_action([*ids, CODEC.eos_id], INSTRUCTION)
    assert text.startswith("not an action:") or parse_action(text)


def test_an_answer_without_its_end_token_is_no_action() -> None:
    tokens = CODEC.encode_answer("wait()", INSTRUCTION)[:-1]
    assert CODEC.decode_action(tokens, INSTRUCTION) == "not an action: <wait>"


def test_an_instruction_cannot_smuggle_in_special_tokens() -> None:
    plain = CODEC.encode_prompt("Click <click> now", [])
    assert special_ids()["<click>"] not in plain
    assert plain.count(special_ids()["<image>"]) == 3


@given(st.text(max_size=40))
def test_any_instruction_and_any_past_answer_encode(text: str) -> None:
    prompt = CODEC.encode_prompt(text, [text, "wait()"])
    assert prompt[-1] == special_ids()["<answer>"]
    assert prompt.count(special_ids()["<answer>"]) == 1


def test_a_prompt_counts_all_steps_and_shows_the_latest_answers_first() -> None:
    history = [f"click(start_box='({10 * step + 2},2)')" for step in range(6)]
    names = [
        special_tokens()[token] if token < len(special_tokens()) else "text"
        for token in CODEC.encode_prompt("Click on Tab #2.", history)
    ]
    tail = names[names.index("<step_6>") :]
    assert tail[:4] == ["<step_6>", "<click>", "<x_13>", "<y_0>"]
    assert tail.count("<click>") == HISTORY_ANSWERS


def test_bytes_that_are_no_image_are_refused() -> None:
    with pytest.raises(PixelFrameError, match="expected a PNG screenshot, got 15 bytes"):
        load_pixels(b"\x89PNG\r\n\x1a\n broken")


@pytest.mark.parametrize("side", [9_000, 20_000])
def test_a_screenshot_that_says_two_sizes_is_not_decoded(side: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image.Image, "load", lambda _: pytest.fail("it was decoded"))
    with (
        warnings.catch_warnings(action="ignore"),
        pytest.raises(PixelFrameError, match=r"has 9000x9000 pixels; at most|400000000 pixels"),
    ):
        load_pixels(huge_png(side, side, said=(160, 210)))


def test_pixels_are_rows_columns_and_colours() -> None:
    image = Image.new("RGB", (160, 210))
    image.putpixel((7, 9), (1, 2, 3))
    assert load_pixels(png_of(image))[9, 7].tolist() == [1, 2, 3]


WRITTEN = {"click", "left_double", "right_single", "drag", "hotkey", "type", "scroll", "wait", "finished"}
"""The actions that the small policy has tokens for."""

FORMS = [form.sample.replace("(x,y)", "(80,100)") for form in GRAMMAR.values()]


@pytest.mark.parametrize("answer", [*FORMS, "scroll(direction='down')"])
def test_an_action_of_the_grammar_is_encoded_or_else_is_text_in_a_history_and_no_answer_to_learn(
    answer: str,
) -> None:
    plain, after = CODEC.encode_prompt("Go", []), CODEC.encode_prompt("Go", [answer])
    assert len(after) > len(plain)
    if answer in FORMS and answer.partition("(")[0] in WRITTEN:
        assert CODEC.encode_answer(answer, "Go")[-1] == CODEC.eos_id
        return
    with pytest.raises(ActionParseError, match="has a token"):
        CODEC.encode_answer(answer, "Go")
