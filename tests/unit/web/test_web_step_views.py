"""An episode as it is shown."""

import json
from dataclasses import replace
from pathlib import Path

from dart.core.types import PromptImage
from dart.testing.trajectories import step_at
from dart.web.step_views import first_difference, token_texts, views

STEPS = (step_at(3, 0), step_at(4, 1))


def test_a_step_is_as_old_as_the_trainer_was_ahead() -> None:
    shown = views(STEPS, lambda _: (160, 210), {}, trained_version=6)

    assert [(step.step.policy_version, step.staleness) for step in shown] == [(3, 2), (4, 1)]
    assert [step.staleness for step in views(STEPS, lambda _: None, {}, None)] == [None, None]


def test_tokens_show_how_sure_the_policy_was() -> None:
    (shown, _) = views(STEPS, lambda _: (160, 210), {7: "<click>"}, None)

    assert [token.text for token in shown.tokens] == ["<click>", "#70000", "#2"]
    assert [token.tone for token in shown.tokens] == ["p4", "p3", "p4"]
    assert shown.probability is not None
    assert 0.64 < shown.probability < 0.65


def test_a_step_shows_how_many_tokens_its_prompt_has_with_those_of_its_images() -> None:
    """One placeholder in the prompt stands for all tokens of an image."""
    images = (PromptImage(sha256="a", tokens=300), PromptImage(sha256="b", tokens=1))

    plain, with_images = views((STEPS[0], replace(STEPS[1], images=images)), lambda _: None, {}, None)

    assert (plain.prompt_tokens, with_images.prompt_tokens) == (20, 20 + 299)


def test_a_step_of_an_unknown_policy_has_no_tokens() -> None:
    unknown = replace(STEPS[0], logprobs=(), entropies=())

    (shown,) = views([unknown], lambda _: (160, 210), {}, None)

    assert (shown.tokens, shown.entropy, shown.probability) == ((), None, None)


def test_two_episodes_differ_from_the_first_step_that_is_not_the_same() -> None:
    other = replace(STEPS[1], answer="wait()")

    assert first_difference(STEPS, STEPS) is None
    assert first_difference(STEPS, (STEPS[0], other)) == 2
    assert first_difference(STEPS, STEPS[:1]) == 2


def test_what_tokens_say_is_read_from_the_tokenizer(tmp_path: Path) -> None:
    content = {
        "model": {"vocab": {"Ġon": 7, "x": 8}},
        "added_tokens": [{"id": 0, "content": "<pad>"}],
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))

    assert token_texts(tmp_path) == {7: "␣on", 8: "x", 0: "<pad>"}


def test_a_tokenizer_of_another_kind_says_nothing(tmp_path: Path) -> None:
    assert token_texts(tmp_path) == {}
    (tmp_path / "tokenizer.json").write_text('{"model": {"vocab": [["a", -1.0]]}}')
    assert token_texts(tmp_path) == {}
