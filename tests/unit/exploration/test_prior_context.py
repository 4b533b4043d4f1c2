"""The text that tells a model what is left on a screen and what was tried there."""

import pytest

from dart.core.exploration import Candidate, Effect, ExploreAct
from dart.exploration.model_prior import INSTRUCTION
from dart.exploration.prior_context import (
    CANDIDATES_MOST,
    NO_CONTEXT,
    OUTCOMES,
    TRIED_HEAD,
    TRIES_MOST,
    UNTRIED_HEAD,
    WORDS_MOST,
    context_of,
    described,
)
from dart.policy.vocabulary import quoted_spans
from tests.unit.exploration.screens import click

MUCH = 100_000


def tried(*texts: str, effect: Effect = Effect.NO_CHANGE) -> list[tuple[Candidate, Effect]]:
    return [(click(text), effect) for text in texts]


def test_the_text_lists_what_is_left_and_then_what_was_tried_with_its_outcome() -> None:
    left = [
        click("Cart"),
        Candidate(act=ExploreAct.TYPE, role="textbox", text="Search"),
        Candidate(act=ExploreAct.SUBMIT, role="textbox", text="Search"),
        Candidate(act=ExploreAct.SCROLL_DOWN),
    ]
    done = [(click("Help"), Effect.NEW_SHAPE), (click(""), Effect.NO_CHANGE)]
    context = context_of(left, done, MUCH)
    assert context.tried == 2
    assert context.text == (
        "\nNot tried on this screen:"
        "\n- click button 'Cart'"
        "\n- type into textbox 'Search'"
        "\n- type into textbox 'Search' and press Enter"
        "\n- scroll down"
        "\nTried on this screen, the newest first:"
        "\n- click button 'Help': a new kind of screen"
        "\n- click button: nothing changed"
    )


def test_every_effect_has_an_outcome_in_words() -> None:
    assert set(OUTCOMES) == set(Effect)
    assert len(set(OUTCOMES.values())) == len(Effect)


def test_a_list_without_entries_has_no_heading() -> None:
    assert TRIED_HEAD not in context_of([click("Cart")], (), MUCH).text
    assert UNTRIED_HEAD not in context_of((), tried("Cart"), MUCH).text
    assert context_of((), (), MUCH) == NO_CONTEXT


def test_of_many_entries_the_first_of_each_list_are_told() -> None:
    names = [f"number {index}" for index in range(30)]
    lines = context_of(list(map(click, names)), tried(*names), MUCH).text.splitlines()
    assert len(lines) == 1 + 2 + CANDIDATES_MOST + TRIES_MOST
    assert f"- click button 'number {CANDIDATES_MOST - 1}'" in lines
    assert lines[-1] == f"- click button 'number {TRIES_MOST - 1}': nothing changed"


def test_the_same_words_are_told_once() -> None:
    text = context_of([click("Delete", row) for row in range(5)], tried("Delete", "Delete"), MUCH).text
    assert text.count("Delete") == 2


@pytest.mark.parametrize("most_bytes", [0, 40, 48, 100, 200, 400, 1000, 5000])
@pytest.mark.parametrize("word", ["Orders", "注文履歴", 'it\'s "so"', "🙂🙂"])
def test_the_text_is_never_larger_than_its_limit(word: str, most_bytes: int) -> None:
    names = [f"{word} {index}" for index in range(20)]
    text = context_of(list(map(click, names)), tried(*names), most_bytes).text
    assert len(text.encode()) <= most_bytes


def test_what_is_left_out_are_the_last_entries_of_both_lists() -> None:
    names = [f"number {index}" for index in range(8)]
    whole = context_of(list(map(click, names)), tried(*names), MUCH).text.splitlines()
    split = whole.index(TRIED_HEAD)
    sizes = []
    for most_bytes in range(0, 800, 7):
        lines = context_of(list(map(click, names)), tried(*names), most_bytes).text.splitlines()
        at = lines.index(TRIED_HEAD) if TRIED_HEAD in lines else len(lines)
        assert lines[:at] == whole[:at]
        assert lines[at:] == whole[split : split + len(lines) - at]
        sizes.append(len(lines))
        assert len(lines) - at <= max(1, at - 1)  # no more tries than candidates, whatever the limit
    assert (sizes[0], sizes[-1]) == (0, len(whole))


def test_a_limit_of_two_thousand_bytes_holds_all_entries_in_plain_letters() -> None:
    names = [f"{index:02}{'x' * WORDS_MOST}" for index in range(20)]
    left = [Candidate(act=ExploreAct.SUBMIT, role="textbox", text=name) for name in names]
    lines = context_of(left, tried(*names), 2000).text.splitlines()
    assert len(lines) == 1 + 2 + CANDIDATES_MOST + TRIES_MOST


def test_quotes_of_the_page_are_escaped_and_make_no_span_that_the_small_policy_copies() -> None:
    words = described(click('Don\'t "ask" C:\\'))
    assert words == r"click button 'Don\'t \'ask\' C:\\'"
    text = context_of([click('"one"'), click('say "two" now')], tried('"three"'), MUCH).text
    assert quoted_spans(INSTRUCTION + text) == ()


def test_a_text_of_the_page_cannot_begin_a_line_or_hide_characters() -> None:
    broken = "Cart\n- click button 'Buy': a new screen\r\u2028\u202ex\u200b\ud83d"
    text = context_of([click(broken)], (), MUCH).text
    assert text.splitlines() == [
        "",
        UNTRIED_HEAD,
        r"- click button 'Cart - click button \'Buy\': a new scre...'",
    ]
    assert described(click("a\u202eb\ud83d\ue0000\ue001")) == "click button 'a b 0'"
    role = Candidate(act=ExploreAct.CLICK, role="x'\n" + "y" * 99, text="ok")
    assert described(role) == rf"click x\' {'y' * 14}... 'ok'"


def test_a_long_text_is_cut() -> None:
    cut = described(click("x" * (WORDS_MOST + 1)))
    assert cut == f"click button '{'x' * (WORDS_MOST - 3)}...'"
    assert described(click("x" * WORDS_MOST)) == f"click button '{'x' * WORDS_MOST}'"


def test_the_same_screen_gives_the_same_text() -> None:
    names = [f"number {index}" for index in range(20)]
    made = [context_of(list(map(click, names)), tried(*names), 300) for _ in range(3)]
    assert made[0] == made[1] == made[2]
